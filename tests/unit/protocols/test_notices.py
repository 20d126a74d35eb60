"""A former key signs for no identity: a device checks that itself, whatever the server takes."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import ForgedError
from tacit.protocols.notices import MemberKeys, Notice, NoticeKind, key_change
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
            MemberKeys.read(wrong, LOG)


def test_every_notice_is_read_as_it_was_written() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.bytes(size) for size in (32, 32, 64, 64)]
    for notice in (Notice(NoticeKind.REVOKED, parts[0]), Notice(NoticeKind.NEW_KEY, *parts)):
        assert Notice.decode(notice.encode()) == notice
