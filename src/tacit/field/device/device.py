"""A device: one encrypted file with all that a user's program needs to learn, to answer a coordinator and to recommend.

Its parts have files of their own: `terms` (the federation), `answers` (a round), `preferences`, `keys`, `history`,
`ledger`, `budgets`. This puts them together, and has what concerns all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tacit.field.device import copies
from tacit.field.device.answers import DeviceAnswers, NoiseOfRound, system_noise
from tacit.field.device.budget import Budgets
from tacit.field.device.device_file import DeviceFile
from tacit.field.device.history import History
from tacit.field.device.identity_keys import IdentityKeys
from tacit.field.device.interests import recommend_by_interests
from tacit.field.device.learning import recommend
from tacit.field.device.ledger import Clock, UpcomingMessage, system_clock
from tacit.field.device.masked_rounds import MaskedRounds
from tacit.field.device.membership import Membership
from tacit.field.device.participation import SEED_BITS
from tacit.field.device.preferences import Preferences
from tacit.field.device.recovery import COST as RECOVERY_COST
from tacit.field.device.recovery import draw_code
from tacit.field.device.root_key import keep_root, root_of
from tacit.field.device.sent_periods import close_sent_periods
from tacit.field.device.settings import Sharing
from tacit.field.device.store import LockName, Store
from tacit.field.device.terms import DeviceTerms
from tacit.field.device.vault import ScryptCost
from tacit.privacy.sum_exposure import SumExposure
from tacit.protocols.secure_aggregation import Identity
from tacit.reasons import ReasonCode
from tacit.serving.lists import Recommendation
from tacit.types import Catalog
from tacit.wire.messages import Request
from tacit.wire.network import network_digest


class Device(DeviceFile):
    """An open device. Its user can read `history`, `sharing` and `ledger` at any time."""

    def __init__(self, store: Store, clock: Clock = system_clock, noise: NoiseOfRound = system_noise) -> None:
        """Open what a store holds. `noise` is for tests that compare with a simulation; the device must have a seed."""
        super().__init__(store, clock)
        self._noise = noise
        self.history, self.budgets = History(store), Budgets(store)
        self._masked = masked = MaskedRounds(store)
        self.terms, self.keys = DeviceTerms(self, masked, self.budgets), IdentityKeys(self, masked)
        self.preferences = Preferences(store, lambda: self.catalog)
        self.answers = DeviceAnswers(self, self.terms, masked, self.history, self.budgets, self.preferences, noise)
        if store.is_copy:
            self._sit_out()
        if store.is_new and self.membership is None and store.get("identity") is not None and not self.terms.enrolment:
            with store.transaction():  # in earlier formats one identity served all federations
                self._masked.renew_identity()

    @classmethod
    def create(
        cls,
        path: Path,
        passphrase: str,
        *,
        cost: ScryptCost | None = None,
        clock: Clock = system_clock,
        seed: int | None = None,
        lane: int = 0,
        keeper: str = "",
    ) -> Device:
        """Make a new device. Its root key comes from the system's entropy.

        A `seed` and a `lane` (the client's number) are for tests that compare with a simulation: a reader who knows the
        seed can infer what was positive in each message. `keeper` is the name under which a keyring has the passphrase.
        """
        store = Store.create(path, passphrase, cost or ScryptCost(), keeper)
        with store.transaction():
            drawn = secrets.randbits(SEED_BITS) if seed is None else seed
            keep_root(store, drawn, lane, is_given=seed is not None)
            store.put("identity", Identity.fresh().secret)
            store.put("sharing", Sharing().model_dump_json().encode())
        return cls(store, clock)

    @classmethod
    def open(
        cls,
        path: Path,
        passphrase: str,
        clock: Clock = system_clock,
        by: LockName = "lock",
        noise: NoiseOfRound = system_noise,
    ) -> Device:
        """Open a device with its passphrase, or with its recovery code; `noise` as in `__init__`.

        A file that was copied or put back without `restore` is noticed, as far as that can be, and sits out as well.
        """
        return cls(Store.open(path, passphrase, by), clock, noise)

    def _sit_out(self) -> None:
        """Take part in masked rounds only, and not in those that the copy of this device may have answered.

        What the other copy has spent of privacy budgets is not known: they count as spent.
        """
        with self._store.transaction():
            self.participation.sit_out(self._masked)
            self.budgets.close_copies(None if self.membership is None else self.membership.federation)
            network = self._store.get("network")
            close_sent_periods(self._store, None if network is None else network_digest(network))
            self.put_sharing(self.sharing.model_copy(update={"masked_only": True}))

    def open_again(self) -> Device:
        """Open the same file once more, for another thread; the passphrase is not needed a second time."""
        return Device(self._store.open_again(), self._clock, self._noise)

    def reread(self) -> None:
        """Notice that another program joined or left a federation with this file."""
        self.terms.reread()

    @property
    def moment(self) -> tuple[int, int]:
        """Numbers that change whenever anything on this device does: what was read before them may be kept."""
        return self._store.moment()

    # --- user's settings ----------------------------------------------------------------------------------------------

    def share(self, sharing: Sharing) -> None:
        """Decide what may leave, from the next message on. Every name must exist."""
        self.change(lambda before: sharing)

    def change(self, decide: Callable[[Sharing], Sharing]) -> Sharing:
        """Decide on the grounds of what is on disk, with nothing in between; return what holds from now on."""
        with self._store.transaction():
            settled = decide(before := self.sharing)
            if self.membership is not None and settled != before.model_copy(update={"paused": settled.paused}):
                settled.stage(root_of(self._store)[1], self.membership.catalog)
            self.put_sharing(settled)
        return settled

    def pause(self) -> None:
        """Let nothing leave until `resume`."""
        self.change(lambda before: before.model_copy(update={"paused": True}))

    def resume(self) -> None:
        """Let messages leave again."""
        self.change(lambda before: before.model_copy(update={"paused": False}))

    # --- federation ---------------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership | None:
        """The federation of this device, if any."""
        return self.terms.member

    @property
    def catalog(self) -> Catalog:
        """The catalogue of the federation, or of the network of peers."""
        return self.terms.catalog

    def join(
        self, welcome: bytes, address: str = "", witness: str = "", accepts: Collection[ReasonCode] = ()
    ) -> Membership:
        """Become a member of a federation: see `DeviceTerms.join`."""
        return self.terms.join(welcome, address, witness, accepts)

    def leave(self) -> None:
        """Leave the federation at once. History, settings and ledger stay; what was sent stays sent."""
        self.terms.leave()

    @property
    def sum_exposure(self) -> SumExposure | None:
        """What the smallest sum of a federation without a guarantee reveals about a device; none before the first."""
        if self.membership is None or self.membership.federation.privacy is not None:
            return None
        fewest = self._masked.find_smallest_sum(self.membership.federation.lineage.hex())
        return None if fewest is None else SumExposure.of(fewest)

    @property
    def has_ended(self) -> bool:
        """Whether it can be in no sum of its federation any more: it stays with devices of which one was revoked."""
        if self.membership is None:
            return False
        return self._masked.has_ended(self.membership.federation, self.sharing.device_policy)

    # --- a round: see `DeviceAnswers` ---------------------------------------------------------------------------------

    def receive(self, content: bytes) -> Request:
        """Store a model that was sent here, to recommend from."""
        return self.answers.receive(content)

    def learn(self, content: bytes) -> int:
        """Answer a request, on disk only; return the number of the ledger's entry."""
        return self.answers.learn(content)

    def release(self, entry: int) -> bytes:
        """Return the bytes of a message, to be sent now. From here on the ledger says that it may have left."""
        return self.answers.release(entry)

    def upcoming(self) -> UpcomingMessage | None:
        """Return the message that the device would send in the next round; none without a model. Nothing is sent."""
        return self.answers.upcoming()

    # --- what it is for -----------------------------------------------------------------------------------------------

    @property
    def suggests_alone(self) -> bool:
        """Whether recommendations come from its own data and the catalogue alone, because there is no model yet."""
        member = self.membership
        if member is None or member.model() is not None:
            return False
        catalog = member.catalog
        has_own = bool(len(self.history) or self.preferences.interests)
        return catalog.popularity is not None or (catalog.categories is not None and has_own)

    def recommend(self, n: int = 10) -> list[Recommendation]:
        """Return the best n items outside the history, from the model on this device; nothing is sent.

        While the history is empty, chosen interests stand in for it. Before the first model, items of the categories
        that occur in the history, or were chosen, are returned, and those that the catalogue calls popular.
        """
        interests = self.preferences.interests
        if interests and not len(self.history):
            return recommend_by_interests(
                self.terms.require(), interests, self.preferences.hidden, root_of(self._store)[0], n
            )
        return recommend(self.terms.require(), self.history, self.preferences.hidden, *root_of(self._store), n)

    # --- the file -----------------------------------------------------------------------------------------------------

    def change_passphrase(self, passphrase: str, cost: ScryptCost | None = None, keeper: str = "") -> None:
        """Open with another passphrase from now on. Copies made before still open with the old one."""
        self._store.change_passphrase(passphrase, cost or ScryptCost(), keeper)

    def backup(self, path: Path) -> None:
        """Write an encrypted copy that opens with the same passphrase and recovery code. Use one at a time."""
        copies.write_copy(self._store, path)

    def readable(self) -> dict[str, Any]:
        """Return all data of the user, readable: history, settings, ledger, budgets; with titles if they are known."""
        found = copies.readable_copy(self.history, self.sharing, self.preferences.hidden, self.membership, self.ledger)
        budgets = [budget.as_json() for budget in self.budgets.list()]
        return {**found, "interests": self.preferences.interests.to_json(), "budgets": budgets}

    def export_readable(self, path: Path) -> None:
        """Write all data of the user into a readable file."""
        copies.write_readable(path, self.readable())

    def make_recovery_code(self) -> str:
        """Return a new code that opens this device without its passphrase; the one before no longer does."""
        code = draw_code()
        self._store.change_recovery(code, RECOVERY_COST)
        return code

    @classmethod
    def restore(
        cls, copy: Path, path: Path, passphrase: str, clock: Clock = system_clock, by: LockName = "lock"
    ) -> Device:
        """Make a device from a backup; one that is already at `path` is never touched.

        It sits out until it cannot contradict what the device it is a copy of has answered since.
        """
        copies.restore_file(copy, path)
        try:
            device = cls.open(path, passphrase, clock, by)
        except BaseException:
            path.unlink()
            raise
        if device.participation.sits_out_until is None:  # an earlier version wrote the backup
            device._sit_out()
        return device

    def erase(self) -> None:
        """Destroy everything on this device, and its key in a keyring. What was sent before stays where it is."""
        copies.erase_device(self._store)
