"""What a program that takes part notes of its connection: for the page, for other programs, and after a restart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tacit.languages.sentences import read_sentence, write_sentence
from tacit.wire.status import CoordinatorStatus

LinkKind = Literal["connecting", "connected", "unreachable", "revoked", "refusing", "failed"]


@dataclass(frozen=True)
class LinkRecord:
    """How the connection to the coordinator is, and since when."""

    kind: LinkKind
    since: float  # unix seconds
    why: str = ""
    status: CoordinatorStatus | None = None  # what the coordinator said last, while it was reached

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self) | {"why": write_sentence(self.why)}

    @classmethod
    def read(cls, stored: Any) -> LinkRecord | None:
        """Read it from a JSON object; none if there is none, or one of another version."""
        try:
            status = stored["status"]
            found = cls(
                stored["kind"], stored["since"], read_sentence(stored["why"]), status and CoordinatorStatus(**status)
            )
        except (TypeError, KeyError):
            return None
        return found if found.kind in get_args(LinkKind) else None
