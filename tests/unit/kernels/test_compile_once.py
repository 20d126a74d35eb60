"""Kernels are compiled by one of several processes that need them, and nobody waits for a process that is gone.

Run as a program, this file runs a small kernel that calls another one, and prints how many functions it compiled.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

N_PROCESSES = 3


def start(cache: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE)


def count_compiled(process: subprocess.Popen[bytes]) -> int:
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return int(printed)


@pytest.mark.slow
def test_of_processes_that_start_together_one_compiles_each_kernel(tmp_path: Path) -> None:
    counts = [count_compiled(process) for process in [start(tmp_path) for _ in range(N_PROCESSES)]]
    alone = count_compiled(start(tmp_path / "alone"))
    assert alone >= 2
    assert sum(counts) == alone


@pytest.mark.slow
def test_a_lock_of_a_process_that_is_gone_and_a_folder_that_is_read_only_stop_nobody(tmp_path: Path) -> None:
    (killed := start(tmp_path)).kill()
    killed.communicate(timeout=60)
    assert count_compiled(start(tmp_path)) >= 1
    if os.getuid() != 0:  # root may write everywhere
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert count_compiled(start(tmp_path)) >= 0


if __name__ == "__main__":
    import numpy as np
    from numba.core import event

    from tacit.kernels.topk import _threshold

    with event.install_recorder("numba:compile") as recorder:
        assert _threshold(np.arange(64, dtype=np.int32), 2) <= 62
    print(sum(happened.is_start for _, happened in recorder.buffer))
