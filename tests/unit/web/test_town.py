"""The demonstration: the device in it is a real one, and what it announces is what it sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.page_visitor import Visitor
from tacit.lab.experiments import silent
from tacit.web import town as room
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving


@pytest.mark.slow
def test_a_round_in_the_town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BEFORE", 2)
    monkeypatch.setattr(room, "WITH_USER", 1)
    town = room.Town.create(tmp_path / "device.db", silent)
    device = town.device
    assert device is not None
    with device, serving(build_user_page(DeviceView(device, "town", town))) as address:
        visitor = Visitor(address)
        assert "999 simulated people" in visitor.get("/").text
        assert len(device.recommend(5)) == 5
        announced = device.upcoming()
        assert announced is not None
        visitor.post("/round")
        last = device.ledger.list()[-1]
        assert (last.round, last.positives) == (announced.round, announced.rows.positives)
        assert last.negatives == announced.rows.negatives
        assert last.state == "sent"
        visitor.save_sharing(pi="50", masked_only="yes")
        visitor.post("/round")
        assert "without you" in visitor.get("/").text
        visitor.post("/mine/pause")
        visitor.post("/round", {"from": "sent"})
        assert len(device.ledger.list()) == 2, "paused, nothing leaves"
        visitor.post("/mine/leave")
        visitor.post("/round")
        assert len(device.ledger.list()) == 2
        assert town.number == 7
