"""Downloads against a real server on this machine: resumed, checked, never half-written."""

from __future__ import annotations

import errno
import hashlib
import io
import resource
import socket
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.waiting import LONG
from tacit.data import datasets, fetch, load, sources
from tacit.data.download import Remote, cache_folder, download
from tacit.errors import DataError, DownloadError

pytestmark = pytest.mark.slow

BODY = bytes(range(256)) * 4096  # 1 MiB
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()


class Server:
    """A web server that can cut its answers short, and remembers what it was asked."""

    def __init__(self):
        self.bodies, self.cuts, self.ranges, self.knows_ranges = {"/file.bin": BODY}, [], [], True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                body = outer.bodies.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and outer.knows_ranges else 0
                if start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                self.wfile.write(body[start : start + outer.cuts.pop(0)] if outer.cuts else body[start:])

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server():
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_with_progress(server, tmp_path):
    seen = []
    remote = Remote(f"{server.url}/file.bin", "file.bin", MD5)
    path = download(remote, tmp_path / "cache", lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert left(tmp_path / "cache") == ["file.bin"]
    download(remote, tmp_path / "cache")
    assert len(server.ranges) == 1


def test_a_cut_connection_is_resumed_where_it_stopped(server, tmp_path):
    server.cuts = [300_000, 100_000]
    path = download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=300000-", "bytes=400000-"]


def test_a_later_call_goes_on_where_the_last_one_stopped(server, tmp_path):
    server.cuts = [100_000] * 2
    remote = Remote(f"{server.url}/file.bin", "file.bin", MD5)
    with pytest.raises(DownloadError, match="the connection was cut"):
        download(remote, tmp_path, attempts=2)
    assert left(tmp_path) == ["file.bin.part"]
    assert download(remote, tmp_path).read_bytes() == BODY
    assert server.ranges[-1] == "bytes=200000-"
    assert left(tmp_path) == ["file.bin"]


def test_a_server_without_ranges_is_asked_for_all_of_it(server, tmp_path):
    server.cuts, server.knows_ranges = [1000], False
    assert download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path).read_bytes() == BODY


def test_a_part_that_is_already_complete(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY)
    assert download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_is_reported_and_the_file_removed(server, tmp_path):
    wrong = "sha256:" + "0" * 64
    with pytest.raises(DownloadError) as error:
        download(Remote(f"{server.url}/file.bin", "file.bin", wrong), tmp_path)
    assert f"expected {wrong}, got sha256:{hashlib.sha256(BODY).hexdigest()}" in str(error.value)
    assert left(tmp_path) == []


def test_without_a_checksum_the_first_one_is_kept(server, tmp_path):
    remote = Remote(f"{server.url}/file.bin", "file.bin")
    path = download(remote, tmp_path)
    assert (tmp_path / "file.bin.sha256").read_text().strip() == hashlib.sha256(BODY).hexdigest()
    path.unlink()
    server.bodies["/file.bin"] = b"something else"
    with pytest.raises(DownloadError, match="wrong checksum"):
        download(remote, tmp_path)


def test_a_page_instead_of_an_archive_is_refused(server, tmp_path):
    server.bodies["/a.zip"] = server.bodies["/a.csv"] = b"<!DOCTYPE html><html>Sign in</html>"
    for name in ("a.zip", "a.csv"):
        with pytest.raises(DownloadError, match="did not send an archive"):
            download(Remote(f"{server.url}/{name}", name), tmp_path)
    assert left(tmp_path) == []


def test_no_network(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=r"cannot be fetched: .*refused.*TACIT_DATA"):
        download(Remote(f"http://127.0.0.1:{port}/x.zip", "x.zip", MD5), tmp_path)
    assert left(tmp_path) == []


def test_a_server_without_an_answer_is_given_up(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(DownloadError, match="timed out"):
            download(Remote(f"http://127.0.0.1:{silent.getsockname()[1]}/x", "x", MD5), tmp_path, timeout=0.2)


def test_a_file_that_is_gone(server, tmp_path):
    with pytest.raises(DownloadError, match="answers 404"):
        download(Remote(f"{server.url}/nothing", "nothing", MD5), tmp_path)
    assert left(tmp_path) == []


def test_a_full_disk_is_reported_and_leaves_nothing(server, tmp_path):
    """A child whose files may not grow beyond 200 kB meets the same error in the middle of writing."""
    code = f"""
import resource, signal
from pathlib import Path
from tacit.data.download import Remote, download
from tacit.errors import DownloadError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    download(Remote("{server.url}/file.bin", "file.bin", "{MD5}"), Path("{tmp_path}"))
except DownloadError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG)
    assert "The disk is full" in told.stdout, told.stderr
    assert "TACIT_CACHE" in told.stdout
    assert left(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 200_000


def test_too_little_room_is_noticed_before_anything_is_written(server, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.data.download.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(DownloadError, match="The disk is full"):
        download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path)
    assert left(tmp_path) == []


def test_a_folder_one_may_not_write_to(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="cannot be stored"):
        download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path / "file")


def test_other_errors_of_the_disk_are_not_called_full(server, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("tacit.data.download.os.fsync", fail)
    with pytest.raises(DownloadError, match="Input/output error"):
        download(Remote(f"{server.url}/file.bin", "file.bin", MD5), tmp_path)


def test_a_named_dataset_comes_from_its_home_into_the_cache(server, tmp_path, monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t3\t881250949\n1\t3\t4\t881250950\n")
    server.bodies["/ml-100k.zip"] = packed.getvalue()
    source = sources.SOURCES["ml-100k"]
    remote = Remote(f"{server.url}/ml-100k.zip", "ml-100k.zip", "md5:" + hashlib.md5(packed.getvalue()).hexdigest())
    monkeypatch.setitem(sources.SOURCES, "ml-100k", type(source)(**{**vars(source), "files": (remote,)}))
    state = {status.name: status.state for status in datasets()}
    assert (state["ml-100k"], state["yahoo-movies"], state["town"]) == ("download", "ask", "built in")
    assert len(load("ml-100k")) == 2
    assert {status.name: status.state for status in datasets()}["ml-100k"] == "cached"
    assert fetch("ml-100k").folder == cache_folder() / "ml-100k"
    assert len(server.ranges) == 1


def test_unknown_names_cannot_be_fetched():
    with pytest.raises(DataError, match="Did you mean 'ml-1m'"):
        fetch("ml1m")


def test_every_named_dataset_says_where_it_comes_from():
    for source in sources.SOURCES.values():
        assert source.home.startswith("http")
        assert source.licence.endswith(".")
        assert source.citation
        assert source.files or source.ask
        for remote in source.files:
            assert remote.checksum == "" or remote.checksum.split(":")[0] in ("md5", "sha256")
