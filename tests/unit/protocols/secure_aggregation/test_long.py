"""The long recipes: a thousand lying servers, a hundred thousand messages again (`make fuzz`), and a taste of each."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.lying_servers import LAYOUT, LIES, Collusion, LyingServer
from helpers.noise import uniform_p
from helpers.secure_session import EASY, PHASES, Party, plain_sum
from tacit.errors import SecureSumError
from tacit.protocols.secure_aggregation.device import DevicePhase, SecureDevice
from tacit.protocols.secure_aggregation.journal import MemoryJournal
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.server import ServerPhase


def lied(lie: str, times: int) -> dict[str, int]:
    """Let many servers lie; return how often they got nothing, noise, or the sum they would have got anyway."""
    found = {"nothing": 0, "noise": 0, "whole sum": 0}
    lowest = 1.0
    for seed in range(times):
        server = LyingServer(lie, seed)
        server.run()
        assert not server.sees_through(), f"seed {seed}: both masks of a person could be removed"
        if not server.vectors or not server.seeds:
            found["nothing"] += 1
            continue
        if server.total() == plain_sum(LAYOUT, sorted(server.vectors)):  # enough people had been told the same
            assert lie != "terms"
            assert len(server.vectors) > server.threshold
            found["whole sum"] += 1
        else:
            lowest = min(lowest, uniform_p(np.frombuffer(server.total(), np.uint32)))
            found["noise"] += 1
    assert lowest > 1e-6, "what is left does not look like noise"
    return found


@pytest.mark.parametrize("lie", LIES)
def test_a_malicious_server_gets_noise_or_nothing(lie: str) -> None:
    assert sum(lied(lie, 12).values()) == 12


@pytest.mark.fuzz
@pytest.mark.parametrize("lie", LIES)
def test_a_thousand_malicious_servers(lie: str) -> None:
    found = lied(lie, 1000)
    print(lie, found)
    assert sum(found.values()) == 1000


def test_the_malicious_server_would_get_the_sum_if_it_were_honest() -> None:
    """The harness works: told the same, devices unmask."""
    server = LyingServer("terms", 0)
    server.sessions = [server.sessions[0]] * server.n_participants
    server.near = [server.sessions[0].graph.neighbours(at) for at in range(server.n_participants)]
    server.run()
    assert server.total() == plain_sum(LAYOUT, range(server.n_participants))


# --- with colluding participants -------------------------------------------------------------------------------------


def colluded(lie: str, times: int, unsafe: bool = False) -> dict[str, int]:
    """Let many servers lie together with some participants; return how often a sum was opened, and how often wrongly.

    A right sum is one that its honest members all agreed to, and that is no smaller than a server which only reads
    would get with the same colluders.
    """
    found = {"nothing": 0, "right sum": 0, "too small a sum": 0}
    for seed in range(times):
        server = Collusion(lie, seed, unsafe=unsafe)
        server.run()
        opened = server.opened()
        for members in opened:
            assert server.sum_of(members) == plain_sum(LAYOUT, sorted(members)), "the harness opens what it says"
        wrong = [members for members in opened if not server.is_agreed(members)]
        found["too small a sum" if wrong else "right sum" if opened else "nothing"] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_malicious_server_with_colluding_participants_opens_no_smaller_sum(lie: str) -> None:
    found = colluded(lie, 12)
    assert found["too small a sum"] == 0
    assert sum(found.values()) == 12


@pytest.mark.slow
def test_with_thresholds_that_collusion_does_not_raise_smaller_sums_would_be_opened() -> None:
    """The harness finds what it looks for: 2t > degree + c is what stops it."""
    assert colluded("survivors", 60, unsafe=True)["too small a sum"] > 0


@pytest.mark.fuzz
@pytest.mark.parametrize("lie", LIES)
def test_a_thousand_and_a_half_of_malicious_servers_with_colluding_participants(lie: str) -> None:
    found = colluded(lie, 1500)
    print(lie, found)
    assert found["too small a sum"] == 0
    assert sum(found.values()) == 1500


# --- the same messages again -----------------------------------------------------------------------------------------


def stored(party: Party) -> list[bytes]:
    """Run a session to its end and return every message of it."""
    kept = []
    for _ in PHASES:
        kept += list(party.inbox.values())
        answers = [party.answer(person) for person in sorted(party.inbox)]
        for answer in answers:
            party.server.receive(answer)
        kept += answers
        party.inbox = party.server.advance()
    return kept


def replayed(times: int) -> int:
    """Throw stored messages at a server and a device in every phase, before and after restarts; none may count."""
    chance = np.random.default_rng(11)
    first = Party.of(4)
    people = [device.identity for device in first.devices]
    pool = stored(first)
    for other in ({"round": 1, "task": "another"}, {"round": 1, "model": b"\1" * 32}, {"round": 0}):
        pool += stored(Party.of(4, identities=people, **other))
    journals = {at: MemoryJournal() for at in range(4)}
    party = Party.of(4, identities=people, journals=journals, round=5)
    accepted = 0
    for phase in PHASES:
        answers = {person: party.answer(person) for person in sorted(party.inbox)}
        for part in range(2):  # as things are, and after a restart of all devices
            if part:
                party.devices = [SecureDevice(one, EASY, journals[at]) for at, one in enumerate(people)]
            state = party.server.answered, [(one.phase, one.history) for one in party.devices]
            for at in chance.integers(len(pool), size=times // (2 * len(PHASES))).tolist():
                accepted += _counts(party, pool[at], phase, int(chance.integers(5)))
            assert state == (party.server.answered, [(one.phase, one.history) for one in party.devices])
        pool += [*party.inbox.values(), *answers.values()]  # of this very session: late and twice from now on
        for answer in answers.values():
            party.server.receive(answer)
        party.inbox = party.server.advance()
    assert party.is_right()
    return accepted


def _counts(party: Party, message: bytes, phase: ServerPhase, to: int) -> bool:
    """Say whether a server (4) or a device took a message that it should not."""
    try:
        if to == 4:
            party.server.receive(message)
        else:
            _answer(party.devices[to], PHASES[message[-1] % 5], message, lambda: party.give(to))
    except SecureSumError:
        return False
    return True


def test_nothing_that_was_stored_counts_again() -> None:
    assert replayed(2000) == 0


@pytest.mark.fuzz
def test_a_hundred_thousand_stored_messages() -> None:
    assert replayed(100_000) == 0


def test_all_participants_may_leave_at_once_and_nothing_is_unmasked() -> None:
    """A third of a cohort falls silent in one phase: the sum is right, or nothing of it can be read."""
    for phase in PHASES:
        party = Party.of(9, threshold=5)
        try:
            party.run(leaves=dict.fromkeys((0, 4, 8), phase))
        except SecureSumError:
            assert party.server.phase == ServerPhase.ABORTED
            assert not party.is_right()
        else:
            assert party.is_right()
        for device in party.devices:
            device.leave()
            assert device.phase == DevicePhase.IDLE
