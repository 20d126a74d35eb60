"""The interface for applications: what it answers, to whom, and that nothing else gets through."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.small_federation import CATALOG, made
from helpers.waiting import LONG
from tacit.errors import ConfigError
from tacit.field.device import Device
from tacit.web.api import MOST_ITEMS, build_api, open_token_file, openapi
from tacit.web.device_view import DeviceView
from tacit.web.guard import SMALL
from tacit.web.server import serving_app

pytestmark = pytest.mark.slow

TOKEN = "t" * 40


class Application:
    """A program on the same machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        given: dict[str, str | None] = {"Authorization": f"Bearer {TOKEN}", "Host": f"127.0.0.1:{self.port}"}
        given |= headers
        text = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request(method, path, text, {name: value for name, value in given.items() if value is not None})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


@pytest.fixture
def application(device: Device) -> Iterator[Application]:
    with serving_app(lambda port: build_api(DeviceView(device), TOKEN, port)) as port:
        yield Application(port)


def test_it_recommends_what_the_device_recommends(application: Application, device: Device) -> None:
    status, found = application.ask("GET", "/v1/recommendations?k=4")
    wanted = [{"item": one.item, "title": one.title, "score": one.score, "why": one.why} for one in device.recommend(4)]
    assert (status, found["recommendations"]) == (200, wanted)


def test_interactions_are_added_listed_and_taken_away(application: Application, device: Device) -> None:
    before = len(device.history)
    new = [item for item in CATALOG.item_ids.labels.tolist() if item not in {one.item for one in device.history.list()}]
    assert application.ask("POST", "/v1/interactions", {"item": new[0], "time": 1_700_000_000, "value": 4.5}) == (
        201,
        {"new": 1},
    )
    assert application.ask("POST", "/v1/interactions", [{"item": new[1]}, {"item": new[0]}])[1] == {"new": 1}
    status, found = application.ask("GET", "/v1/interactions?limit=2")
    assert (status, found["total"], len(found["interactions"])) == (200, before + 2, 2)
    assert {"item": new[0], "time": 1_700_000_000, "value": 4.5} in application.ask("GET", "/v1/interactions")[1][
        "interactions"
    ]
    assert application.ask("DELETE", f"/v1/interactions/{new[0]}")[0] == 200
    assert len(device.history) == before + 1
    assert application.ask("GET", "/v1/status")[1]["interactions"] == before + 1


def test_a_hidden_item_is_not_recommended_again(application: Application) -> None:
    first = application.ask("GET", "/v1/recommendations?k=1")[1]["recommendations"][0]["item"]
    assert application.ask("POST", "/v1/hidden", {"item": first})[0] == 201
    again = application.ask("GET", f"/v1/recommendations?k={MOST_ITEMS}")[1]["recommendations"]
    assert first not in [one["item"] for one in again]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": None}, 401, "token"),
        ({"Authorization": "Bearer " + "t" * 39}, 401, "token"),
        ({"Authorization": "Basic " + TOKEN}, 401, "token"),
        ({"Origin": "https://elsewhere.example"}, 403, "browser"),
        ({"Origin": "null"}, 403, "browser"),
        ({"Sec-Fetch-Site": "same-origin"}, 403, "browser"),
        ({"Host": "elsewhere.example"}, 421, "host"),
    ],
)
def test_requests_without_token_and_from_browsers_are_refused_on_every_path(
    application: Application, device: Device, headers: dict[str, str | None], status: int, code: str
) -> None:
    before = device.history.list()
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/interactions"), ("GET", "/"), ("OPTIONS", "/v1/status")):
        found = application.ask(method, path, {"item": 1} if method == "POST" else None, **headers)
        assert (found[0], found[1]["error"]["code"]) == (status, code)
    assert device.history.list() == before


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/interactions", b"", 422),
        ("POST", "/v1/interactions", b"{", 422),
        ("POST", "/v1/interactions", b"[[[[[[", 422),
        ("POST", "/v1/interactions", {"item": 1.5}, 422),
        ("POST", "/v1/interactions", {"item": ""}, 422),
        ("POST", "/v1/interactions", {"item": "x", "when": 3}, 422),
        ("POST", "/v1/interactions", {"item": "x", "time": -1}, 422),
        ("POST", "/v1/interactions", {"item": "x", "time": 10**18}, 422),
        ("POST", "/v1/interactions", b'{"item": "x", "value": NaN}', 422),
        ("POST", "/v1/interactions", {"item": "no such thing"}, 422),
        ("POST", "/v1/interactions", [{"item": 1}] * (MOST_ITEMS + 1), 422),
        ("POST", "/v1/interactions", b" " * (SMALL + 1), 413),
        ("DELETE", "/v1/interactions/no-such-thing", None, 422),
        ("POST", "/v1/hidden", {"item": None}, 422),
        ("GET", "/v1/recommendations?k=0", None, 422),
        ("GET", "/v1/recommendations?k=ten", None, 422),
        ("GET", "/v1/recommendations?k=99999999999999999", None, 422),
        ("GET", "/v1/interactions?offset=-1", None, 422),
        ("GET", "/v2/status", None, 404),
        ("PUT", "/v1/status", None, 405),
    ],
)
def test_what_cannot_be_understood_is_an_error_in_json_and_changes_nothing(
    application: Application, device: Device, method: str, path: str, body: Any, status: int
) -> None:
    before = device.history.list()
    found, document = application.ask(method, path, body)
    assert found == status
    assert document["error"].keys() == {"code", "message", "hint"}
    assert device.history.list() == before


def test_a_device_without_a_model_and_a_history_says_so(tmp_path: Path) -> None:
    with (
        made(tmp_path / "new.db", items=()) as device,
        serving_app(lambda port: build_api(DeviceView(device), TOKEN, port)) as port,
    ):
        status, found = Application(port).ask("GET", "/v1/recommendations")
        assert (status, found["error"]["code"]) == (409, "MethodError")


def test_the_description_names_every_path_and_its_schemas(application: Application) -> None:
    status, found = application.ask("GET", "/v1/openapi.json")
    assert (status, found) == (200, json.loads(json.dumps(openapi())))
    for path, operations in found["paths"].items():
        for method in operations:
            assert application.ask(method.upper(), path.replace("{item}", "x"), b"")[0] not in (404, 405)
    assert found["components"]["schemas"].keys() == {"Interaction", "Hidden"}


def test_the_token_is_made_once_and_must_be_the_owners_alone(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "token"
    token = open_token_file(place)
    assert len(token) >= 40
    assert open_token_file(place) == token
    assert place.stat().st_mode & 0o777 == 0o600
    place.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        open_token_file(place)
    short = tmp_path / "short"
    os.close(os.open(short, os.O_CREAT | os.O_WRONLY, 0o600))
    with pytest.raises(ConfigError, match="32"):
        open_token_file(short)
