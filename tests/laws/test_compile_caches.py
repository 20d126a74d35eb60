"""A process that compiles and one that loads compiled code give the same bits, for every method.

Run as a program, this file prints one fingerprint per method: of its model and of its metrics.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.config import Experiment
from tacit.lab.experiments import run
from tacit.methods.base import entry, methods


def fingerprint(name: str) -> str:
    options = {"epochs": 2} if "epochs" in entry(name).config.model_fields else {}
    given = {
        "seed": 3,
        "data": {"source": "town", "users": 60, "places": 80, "visits": 20},
        "method": {"name": name} | options,
        "evaluation": {"local_only_users": 0},
    }
    found = run(Experiment.from_options(given, "test"))
    digest = hashlib.blake2b(json.dumps(found.metrics, sort_keys=True).encode(), digest_size=8)
    for part in (found.recommender.model.shared, found.recommender.model.private):
        for table in sorted(part):
            digest.update(table.encode() + np.ascontiguousarray(part[table]).tobytes())
    return digest.hexdigest()


def in_a_fresh_process(cache: Path, order: str) -> dict[str, str]:
    ran = subprocess.run(
        [sys.executable, __file__, order],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        check=True,
        timeout=1200,
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


@pytest.mark.fuzz
def test_every_method_gives_the_same_bits_with_an_empty_and_a_full_cache(tmp_path: Path) -> None:
    compiled = in_a_fresh_process(tmp_path, "forward")
    loaded = in_a_fresh_process(tmp_path, "backward")  # what has been loaded before a kernel differs too
    assert compiled.keys() == methods().keys()
    assert {name for name in compiled if compiled[name] != loaded[name]} == set()


if __name__ == "__main__":
    step = 1 if sys.argv[1] == "forward" else -1
    print(json.dumps({name: fingerprint(name) for name in list(methods())[::step]}))
