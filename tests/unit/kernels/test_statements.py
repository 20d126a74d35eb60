"""Lines taken apart at bytes give what a plain reading by the grammar gives, whatever is in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.graph_files import read_triples
from tacit.kernels.statements import _hash, empty_label_table, number_labels, with_room

NAMES = st.text("ab>é/ ", min_size=1, max_size=4).map(lambda text: text.replace(">", ""))
IRI = NAMES.map(lambda name: f"<{name}>")
LITERAL = st.tuples(
    st.text('ab é.<>"\\', max_size=5).map(lambda text: text.replace("\\", "\\\\").replace('"', '\\"')),
    st.sampled_from(["", "@en", "@de-AT", "^^<x>"]),
).map(lambda parts: f'"{parts[0]}"{parts[1]}')
GAP = st.sampled_from([" ", " ", " ", "\t", "  "])
LINE = st.one_of(
    st.tuples(
        IRI, GAP, IRI, GAP, st.one_of(IRI, LITERAL, st.just("_:b1")), st.sampled_from([" .", ".", " . # old", " .\r"])
    ).map("".join),
    st.sampled_from(["", "  ", "# a comment"]),
)
TERM = r'(<[^>]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?)'


def plain(lines: list[str]) -> list[tuple[str, ...]]:
    """Read by the grammar, line by line: the slow reference."""
    found = []
    for line in lines:
        if line.strip() and not line.strip().startswith("#"):
            match = re.match(rf"^\s*(<[^>]*>|_:\S+)\s*(<[^>]*>)\s*{TERM}\s*\.\s*(?:#.*)?$", line)
            assert match is not None, line
            tail = match[3]
            if tail.startswith('"'):
                tail = re.sub(r"\\(.)", r"\1", tail[1 : tail.rindex('"')])
            found.append((match[1].strip("<>"), match[2].strip("<>"), tail.strip("<>") if tail == match[3] else tail))
    return found


@pytest.mark.slow
@settings(max_examples=150)
@given(lines=st.lists(LINE, max_size=12), ends=st.booleans(), size=st.sampled_from([9, 50, 4096]))
def test_every_statement_is_read_as_the_grammar_reads_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: bool, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.nt"
    path.write_bytes(("\n".join(lines) + ("\n" if ends else "")).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.data.graph_files.BLOCK", size)
        found = read_triples(path, pl.Series([None], dtype=pl.String), 0)
    names, relations = found.entities.labels, found.relation_names
    told = zip(found.heads, found.relations, found.tails, strict=True)
    assert sorted((names[h], relations[r], names[t]) for h, r, t in told) == sorted(plain(lines))
    assert list(names) == sorted(set(names))


def test_numbers_stay_when_the_table_grows() -> None:
    labels = [str(i).encode() for i in range(5000)]
    known, every = empty_label_table(4), []
    for label in labels + labels:
        text, number = np.frombuffer(label, np.uint8), np.empty(1, np.int32)
        known = with_room(known, 1)
        number_labels(text, np.array([0, len(label)]), known, np.empty((1, 2), np.int64), number)
        every.append(int(number[0]))
    assert every == [*range(5000), *range(5000)]
    assert len({int(_hash(np.frombuffer(label, np.uint8), 0, len(label))) for label in labels}) == 5000


def test_marks_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "kg.tsv"
    path.write_bytes(b"\xef\xbb\xbfhead\trelation\ttail\r\na\tr\tb\xff\r\na\tr\tb\xfe\r\n\r\nb\xff\ts\tc\r\n")
    found = read_triples(path, pl.Series(["a"]), 2)
    assert list(found.entities.labels) == ["a", "b\ufffd", "c"], "what reads alike is one entity"
    assert len(found) == 3
    assert found.relation_names == ["r", "s"]
    assert len(read_triples(path, pl.Series(["a"]), 2, skip=("r",))) == 0
