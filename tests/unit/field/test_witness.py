"""One witness of several federations: an id belongs to the coordinator that was visited for it first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.refusals import refused
from tacit.errors import FieldError
from tacit.field.witness import Witness, WitnessLine
from tacit.protocols.directory import DAY, DirectoryGrowth
from tacit.protocols.merkle import MerkleTree
from tacit.protocols.notices import notice_log
from tacit.reasons import ReasonCode

LINE = WitnessLine("one.example:9092", "a certificate", "ab" * 16, "films")


def growth(*entries: bytes) -> DirectoryGrowth:
    tree = MerkleTree(entries)
    return DirectoryGrowth(len(tree), tree.root(), entries)


@pytest.mark.parametrize("log", [LINE.log, notice_log(bytes.fromhex(LINE.log)).hex()], ids=["members", "notices"])
def test_another_coordinator_cannot_name_the_federation_of_a_known_one(tmp_path: Path, log: str) -> None:
    witness = Witness(tmp_path)
    other = WitnessLine("two.example:9092", "another certificate", log, "films")
    witness.refuse_other_coordinator(other)
    witness.know(LINE)
    with pytest.raises(FieldError):
        witness.refuse_other_coordinator(other)
    with pytest.raises(FieldError):
        witness.refuse_other_coordinator(replace(other, roots=""))
    witness.close()
    again = Witness(tmp_path)
    with pytest.raises(FieldError):
        again.refuse_other_coordinator(other)
    again.close()


def test_a_coordinator_may_move_or_have_another_certificate(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.know(LINE)
    for line in (replace(LINE, address="moved.example:9092"), replace(LINE, roots="a new certificate")):
        witness.refuse_other_coordinator(line)
    witness.know(replace(LINE, address="moved.example:9092"))
    witness.refuse_other_coordinator(replace(LINE, address="moved.example:9092", roots="a new certificate"))
    with pytest.raises(FieldError):
        witness.refuse_other_coordinator(replace(LINE, roots="a new certificate"))
    witness.close()


def test_an_identity_that_is_listed_twice_is_a_fork_and_changes_nothing(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    first, second = bytes(32), bytes([1]) * 32
    with refused(FieldError, ReasonCode.DIRECTORY_FORKED):
        witness.add(LINE.log, growth(first, first))
    assert witness.sign_held(LINE.log).size == 0
    assert witness.add(LINE.log, growth(first, second)) == 2
    witness.close()


def test_a_clock_that_was_ahead_uses_up_the_limit_of_one_day(tmp_path: Path) -> None:
    """Not of all days until it is as late as it said; nor does a clock that is put back free anything at once."""
    now = [1_700_000_000.0 + 400 * DAY]
    witness = Witness(tmp_path, clock=lambda: now[0], most_a_day=2)
    entries = [bytes([number]) * 32 for number in range(6)]
    assert witness.add(LINE.log, growth(*entries[:2])) == 2

    def more(n_held: int) -> int:
        whole = growth(*entries)
        return witness.add(LINE.log, replace(whole, entries=tuple(entries[n_held:])))

    now[0] -= 400 * DAY
    assert more(2) == 0
    now[0] += DAY - 60
    assert more(2) == 0, "they count from the moment at which the clock was put back"
    now[0] += 120
    assert more(2) == 2
    now[0] -= 3600
    assert more(4) == 0, "a clock that goes back and forth frees nothing either"
    now[0] += DAY - 60
    assert more(4) == 0
    now[0] += 3600 + 120
    assert more(4) == 2
    witness.close()


def test_a_clock_that_was_behind_frees_nothing(tmp_path: Path) -> None:
    """A machine that starts without the time, again and again, adds no more in a day than another one."""
    now = [1_700_000_000.0]
    witness = Witness(tmp_path, clock=lambda: now[0], most_a_day=2)
    entries = [bytes([number]) * 32 for number in range(4)]
    whole = growth(*entries)
    assert witness.add(LINE.log, growth(*entries[:2])) == 2
    for start in (0.0, 60.0):
        now[0] = start
        assert witness.add(LINE.log, replace(whole, entries=tuple(entries[2:]))) == 0
        now[0] = 1_700_000_000.0 + start
        assert witness.add(LINE.log, replace(whole, entries=tuple(entries[2:]))) == 0
    now[0] += DAY
    assert witness.add(LINE.log, replace(whole, entries=tuple(entries[2:]))) == 2
    witness.close()


def test_two_programs_of_one_witness_sign_one_list(tmp_path: Path) -> None:
    one, two = Witness(tmp_path), Witness(tmp_path)
    first, second = bytes(32), bytes([1]) * 32
    assert (one.sign_held(LINE.log).size, two.sign_held(LINE.log).size) == (0, 0)
    assert one.add(LINE.log, growth(first)) == 1
    with refused(FieldError, ReasonCode.DIRECTORY_FORKED):
        two.add(LINE.log, growth(second))
    assert two.sign_held(LINE.log).root == one.sign_held(LINE.log).root
    one.close()
    two.close()
