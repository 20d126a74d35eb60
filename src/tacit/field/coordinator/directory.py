"""The coordinator's side of the directory: the list of all identities, what the witness has signed, and proofs of it.

Identities are appended when devices enrol, by the journal itself, and never removed. A witness visits, downloads new
entries and uploads its signature (`tacit.field.witness`). Who is not in a signed directory for long enough is not
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tacit.errors import FieldError
from tacit.field.coordinator.config import WitnessRules
from tacit.field.coordinator.journal import CoordinatorJournal
from tacit.field.coordinator.members import EnrolledDevice
from tacit.protocols.directory import HOUR, MOST_GROWTHS, DirectoryCheckpoint, DirectoryGrowth, DirectoryProof
from tacit.protocols.merkle import MerkleTree
from tacit.protocols.notices import notice_log
from tacit.reasons import ReasonCode, RoundReason

MOST_ENTRIES = 10_000  # that a witness is given at once


class CoordinatorDirectory:
    """The directory of one federation."""

    def __init__(self, journal: CoordinatorJournal, rules: WitnessRules) -> None:
        self._journal, self._rules = journal, rules
        self._tree, self._places = MerkleTree(), dict[bytes, int]()
        if any(not checkpoint.is_signed_by(rules.public) for checkpoint in journal.directory.checkpoints()[-1:]):
            journal.directory.forget_checkpoints()  # they are another witness's
        self._n_shown = 0  # identities in the checkpoint that was shown last
        self._unsure: set[int] = set()  # asked devices that did not join: which checkpoint they know is unknown

    def _read(self) -> None:
        """Take over what was enrolled since."""
        for identity in self._journal.directory.identities(len(self._tree)):
            self._places[identity] = len(self._tree)
            self._tree.append(identity)

    # --- the witness --------------------------------------------------------------------------------------------------

    def visit(self, held: DirectoryCheckpoint) -> DirectoryGrowth:
        """Store what the witness has signed, and return what it does not hold yet.

        Another's signature is refused, and a witness that holds another list than this coordinator.
        """
        log = bytes.fromhex(self._journal.federation.id)
        if held.log not in (log, notice_log(log)) or not held.is_signed_by(self._rules.public):
            raise FieldError.because(ReasonCode.DIRECTORY_FORGED)
        if held.log != log:
            return self._visit_notices(held)
        self._read()
        if held.size > len(self._tree) or self._tree.root(held.size) != held.root:
            raise FieldError.because(ReasonCode.DIRECTORY_FORKED)
        if held.size:
            self._journal.directory.note_checkpoint(held)
        last = min(len(self._tree), held.size + MOST_ENTRIES)
        return DirectoryGrowth(
            last, self._tree.root(last), tuple(self._journal.directory.identities(held.size, last - held.size))
        )

    def _visit_notices(self, held: DirectoryCheckpoint) -> DirectoryGrowth:
        """Store what the witness has signed of the notices, and return those that it does not hold yet."""
        entries = [notice.entry for notice in self._journal.notices.list().notices]
        tree = MerkleTree(entries)
        if held.size > len(tree) or tree.root(held.size) != held.root:
            raise FieldError.because(ReasonCode.DIRECTORY_FORKED)
        self._journal.notices.note_signed(held)
        last = min(len(tree), held.size + MOST_ENTRIES)
        return DirectoryGrowth(last, tree.root(last), tuple(entries[held.size : last]))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _choose_checkpoints(self) -> tuple[DirectoryCheckpoint, DirectoryCheckpoint] | None:
        """Return the newest checkpoint, and the largest that is old enough; none without."""
        signed = self._journal.directory.checkpoints()
        newest = signed[-1] if signed else None
        old = [one for one in signed if newest and newest.time - one.time >= self._rules.settled_hours * HOUR]
        return (newest, old[-1]) if newest and old else None

    @property
    def n_settled(self) -> int:
        """How many identities are in the directory for long enough."""
        chosen = self._choose_checkpoints()
        return 0 if chosen is None else chosen[1].size

    def select_settled(self, members: Iterable[EnrolledDevice]) -> list[EnrolledDevice]:
        """Return the devices that may be asked."""
        self._read()
        most = self.n_settled
        return [device for device in members if self._places.get(device.identity, most) < most]

    def waits(self, n_settled: int, here: int, needed: int) -> RoundReason:
        """Return the reason of a round that waits for devices to be in the directory."""
        counts = {"settled": n_settled, "here": here, "needed": needed, "hours": self._rules.settled_hours}
        return RoundReason(ReasonCode.DIRECTORY_WAITS, counts)

    def prove(self, devices: Sequence[EnrolledDevice]) -> dict[int, bytes]:
        """Return, for each device, what shows it that all of them are in the directory, in the order of a cohort.

        A device is shown how the directory grew since it joined a sum last. One that did not join the last time may
        know more, or less: it is shown growth from every size that was ever signed.
        """
        chosen = self._choose_checkpoints()
        if chosen is None:
            return {}
        newest, settled = chosen
        self._n_shown = newest.size
        places = [self._places[identity] for identity in sorted(device.identity for device in devices)]
        growth = tuple(self._tree.prove_growth(settled.size, newest.size))
        members = tuple(self._tree.prove_members(places, settled.size))
        shown, sizes = (
            self._journal.directory.shown_sizes(),
            sorted({one.size for one in self._journal.directory.checkpoints()}),
        )
        made: dict[tuple[int, ...], bytes] = {}
        proofs = {}
        for device in devices:
            unsure = device.number in self._unsure
            known = tuple(sizes[-MOST_GROWTHS:]) if unsure else (shown.get(device.number, 0),)
            if known not in made:
                seen = tuple((size, tuple(self._tree.prove_growth(size, newest.size))) for size in known if size)
                made[known] = DirectoryProof(newest, settled, growth, seen, tuple(places), members).encode()
            proofs[device.number] = made[known]
        return proofs

    def note_joined(self, asked: Iterable[int], joined: Iterable[int]) -> None:
        """Note which of the devices that were asked have joined: they know the checkpoint that they were shown."""
        here = set(joined)
        self._unsure = (self._unsure | set(asked)) - here
        self._journal.directory.note_shown(sorted(here), self._n_shown)
