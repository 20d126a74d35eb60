"""What a device knows of the directory of its federation: the witness's key, and the last checkpoint that it saw.

Both are in the device's sealed file: the key comes with the invitation, or from the user; the checkpoint is kept in the
transaction in which the device joins a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import DeviceError
from tacit.field.device.ledger import Clock
from tacit.field.device.settings import Sharing
from tacit.field.device.store import Store
from tacit.languages import translate
from tacit.protocols.directory import DirectoryCheckpoint, DirectoryView, read_key, write_key

TRUST = (
    "No witness watches over this group: the server alone says who the other members are, and that they exist. A "
    "server that invents them can read what you send."
)
WATCHED = (
    "A witness signs the list of members, and this device mixes what it sends only with members who are in it for at "
    "least {hours:g} hours. Compare the witness's key with the one that the witness itself gives out: {key}"
)


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

    @property
    def known(self) -> DirectoryCheckpoint | None:
        """The last checkpoint that this device saw when it joined a sum."""
        found = self._store.get_json("directory")
        if found is None:
            return None
        log, root, signature = (bytes.fromhex(found[name]) for name in ("log", "root", "signature"))
        return DirectoryCheckpoint(log, found["size"], root, found["time"], signature)

    def check(self, sharing: Sharing, log: str, cohort: Sequence[bytes], shown: bytes) -> DirectoryCheckpoint | None:
        """Refuse a cohort that is not in the directory; return the checkpoint to keep, none without a witness."""
        if not self.witness:
            return None
        view = DirectoryView(bytes.fromhex(log), read_key(self.witness), sharing.directory, self.known)
        return view.check(shown, cohort, self._clock().timestamp())

    def keep(self, checkpoint: DirectoryCheckpoint | None) -> None:
        """Keep the checkpoint with which a sum was joined, inside a transaction."""
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
