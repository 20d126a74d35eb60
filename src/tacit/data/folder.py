"""Folders: a log beside tables of items and a knowledge graph, or the files of a ready split."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tacit.data.clock import Where
from tacit.data.dataset import KnowledgeGraph, Tables
from tacit.data.files import is_readable, read_file, read_parquet
from tacit.data.graph_files import GraphFile, is_ntriples
from tacit.errors import DataError

_PARTS = {"train": "train", "training": "train", "valid": "validation", "validation": "validation", "val": "validation"}
_PARTS |= {"dev": "validation", "test": "test", "testing": "test"}
_FACTS = {"item": "item", "title": "title", "genres": "category", "category": "category", "lat": "lat", "lon": "lon"}


@dataclass(frozen=True)
class GraphRequest:
    """Which knowledge graph is wanted: a file's, or the folder's own; and how much of it."""

    file: Path | None
    links: Path | None
    hops: int
    skip: Sequence[str]


def read_folder(folder: Path, mapping: Mapping[str, str], graph: GraphRequest | None) -> tuple[Tables, Where]:
    """Read a folder of one's own: interactions.*, or train.* and test.* [and validation.*], with items.* if present.

    A log in many Parquet files, also in Hive's folders (`day=2024-01-01/`), is read as one.
    """
    if find(folder, "interactions") is not None:
        return read_layout(folder, "interactions", mapping, graph)
    parts = _ready_split(folder)
    if "train" in parts and "test" in parts:
        tables, where = _read_parts(parts, mapping)
        items, knowledge = read_items(folder), read_graph(folder, graph) if graph else None
        return replace(tables, items=items if items is not None else tables.items, graph=knowledge), where
    logs = [path for path in sorted(folder.iterdir()) if path.suffix == ".inter"]
    if len(logs) == 1:
        return read_file(logs[0], mapping)
    root = folder / "interactions" if (folder / "interactions").is_dir() else folder
    beside = {(folder, name) for name in ("items", "kg", "item_entity")}  # tables about items are not the log
    files = [file for file in _list_parquet(root) if (file.parent, file.stem) not in beside]
    others = [one for one in root.iterdir() if one.suffix != ".parquet" and one.is_file() and is_readable(one)]
    if files and not [one for one in others if (one.parent, one.name.partition(".")[0]) not in beside]:
        _refuse_split(files, root)
        tables, where = read_parquet(files, root, mapping)
        items, knowledge = read_items(folder), read_graph(folder, graph) if graph else None
        return replace(tables, items=items if items is not None else tables.items, graph=knowledge), where
    seen = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
    raise DataError(
        f"{folder}: neither interactions.* nor train.* and test.* are in it; seen: {seen}.",
        "Name one file of it, or put interactions.tsv (and items.tsv) there.",
    )


def _list_parquet(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder, without what tools keep there under `_` or `.` (`_temporary/`)."""
    found = [file for file in sorted(folder.rglob("*.parquet")) if file.is_file()]
    return [file for file in found if not any(map(_is_hidden, file.relative_to(folder).parts))]


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _refuse_split(files: Sequence[Path], root: Path) -> None:
    """Refuse to read the parts of a split as one log: what is to be tested would be learnt from."""
    parts: dict[str, Path] = {}
    for file in files:
        names = [re.split("[^a-z]", name.lower())[0] for name in file.relative_to(root).parts if "=" not in name]
        parts.setdefault(next((_PARTS[name] for name in names if name in _PARTS), ""), file.relative_to(root))
    if len(parts) > 1:
        seen = ", ".join(str(file) for file in parts.values())
        raise DataError(
            f"{root}: these files seem to be parts of a split, not one log: {seen}.",
            "Name the parts train.parquet and test.parquet, or put them into train/ and test/; otherwise rename them.",
        )


def read_layout(
    folder: Path, log_name: str, mapping: Mapping[str, str], graph: GraphRequest | None
) -> tuple[Tables, Where]:
    """Read a log with the tables beside it: items (title, genres or category, lat, lon), kg and item_entity."""
    path = find(folder, log_name)
    if path is None:
        raise DataError(f"{folder}: there is no file {log_name}.tsv.gz (or .csv, .tsv, .parquet).")
    tables, where = read_file(path, mapping)
    items = read_items(folder)
    graphed = read_graph(folder, graph) if graph else None
    return replace(tables, items=items if items is not None else tables.items, graph=graphed), where


def find(folder: Path, stem: str) -> Path | None:
    """Return the readable file of that stem in a folder, whatever its ending."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.split(".")[0] == stem and is_readable(path):
            return path
    return None


def read_items(folder: Path) -> pl.DataFrame | None:
    """Return what items.* in a folder says about items, or None."""
    path = find(folder, "items")
    if path is None:
        return None
    frame = read_table(path)
    if "item" not in frame.columns:
        raise DataError(f"{path}: no column 'item'; columns seen: {', '.join(frame.columns)}.")
    known = {column: role for column, role in _FACTS.items() if column in frame.columns}
    return frame.select(
        pl.col(column).cast(pl.Float64, strict=False).alias(role)
        if role in ("lat", "lon")
        else pl.col(column).alias(role)
        for column, role in known.items()
    )


def read_graph(folder: Path | None, wish: GraphRequest) -> KnowledgeGraph | GraphFile:
    """Return a knowledge graph: triples and the entities of items, or ready features of items.

    Without a file of its own, a folder is searched for kg.nt or kg.tsv with item_entity.*, then for features.*.
    """
    if wish.file is not None and not wish.file.is_file():
        raise DataError(f"data.graph: there is no file {wish.file}.", "Give triples (.nt, .tsv) or item features.")
    linked = wish.links or (find(folder, "item_entity") if folder is not None else None)
    links = None if linked is None else _columns(linked, ("item", "entity"))
    triples, features = wish.file, None
    if wish.file is not None and not is_ntriples(wish.file) and "item" in header(wish.file):
        triples, features = None, wish.file
    if wish.file is None and folder is not None:
        large = next((path for path in sorted(folder.glob("kg.nt*")) if is_ntriples(path)), None)
        triples, features = large or find(folder, "kg"), find(folder, "features")
    if triples is not None and links is not None:
        if wish.file is not None or is_ntriples(triples):
            return GraphFile(triples, links, wish.hops, wish.skip)
        return KnowledgeGraph(_columns(triples, ("head", "relation", "tail")), links)
    if features is not None:
        return _from_features(features, links, find(features.parent, "predicates"))
    raise DataError(
        f"data.graph is set, but {wish.file or folder} comes without the entities of items."
        if triples is not None
        else f"data.graph is set, but {folder} holds no knowledge graph.",
        "It needs kg.tsv (head, relation, tail) or kg.nt, and item_entity.tsv (item, entity; data.links); or "
        "features.tsv (item, feature, or item, predicate, object).",
    )


def _columns(path: Path, names: tuple[str, ...]) -> pl.DataFrame:
    frame = read_table(path)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataError(f"{path}: no column '{missing[0]}'; columns seen: {', '.join(frame.columns)}.")
    return frame.select(names)


def _from_features(path: Path, links: pl.DataFrame | None, predicates: Path | None) -> KnowledgeGraph:
    """Turn ready features of items into triples whose relation is the whole path of predicates."""
    features = read_table(path)
    if "feature" in features.columns:
        features = features.with_columns(predicate=pl.lit("feature"), object=pl.col("feature"))
    missing = [name for name in ("item", "predicate", "object") if name not in features.columns]
    if missing:
        raise DataError(
            f"{path}: no column '{missing[0]}'; columns seen: {', '.join(features.columns)}.",
            "Item features are rows of item and feature, or of item, predicate and object.",
        )
    if links is None:
        links = features.select("item").unique(maintain_order=True).with_columns(entity="item " + pl.col("item"))
    rows = features.join(links.select("item", "entity"), on="item", how="inner", maintain_order="left")
    if predicates is not None:
        paths = read_table(predicates).select("predicate", "path")
        rows = rows.join(paths, on="predicate", how="left", maintain_order="left")
        rows = rows.with_columns(predicate=pl.coalesce("path", "predicate"))
    triples = rows.select(head="entity", relation="predicate", tail="object")
    return KnowledgeGraph(triples, links.select("item", "entity"))


def header(path: Path) -> list[str]:
    """Return the names in the first line of a small table."""
    if path.name.endswith(".parquet"):
        return list(pl.read_parquet_schema(path))
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            return re.split(r"[\t,]", stream.readline().decode("utf-8").rstrip("\r\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a table ({error}).") from None


def read_table(path: Path) -> pl.DataFrame:
    """Read a small table with a header, every column as text."""
    if path.name.endswith(".parquet"):
        return pl.read_parquet(path).cast(pl.String)
    comma = path.name.lower().removesuffix(".gz").endswith(".csv")
    try:
        return pl.read_csv(
            path, separator="," if comma else "\t", quote_char='"' if comma else None, infer_schema=False
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path}: cannot be read as a table ({str(error).splitlines()[0]}).") from None


def _ready_split(folder: Path) -> dict[str, Path]:
    """Return part -> path for files named like train.tsv or ml.test.rating, and for folders of Parquet files."""
    parts: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = [word for word in path.name.lower().split(".") if word in _PARTS]
        if not words or _is_hidden(path.name):
            continue
        if is_readable(path) if path.is_file() else _list_parquet(path):
            part = _PARTS[words[0]]
            if part in parts:
                raise DataError(f"{folder}: both {parts[part].name} and {path.name} seem to be the {part} part.")
            parts[part] = path
    return parts


def _read_parts(parts: Mapping[str, Path], mapping: Mapping[str, str]) -> tuple[Tables, Where]:
    read = {
        part: read_file(path, mapping) if path.is_file() else read_parquet(_list_parquet(path), path, mapping)
        for part, path in parts.items()
    }
    logs = {part: tables.log for part, (tables, _) in read.items()}
    common = [role for role in logs["train"].columns if all(role in log.columns for log in logs.values())]
    for role in ("user", "item"):  # one type for ids, should the files disagree
        if len({log.schema[role] for log in logs.values()}) > 1:
            logs = {part: log.with_columns(pl.col(role).cast(pl.String)) for part, log in logs.items()}
    log = pl.concat(
        [log.select(common).with_columns(split=pl.lit(part)) for part, log in logs.items()], how="vertical_relaxed"
    )
    ends = np.cumsum([frame.height for frame in logs.values()])
    places = [where for _, where in read.values()]

    def where(row: int) -> str:
        part = int(np.searchsorted(ends, row, side="right"))
        return places[part](row - (int(ends[part - 1]) if part else 0))

    dropped = sorted({role for frame in logs.values() for role in frame.columns} - set(common))
    earlier = tuple(dict.fromkeys(warning for tables, _ in read.values() for warning in tables.warnings))
    warnings = (f"Not in all parts of the split, so left out: {', '.join(dropped)}.",) if dropped else ()
    columns = {role: name for role, name in read["train"][0].columns.items() if role in common}
    return Tables(log, read["train"][0].items, columns=columns, warnings=(*earlier, *warnings)), where
