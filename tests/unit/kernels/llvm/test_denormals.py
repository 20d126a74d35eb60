from __future__ import annotations

import platform

import numpy as np
import pytest

from tacit.kernels.llvm.denormals import flushed_denormals

TINY = np.float32(1e-40)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="only x86 has this switch")
def test_tiny_numbers_vanish_within_the_block_and_return_after_it() -> None:
    one = np.ones(1, np.float32)
    with flushed_denormals():
        assert (one * TINY)[0] == 0
    assert (one * TINY)[0] > 0


def test_learning_leaves_the_callers_arithmetic_alone() -> None:
    import tacit

    for method in ("gmf", "multi-vae"):
        experiment = tacit.Experiment(
            method={"name": method, "epochs": 1},
            data={"users": 30, "places": 20},
            evaluation={"local_only_users": 2, "k": [5]},
        )
        tacit.run(experiment)
        assert (np.ones(1, np.float32) * TINY)[0] > 0, f"{method} left denormal numbers switched off"
