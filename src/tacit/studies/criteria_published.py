"""The printed numbers of chapter 5 on MNIST: Ferrara's thesis (2022), tables 5.1 to 5.4.

The row of DS counts rounds of communication until 10 to 90 % of devices reach a target; other rows print how many
rounds they gain on it. Cells that cannot be read in the text at hand are left out.
"""

from __future__ import annotations

TARGETS = (0.7, 0.8, 0.9, 0.95)
SHARES = tuple(range(10, 100, 10))

BASELINE: dict[tuple[str, float], tuple[int | None, ...]] = {  # rounds of DS
    ("iid", 0.7): (1, 1, 1, 1, 1, 4, 4, 4, 5),
    ("iid", 0.8): (1, 2, 5, 5, 5, 5, 5, 5, 5),
    ("iid", 0.9): (5, 5, 5, 5, 7, 7, 10, 11, 14),
    ("iid", 0.95): (None, None, 10, 11, 16, 21, 24, 38, 56),
    ("shards", 0.7): (9, 9, 9, 10, 10, 10, 10, 10, 10),
    ("shards", 0.8): (10, 10, 10, 10, 10, 10, 16, 20, 20),
    ("shards", 0.9): (10, 16, 20, 20, 23, 33, 35, 44, 69),
    ("shards", 0.95): (20, 23, 34, 49, 66, 84, 106, 137, 222),
}

_SHARDS = """
LD           | 3 1 1 2 2 2 2 2 -1 | 2 2 2 -1 -3 -3 3 7 2 | -1 3 2 2 -2 2 -4 -5 8 | 2 -2 -7 -3 3 -5 -1 -11 -23
MW           | 4 4 4 5 0 0 0 0 0 | 0 0 0 0 -6 -6 0 1 1 | -9 -3 1 -7 -15 -8 -11 -13 -2 | 1 -15 -7 -13 -10 -15 -23 -11 -14
DS > LD > MW | 2 2 2 2 2 2 2 1 -2 | 2 1 1 1 -3 -3 1 5 5 | -3 1 5 3 4 5 -4 1 4 | 5 -3 -5 0 -11 -13 -5 -19 -11
DS > MW > LD | 0 0 0 0 0 0 0 0 -4 | 1 0 0 -4 -7 -7 -1 3 2 | -7 -1 2 -5 -7 -6 -9 -12 9 | 2 -7 -5 -5 -14 -14 -6 -16 12
LD > DS > MW | 2 2 1 2 2 2 2 2 2 | 2 2 2 -1 -1 -1 5 6 5 | 2 5 5 -1 -6 0 -3 -4 1 | 5 -6 1 -2 -4 1 12 -2 3
MW > DS > LD | 1 0 0 0 0 0 0 -1 -1 | 0 0 -1 -1 -1 -1 2 2 2 | -1 5 2 -3 -2 3 -4 -4 9 | 2 0 3 0 4 0 2 10 -6
LD > MW > DS | 0 0 0 1 1 -2 -2 -2 -2 | 1 -2 -2 -2 -3 -5 1 0 0 | -3 -4 0 -4 -3 1 -1 -4 -1 | 0 -1 -1 -10 -3 -2 -5 5 -6
MW > LD > DS | 1 1 1 2 1 1 1 -3 -3 | ? ? ? -3 -3 -5 0 4 3 | -3 0 3 1 -1 4 3 7 14 | 4 3 2 1 0 9 -9 -5 37
"""


def _gains(text: str) -> dict[tuple[str, float], tuple[int | None, ...]]:
    found = {}
    for line in text.strip().splitlines():
        order, *targets = (part.strip() for part in line.split("|"))
        for target, cells in zip(TARGETS, targets, strict=True):
            found[order, target] = tuple(None if cell == "?" else int(cell) for cell in cells.split())
    return found


GAINED = _gains(_SHARDS)  # table 5.3; the single cells of table 5.1 are too garbled to be told apart
_ORDERS = ("LD", "MW", "DS > LD > MW", "DS > MW > LD", "LD > DS > MW", "MW > DS > LD", "LD > MW > DS", "MW > LD > DS")
# tables 5.2 and 5.4: test pictures that both got wrong, only DS, only the other order, neither
CONFUSED: dict[tuple[str, str], tuple[int, int, int, int]] = {
    ("iid", order): (both, 98 - both, other, 9902 - other)
    for order, both, other in zip(
        _ORDERS, (0, 0, 2, 0, 2, 0, 4, 0), (106, 107, 106, 128, 118, 140, 107, 122), strict=True
    )
} | {
    ("shards", order): (both, 131 - both, other, 9869 - other)
    for order, both, other in zip(
        _ORDERS, (1, 2, 1, 2, 1, 0, 2, 0), (146, 142, 119, 127, 103, 104, 124, 119), strict=True
    )
}


def rounds(partition: str, order: str, target: float) -> tuple[int | None, ...]:
    """Return the printed rounds until 10 to 90 % of devices reach a target; None where nothing can be read.

    >>> rounds("shards", "MW > LD > DS", 0.9)
    (13, 16, 17, 19, 24, 29, 32, 37, 55)
    """
    base = BASELINE[partition, target]
    if order == "DS":
        return base
    gained = GAINED.get((order, target)) if partition == "shards" else None
    if gained is None:
        return (None,) * len(SHARES)
    return tuple(None if b is None or g is None else b - g for b, g in zip(base, gained, strict=True))
