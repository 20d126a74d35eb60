"""The guard: whoever has no business here is refused, and nothing changes."""

from __future__ import annotations

import re
import socket

import pytest

from helpers.page_visitor import Visitor
from helpers.waiting import LONG
from tacit.errors import FieldError
from tacit.field.device import Device
from tacit.web.device_view import MOST_UPLOAD, DeviceView
from tacit.web.guard import HEADERS, SMALL, PageAddress
from tacit.web.own import build_user_page
from tacit.web.server import serve_page

pytestmark = pytest.mark.slow

PAGES = ("/", "/history", "/sharing", "/sent", "/mine", "/mine/data.json", "/mine/device.tacit")


def test_without_the_secret_path_nothing_is_shown(visitor: Visitor) -> None:
    for path in PAGES:
        for base in ("", "/guess", PageAddress(1).base, visitor.base[:-1], visitor.base.upper(), f"/{visitor.base}"):
            answer = visitor.without_path(base).get(path, Cookie=f"tacit={visitor.address.secret}")
            assert answer.status == 403
            assert "Benedetta" not in answer.html
        assert visitor.get(path).status == 200


def test_the_start_link_works_once_and_leads_to_the_secret_path(visitor: Visitor) -> None:
    path, outside = visitor.address.link.partition(visitor.host)[2], visitor.without_path()
    assert outside.ask("HEAD", path).status == 403
    assert outside.get("/?key=" + "x" * 43).status == 403
    answer = outside.get(path)
    assert answer.status == 200
    assert f'href="{visitor.base}/"' in answer.html
    again = outside.get(path)
    assert (again.status, visitor.base in again.html) == (403, False)
    assert visitor.get("/").status == 200


def test_no_cookie_is_ever_set_so_that_no_other_port_receives_one(visitor: Visitor) -> None:
    answers = [visitor.without_path().get(visitor.address.link.partition(visitor.host)[2])]
    answers += [visitor.get(path) for path in PAGES]
    answers.append(visitor.post("/mine/pause"))
    assert not any("set-cookie" in answer.headers for answer in answers)
    assert all(answer.headers["referrer-policy"] == "same-origin" for answer in answers)
    assert visitor.address.secret not in visitor.address.link
    assert visitor.address.secret not in repr(visitor.address)


def test_links_and_redirects_stay_below_the_secret_path(visitor: Visitor) -> None:
    raw = visitor.without_path()
    for path in ("/", "/history", "/sharing", "/sent", "/mine", "/nowhere"):
        html = raw.get(visitor.base + path).html
        links = re.findall(r'(?:href|action|src|data-wait)="(/[^"]*)"', html)
        assert links
        assert all(link.startswith((visitor.base + "/", "/static/")) for link in links), path
    moved = raw.post(visitor.base + "/mine/pause")
    assert (moved.status, moved.headers["location"]) == (303, visitor.base + "/mine")


def test_a_name_that_was_made_to_point_here_is_refused(visitor: Visitor) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1", "0.0.0.0:1", "", None):
        answer = visitor.get("/", Host=host)
        assert answer.status in (400, 421)
        assert "Benedetta" not in answer.html


@pytest.mark.parametrize("target", ["x", "*", "http://127.0.0.1/", "//", "/%00"])
def test_a_target_that_is_no_path_is_refused(target: str, visitor: Visitor) -> None:
    with socket.create_connection(("127.0.0.1", visitor.address.port), timeout=LONG) as line:
        line.sendall(f"GET {target} HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n".encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "", None])
def test_another_site_changes_nothing(origin: str | None, visitor: Visitor, device: Device) -> None:
    before = device.readable()
    for path in ("/mine/pause", "/mine/leave", "/history/remove", "/sharing/save", "/mine/erase"):
        answer = visitor.post(path, {"item": "place-0001-bar", "pi": "100", "word": "erase"}, Origin=origin)
        assert answer.status == 403
    assert device.readable() == before
    assert device.membership is not None


def test_another_site_cannot_read_even_with_the_path(visitor: Visitor) -> None:
    assert visitor.get("/history", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert visitor.get("/history", **{"Sec-Fetch-Site": "same-origin"}).status == 200


def test_only_get_and_post_are_known(visitor: Visitor) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert visitor.ask(method, "/").status == 405
    assert visitor.post("/").status == 405
    assert visitor.get("/mine/erase").status == 405


def test_every_answer_is_sealed(visitor: Visitor) -> None:
    for path in (*PAGES, "/nowhere", "/static/style.css"):
        for answer in (visitor.get(path), visitor.without_path().get(path)):
            for name, value in HEADERS.items():
                if name != "cache-control":
                    assert answer.headers[name] == value
            assert "server" not in answer.headers
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


TRICKS = (
    "/static/../guard.py",
    "/static/..%2fguard.py",
    "/static/%2e%2e/guard.py",
    "/static/....//guard.py",
    "/static//etc/passwd",
    "/static/page.css",
    "/../../etc/passwd",
    "/mine/../static/style.css",
)


def test_no_path_leads_out(visitor: Visitor) -> None:
    for path in TRICKS:
        answer = visitor.get(path)
        assert answer.status == 404, path
        assert "root:" not in answer.html
        assert "import" not in answer.html


def test_an_upload_is_cut_off_at_its_cap(visitor: Visitor, device: Device) -> None:
    before = device.history.list()
    told = visitor.upload("/history/import", "big.csv", b"title\n" + b"Hill Hotel\n" * (MOST_UPLOAD // 10))
    assert told.status == 413
    assert "32 MB" in told.text
    assert device.history.list() == before
    assert visitor.post("/history/add", {"item": "x" * SMALL}).status == 413
    silent = visitor.post("/history/add", {"item": "x" * SMALL}, **{"Transfer-Encoding": "chunked"})
    assert silent.status == 413, "a length that is not claimed is counted"
    assert device.history.list() == before


def test_a_taken_port_is_one_clear_message(device: Device) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(FieldError, match=f"Port {port} is taken"):
            serve_page(build_user_page(DeviceView(device)), port, print)
