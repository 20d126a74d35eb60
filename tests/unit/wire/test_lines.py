"""Lines that people copy: what was written is read, anything else is refused in one way, whoever reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import FieldError
from tacit.field.invitations import PREFIX as DEVICE
from tacit.field.invitations import Invitation
from tacit.field.peer.founding import PREFIX as PEER
from tacit.field.peer.founding import PeerInvitation
from tacit.field.witness import PREFIX as WITNESS
from tacit.field.witness import WitnessLine
from tacit.wire.lines import encode_text, read_line, write_line

READERS = {DEVICE: Invitation.parse, PEER: PeerInvitation.parse, WITNESS: WitnessLine.parse}
BROKEN = {
    "nested-too-deeply": encode_text(b"[" * 200_000),
    "no-document": encode_text(b'["a", "w", "r"]'),
    "no-json": encode_text(b"\xff\xfe"),
    "no-base64": "é",
    "other-fields": encode_text(b'{"x": 1}'),
    "numbers-for-texts": encode_text(b'{"a": 1, "w": 2, "r": 3, "l": 4, "n": 5, "s": 6, "m": 7}'),
    "empty": "",
}


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())), st.data())
def test_a_line_that_was_broken_anywhere_is_read_as_it_was_written(
    about: dict[str, object], data: st.DataObject
) -> None:
    line = write_line(DEVICE, about)
    at = data.draw(st.integers(0, len(line)))
    assert read_line(DEVICE, f" {line[:at]}\n  {line[at:]}\n") == about


@pytest.mark.parametrize("prefix", READERS)
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_every_reader_refuses_what_is_no_line_of_its_kind(prefix: str, body: str) -> None:
    reader: Callable[[str], object] = READERS[prefix]
    with pytest.raises(FieldError):
        reader(prefix + body)
