"""A federation that lives: devices join over an hour, leave and return, the catalogue changes twice, the coordinator is
killed and started again with other rules; every sum is masked, no device is stuck, and none is invited twice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.town_federation import CHEAP, PASSPHRASE, founded, journal_of, town
from tacit.field.carriers.loopback import Loopback
from tacit.field.catalogue_file import continue_catalogue
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator.attendance import Timing
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.device import Device
from tacit.field.device.history import HistoryEntry
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Vocabulary
from tacit.wire.status import CoordinatorStatus

MINUTE = 60.0


class EndError(Exception):
    """The rounds that the test wants are done."""


class KilledError(Exception):
    """The coordinator ends where it stands."""


class Town(Loopback):
    """Devices that join, leave and return as time passes; time passes when the coordinator sleeps."""

    def __init__(self, folder: Path, n_devices: int, joining: float) -> None:
        super().__init__({})
        self.folder, self.now, self.kill_in = folder, 1e6, 0
        self.clients, self.catalog = town(n_devices)
        self.journal = journal_of(folder, founded("fpl", self.catalog), self.catalog)
        self._fetch = lambda digest: self.journal.amendments.since(digest)
        self.words = self.journal.invitations.make_many(n_devices, 2**31, "")
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.away: set[int] = set()
        self.models: dict[int, int] = {}  # device -> exchanges after which it first had a model
        self.exchanges: dict[int, set[str]] = {}  # device -> the rounds and offers that it was in
        for person in range(n_devices):
            self.events.append((self.now + joining * person / n_devices, lambda person=person: self.join(person)))

    @property
    def timing(self) -> Timing:
        return Timing(lambda: self.now, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((event for event in self.events if event[0] <= self.now), key=lambda event: event[0])
        self.events = [event for event in self.events if event[0] > self.now]
        for _, happen in due:
            happen()

    def join(self, person: int) -> None:
        device = Device.create(self.folder / f"{person}.db", PASSPHRASE, cost=CHEAP, seed=person, lane=person)
        key = f"key {person}".encode()
        proof = device.keys.prove(self.words[person], key)
        number = self.journal.members.enrol(self.words[person], key, int(self.now), device.identity, proof)
        assert number is not None
        device.join(self.journal.welcome, accepts={ReasonCode.NO_GUARANTEE})
        first, last = self.clients.ptr[person : person + 2]
        device.history.add([HistoryEntry(self.catalog.item_ids[int(i)]) for i in self.clients.items[first:last]], None)
        self.devices[number] = device
        draw = np.random.default_rng(person)
        for _ in range(2):  # each leaves twice, for three minutes
            gone = self.now + float(draw.uniform(5, 50)) * MINUTE
            self.events += [
                (gone, lambda: self.away.add(number)),
                (gone + 3 * MINUTE, lambda: self.away.discard(number)),
            ]

    def present(self) -> frozenset[int]:
        return frozenset(self.devices.keys() - self.away)

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        self.kill_in -= 1
        if self.kill_in == 0:
            raise KilledError
        here = {number: content for number, content in requests.items() if number in self.present()}
        for number in here:
            self.exchanges.setdefault(number, set()).add(f"round {self.journal.rounds.next_number}")
        yield from super().ask(here, seconds, most_bytes)

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        for number, content in messages.items():
            if number in self.present():
                super().tell({number: content}, seconds)
                self.exchanges.setdefault(number, set()).add(f"offer at {self.now}")
        self.note_models()

    def note_models(self) -> None:
        for number in self.exchanges.keys() - self.models.keys():
            if self.has_model(number):
                self.models[number] = len(self.exchanges[number])

    def has_model(self, number: int) -> bool:
        member = self.devices[number].membership
        return member is not None and member.model() is not None

    def announce(self, status: CoordinatorStatus) -> None:
        self.status = status

    def live(self, rules: RoundRules, until: Callable[[list[RoundRecord]], bool]) -> None:
        """Run a coordinator, from a start to its end; a killed one is started again."""

        def on_round(happened: RoundRecord) -> None:
            self.note_models()
            if until(self.journal.rounds.records()):
                raise EndError

        with suppress(EndError):
            while True:
                with suppress(KilledError):
                    Coordinator(self.journal, rules, self, self.timing).run(on_round)
                self.restart()
        self.restart()

    def restart(self) -> None:
        self.journal.close()
        self.journal = CoordinatorJournal.open(self.folder / "journal.db")

    def change_catalogue(self, n_new: int, retired: tuple[int, ...]) -> None:
        before = self.journal.catalog
        assert before.titles is not None
        labels = [*before.item_ids.labels.tolist(), *(50_000 + before.n_items + new for new in range(n_new))]
        titles = [*before.titles, *(f"New {before.n_items + new}" for new in range(n_new))]
        later = Catalog(Vocabulary(np.array(labels)), titles, retired=np.array(retired, np.int32))
        self.journal.publish(continue_catalogue(replace(before, categories=None), later))
        self.restart()


@pytest.mark.parametrize(
    ("n_devices", "n_sums", "joining"),
    [
        pytest.param(26, 6, 4 * MINUTE, id="short", marks=pytest.mark.slow),
        pytest.param(50, 200, 60 * MINUTE, id="an hour and fifty devices", marks=pytest.mark.fuzz),
    ],
)
def test_fifty_devices_live_together(n_devices: int, n_sums: int, joining: float, tmp_path: Path) -> None:
    place = Town(tmp_path, n_devices, joining)
    rules = {"pause": "18s", "deadline": 5}

    def sums(rounds: list[RoundRecord]) -> int:
        return sum(one.state == "finished" for one in rounds)

    place.live(RoundRules.from_options(rules, "rules"), lambda rounds: sums(rounds) >= n_sums // 3)
    place.change_catalogue(3, (4,))
    place.kill_in = 7
    upgraded = RoundRules.from_options({**rules, "pause": "15s", "keep_models": 3}, "rules")
    place.live(upgraded, lambda rounds: sums(rounds) >= 2 * n_sums // 3)
    place.change_catalogue(2, (4, 5))
    place.live(upgraded, lambda rounds: sums(rounds) >= n_sums and len(place.devices) == n_devices)
    rounds = place.journal.rounds.records()
    assert all(one.masked for one in rounds if one.asked), "no round is readable"
    assert not place.journal.invitations.pending(int(place.now)), "every invitation was used"
    assert [device.revoked for device in place.journal.members.devices()] == [False] * n_devices, "and none twice"
    n_sums_of: dict[int, int] = {}
    for number, device in place.devices.items():
        assert device.membership is not None
        if number in place.present():
            assert device.membership.federation == place.journal.federation
        assert len(device.recommend(5)) == 5
        n_sums_of[number] = len(device.ledger.list())
    waiting = [device.number for device in place.journal.members.devices() if not device.batch]
    assert len(waiting) < 13, "as soon as thirteen wait, they are a batch"
    assert min(count for number, count in n_sums_of.items() if number not in waiting) >= 2, "no device is stuck"
    late = [n for number, n in place.models.items() if number > n_devices // 2]
    assert late == [1] * len(late), "a late device has the model after one exchange"
