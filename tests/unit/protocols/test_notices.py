"""A former key signs for no identity: a device checks that itself, whatever the server takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import ForgedError
from tacit.protocols import notices
from tacit.protocols.notices import (
    MOST_CHANGES,
    MemberKeys,
    Notice,
    NoticeKind,
    NoticeList,
    check_members,
    key_change,
)
from tacit.protocols.secure_aggregation import DevicePolicy, Identity, SecureDevice, SecureServer
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.reasons import ReasonCode

LOG = bytes(range(16))
LAX = DevicePolicy(n_min=3, k_min=1, corrupted=0.0, most_cohorts=None)
CARE = SecureAggregationConfig(n_min=3, k_min=1, spare=0, corrupted=0.0)


def signing(old: Identity, new: Identity) -> dict[bytes, bytes]:
    return dict(MemberKeys.read([key_change(old, new, LOG)], LOG).changed)


@pytest.mark.parametrize(("signs", "is_refused"), [("old", True), ("new", False)])
def test_devices_go_by_the_key_that_the_notices_name(signs: str, is_refused: bool) -> None:
    """A server that lies takes any key; the other devices do not."""
    first, others = Identity.fresh(), [Identity.fresh() for _ in range(3)]
    renewed = first.renew()
    keys = signing(first, renewed)
    used = first if signs == "old" else renewed
    devices = {used.public: SecureDevice(used, LAX, changed_keys=keys)}
    devices |= {one.public: SecureDevice(one, LAX, changed_keys=keys) for one in others}
    terms = RoundContext("task", 0, bytes(32), bytes(32)).counting({"items": (4, 1)}, len(devices), CARE)
    server = SecureServer.start(terms, list(devices), changed_keys={} if signs == "old" else keys)
    for device in devices.values():
        server.receive(device.advertise(server.invitation))
    rosters = server.advance()
    for name, device in devices.items():
        roster = rosters[server.session.position(name)]
        if is_refused and name != first.public:
            with pytest.raises(ForgedError) as error:
                device.share(roster)
            assert error.value.code == ReasonCode.BAD_SIGNATURE
        elif not is_refused:
            device.share(roster)


def test_keys_follow_from_all_notices_in_their_order() -> None:
    one, other = Identity.fresh(), Identity.fresh()
    second = one.renew()
    third = second.renew()
    changes = [key_change(one, second, LOG), key_change(second, third, LOG)]
    out = Notice(NoticeKind.REVOKED, other.public)
    found = MemberKeys.read([changes[0], out, changes[1]], LOG)
    assert found == MemberKeys(frozenset({other.public}), {one.public: third.key})
    assert [found.key_of(identity.public) for identity in (third, other)] == [third.key, other.public]
    for wrong in ([changes[1]], [*changes, changes[0]], [*changes, key_change(third, second, LOG)]):
        with pytest.raises(ForgedError):
            MemberKeys.read(wrong, LOG).key_of(one.public)


def test_a_list_with_many_changes_costs_the_signatures_of_the_cohort_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator without a witness could show 131,072 valid notices, other ones in each round: 16 s of processor."""
    people = [Identity.fresh() for _ in range(200)]
    shown = NoticeList(tuple(key_change(one, one.renew(), LOG) for one in people))
    verified: list[object] = []
    verify = notices.verify
    monkeypatch.setattr(notices, "verify", lambda *given: (verified.append(given), verify(*given)))
    own, cohort = Identity.fresh(), [one.public for one in people[:3]]
    for _ in range(2):
        members = NoticeList.decode(shown.encode()).member_keys(LOG)
        check_members(members, [*cohort, own.public], own)
        assert len(members.changed) == len(people)
        assert len(verified) == 2 * len(cohort), "once for a list, however often it is read"
    for place in (0, 199):  # of the cohort, and of others
        forged = list(shown.notices)
        forged[place] = replace(forged[place], by_new=bytes(64))
        members = NoticeList(tuple(forged)).member_keys(LOG)
        if place:
            check_members(members, cohort, own)
            before = len(verified)
            assert members.changed != MemberKeys().changed, "a device that knew of no change before compares the two"
            assert len(verified) == before
        with pytest.raises(ForgedError):
            check_members(members, [people[place].public], own)


def test_an_identity_has_a_few_changes_at_most() -> None:
    identity, changes = Identity.fresh(), list[Notice]()
    for _ in range(MOST_CHANGES + 1):
        before, identity = identity, identity.renew()
        changes.append(key_change(before, identity, LOG))
    assert MemberKeys.read(changes[:-1], LOG).key_of(identity.public) == changes[-2].key
    with pytest.raises(ForgedError):
        MemberKeys.read(changes, LOG)


def test_every_notice_is_read_as_it_was_written() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.bytes(size) for size in (32, 32, 64, 64)]
    for notice in (Notice(NoticeKind.REVOKED, parts[0]), Notice(NoticeKind.NEW_KEY, *parts)):
        assert Notice.decode(notice.encode()) == notice
