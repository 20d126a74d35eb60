"""Run the benchmarks, each in a process of its own: `python -m benchmarks [name]`, or `make bench ONLY=name`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    known = {file.stem.removeprefix("bench_"): file for file in sorted(HERE.glob("bench_*.py"))}
    wanted = sys.argv[1:] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"There is no benchmark '{unknown[0]}'. Known: {', '.join(known)}.", file=sys.stderr)
        return 2
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    codes = [
        subprocess.run([sys.executable, known[name]], env={**os.environ, **one_thread}).returncode for name in wanted
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
