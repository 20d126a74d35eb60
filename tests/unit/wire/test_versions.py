"""Ranges of versions: two programs have one in common, or are told which of them to upgrade."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tacit.errors import FieldError, MessageError
from tacit.field.carriers.version_gate import UPGRADE_REQUIRED, VersionGate
from tacit.protocols.secure_aggregation.context import VERSION
from tacit.protocols.secure_aggregation.messages import MessageType, message_type
from tacit.wire.versions import FIRST, HEADER, OWN, VersionRanges, find_older, refuse_other_versions

NEWER = VersionRanges((OWN.wire[1] + 1, OWN.wire[1] + 2), OWN.sum)
NEWER_SUM = VersionRanges(OWN.wire, (OWN.sum[1] + 1, OWN.sum[1] + 1))


def test_ranges_are_read_as_they_were_written_and_anything_else_is_the_first_version() -> None:
    for ranges in (OWN, FIRST, NEWER, NEWER_SUM):
        assert VersionRanges.read(ranges.write()) == ranges
    for line in ("", "wire=1-2", "wire=2-1,sum=1-1", "wire=1-2,sum=1-1 ", "wire=1-9999,sum=1-1", "\u0661", "x" * 10**6):
        assert VersionRanges.read(line) == FIRST


def test_this_version_and_the_one_before_have_a_version_in_common() -> None:
    assert find_older(OWN, FIRST) is None
    refuse_other_versions("here", FIRST)


@pytest.mark.parametrize("newer", [NEWER, NEWER_SUM])
def test_whoever_is_older_is_told_to_upgrade(newer: VersionRanges) -> None:
    assert (find_older(OWN, newer), find_older(newer, OWN)) == ("ours", "theirs")
    with pytest.raises(FieldError) as ours:
        refuse_other_versions("here", newer)
    with pytest.raises(FieldError) as theirs:
        refuse_other_versions("here", OWN, newer)
    assert ours.value.hint.startswith("Upgrade Tacit on this machine")
    assert theirs.value.hint.startswith("Ask the operator to upgrade")


def answered(own: VersionRanges, named: str | None) -> tuple[int, str, bool]:
    """Send a request through the gate; return its status, the versions it named, and whether it was passed on."""
    sent, passed = list[Any](), list[Any]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if named is None else [(HEADER.encode(), named.encode())]
    asyncio.run(VersionGate(application, own)({"type": "http", "headers": headers}, None, send))
    return sent[0]["status"], dict(sent[0]["headers"])[HEADER.encode()].decode(), bool(passed)


def test_the_gate_names_its_versions_and_refuses_who_has_none_in_common() -> None:
    assert answered(OWN, OWN.write()) == (200, OWN.write(), True)
    assert answered(OWN, None) == (200, OWN.write(), True)
    assert answered(NEWER, OWN.write()) == (UPGRADE_REQUIRED, NEWER.write(), False)
    assert answered(OWN, NEWER_SUM.write()) == (UPGRADE_REQUIRED, OWN.write(), False)


def test_a_message_of_another_version_of_the_sum_says_what_to_upgrade() -> None:
    with pytest.raises(MessageError) as refused:
        message_type(bytes([VERSION + 1, MessageType.ADVERT]) + bytes(40))
    assert refused.value.hint.startswith("Upgrade")
