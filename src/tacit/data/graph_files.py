"""Graphs too large to hold: N-Triples or TSV files, read block by block, of which only what items reach is kept."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.data.exploration import NOISE, short
from tacit.errors import DataError
from tacit.types import Triples, Vocabulary

BLOCK = 32 * 2**20  # bytes of text in memory at a time
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


class _Encoded:
    """Triples as hashes of their labels, and the label of every hash."""

    def __init__(self) -> None:
        self.triples: list[NDArray[np.uint64]] = []  # [N, 3] each
        self._labels = [pl.DataFrame(schema={"hash": pl.UInt64, "label": pl.String})]
        self._new = 0

    def add(self, kept: pl.DataFrame) -> None:
        """Take in triples of labels (head, relation, tail)."""
        hashed = [kept[name].hash() for name in ("head", "relation", "tail")]
        self.triples.append(np.stack([column.to_numpy() for column in hashed], axis=1))
        columns = zip(("head", "relation", "tail"), hashed, strict=True)
        parts = [pl.DataFrame({"hash": numbers, "label": kept[name]}) for name, numbers in columns]
        own = pl.concat_str("label", pl.lit(""))  # a copy: the parts of a line keep their whole block in memory
        self._labels.append(pl.concat(parts).unique("hash").with_columns(own))
        self._new += self._labels[-1].height
        if self._new > self._labels[0].height:  # merged when it has doubled, so each label is handled a few times only
            self._labels, self._new = [self.labels()], 0

    def labels(self) -> pl.DataFrame:
        """Return hash and label of everything taken in."""
        return pl.concat(self._labels).unique("hash")


def read_triples(path: Path, linked: pl.Series, hops: int, skip: Sequence[str] = NOISE) -> Triples:
    """Return what a file says of the linked entities and of what `hops` steps from them reach; 0: all it says.

    The file is read once for every hop. `linked` [n_items] names each item's entity, null where it has none. Statements
    about items whose predicate is to be skipped are not kept.
    """
    if not path.is_file():
        raise DataError(f"There is no graph file {path}.", "Give a file of N-Triples (.nt) or of TSV triples.")
    reached = _hashes(linked.drop_nulls().unique())
    items, done = reached, np.zeros(0, np.uint64)
    found = _Encoded()
    for hop in range(max(1, hops)):
        wanted = np.setdiff1d(reached, done) if hops else None
        if wanted is not None and not len(wanted):
            break
        start = len(found.triples)
        for kept in _statements(path, wanted):
            found.add(kept.filter(~_skipped(kept, items, skip)) if hop == 0 and hops else kept)
        done = reached
        tails = [block[:, 2] for block in found.triples[start:]]
        reached = np.unique(np.concatenate([reached, *tails]))
    return _indexed(found, linked)


def _skipped(kept: pl.DataFrame, items: NDArray[np.uint64], skip: Sequence[str]) -> pl.Series:
    predicates = kept["relation"].unique()
    noise = [name for name in predicates.to_list() if name in skip or short(name) in skip]
    return kept["relation"].is_in(noise) & pl.Series(_among(items, kept["head"].hash().to_numpy()))


def _statements(path: Path, wanted: NDArray[np.uint64] | None) -> Iterator[pl.DataFrame]:
    """Yield head, relation, tail of the wanted heads (all, if none are named), block after block."""
    line = 1
    ntriples = is_ntriples(path)
    for block in _blocks(path):
        lines = pl.read_csv(
            io.BytesIO(block),
            has_header=False,
            separator="\x01",
            quote_char=None,
            infer_schema=False,
            encoding="utf8-lossy",
        )
        text = lines.to_series().alias("line")
        kept = _ntriples(path, line, text, wanted) if ntriples else _tsv(path, line, text, wanted)
        line += len(text)
        if kept.height:
            yield kept


def _ntriples(path: Path, first: int, text: pl.Series, wanted: NDArray[np.uint64] | None) -> pl.DataFrame:
    """Take most lines apart at '> '; only those with literals, blank nodes or unusual spaces need the whole grammar."""
    frame = pl.DataFrame({"line": text}).with_row_index("at")
    frame = frame.filter(pl.col("line").str.contains(r"^\s*[^#\s]"))  # not blank, and no comment
    parts = frame["line"].str.splitn("> ", 3).struct.unnest()
    parts.columns = ["head", "relation", "tail"]
    head, tail = pl.col("head"), pl.col("tail")
    usual = parts.select(
        (
            head.str.starts_with("<")
            & ~head.str.contains(">", literal=True)
            & pl.col("relation").str.starts_with("<")
            & tail.str.starts_with("<")
            & (tail.str.find(">", literal=True) == tail.str.len_bytes() - 3)
            & tail.str.ends_with("> .")
        ).fill_null(False)
    ).to_series()
    plain = parts.filter(usual).select(
        head.str.slice(1), pl.col("relation").str.slice(1), tail.str.strip_suffix("> .").str.slice(1)
    )
    if wanted is not None:
        plain = plain.filter(pl.Series(_among(wanted, plain["head"].hash().to_numpy())))
    if usual.all():
        return plain
    return pl.concat([plain, _grammatical(path, first, frame.filter(~usual), wanted)])


def _grammatical(path: Path, first: int, frame: pl.DataFrame, wanted: NDArray[np.uint64] | None) -> pl.DataFrame:
    """Read lines by the grammar of N-Triples; a literal is its text."""
    head = frame["line"].str.extract(r"^\s*(<[^>]*>|_:\S+)").str.strip_chars("<>")
    _refuse(path, first, frame.filter(head.is_null()))
    if wanted is not None:
        frame = frame.filter(pl.Series(_among(wanted, head.hash().to_numpy())))
    parts = frame["line"].str.extract_groups(_STATEMENT).struct.unnest()
    head, relation, tail = (parts.to_series(i) for i in range(3))
    _refuse(path, first, frame.filter(head.is_null()))
    texts = tail.str.extract(r'^"((?:[^"\\]|\\.)*)"')
    if texts.str.contains("\\", literal=True).fill_null(False).any():
        texts = texts.map_elements(_unescaped, return_dtype=pl.String)
    tail = pl.select(pl.coalesce(texts, tail.str.strip_chars("<>"))).to_series()
    return pl.DataFrame({"head": head.str.strip_chars("<>"), "relation": relation.str.strip_chars("<>"), "tail": tail})


def _tsv(path: Path, first: int, text: pl.Series, wanted: NDArray[np.uint64] | None) -> pl.DataFrame:
    frame = pl.DataFrame({"line": text}).with_row_index("at").filter(pl.col("line").str.strip_chars() != "")
    fields = frame["line"].str.strip_chars_end("\r").str.split_exact("\t", 3).struct.unnest()
    fields.columns = ["head", "relation", "tail", "more"]
    wrong = fields["tail"].is_null() | fields["more"].is_not_null()
    _refuse(path, first, frame.filter(wrong))
    fields = fields.select("head", "relation", "tail")
    if first == 1 and fields.height and fields.row(0) == ("head", "relation", "tail"):
        fields = fields[1:]
    return fields if wanted is None else fields.filter(pl.Series(_among(wanted, fields["head"].hash().to_numpy())))


def _refuse(path: Path, first: int, wrong: pl.DataFrame) -> None:
    if wrong.height:
        what = "N-Triples (<subject> <predicate> <object> .)" if is_ntriples(path) else "TSV (head, relation, tail)"
        seen = str(wrong["line"][0])
        raise DataError(
            f"{path.name}, line {first + int(wrong['at'][0])}: this is not a triple: '{seen[:120]}'.",
            f"The file is read as {what}; correct the line or the file's ending (.nt, .tsv).",
        )


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else _PLAIN.get(m[3], m[3]), text)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines."""
    rest = b""
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            while block := stream.read(BLOCK):
                cut = block.rfind(b"\n") + 1
                if cut:
                    yield rest + block[:cut]
                rest = block[cut:] if cut else rest + block
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}).", "Check that the file is whole.") from None
    if rest.strip():
        yield rest


def _hashes(labels: pl.Series) -> NDArray[np.uint64]:
    return np.sort(labels.cast(pl.String).hash().to_numpy())


def _among(known: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which of the asked are among the known, which are sorted."""
    if not len(known):
        return np.zeros(len(asked), bool)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray(known[at] == asked)


def _indexed(found: _Encoded, linked: pl.Series) -> Triples:
    """Number entities and relations in the order of their labels."""
    named = pl.DataFrame({"hash": linked.hash(), "label": linked}).drop_nulls()
    cells = np.concatenate(found.triples) if found.triples else np.zeros((0, 3), np.uint64)
    labels = pl.concat([found.labels(), named]).unique("hash")
    kinds = labels.filter(pl.Series(_among(np.unique(cells[:, 1]), labels["hash"].to_numpy()))).sort("label")
    ends = np.unique(np.concatenate([cells[:, 0], cells[:, 2], named["hash"].to_numpy()]))
    entities = labels.filter(pl.Series(_among(ends, labels["hash"].to_numpy()))).sort("label")
    item_entity = np.full(len(linked), -1, np.int32)
    has = linked.is_not_null().to_numpy()
    item_entity[has] = _numbers(entities, linked.hash().to_numpy()[has])
    return Triples(
        _numbers(entities, cells[:, 0]),
        _numbers(kinds, cells[:, 1]),
        _numbers(entities, cells[:, 2]),
        Vocabulary(entities["label"].to_numpy().astype(object)),
        kinds["label"].to_list(),
        item_entity,
    )


def _numbers(labels: pl.DataFrame, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
    known = labels["hash"].to_numpy()
    order = np.argsort(known)
    return order[np.searchsorted(known[order], hashes)].astype(np.int32) if len(known) else np.zeros(0, np.int32)
