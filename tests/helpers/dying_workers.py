"""Workers that die in the midst of a round."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tacit.privacy.update_sink import Stage
from tacit.random import Key
from tacit.updates import UpdatePlan


class Dies(Stage):
    """A stage that changes nothing; in some rounds it kills the worker that runs it, each time once."""

    def __init__(self, scratch: Path, rounds: tuple[int, ...], times: int = 1) -> None:
        self.scratch, self.rounds, self.times, self.parent = scratch, rounds, times, os.getpid()

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        number = int(key.path[key.path.index("seal") + 1])
        deaths = sorted(self.scratch.glob(f"{number}-*"))
        if os.getpid() != self.parent and number in self.rounds and len(deaths) < self.times:
            (self.scratch / f"{number}-{len(deaths)}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plan


class OutOfMemory(Stage):
    """A stage for which there is no memory in workers."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        if os.getpid() != self.parent:
            raise MemoryError
        return plan
