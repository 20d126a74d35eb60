"""The route by which a witness visits a coordinator: it uploads its signature, and downloads new entries."""

from __future__ import annotations

import logging
import threading

from tacit.errors import FieldError, MessageError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.coordinator.config import WitnessRules
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.protocols.directory import DirectoryCheckpoint
from tacit.reasons import ReasonCode

log = logging.getLogger("tacit.field.coordinator")


class WitnessRoute:
    """Answers the witness, and no other party."""

    def __init__(self, journal: CoordinatorJournal, rules: WitnessRules | None) -> None:
        self._journal, self._rules = journal, rules
        self._directory: CoordinatorDirectory | None = None
        self._lock = threading.Lock()

    def answer(self, content: bytes) -> tuple[int, bytes]:
        """Return status and body: 400 what is no checkpoint, 403 who is not the witness, 409 another list."""
        if self._rules is None:
            return 403, b""
        with self._lock:
            if self._directory is None:  # with a connection of its own: threads differ, one at a time
                self._directory = CoordinatorDirectory(self._journal.again(), self._rules)
            try:
                return 200, self._directory.visit(DirectoryCheckpoint.decode(content)).encode()
            except MessageError:
                return 400, b""
            except FieldError as error:
                if error.code != ReasonCode.DIRECTORY_FORKED:
                    return 403, b""
                log.error("the witness holds another directory", extra={"fields": error.public()})
                return 409, b""
