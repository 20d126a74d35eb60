"""A visitor that requests a page over a real socket, with exactly the headers that a test wants."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode

from helpers.small_federation import first_shared, founded, request
from helpers.waiting import LONG
from tacit.field.device import Device
from tacit.web.guard import PageAddress


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        """What a reader sees, roughly."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    def of(self, name: str) -> str:
        """The text inside the element with an id."""
        found = re.search(rf'id="{name}"[^>]*>([^<]*)<', self.html)
        assert found, f"there is no #{name}"
        return unescape(found[1]).strip()


class Visitor:
    """A browser that behaves, unless it is told not to."""

    def __init__(self, address: PageAddress) -> None:
        self.address = address
        self.base = address.base
        self.host = address.hosts[0]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        given: dict[str, str | None] = {"Host": self.host}
        address = path if path.startswith("/static/") else self.base + path
        if method == "POST":
            given["Origin"] = f"http://{self.host}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=LONG)
        try:
            connection.putrequest(method, address, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            chunked = "Transfer-Encoding" in given
            if body is not None and not chunked:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders([body] if chunked and body else body, encode_chunked=chunked)
            response = connection.getresponse()
            found = {name.lower(): value.replace(self.base, "") for name, value in response.getheaders()}
            body_read = response.read()
            return Answer(
                response.status, found, body_read.replace(self.base.encode(), b"") if self.base else body_read
            )
        finally:
            connection.close()

    def without_path(self, base: str = "") -> Visitor:
        """A visitor that does not know the secret path, and tries another."""
        other = Visitor(self.address)
        other.base = base
        return other

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str | None) -> Answer:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields or {}, doseq=True).encode(), **(kind | headers))

    def save_sharing(self, page: Answer | None = None, **fields: str | list[str]) -> Answer:
        """Save what is shared, from a page that was opened some time ago, or now."""
        found = re.search(r'name="shown" value="([^"]*)"', (page or self.get("/sharing")).html)
        assert found
        return self.post("/sharing/save", {"shown": unescape(found[1]), **fields})  # type: ignore[dict-item]

    def agree_to_join(self) -> Answer:
        """Say yes to the question that the page of joining asks."""
        found = re.search(r'name="terms" value="([0-9a-f]{64})"', self.get("/mine/joining").html)
        assert found, "the page asks nothing"
        return self.post("/mine/joining/agree", {"terms": found[1]})

    def upload(self, path: str, name: str, content: bytes) -> Answer:
        head = f'--cut\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        kind = {"Content-Type": "multipart/form-data; boundary=cut"}
        return self.ask("POST", path, head + content + b"\r\n--cut--\r\n", **kind)


def took_part(device: Device, rounds: int) -> None:
    """Answer rounds 0, 1, ... as a coordinator would ask, with a model that does not change."""
    federation = founded()
    for number in range(rounds):
        entry = device.learn(request(federation, number, first_shared(federation)))
        device.release(entry)
        device.answers.mark_sent(entry)
