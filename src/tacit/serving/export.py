"""Export a model that scores from a history as one matrix, with scorers that need no Tacit.

Many methods add up one row per item of a history: score(x) = b + sum over i in x of W[i]. Whether a model does so is
measured: histories of one item and of none give W and b, and the model's own scores of real histories must be the sums.
The folder holds `export.json` (what it is), `items.json` (ids and titles), `weights.f32`
(b, then the rows of W, little-endian) and two scorers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import MethodError
from tacit.methods.base import score_clients
from tacit.numerics import one_blas_thread
from tacit.serving.recommender import Recommender
from tacit.types import Array, Clients, Floats, offsets

FORMAT = 1
CHECKED = 64  # histories on which sums of rows must be the model's own scores
TOLERANCE = 1e-4  # of the largest score: single precision, added in another order
LARGEST = 1 << 30  # bytes of W
SCORERS = ("scorer.py", "scorer.mjs")


def export(recommender: Recommender, folder: Path | str) -> dict[str, Any]:
    """Write the matrix of a model, its items and two scorers into a folder; return what `export.json` says."""
    n, folder = recommender.catalog.n_items, Path(folder)
    if recommender.model.private:
        raise MethodError(
            f"'{recommender.name}' keeps a vector per user, so its scores do not follow from a history alone.",
            "Export a method that serves new users (see docs/methods/README.md), or use --onnx: "
            "there, the vector is an input.",
        )
    bias, rows = history_matrix(recommender)
    about = {"format": FORMAT, "method": recommender.name, "n_items": n, "scores": "bias + sum of rows of the history"}
    write_description(recommender, about, folder)
    np.concatenate([bias[None], rows]).astype("<f4").tofile(folder / "weights.f32")
    for name in SCORERS:
        text = files("tacit.serving").joinpath("scorers", name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return about


def history_matrix(recommender: Recommender) -> tuple[Floats, Floats]:
    """Return b [n_items] and W [n_items, n_items] of a model that adds up rows; another model is refused."""
    n = recommender.catalog.n_items
    if 4 * n * n > LARGEST:
        raise MethodError(f"The matrix of {n:,} items takes {4 * n * n / 1e9:.1f} GB, and at most 1.1 are written.")
    bias = _score(recommender, np.zeros(1, np.int64), np.zeros(0, np.int32))[0]
    rows = _score(recommender, np.ones(n, np.int64), np.arange(n, dtype=np.int32)) - bias
    _check_sums(recommender, bias, rows)
    return bias, rows


def write_description(recommender: Recommender, about: dict[str, Any], folder: Path) -> None:
    """Write what every export has: `export.json` and `items.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = recommender.catalog
    items = [{"id": catalog.item_ids[item], "title": catalog.title(item)} for item in range(catalog.n_items)]
    (folder / "items.json").write_text(json.dumps(items, ensure_ascii=False), encoding="utf-8")
    (folder / "export.json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def _score(recommender: Recommender, sizes: Array, items: Array) -> Floats:
    """Return the scores of new users with these histories."""
    return _score_clients(
        recommender, Clients(np.arange(len(sizes)), offsets(sizes), items, recommender.catalog.n_items)
    )


def _score_clients(recommender: Recommender, clients: Clients) -> Floats:
    with one_blas_thread():
        return score_clients(recommender.method, recommender.model, clients)


def _check_sums(recommender: Recommender, bias: Floats, rows: Floats) -> None:
    """Refuse a model whose scores of real histories are not sums of rows."""
    sample = recommender.clients.take(np.arange(min(CHECKED, len(recommender.clients))))
    wanted = _score_clients(recommender, replace(sample, ids=np.arange(len(sample))))  # with their order
    found = np.stack([bias + rows[sample.take([c]).items].sum(axis=0) for c in range(len(sample))])
    apart = float(np.abs(found - wanted).max(initial=0.0))
    if not apart <= TOLERANCE * float(np.abs(wanted).max(initial=0.0)):
        raise MethodError(
            f"The scores of '{recommender.name}' are no sums over the items of a history ({apart:.2g} apart).",
            "Serve it with `tacit.Recommender.load`, or export ease, item-knn or pure-svd.",
        )
