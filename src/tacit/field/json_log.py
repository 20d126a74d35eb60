"""Our log as JSON lines on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One JSON object per line: when, what, and counts."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "from": record.name, "event": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", {}))


def log_to_stderr() -> None:
    """Send our log, and ours only, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("tacit")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
