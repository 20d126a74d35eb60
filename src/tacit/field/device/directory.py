"""What a device knows of the directory of its federation: the witness's key, and the last checkpoint that it saw.

Both are in the device's sealed file. The key comes with the invitation, or from the user. The checkpoint is stored in
the transaction in which the device joins a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.errors import DeviceError
from tacit.field.device.ledger import Clock
from tacit.field.device.settings import Sharing
from tacit.field.device.store import Store
from tacit.languages import translate
from tacit.protocols.directory import DirectoryCheckpoint, DirectoryView, read_key, write_key
from tacit.protocols.notices import MemberKeys, NoticeList, NoticeView, check_members

if TYPE_CHECKING:
    from tacit.protocols.secure_aggregation import Identity
    from tacit.wire.messages import SecureRequest

TRUST = (
    "No witness watches over this group: the server alone says who the other members are, and that they exist. A "
    "server that invents them can read what you send."
)
WATCHED = (
    "A witness signs the list of members, and this device mixes what it sends only with members who are in it for at "
    "least {hours:g} hours. Compare the witness's key with the one that the witness itself gives out: {key}"
)


@dataclass(frozen=True)
class DirectoryState:
    """What a device was shown of the directory when it joined a sum."""

    checkpoint: DirectoryCheckpoint | None  # none without a witness
    notices: NoticeList


class DeviceDirectory:
    """The directory, as one device sees it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    @property
    def witness(self) -> str:
        """The public key of the witness; empty without one."""
        found: str = self._store.get_json("witness") or ""
        return found

    def name_witness(self, key: str) -> None:
        """Demand the signature of a witness from now on, or of none; what another one signed is forgotten."""
        known = normalise_key(key)
        with self._store.transaction():
            if known != self.witness:
                self._store.put_json("witness", known)
                self._store.drop("directory")
                self._store.drop("notices")

    @property
    def known(self) -> DirectoryCheckpoint | None:
        """The last checkpoint that this device saw when it joined a sum."""
        found = self._store.get_json("directory")
        if found is None:
            return None
        log, root, signature = (bytes.fromhex(found[name]) for name in ("log", "root", "signature"))
        return DirectoryCheckpoint(log, found["size"], root, found["time"], signature)

    @property
    def notices(self) -> NoticeList:
        """The notices of who was revoked and who has another key, as this device saw them last."""
        found = self._store.get("notices")
        return NoticeList() if found is None else NoticeList.decode(found)

    def check(
        self, sharing: Sharing, log: str, own: Identity, cohort: Sequence[bytes], asked: SecureRequest
    ) -> DirectoryState:
        """Refuse a cohort that is not in the directory, or has a revoked member; return what to keep."""
        checkpoint = None
        if self.witness:
            view = DirectoryView(bytes.fromhex(log), read_key(self.witness), sharing.directory, self.known)
            checkpoint = view.check(asked.directory, cohort, self._clock().timestamp())
        shown = NoticeList.decode(asked.notices) if asked.notices else NoticeList()
        check_members(self.read_notices(sharing, log, shown), cohort, own)
        return DirectoryState(checkpoint, shown)

    def read_notices(self, sharing: Sharing, log: str, shown: NoticeList) -> MemberKeys:
        """Return what follows from notices that are shown; where a witness is named, they must be signed and grow."""
        return self._view(log, sharing.directory.fresh_days).read(shown, self._clock().timestamp())

    def _view(self, log: str = "", fresh_days: float = 0.0) -> NoticeView:
        witness = read_key(self.witness) if self.witness else None
        return NoticeView(bytes.fromhex(log), witness, fresh_days, self.notices)

    def keep_notices(self, shown: NoticeList) -> None:
        """Store the notices that were shown last, inside a transaction; of what was signed, the longer list counts.

        An older signature is of fewer notices: if it took the place of a newer one, the others could be left out next.
        """
        shown, known = self._view().newest(shown), self.notices.signed
        if known is not None and shown.signed is not None and shown.signed.size < known.size and self.witness:
            shown = replace(shown, signed=known)
        if shown != self.notices:
            self._store.put("notices", shown.encode())

    def keep(self, state: DirectoryState | None) -> None:
        """Store what a sum was joined with, inside a transaction."""
        if state is None:
            return
        self.keep_notices(state.notices)
        checkpoint = state.checkpoint
        if checkpoint is not None:
            about = {
                "log": checkpoint.log.hex(),
                "root": checkpoint.root.hex(),
                "signature": checkpoint.signature.hex(),
            }
            self._store.put_json("directory", {**about, "size": checkpoint.size, "time": checkpoint.time})

    def describe_trust(self, sharing: Sharing) -> str:
        """Return in plain words whom this device trusts to say who the others are."""
        if not self.witness:
            return translate(TRUST)
        return translate(WATCHED, hours=sharing.directory.settled_hours, key=self.witness)


def normalise_key(key: str) -> str:
    """Return the key of a witness in its one form, empty without one; anything else is refused."""
    try:
        return write_key(read_key(key)) if key else ""
    except ValueError:
        raise DeviceError(
            "This is not the key of a witness.", "It has 64 hexadecimal digits: tacit witness key."
        ) from None
