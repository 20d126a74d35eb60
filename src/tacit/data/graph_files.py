"""Large graphs in N-Triples or TSV files, read block by block; only what items reach is stored."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.data.exploration import NOISE, predicate_spellings
from tacit.errors import DataError
from tacit.kernels.statements import NEWLINE, copy_spans, empty_label_table, number_labels, parse_statements, with_room
from tacit.types import Triples, Vocabulary, offsets

BLOCK = 8 * 2**20  # bytes of text in memory at a time
BOM = b"\xef\xbb\xbf"
HEADER = re.compile(rb"head\trelation\ttail\r*\n")
_TERM = r'(<[^>]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?)'
_STATEMENT = rf"^\s*(<[^>]*>|_:\S+)\s*(<[^>]*>)\s*{_TERM}\s*\.\s*(?:#.*)?$"
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tbnrf"\'\\]))')
_PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


def is_ntriples(path: Path) -> bool:
    """Return whether a file is named as N-Triples."""
    return path.name.lower().removesuffix(".gz").endswith((".nt", ".ntriples"))


@dataclass(frozen=True)
class GraphFile:
    """A graph that stays on disk until it is known which items matter."""

    path: Path
    links: pl.DataFrame  # item, entity
    hops: int
    skip: Sequence[str] = NOISE


class _Labels:
    """Labels by number, in the order of first sight; their text stays as bytes until it is asked for."""

    def __init__(self) -> None:
        self.known = empty_label_table()
        self._text: list[NDArray[np.uint8]] = []
        self._lengths: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return int(self.known.n[0])

    def reserve(self, more: int) -> NDArray[np.int64]:
        """Reserve room for so many labels more; return the array in which a kernel notes new ones."""
        self.known = with_room(self.known, more)
        return np.empty((more, 2), np.int64)

    def add_new(self, text: NDArray[np.uint8], spans: NDArray[np.int64]) -> None:
        """Store the text of new labels."""
        self._text.append(copy_spans(text, spans))
        self._lengths.append(spans[:, 1] - spans[:, 0])

    def numbers(self, labels: Sequence[str]) -> NDArray[np.int32]:
        """Return the numbers of labels, new ones where they were not known."""
        pieces = [label.encode() for label in labels]
        text, ptr = np.frombuffer(b"".join(pieces), np.uint8), offsets(np.array([len(piece) for piece in pieces]))
        before, new, numbers = len(self), self.reserve(len(pieces)), np.empty(len(pieces), np.int32)
        number_labels(text, ptr, self.known, new, numbers)
        self.add_new(text, new[: len(self) - before])
        return numbers

    def sort(self, used: NDArray[np.bool_]) -> tuple[list[str], NDArray[np.int32]]:
        """Return the used labels in their order, each once, and the place of every number among them."""
        labels: list[str] = []
        start = 0
        for text, lengths in zip(self._text, self._lengths, strict=True):
            every, ends = text.tobytes(), np.cumsum(lengths)
            here = np.flatnonzero(used[start : start + len(lengths)])
            for end, length in zip(ends[here].tolist(), lengths[here].tolist(), strict=True):
                labels.append(every[end - length : end].decode(errors="replace"))
            start += len(lengths)
        column = pl.Series(labels, dtype=pl.String)
        order = column.arg_sort()
        column = column.gather(order)
        first = (column != column.shift(1)).fill_null(True)  # bytes that are no text may read alike
        places = np.full(len(self), -1, np.int32)
        places[np.flatnonzero(used)[order.to_numpy()]] = first.cum_sum().to_numpy() - 1
        return column.filter(first).to_list(), places


def read_triples(path: Path, linked: pl.Series, hops: int, skip: Sequence[str] = NOISE) -> Triples:
    """Return what a file says of the linked entities and of what `hops` steps from them reach; 0: all it says.

    The file is read once for every hop. `linked` [n_items] names each item's entity, null where it has none. Statements
    about items whose predicate is to be skipped are not kept.
    """
    if not path.is_file():
        raise DataError(f"There is no graph file {path}.", "Give a file of N-Triples (.nt) or of TSV triples.")
    labels, has = _Labels(), linked.is_not_null().to_numpy()
    items = labels.numbers(linked.drop_nulls().cast(pl.String).to_list())
    noise = labels.numbers(sorted({full for name in skip for full in predicate_spellings(name)}))
    triples: list[NDArray[np.int32]] = []
    done = np.zeros(0, bool)
    reached = np.zeros(len(labels), bool)
    reached[items] = True
    for hop in range(max(1, hops)):
        marks = reached.astype(np.uint8)
        marks[: len(done)][done] = 0
        if hops and not marks.any():
            break
        if hop == 0 and hops:
            marks[noise] |= 2
        found = list(_statements(path, labels, marks, everything=not hops))
        triples += found
        done = reached
        reached = np.zeros(len(labels), bool)
        reached[: len(done)] = done
        for block in found:
            reached[block[2]] = True
    return _index(np.concatenate(triples, axis=1) if triples else np.zeros((3, 0), np.int32), labels, items, has)


def _statements(path: Path, labels: _Labels, marks: NDArray[np.uint8], everything: bool) -> Iterator[NDArray[np.int32]]:
    """Yield head, relation, tail of the wanted heads as numbers [3, n], block after block."""
    line, is_nt = 1, is_ntriples(path)
    for block in _blocks(path):
        skip = len(BOM) if line == 1 and block[:3].tobytes() == BOM else 0
        if line == 1 and not is_nt and (names := HEADER.match(block[skip : skip + 80].tobytes())):
            skip, line = skip + names.end(), 2
        text = block[skip:]
        most = int(np.count_nonzero(text == NEWLINE))
        before, new = len(labels), labels.reserve(3 * most)
        triples, odd = np.empty((3, most), np.int32), np.empty((most, 3), np.int64)
        n, n_odd, n_lines = parse_statements(text, is_nt, labels.known, marks, everything, triples, new, odd)
        labels.add_new(text, new[: len(labels) - before])
        if n:
            yield triples[:, :n].copy()
        if n_odd:
            lines = [text[start:end].tobytes().decode(errors="replace") for start, end, _ in odd[:n_odd].tolist()]
            others = pl.DataFrame({"at": line + odd[:n_odd, 2], "line": lines})
            kept = _odd(path, others, is_nt)
            heads = labels.numbers(kept["head"].to_list())
            wanted = np.full(len(heads), everything)
            inside = heads < len(marks)
            wanted[inside] |= (marks[heads[inside]] & 1) > 0
            heads = heads[wanted]
            kept = kept.filter(pl.Series(wanted, dtype=pl.Boolean))  # texts of others are not numbered, nor kept
            relations, tails = (labels.numbers(kept[name].to_list()) for name in ("relation", "tail"))
            wanted = np.ones(len(heads), bool)
            inside = relations < len(marks)
            wanted[inside] = (marks[relations[inside]] & 2) == 0
            if wanted.any():
                yield np.stack([heads, relations, tails])[:, wanted]
        line += n_lines


def _odd(path: Path, frame: pl.DataFrame, is_nt: bool) -> pl.DataFrame:
    """Read lines that are not of the usual form: comments, blank ones, and all that the grammar allows."""
    if not is_nt:
        frame = frame.filter(pl.col("line").str.strip_chars() != "")
        _refuse(path, frame)
        return pl.DataFrame(schema=dict.fromkeys(("head", "relation", "tail"), pl.String))
    return _grammatical(path, frame.filter(pl.col("line").str.contains(r"^\s*[^#\s]")))


def _grammatical(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Read lines by the grammar of N-Triples; a literal is its text."""
    parts = frame["line"].str.extract_groups(_STATEMENT).struct.unnest()
    head, relation, tail = (parts.to_series(i) for i in range(3))
    _refuse(path, frame.filter(head.is_null()))
    texts = tail.str.extract(r'^"((?:[^"\\]|\\.)*)"')
    if texts.str.contains("\\", literal=True).fill_null(False).any():
        texts = texts.map_elements(_unescape, return_dtype=pl.String)
    tail = pl.select(pl.coalesce(texts, tail.str.strip_chars("<>"))).to_series()
    return pl.DataFrame({"head": head.str.strip_chars("<>"), "relation": relation.str.strip_chars("<>"), "tail": tail})


def _refuse(path: Path, wrong: pl.DataFrame) -> None:
    if wrong.height:
        what = "N-Triples (<subject> <predicate> <object> .)" if is_ntriples(path) else "TSV (head, relation, tail)"
        seen = str(wrong["line"][0])
        raise DataError(
            f"{path.name}, line {wrong['at'][0]}: this is not a triple: '{seen[:120]}'.",
            f"The file is read as {what}; correct the line or the file's ending (.nt, .tsv).",
        )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else _PLAIN.get(m[3], m[3]), text)


def _blocks(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a file in blocks of whole lines that end with a newline; each is gone when the next comes."""
    buffer, filled = bytearray(BLOCK), 0
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            while n := stream.readinto(memoryview(buffer)[filled:-1]):
                filled += n
                end = buffer.rfind(b"\n", 0, filled) + 1
                if end:
                    yield np.frombuffer(buffer, np.uint8)[:end]
                    buffer[: filled - end] = buffer[end:filled]
                    filled -= end
                if filled == len(buffer) - 1:  # a line that is longer than all this
                    buffer = buffer + bytes(len(buffer))
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}).", "Check that the file is whole.") from None
    if filled:
        buffer[filled] = NEWLINE
        yield np.frombuffer(buffer, np.uint8)[: filled + 1]


def _index(triples: NDArray[np.int32], labels: _Labels, items: NDArray[np.int32], has: NDArray[np.bool_]) -> Triples:
    """Number entities and relations in the order of their labels."""
    ends, kinds = np.zeros(len(labels), bool), np.zeros(len(labels), bool)
    for numbers in (triples[0], triples[2], items):
        ends[numbers] = True
    kinds[triples[1]] = True
    relation_names, relation_at = labels.sort(kinds)
    names, entity_at = labels.sort(ends)
    item_entity = np.full(len(has), -1, np.int32)
    item_entity[has] = entity_at[items]
    return Triples(
        entity_at[triples[0]],
        relation_at[triples[1]],
        entity_at[triples[2]],
        Vocabulary(np.array(names, object)),
        relation_names,
        item_entity,
    )
