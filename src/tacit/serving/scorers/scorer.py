"""Recommend from an exported model: numpy and the standard library only.

python scorer.py FOLDER 10 ITEM [ITEM ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


class Scorer:
    """A matrix W and a bias b: the score of item j for a history x is b[j] + the sum of W[i, j] over i in x."""

    def __init__(self, where: str) -> None:
        folder = Path(where)
        about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        if about["format"] != 1:
            raise ValueError(f"{folder} has format {about['format']}, and this scorer reads format 1")
        n = about["n_items"]
        numbers = np.fromfile(folder / "weights.f32", "<f4").reshape(n + 1, n)
        self.bias, self.rows = numbers[0], numbers[1:]
        self.items = json.loads((folder / "items.json").read_text(encoding="utf-8"))
        self.place = {str(item["id"]): at for at, item in enumerate(self.items)}

    def score(self, history: Iterable[object]) -> Any:
        """Return the score of every item; ids that are not in the catalogue are left out."""
        known = sorted({self.place[str(one)] for one in history if str(one) in self.place})
        return self.bias + self.rows[known].sum(axis=0, dtype=np.float64)

    def recommend(self, history: list[str], k: int = 10) -> list[dict[str, Any]]:
        """Return the k best items outside the history: id, title, score."""
        scores = self.score(history)
        mine = {self.place[str(one)] for one in history if str(one) in self.place}
        best = [at for at in np.argsort(-scores, kind="stable").tolist() if at not in mine][:k]
        return [{**self.items[at], "score": float(scores[at])} for at in best]


if __name__ == "__main__":
    print(json.dumps(Scorer(sys.argv[1]).recommend(sys.argv[3:], int(sys.argv[2]))))
