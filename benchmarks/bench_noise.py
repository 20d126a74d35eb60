"""Noise for one person: 3,706 x 32 whole numbers, from an AES stream, against numpy's generator.

The peer draws rounded normals, differences of Poisson numbers and differences of geometric numbers with PCG64, which is
not cryptographic and so no choice for noise that protects anybody. The goal is 20 ms for Gaussian and Skellam noise.
Seconds of processor time, best of several, ours and the peer in turn; widths in steps are those of one share of 6,040
people at epsilon 1 and 20 bits behind the point, of narrow noise, and of very wide noise.
"""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable

import numpy as np

from tacit.privacy.noise import SystemNoise, gaussian_steps, laplace_steps, skellam_steps

SIZE, GOAL, REPEAT = 3706 * 32, 0.020, 15
WIDTHS = (54_500.0, 5.0, 1e8)


def pairs(width: float) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return what is timed: ours and the peer, per kind of noise."""
    source, rng = SystemNoise(), np.random.default_rng(0)
    rate = width * width / 2
    chance = -np.expm1(-1 / width)
    return {
        "gaussian": (
            lambda: gaussian_steps(source, SIZE, width),
            lambda: np.rint(rng.standard_normal(SIZE) * width).astype(np.int64),
        ),
        "skellam": (
            lambda: skellam_steps(source, SIZE, width * width),
            lambda: rng.poisson(rate, SIZE) - rng.poisson(rate, SIZE),
        ),
        "laplace": (
            lambda: laplace_steps(source, SIZE, width),
            lambda: rng.geometric(chance, SIZE) - rng.geometric(chance, SIZE),
        ),
    }


def seconds(*works: Callable[[], object]) -> list[float]:
    """Return the least processor time of each, measured in turn."""
    least = [float("inf")] * len(works)
    for _ in range(REPEAT):
        for at, work in enumerate(works):
            start = time.process_time()
            work()
            least[at] = min(least[at], time.process_time() - start)
    return least


def main() -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for width in WIDTHS:
        for name, works in pairs(width).items():
            ours, peer = seconds(*works)
            row = {"bench": "noise", "data": f"{name} {width:g} steps, {SIZE} numbers", "threads": 1, "ours": ours}
            row |= {"peer": peer, "peer_name": "numpy PCG64", "ratio": round(peer / ours, 2), "unit": "s"}
            row |= {"goal": None if name == "laplace" else GOAL}
            row |= {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "commit": commit}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
