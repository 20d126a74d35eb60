"""No two federations know a device by the same key; a member goes on with the one it has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers.hostile_sessions import EASY
from helpers.small_federation import CATALOG, PASSPHRASE, founded, made, noon
from helpers.stored_device import full_device
from tacit.field.device import Device
from tacit.field.invitations import Invitation, public_keys
from tacit.reasons import ReasonCode
from tacit.wire.messages import write_welcome

FORMER = Path(__file__).parent / "former"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


def test_each_membership_has_an_identity_of_its_own(path: Path) -> None:
    seen = []
    with made(path) as device:
        for _ in range(3):
            seen.append(device.identity)
            device.leave()
            device.join(write_welcome(founded(), CATALOG), accepts={ReasonCode.NO_GUARANTEE})
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.identity not in seen
        assert device.identity == Device.open(path, PASSPHRASE, noon).identity
    assert len(set(seen)) == 3


def test_coordinators_that_are_only_asked_see_different_keys(path: Path) -> None:
    with made(path) as device:
        device.leave()
        one, two = (Invitation(f"127.0.0.1:{port}", "a word", "") for port in (1, 2))
        first, again, other = (public_keys(device, asked) for asked in (one, one, two))
    assert first[:2] == again[:2]  # the same invitation can be tried again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_an_invitation_with_another_authority_is_not_accepted_by_the_certificate_of_the_first(path: Path) -> None:
    """A forged invitation names the right address and a wrong authority: it fails, and must leave nothing behind."""
    forged, right = (Invitation("127.0.0.1:1", "a word", roots) for roots in ("a thief's", "the coordinator's"))
    with made(path) as device:
        device.leave()
        first, second = (public_keys(device, asked) for asked in (forged, right))
        assert device.terms.enrolment["roots"] == right.roots
        assert first[0] != second[0]


def test_who_leaves_in_the_middle_of_a_sum_can_join_another(path: Path) -> None:
    with Device.open(full_device(path), PASSPHRASE, noon) as device:
        assert device._masked._machine_of(device.membership.federation, EASY).session is not None
        device.leave()
        device.join(write_welcome(founded(), CATALOG), accepts={ReasonCode.NO_GUARANTEE})
        machine = device._masked._machine_of(device.membership.federation, EASY)
        assert machine.session is None
        assert machine.identity.public == device.identity
        assert machine.history.latest[0] == 2, "what was joined is remembered"


def test_another_program_that_leaves_changes_the_identity_of_both(path: Path) -> None:
    with made(path) as device, Device.open(path, PASSPHRASE, noon) as other:
        before = device.identity
        other.leave()
        assert device.identity == other.identity != before


def test_a_member_of_an_earlier_version_keeps_its_identity_and_one_who_left_does_not(path: Path) -> None:
    known = bytes.fromhex(json.loads((FORMER / "format-2.json").read_text())["identity"])
    shutil.copy(FORMER / "format-2.db", path)
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.identity == known
    shutil.copy(FORMER / "format-2-left.db", path)
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.identity != known
