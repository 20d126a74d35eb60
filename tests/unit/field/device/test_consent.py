"""Consent: nothing leaves that the user's settings forbid, and withdrawing stops the next message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from helpers.small_federation import CATALOG, KINDS, NAMES, first_shared, founded, made, request
from tacit.errors import ConsentError
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.reasons import ReasonCode
from tacit.wire.messages import read_update

pytestmark = pytest.mark.slow

ITEMS = range(len(NAMES))


class Egress:
    """Takes part as a transport does, and keeps every byte that leaves."""

    def __init__(self, device: Device, method: str) -> None:
        self.device, self.federation, self.number = device, founded(method), 0
        self.shared = first_shared(self.federation)
        self.left: list[bytes] = []

    def ask(self) -> None:
        self.number += 1
        entry = self.device.learn(request(self.federation, self.number, self.shared))
        self.left.append(self.device.release(entry))
        self.device.answers.mark_sent(entry)

    def items(self) -> set[int]:
        """Items that the last message mentions."""
        shapes = self.federation.built.shapes(self.shared)
        read = read_update(self.federation, self.number, self.left[-1], shapes)
        return {int(item) for item in read.tables["items"][1]}


@pytest.fixture(scope="module", params=["fpl", "fed-gmf"])
def egress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Egress]:
    path: Path = tmp_path_factory.mktemp("consent") / "device.db"
    with made(path, founded(request.param)) as device:
        yield Egress(device, request.param)


profiles = st.builds(
    Sharing,
    masked_only=st.just(False),
    pi=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    coin=st.sampled_from(["row", "item", "once"]),
    never_items=st.lists(st.sampled_from(CATALOG.item_ids.labels.tolist()), unique=True, max_size=6).map(tuple),
    never_categories=st.lists(st.sampled_from(KINDS), unique=True, max_size=3).map(tuple),
    paused=st.booleans(),
)


@given(profile=profiles, history=st.sets(st.sampled_from(ITEMS), min_size=1, max_size=12), change=st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_leaves_that_the_profile_forbids(
    egress: Egress, profile: Sharing, history: set[int], change: bool
) -> None:
    device = egress.device
    for entry in device.history.list():
        device.history.remove(entry.item, CATALOG)
    device.history.add([HistoryEntry(CATALOG.item_ids[item]) for item in history], CATALOG)
    device.share(profile)
    n_left, n_noted = len(egress.left), len(device.ledger.list())
    if profile.paused:
        with pytest.raises(ConsentError):
            egress.ask()
        assert (len(egress.left), len(device.ledger.list())) == (n_left, n_noted)
        return
    egress.ask()
    secret = {
        item
        for item in history
        if CATALOG.item_ids[item] in profile.never_items or KINDS[item % 4] in profile.never_categories
    }
    mentioned = egress.items()
    assert not mentioned & secret, "a never-share item left"
    if profile.pi == 0:
        assert not mentioned & history, "with pi = 0 nothing of the history leaves"
    release = device.ledger.list(n_noted)[0]
    assert {str(item) for item in release.positives} == {str(CATALOG.item_ids[item]) for item in mentioned & history}
    if change:  # the user withdraws between two messages
        device.pause()
        with refused(ConsentError, ReasonCode.PAUSED):
            egress.ask()
        assert len(egress.left) == n_left + 1
