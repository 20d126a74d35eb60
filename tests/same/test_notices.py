"""Notices of the directory: a revoked device is refused by all, and a changed key is the same participant."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.interceptor import Interceptor
from helpers.refusals import refused
from helpers.watched_federation import Watched
from tacit.errors import DevicePolicyError
from tacit.field.coordinator import notice_book
from tacit.field.device import Device
from tacit.field.directory_notices import is_noted_revoked
from tacit.protocols import notices
from tacit.protocols.notices import MOST_CHANGES, Notice, NoticeKind, NoticeList, key_change
from tacit.protocols.secure_aggregation import Identity, ServerPhase
from tacit.protocols.secure_aggregation.messages import SessionInvitation
from tacit.reasons import ReasonCode
from tacit.wire.enrolment import enrolment_statement, hand_over_statement
from tacit.wire.envelope import version_of
from tacit.wire.messages import SecureRequest, write_secure_request

pytestmark = pytest.mark.slow
Change = Callable[[int, SecureRequest], SecureRequest]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path)
    made.visit()
    return made


def unwatched(watched: Watched) -> Watched:
    """Let no device demand a witness."""
    for device in watched.field.devices.values():
        device.directory.name_witness("")
    return watched


def ask_again(watched: Watched, number: int) -> None:
    """Be an operator who asks a device that was revoked, as if nothing had happened."""
    with sqlite3.connect(watched.field.folder / "journal.db") as journal:
        journal.execute("UPDATE devices SET revoked = 0 WHERE number = ?", (number,))
    journal.close()


def shown(change: Callable[[NoticeList], NoticeList]) -> Change:
    def forge(number: int, asked: SecureRequest) -> SecureRequest:
        found = NoticeList.decode(asked.notices) if asked.notices else None
        return asked if found is None else replace(asked, notices=change(found).encode())

    return forge


def refusals(watched: Watched, change: Change = lambda number, asked: asked) -> dict[int, ReasonCode | None]:
    carrier = Interceptor(watched.field, change)
    assert watched.run(carrier=carrier) == ["abandoned"]
    return carrier.refusals


def change_key(watched: Watched, number: int) -> tuple[Identity, Identity]:
    """Let a device sign with another key; return its identity before and after."""
    device, old = watched.field.devices[number], identity_of(watched.field.devices[number])
    new = device.keys.draw_next()
    assert watched.field.journal.notices.change_key(device.keys.sign_change(new))
    device.keys.adopt(new, device.connection)
    return old, new


def identity_of(device: Device) -> Identity:
    return device._masked.identity


# --- revocations ------------------------------------------------------------------------------------------------------


def test_a_revoked_device_is_refused_by_all_others_and_knows_it(watched: Watched) -> None:
    assert watched.run(1) == ["finished"]
    watched.field.journal.members.revoke(5)
    watched.visit()
    assert watched.run(1) == ["finished"], "without it"
    ask_again(watched, 5)
    assert refusals(watched) == {**dict.fromkeys(range(1, 5), ReasonCode.REVOKED_MEMBER), 5: ReasonCode.DEVICE_REVOKED}


def test_an_operator_cannot_hide_a_revocation_that_the_witness_has_signed(watched: Watched) -> None:
    before = watched.field.journal.notices.list()
    assert before.signed is not None
    assert before.signed.size == 0
    watched.field.journal.members.revoke(5)
    watched.visit()
    assert watched.run(1) == ["finished"]
    ask_again(watched, 5)
    devices = watched.field.devices
    lies: list[tuple[ReasonCode, Change]] = [
        (ReasonCode.DIRECTORY_MISSING, lambda number, asked: replace(asked, notices=b"")),
        (ReasonCode.DIRECTORY_MISSING, shown(lambda found: replace(found, signed=None))),
        (ReasonCode.DIRECTORY_FORKED, shown(lambda found: replace(found, notices=()))),
        (
            ReasonCode.DIRECTORY_FORGED,
            shown(lambda found: replace(found, signed=watched.witness.sign_held(watched.log))),
        ),
        (ReasonCode.MALFORMED_MESSAGE, lambda number, asked: replace(asked, notices=asked.notices[:-1])),
    ]
    for code, lie in lies:
        assert refusals(watched, lie) == dict.fromkeys(devices, code)
    earlier = refusals(watched, shown(lambda found: before))
    assert {earlier[number] for number in range(1, 5)} == {ReasonCode.REVOKED_MEMBER}, "they saw a longer one"
    assert earlier.get(5) is None, "one that saw none cannot know, until the witness's signature is too old"
    for device in devices.values():
        fresh = device.sharing.directory.model_copy(update={"fresh_days": 1e-9})
        device.change(lambda sharing, fresh=fresh: sharing.model_copy(update={"directory": fresh}))  # type: ignore[misc]
    assert refusals(watched) == dict.fromkeys(devices, ReasonCode.DIRECTORY_STALE)


def test_an_older_signature_does_not_make_a_device_forget_what_it_saw_signed(watched: Watched) -> None:
    """First all notices with an older signature, then the shorter list that it is of."""
    before = watched.field.journal.notices.list()
    watched.field.journal.members.revoke(5)
    watched.visit()
    assert watched.run(1) == ["finished"]
    older = Interceptor(watched.field, shown(lambda found: replace(found, signed=before.signed)))
    assert watched.run(1, carrier=older) == ["finished"], "the list is whole"
    ask_again(watched, 5)
    earlier = refusals(watched, shown(lambda found: before))
    assert {earlier[number] for number in range(1, 5)} == {ReasonCode.REVOKED_MEMBER}


def test_who_fetched_newer_notices_takes_part_in_a_round_that_began_before_them(watched: Watched) -> None:
    assert watched.run(1) == ["finished"]
    before = watched.field.journal.notices.list()
    watched.field.journal.members.revoke(5)
    watched.visit()
    device, newer = watched.field.devices[1], watched.field.journal.notices.list()
    assert not is_noted_revoked(device, newer)
    assert watched.run(1, carrier=Interceptor(watched.field, shown(lambda found: before))) == ["finished"]
    assert device.directory.notices == newer, "and goes on by what it knows"
    forked = replace(before, notices=(Notice(NoticeKind.REVOKED, bytes(32)),))
    other = Interceptor(watched.field, shown(lambda found: forked))
    watched.run(1, carrier=other)
    assert other.refusals[1] == ReasonCode.DIRECTORY_FORKED


def test_a_coordinator_that_shows_no_list_is_believed_only_without_a_witness(watched: Watched) -> None:
    device = watched.field.devices[1]
    with refused(DevicePolicyError, ReasonCode.DIRECTORY_MISSING):
        is_noted_revoked(device, None)
    unwatched(watched)
    assert not is_noted_revoked(device, None)


def test_a_device_that_comes_back_under_another_number_is_not_noted_as_revoked(watched: Watched) -> None:
    journal, identity = watched.field.journal, Identity.fresh()
    for key in (b"a", b"b"):
        word = journal.invitations.make(2**40)
        assert journal.members.enrol(word, key, 0, identity.public, identity.sign(enrolment_statement(word, key)))
    assert not journal.notices.list().notices
    journal.members.revoke(journal.members.devices()[-1].number)
    assert journal.notices.list().notices == (Notice(NoticeKind.REVOKED, identity.public),)


# --- new keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_witness", [True, False])
def test_rounds_go_on_with_a_new_key_in_the_same_cohort(watched: Watched, has_witness: bool) -> None:
    """No device sees another cohort than before: otherwise they would not go on with it, or could be told apart."""
    more = {} if has_witness else {"witness": None}
    if not has_witness:
        unwatched(watched)
    cohorts = list[tuple[bytes, ...]]()

    def note(number: int, asked: SecureRequest) -> SecureRequest:
        if asked.phase == ServerPhase.ADVERTS:
            cohorts.append(SessionInvitation.decode(asked.content).session.cohort)
        return asked

    carrier = Interceptor(watched.field, note)
    assert watched.run(1, carrier=carrier, **more) == ["finished"]
    old, new = change_key(watched, 2)
    assert new.public == old.public
    assert new.key != old.key
    if has_witness:
        watched.visit()
    assert watched.run(2, carrier=carrier, **more) == ["finished"] * 2
    change_key(watched, 2)  # the witness has not signed it yet: both keys have
    watched.field.reopen()
    carrier.devices = watched.field.devices
    assert watched.run(1, carrier=carrier, **more) == ["finished"]
    assert len(set(cohorts)) == 1
    assert not carrier.refusals


def test_a_copy_with_a_former_key_sits_out_and_the_others_go_on(watched: Watched) -> None:
    old, _ = change_key(watched, 2)
    device, journal = watched.field.devices[2], watched.field.journal
    with device.store.transaction():
        device.store.put("identity", old.secret + old.name)
    carrier = Interceptor(watched.field)
    assert watched.run(carrier=carrier) == ["finished"], "without the device that has an old copy of its file"
    assert carrier.refusals == {2: ReasonCode.KEY_REPLACED}
    statement = hand_over_statement(bytes([1]), b"another")
    assert not journal.members.hand_over(bytes([1]), b"another", old.sign(statement))


def test_a_new_key_needs_both_signatures_and_is_used_once(watched: Watched) -> None:
    journal, device, log = watched.field.journal, watched.field.devices[1], bytes.fromhex(watched.log)
    own, other = identity_of(device), identity_of(watched.field.devices[2])
    new, thief = own.renew(), Identity.fresh()
    right = key_change(own, new, log)
    for wrong in (
        replace(right, by_old=thief.sign(b"")),
        replace(right, by_new=right.by_old),
        replace(right, key=thief.key),
        replace(right, identity=other.public),
        key_change(own, new, bytes(16)),
        key_change(own, other, log),
        key_change(thief, Identity.fresh(), log),
        Notice(NoticeKind.REVOKED, own.public),
    ):
        assert not journal.notices.change_key(wrong)
    assert not journal.notices.list().notices
    assert journal.notices.change_key(right)
    assert journal.notices.change_key(right), "twice is fine"
    newer = new.renew()
    assert journal.notices.change_key(key_change(new, newer, log))
    assert not journal.notices.change_key(right), "not any more"
    assert not journal.notices.change_key(key_change(newer, Identity(own.secret, own.public), log)), "no way back"
    for _ in range(MOST_CHANGES - 2):
        before, newer = newer, newer.renew()
        assert journal.notices.change_key(key_change(before, newer, log))
    assert not journal.notices.change_key(key_change(newer, newer.renew(), log))
    journal.members.revoke(2)
    assert not journal.notices.change_key(key_change(other, other.renew(), log)), "it was revoked"


def test_a_forged_change_costs_no_more_with_many_notices(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, log = watched.field.journal, bytes.fromhex(watched.log)
    own = identity_of(watched.field.devices[1])
    for _ in range(4):
        before, own = own, own.renew()
        assert journal.notices.change_key(key_change(before, own, log))
    checked: list[object] = []
    verify = notices.verify
    monkeypatch.setattr(notices, "verify", lambda *given: (checked.append(given), verify(*given)))
    forged = replace(key_change(own, own.renew(), log), by_old=bytes(64))
    assert not journal.notices.change_key(forged)
    assert len(checked) == 1


def test_new_keys_leave_room_in_the_list_for_revocations(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is longer than devices read would end the federation."""
    journal, log = watched.field.journal, bytes.fromhex(watched.log)
    monkeypatch.setattr(notice_book, "MOST_NEW_KEYS", 2)
    own = identity_of(watched.field.devices[1])
    for is_taken in (True, True, False):
        before, own = own, own.renew()
        assert journal.notices.change_key(key_change(before, own, log)) is is_taken
    assert journal.members.revoke(2)
    assert len(journal.notices.list().notices) == 3


def test_a_change_that_a_coordinator_made_up_is_refused(watched: Watched) -> None:
    """It claims that another key, its own, signs for device 2."""
    victim, own = identity_of(watched.field.devices[2]), Identity.fresh()
    statement = key_change(own, own.renew(), bytes.fromhex(watched.log))
    false = Notice(NoticeKind.NEW_KEY, victim.public, own.key, statement.by_old, own.sign(b"whatever"))
    lie = shown(lambda found: replace(found, notices=(*found.notices, false)))
    assert refusals(watched, lie) == dict.fromkeys(watched.field.devices, ReasonCode.NOTICE_FORGED)


def test_without_a_witness_messages_stay_in_the_first_version_until_a_key_changes(watched: Watched) -> None:
    unwatched(watched)
    versions = set[int]()

    def note(number: int, asked: SecureRequest) -> SecureRequest:
        versions.add(version_of(write_secure_request(watched.field.federation, asked)))
        return asked

    watched.field.journal.members.revoke(5)
    assert watched.run(1, carrier=Interceptor(watched.field, note), witness=None) == ["finished"]
    assert versions == {1}
    change_key(watched, 1)
    assert watched.run(1, carrier=Interceptor(watched.field, note), witness=None) == ["finished"]
    assert versions == {1, 2}
