"""The guard: whoever has no business here is refused, and nothing changes."""

from __future__ import annotations

import socket

import pytest

from helpers.page_visitor import Visitor
from tacit.errors import FieldError
from tacit.field.device import Device
from tacit.web.device_view import MOST_UPLOAD, DeviceView
from tacit.web.guard import HEADERS, SMALL, Door
from tacit.web.own import person_page
from tacit.web.server import serve_page

pytestmark = pytest.mark.slow

PAGES = ("/", "/history", "/sharing", "/sent", "/mine", "/mine/data.json", "/mine/device.tacit")


def test_without_the_cookie_nothing_is_shown(visitor: Visitor) -> None:
    for path in PAGES:
        for cookie in (None, f"{visitor.door.cookie_name}=guess", f"{visitor.door.cookie_name}={Door(1).cookie}"):
            answer = visitor.get(path, Cookie=cookie)
            assert answer.status == 403
            assert "Benedetta" not in answer.html
        assert visitor.get(path).status == 200


def test_the_start_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(visitor: Visitor) -> None:
    path = visitor.door.link.partition(visitor.host)[2]
    answer = visitor.get(path, Cookie=None)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert visitor.door.token not in cookie
    assert visitor.get("/", Cookie=cookie.partition(";")[0]).status == 200
    wrong = visitor.get("/?key=" + "x" * 43, Cookie=None)
    assert (wrong.status, "set-cookie" in wrong.headers) == (403, False)


def test_a_name_that_was_made_to_point_here_is_refused(visitor: Visitor) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1", "0.0.0.0:1", "", None):
        answer = visitor.get("/", Host=host)
        assert answer.status in (400, 421)
        assert "Benedetta" not in answer.html


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "", None])
def test_another_site_changes_nothing(origin: str | None, visitor: Visitor, device: Device) -> None:
    before = device.readable()
    for path in ("/mine/pause", "/mine/leave", "/history/remove", "/sharing/save", "/mine/erase"):
        answer = visitor.post(path, {"item": "place-0001-bar", "pi": "100", "word": "erase"}, Origin=origin)
        assert answer.status == 403
    assert device.readable() == before
    assert device.membership is not None


def test_another_site_cannot_read_even_with_the_cookie(visitor: Visitor) -> None:
    assert visitor.get("/history", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert visitor.get("/history", **{"Sec-Fetch-Site": "same-origin"}).status == 200


def test_only_get_and_post_are_known(visitor: Visitor) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert visitor.ask(method, "/").status == 405
    assert visitor.post("/").status == 405
    assert visitor.get("/mine/erase").status == 405


def test_every_answer_is_sealed(visitor: Visitor) -> None:
    for path in (*PAGES, "/nowhere", "/static/style.css"):
        for answer in (visitor.get(path), visitor.get(path, Cookie=None)):
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
            serve_page(person_page(DeviceView(device)), port, print)
