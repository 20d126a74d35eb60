"""A directory that a witness signs: rounds go on with it, and no device joins a cohort that it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.interceptor import Interceptor
from helpers.loopback_federation import CARE, Field
from helpers.town_federation import BOLD
from helpers.watched_federation import Watched, visit
from tacit.errors import FieldError
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.witness import Witness
from tacit.protocols.directory import DAY, DirectoryPolicy, DirectoryProof
from tacit.protocols.secure_aggregation import Identity, SecureDevice, ServerPhase
from tacit.protocols.secure_aggregation.messages import SessionInvitation
from tacit.reasons import ReasonCode
from tacit.wire.messages import SecureRequest

pytestmark = pytest.mark.slow


def every(code: ReasonCode) -> dict[int, ReasonCode]:
    return dict.fromkeys(range(1, 6), code)


def collect_refusals(
    watched: Watched, change: Callable[[int, SecureRequest], SecureRequest]
) -> dict[int, ReasonCode | None]:
    """Run one more round with a coordinator that changes messages; return why devices refused."""
    carrier = Interceptor(watched.field, change)
    assert watched.run(carrier=carrier) == ["abandoned"]
    assert not any(device.ledger.list() for device in watched.field.devices.values()), "nothing was sent"
    return carrier.refusals


def test_rounds_go_on_while_the_directory_grows_and_devices_restart(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.visit()
    assert watched.run(2) == ["finished"] * 2
    newcomer = Identity.fresh().public
    watched.field.journal.members.add(b"newcomer", newcomer)
    assert watched.visit().size == 6
    watched.field.reopen()
    assert watched.run(2) == ["finished"] * 2
    known = [device.directory.known for device in watched.field.devices.values()]
    assert {checkpoint.size for checkpoint in known if checkpoint is not None} == {6}


def test_no_device_is_asked_before_the_witness_has_signed_for_long_enough(tmp_path: Path) -> None:
    watched = Watched(tmp_path, DirectoryPolicy(), hours=24)
    with pytest.raises(FieldError) as error:
        watched.run(1)
    assert error.value.code == ReasonCode.DIRECTORY_WAITS
    now = [1_000_000_000.0]
    watched.witness = Witness(tmp_path / "witness", clock=lambda: now[0])
    watched.visit()
    now[0] += 23 * 3600
    watched.visit()
    assert watched.directory().n_settled == 0
    now[0] += 3600
    watched.visit()
    assert watched.directory().n_settled == 5
    devices = watched.field.journal.members.devices()
    late = watched.field.journal.members.add(b"late", Identity.fresh().public)
    watched.visit()
    assert watched.directory().select_settled(watched.field.journal.members.devices()) == devices, (
        "the late one must wait"
    )
    assert late not in {device.number for device in devices}


def test_invented_identities_are_refused_by_every_device(tmp_path: Path) -> None:
    """The coordinator invites identities of its own, which are in its list, and not in the witness's."""
    watched = Watched(tmp_path)
    watched.visit()
    signed = watched.field.journal.directory.checkpoints()
    carrier = Interceptor(watched.field)
    for at in range(2):
        identity = Identity.fresh()
        number = watched.field.journal.members.add(b"invented %d" % at, identity.public)
        carrier.invented[number] = SecureDevice(identity, BOLD)

    def select_all(self: CoordinatorDirectory, members: list[EnrolledDevice]) -> list[EnrolledDevice]:
        self._read()
        return list(members)

    honest, CoordinatorDirectory.select_settled = CoordinatorDirectory.select_settled, select_all  # type: ignore[assignment]
    try:
        assert watched.run(1, carrier=carrier) == ["abandoned"]
    finally:
        CoordinatorDirectory.select_settled = honest  # type: ignore[method-assign]
    assert watched.field.journal.directory.checkpoints() == signed
    assert carrier.refusals == every(ReasonCode.NOT_IN_DIRECTORY)
    assert not any(device.ledger.list() for device in watched.field.devices.values())


def test_what_a_lying_coordinator_shows_is_refused_by_name(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.visit()
    false = Witness(tmp_path / "false")
    others = watched.rules.model_copy(update={"key": false.key.hex()})
    others_checkpoint = visit(false, CoordinatorDirectory(watched.field.journal, others), watched.log)
    watched.field.journal.directory.forget_checkpoints()
    watched.visit()

    def shown(change: Callable[[DirectoryProof], DirectoryProof]) -> Callable[[int, SecureRequest], SecureRequest]:
        def forge(number: int, asked: SecureRequest) -> SecureRequest:
            proof = DirectoryProof.decode(asked.directory) if asked.directory else None
            return asked if proof is None else replace(asked, directory=change(proof).encode())

        return forge

    lies: list[tuple[ReasonCode, Callable[[int, SecureRequest], SecureRequest]]] = [
        (ReasonCode.DIRECTORY_MISSING, lambda number, asked: replace(asked, directory=b"")),
        (
            ReasonCode.DIRECTORY_FORGED,
            shown(lambda proof: replace(proof, newest=others_checkpoint, settled=others_checkpoint)),
        ),
        (ReasonCode.DIRECTORY_FORGED, shown(lambda proof: replace(proof, newest=replace(proof.newest, size=9)))),
        (ReasonCode.DIRECTORY_FORGED, shown(lambda proof: replace(proof, settled=replace(proof.settled, time=1)))),
        (ReasonCode.DIRECTORY_FORKED, shown(lambda proof: replace(proof, growth=(bytes(32),)))),
        (ReasonCode.NOT_IN_DIRECTORY, shown(lambda proof: replace(proof, places=proof.places[::-1]))),
        (ReasonCode.NOT_IN_DIRECTORY, shown(lambda proof: replace(proof, places=(0, *proof.places[:-1])))),
        (ReasonCode.NOT_IN_DIRECTORY, shown(lambda proof: replace(proof, members=(*proof.members, bytes(32))))),
        (ReasonCode.MALFORMED_MESSAGE, lambda number, asked: replace(asked, directory=asked.directory[:-1])),
    ]
    for code, lie in lies:
        assert collect_refusals(watched, lie) == every(code)
    for policy, code in (
        (DirectoryPolicy(settled_hours=1), ReasonCode.DIRECTORY_YOUNG),
        (DirectoryPolicy(settled_hours=0, fresh_days=1e-9), ReasonCode.DIRECTORY_STALE),
    ):
        for device in watched.field.devices.values():
            device.change(lambda before, policy=policy: before.model_copy(update={"directory": policy}))  # type: ignore[misc]
        assert collect_refusals(watched, lambda number, asked: asked) == every(code)


def test_two_lists_for_two_halves_get_one_signature(tmp_path: Path) -> None:
    """A split view: the witness signs the first list that it saw, and no other."""
    watched = Watched(tmp_path)
    watched.visit()
    assert watched.run(1) == ["finished"]
    other = Field(tmp_path / "other", "fpl")  # the same federation, other members
    fork = CoordinatorDirectory(other.journal, watched.rules)
    with pytest.raises(FieldError) as error:
        visit(watched.witness, fork, watched.log)
    assert error.value.code == ReasonCode.DIRECTORY_FORKED, "an honest coordinator notices"
    held = watched.witness.sign_held(watched.log)

    class Lying(CoordinatorDirectory):
        def visit(self, held):  # type: ignore[no-untyped-def]
            empty = Witness(tmp_path / "somebody")
            rules = watched.rules.model_copy(update={"key": empty.key.hex()})
            growth = CoordinatorDirectory(other.journal, rules).visit(empty.sign_held(watched.log))
            return replace(growth, entries=growth.entries[held.size :] or growth.entries[:1])

    with pytest.raises(FieldError) as error:
        visit(watched.witness, Lying(other.journal, watched.rules), watched.log)
    assert error.value.code == ReasonCode.DIRECTORY_FORKED, "and the witness notices one that lies"
    assert (watched.witness.sign_held(watched.log).size, watched.witness.sign_held(watched.log).root) == (
        held.size,
        held.root,
    )
    reopened = Witness(tmp_path / "witness")
    assert reopened.sign_held(watched.log).root == held.root


def test_a_device_that_missed_how_the_directory_grew_is_shown_it_the_next_time(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.visit()

    class AdvertLost(Interceptor):
        def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
            for number, answer in super().ask(requests, seconds, most_bytes):
                if number != 2:
                    yield number, answer

    assert watched.run(1, carrier=AdvertLost(watched.field)) == ["finished"], (
        "device 2 has joined, and its answer was lost"
    )
    watched.field.journal.members.add(b"newcomer", Identity.fresh().public)
    watched.visit()
    carrier = Interceptor(watched.field)
    assert watched.run(carrier=carrier) == ["finished"]
    assert carrier.refusals == {2: ReasonCode.DIRECTORY_GAP}
    again = Interceptor(watched.field)
    coordinator = watched.coordinator(carrier := Interceptor(watched.field))
    assert coordinator.round().answered == 4
    assert carrier.refusals == {2: ReasonCode.DIRECTORY_GAP}, "a coordinator that was restarted has forgotten it"
    coordinator.carrier = again
    assert coordinator.round().answered == 5
    assert not again.refusals


def test_a_shrunken_directory_is_refused(tmp_path: Path) -> None:
    """A coordinator that shows an earlier checkpoint, though it is rightly signed."""
    watched = Watched(tmp_path)
    before = watched.visit()
    watched.field.journal.members.add(b"newcomer", Identity.fresh().public)
    watched.visit()
    assert watched.run(1) == ["finished"]
    watched.field.journal.directory.forget_checkpoints()
    watched.field.journal.directory.note_checkpoint(before)
    carrier = Interceptor(watched.field)
    assert watched.run(carrier=carrier) == ["abandoned"]
    assert carrier.refusals == every(ReasonCode.DIRECTORY_FORKED)


def test_a_witness_adds_no_more_than_it_said_in_a_day(tmp_path: Path) -> None:
    watched, now = Watched(tmp_path), [2_000_000_000.0]
    witness = Witness(tmp_path / "slow", clock=lambda: now[0], most_a_day=2)
    directory = CoordinatorDirectory(watched.field.journal, watched.rules.model_copy(update={"key": witness.key.hex()}))
    sizes = []
    for _ in range(4):
        sizes.append(visit(witness, directory, watched.log).size)
        now[0] += DAY / 2 + 1
    assert sizes == [2, 2, 4, 4]


def test_without_a_witness_the_proof_is_not_read_and_the_device_says_whom_it_trusts(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.visit()
    device = watched.field.devices[1]
    assert watched.rules.key in device.directory.describe_trust(device.sharing)
    device.directory.name_witness("")
    assert not device.directory.witness
    assert watched.rules.key not in device.directory.describe_trust(device.sharing)
    carrier = Interceptor(watched.field, lambda number, asked: replace(asked, directory=b"") if number == 1 else asked)
    assert watched.run(1, carrier=carrier) == ["finished"]
    assert not carrier.refusals


def test_the_cohort_of_a_second_stage_is_shown_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.visit()
    seen = []

    def note(number: int, asked: SecureRequest) -> SecureRequest:
        if asked.phase == ServerPhase.ADVERTS:
            seen.append((number, SessionInvitation.decode(asked.content).session.terms.stage, bool(asked.directory)))
        return asked

    assert watched.run(1, carrier=Interceptor(watched.field, note), secure={**CARE, "two_stage": True}) == ["finished"]
    assert sorted(seen) == [(number, stage, True) for number in range(1, 6) for stage in (1, 2)]
