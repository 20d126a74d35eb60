"""Whether this device may begin a round now: one program at a time, not while it sits out, within its user's limits."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from tacit.errors import ConsentError
from tacit.field.device.ledger import Clock
from tacit.field.device.limits import FINISHING, RoundUse, add_use, forget_future, read_uses, refuse_beyond
from tacit.field.device.link_record import LinkKind, LinkRecord
from tacit.field.device.settings import Sharing
from tacit.field.device.store import Store
from tacit.reasons import ReasonCode
from tacit.wire.status import CoordinatorStatus

if TYPE_CHECKING:
    from tacit.field.device.masked_rounds import MaskedRounds

SEED_BITS = 256


class Participation:
    """The device's own conditions before it answers, and what it counts for them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def take_lock(self) -> None:
        """Be the one program that takes part with this file, until it is closed; refused while another is."""
        self._store.lock.take()

    def release_lock(self) -> None:
        """Let another program take part."""
        self._store.lock.release()

    @property
    def is_running(self) -> bool:
        """Whether a program takes part with this file now: this one, or another."""
        return self._store.lock.is_taken()

    # --- the connection -----------------------------------------------------------------------------------------------

    def keep_former_enrolment(self) -> None:
        """Move a connection without a membership, as earlier versions left it, to where it does no harm."""
        if self._store.get("welcome") is None and (line := self._store.get_json("line")) is not None:
            with self._store.transaction():
                self._store.drop("line")
                self._store.put_json("enrolment", line)

    def note_link(self, kind: LinkKind, why: str = "", status: CoordinatorStatus | None = None) -> None:
        """Note how the connection to the coordinator is, for other programs and after a restart."""
        before, now = self.link, self._now().timestamp()
        since = before.since if before is not None and before.kind == kind else now
        after = LinkRecord(kind, since, why, status)
        if after != before and self._store.get("line") is not None:
            with self._store.transaction():
                self._store.put_json("link", after.as_json())

    @property
    def link(self) -> LinkRecord | None:
        """How the connection was when it was last noted; none before the first time."""
        return LinkRecord.read(self._store.get_json("link"))

    @property
    def last_exchange(self) -> float | None:
        """When the last message of the coordinator came, in unix seconds; none before the first."""
        return max((use.last for use in self._uses()), default=None)

    # --- limits in time -----------------------------------------------------------------------------------------------

    def admit(self, task: str, number: int, sharing: Sharing, n_bytes: int, masked: MaskedRounds) -> None:
        """Refuse to begin a round, or to continue it while another program takes part."""
        self._store.lock.take()
        self._refuse_while_sitting_out(task, number, sharing, masked)
        refuse_beyond(sharing.limits, self._settled_uses(), task, number, self._now(), n_bytes)

    def count(self, task: str, number: int, n_bytes: int) -> None:
        """Count the bytes of a round, inside a transaction."""
        self._store.put_json("uses", add_use(self._uses(), task, number, self._now().timestamp(), n_bytes))

    def find_obstacle(self, sharing: Sharing) -> ConsentError | None:
        """Return why no round may begin now; none if one may, or while the last one may still be running."""
        uses, now = self._settled_uses(), self._now()
        if any(0 <= now.timestamp() - use.last < FINISHING for use in uses):
            return None
        try:
            refuse_beyond(sharing.limits, uses, "", None, now)
        except ConsentError as error:
            return error
        return None

    def _uses(self) -> list[RoundUse]:
        return read_uses(self._store.get_json("uses"))

    def _settled_uses(self) -> list[RoundUse]:
        """Return the uses, none of which is in the future; a clock that was put back is followed on disk."""
        now, uses = self._now().timestamp(), self._uses()
        if all(use.last <= now for use in uses):
            return uses
        with self._store.transaction():
            settled = forget_future(self._uses(), now)
            self._store.put_json("uses", [asdict(use) for use in settled])
        return settled

    def _now(self) -> datetime:
        return self._clock()

    # --- after a restore ----------------------------------------------------------------------------------------------

    def sit_out(self, masked: MaskedRounds) -> None:
        """Begin to sit out, inside a transaction: this file was put back, and what was answered since is not in it.

        Its draws are new from here on, so that no message can be compared with one of the same round. A secure sum that
        had begun is left. Nothing leaves readable, since a sum may have been joined since.
        """
        root = self._store.get_json("root")
        kept = {"coins": root["seed"], **root}  # of coins that are tossed once: tossed anew they would show more
        self._store.put_json("root", {**kept, "seed": secrets.randbits(SEED_BITS), "is_given": False})
        masked.leave_session()
        self._store.put_json("restored", {"round": None})

    @property
    def sits_out_until(self) -> int | None:
        """The last round that a restored device sits out: -1 while no round was seen; none if it takes part."""
        found = self._store.get_json("restored")
        return None if found is None else -1 if found["round"] is None else int(found["round"])

    def _refuse_while_sitting_out(self, task: str, number: int, sharing: Sharing, masked: MaskedRounds) -> None:
        until = self.sits_out_until
        if until is None:
            return
        with self._store.transaction():
            if until < 0:  # the first round since: all rounds that may have been answered are at most this one
                until = number + max(1, sharing.device_policy.cool_down)
                masked.suppose_sums(task, number, sharing.device_policy)
                self._store.put_json("restored", {"round": until})
            elif number > until:
                self._store.drop("restored")
                return
        raise ConsentError.because(ReasonCode.SITS_OUT, round=until)
