"""Whether this machine's connection is metered, as NetworkManager says it: the connection costs by what is sent.

NetworkManager's D-Bus interface is stable, and is asked with systemd's own tool. NetworkManager knows what the user has
set for a connection, and guesses the rest: a phone that shares its connection says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from functools import lru_cache

MANAGER = "org.freedesktop.NetworkManager"
ASK_SECONDS = 2  # that the manager has for its answer
COMMAND = (
    "busctl",
    "--system",
    "--auto-start=no",
    f"--timeout={ASK_SECONDS}",
    "get-property",
    MANAGER,
    "/org/freedesktop/NetworkManager",
    MANAGER,
    "Metered",
)
ANSWERS = {"1": True, "2": False, "3": True, "4": False}  # yes, no, and the same as a guess; 0: unknown
KEPT_SECONDS = 10.0  # a device that waits asks every few seconds: so long an answer holds


def is_metered() -> bool | None:
    """Say whether the connection of this machine is metered; none where the system does not say."""
    return _ask(int(time.monotonic() // KEPT_SECONDS))


@lru_cache(maxsize=1)
def _ask(moment: int) -> bool | None:
    try:
        asked = subprocess.run(
            COMMAND,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * ASK_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # there is no such tool, or it hangs
        return None
    found = re.fullmatch(rb"u (\d+)\s*", asked.stdout)
    return None if asked.returncode or found is None else ANSWERS.get(found[1].decode("ascii"))
