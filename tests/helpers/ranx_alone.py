"""ranx in a process of its own: compiling takes it a minute, and can only be switched off for a whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from helpers.waiting import LONG

PROGRAM = "import json, sys, ranx\ngiven = json.load(sys.stdin)\n{}\njson.dump(found, sys.stdout)\n"


def ask_ranx(lines: str, given: Any) -> Any:
    """Run lines that make `found` of `given`; return it."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(lines)],
        input=json.dumps(given),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
    )
    return json.loads(answer.stdout)
