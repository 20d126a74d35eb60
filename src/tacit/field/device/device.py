"""A device: it learns as a cohort of one, sends what its user allows, and records every message before sending it.

A round, as the device sees it:

    learn     a request -> `device_round` -> message, private part, ledger entry and model: all on disk, or nothing
    release   the settings are read again, the entry is marked, and only then are there bytes to send
    sent      or it may have left, or it was not sent: what became of it

The new private part of an answer is kept when the next message says that the answer counted, and undone otherwise.
Each round is answered once: asked again, also after a crash, the device gives the very same bytes. A request for a
round gone by, or for the last round with another model, is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import ConfigError, ConsentError, DeviceError, WireError, nearest
from tacit.field.device import copies
from tacit.field.device.amendments import AmendmentNote, follow, read_notes
from tacit.field.device.budget import Budgets, plan_debit
from tacit.field.device.consent import refuse_if_narrowed, refuse_if_silent, refuse_readable
from tacit.field.device.device_file import DeviceFile
from tacit.field.device.directory import DirectoryState, normalise_key
from tacit.field.device.history import History
from tacit.field.device.interests import Interests, recommend_by_interests
from tacit.field.device.learning import empty_update, learn_for_sum, learn_locally, recommend
from tacit.field.device.ledger import Clock, MentionedItems, UpcomingMessage, system_clock
from tacit.field.device.limits import NO_ROUND
from tacit.field.device.masked_rounds import LastReply, MaskedRounds, PreparedVector, vector_of
from tacit.field.device.membership import Answer, Membership
from tacit.field.device.participation import SEED_BITS
from tacit.field.device.proposals import (
    MethodProposal,
    decline_proposal,
    proposed_chain,
    proposed_terms,
    read_proposal,
)
from tacit.field.device.quality import measure_for_sum
from tacit.field.device.recovery import COST as RECOVERY_COST
from tacit.field.device.recovery import draw_code
from tacit.field.device.sent_periods import close_sent_periods
from tacit.field.device.settings import Sharing, find_item
from tacit.field.device.store import LockName, Store
from tacit.field.device.vault import ScryptCost
from tacit.languages import languages
from tacit.privacy.noise import NoiseSource, SystemNoise
from tacit.privacy.sum_exposure import SumExposure
from tacit.protocols.notices import Notice, key_change
from tacit.protocols.secure_aggregation import Identity, ServerPhase
from tacit.protocols.secure_aggregation.noise_shares import add_noise_share
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.serving.lists import Recommendation
from tacit.types import Array, Catalog, Label
from tacit.wire.enrolment import enrolment_statement, hand_over_statement
from tacit.wire.envelope import digest_in
from tacit.wire.messages import (
    Request,
    SecureRequest,
    read_secure_request,
    read_welcome,
    write_secure_reply,
    write_update,
)
from tacit.wire.network import network_digest, read_network

NoiseOfRound = Callable[[int], NoiseSource]


def system_noise(number: int) -> NoiseSource:
    """Return fresh noise from the operating system, for any round."""
    return SystemNoise()


class Device(DeviceFile):
    """An open device. Its user can read `history`, `sharing` and `ledger` at any time."""

    def __init__(self, store: Store, clock: Clock = system_clock, noise: NoiseOfRound = system_noise) -> None:
        """Open what a store holds. `noise` is for tests that compare with a simulation; the device must have a seed."""
        self._noise = noise
        self.history, self.budgets = History(store), Budgets(store)
        self._member = Membership.of(store)
        self._masked = MaskedRounds(store)
        super().__init__(store, clock)
        if store.is_copy:
            self._sit_out()
        if store.is_new and self._member is None and store.get("identity") is not None and not self.enrolment:
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

        A `seed` and a `lane` (the client's number) are for tests that compare with a simulation: whoever knows the
        seed can tell what was positive in each message. `keeper` is the name under which a keyring has the passphrase.
        """
        store = Store.create(path, passphrase, cost or ScryptCost(), keeper)
        with store.transaction():
            drawn = secrets.randbits(SEED_BITS) if seed is None else seed
            store.put_json("root", {"seed": drawn, "lane": lane, "is_given": seed is not None})
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
            self.budgets.close_copies(None if self._member is None else self._member.federation)
            network = self._store.get("network")
            close_sent_periods(self._store, None if network is None else network_digest(network))
            self._put_sharing(self.sharing.model_copy(update={"masked_only": True}))

    def open_again(self) -> Device:
        """Open the same file once more, for another thread; the passphrase is not needed a second time."""
        return Device(self._store.open_again(), self._clock, self._noise)

    def reread(self) -> None:
        """Notice that another program joined or left a federation with this file."""
        welcome, member = self._store.get("welcome"), self._member
        joined = None if welcome is None else digest_in(welcome)
        if joined != (None if member is None else member.federation.digest):
            self._member = Membership.of(self._store)

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
            if self._member is not None and settled != before.model_copy(update={"paused": settled.paused}):
                settled.stage(self._root[1], self._member.catalog)
            self._put_sharing(settled)
        return settled

    def _put_sharing(self, sharing: Sharing) -> None:
        self._store.put("sharing", sharing.model_dump_json().encode())

    def pause(self) -> None:
        """Let nothing leave until `resume`."""
        self.change(lambda before: before.model_copy(update={"paused": True}))

    def resume(self) -> None:
        """Let messages leave again."""
        self.change(lambda before: before.model_copy(update={"paused": False}))

    def hide(self, named: Label) -> None:
        """Never recommend an item again."""
        item = self.catalog.item_ids[find_item(named, self.catalog)]
        with self._store.transaction():
            self._store.put_json("hidden", sorted({*self.hidden, item}, key=str))

    def unhide(self, item: Label) -> None:
        """Let an item be recommended again."""
        with self._store.transaction():
            self._store.put_json("hidden", [hidden for hidden in self.hidden if hidden != item])

    @property
    def language(self) -> str:
        """The language of the user's page; empty: the browser's."""
        return str(self._store.get_json("language") or "")

    @language.setter
    def language(self, code: str) -> None:
        if code and code not in languages():
            raise ConfigError(f"There are no texts in the language '{code}'.", nearest(code, languages()))
        with self._store.transaction():
            self._store.put_json("language", code)

    @property
    def hidden(self) -> list[Label]:
        """Items that the user has hidden."""
        found: list[Label] = self._store.get_json("hidden") or []
        return found

    def choose_interests(self, names: Sequence[str]) -> Interests:
        """Keep titles, ids or categories that the user likes; they stand in for a history while there is none."""
        found = Interests.find(names, self.catalog)
        with self._store.transaction():
            self._store.put_json("interests", found.to_json())
        return found

    @property
    def interests(self) -> Interests:
        """What the user has chosen; it never leaves this device."""
        return Interests.read(self._store.get_json("interests"))

    # --- federation ---------------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership | None:
        """The federation of this device, if any."""
        return self._member

    @property
    def catalog(self) -> Catalog:
        """The catalogue of the federation, or of the network of peers."""
        if self._member is None and (network := self._store.get("network")) is not None:
            return read_network(network)[1]
        return self._joined.catalog

    @property
    def _joined(self) -> Membership:
        if self._member is None:
            raise ConsentError.because(ReasonCode.NOT_A_MEMBER)
        return self._member

    def join(self, welcome: bytes, address: str = "", witness: str = "", accepts_trial: bool = False) -> Membership:
        """Become a member of a federation; nothing leaves by that. `witness` is the key of who watches over it.

        A trial lowers what this device demands of masked rounds: it is joined only if the user `accepts_trial`.
        """
        if self._store.get("network") is not None:
            raise ConsentError("This device is a member of a network of peers.", "Leave it first: tacit peer leave.")
        asked, catalog = read_welcome(welcome)
        try:
            asked.check_terms(catalog)
        except ConfigError as error:
            raise WireError(f"These terms cannot be kept: {error.message}", "Ask the operator.") from None
        if asked.trial is not None and not accepts_trial:
            raise ConsentError.because(ReasonCode.TRIAL, needed=asked.trial)
        self.budgets.refuse_without_guarantee(asked)
        member = Membership.join(self._store, welcome, address, normalise_key(witness))
        with self._store.transaction():
            self.budgets.begin(member.federation)
        self._member = member
        return member

    def is_behind(self, content: bytes) -> bool:
        """Say whether a message is of other terms than this device's: perhaps of later ones, not of a proposal."""
        if self._member is None or (asked := digest_in(content)) == self._member.federation.digest:
            return False
        there = Membership.of(self._store)  # the user may have agreed to a change in another program
        if there is not None and there.federation.lineage == self._member.federation.lineage:
            self._member = there
        if asked == self._member.federation.digest:
            return False
        if asked == proposed_terms(self._store):
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)
        return True

    def amend(self, chain: bytes) -> list[AmendmentNote]:
        """Follow amendments of the federation, all or none of them; return what changed.

        Another method is refused here, and kept as a `proposal` for the user.
        """
        with self._store.transaction():
            notes = self._apply_chain(chain)
        self._member = Membership.of(self._store)
        if proposed_terms(self._store) is not None:
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)
        return notes

    def _apply_chain(self, chain: bytes, agrees: bool = False) -> list[AmendmentNote]:
        """Follow amendments, inside a transaction."""
        self._refuse_if_left()
        notes, sharing = follow(self._store, self._joined, chain, self.sharing, self._now(), agrees)
        self._put_sharing(sharing)
        return notes

    @property
    def proposal(self) -> MethodProposal | None:
        """Another method that the operator proposes; none if there is nothing to answer."""
        return read_proposal(self._store)

    def agree(self, terms: bytes) -> list[AmendmentNote]:
        """Say yes to another method: the device takes part again, and the old model is dropped.

        `terms` is the digest of what the user has read: a proposal that came since is not what they agreed to.
        """
        with self._store.transaction():
            chain = proposed_chain(self._store)
            if chain is None:
                raise ConsentError("There is no change to agree to.", "Nothing was changed.")
            if proposed_terms(self._store) != terms:
                raise ConsentError(
                    "The operator proposes something else now. Nothing was changed.", "Read it, and answer again."
                )
            notes = self._apply_chain(chain, agrees=True)
        self._member = Membership.of(self._store)
        return notes

    def decline(self) -> None:
        """Say no to another method: the device keeps its model, and takes no part while that is in force."""
        with self._store.transaction():
            decline_proposal(self._store)

    @property
    def amendments(self) -> list[AmendmentNote]:
        """What has changed in the federation since this device joined, oldest first."""
        return read_notes(self._store)

    def keep_enrolment(self, line: Mapping[str, str]) -> None:
        """Keep the connection of a coordinator that is asked to enrol this device: it holds only once it is joined.

        It is kept before the coordinator is asked, so that the same invitation can be shown again after a crash.
        """
        with self._store.transaction():
            self._masked.renew_identity()  # whoever is asked next does not learn whom this device asked before
            self._store.put_json("enrolment", dict(line))

    def forget_enrolment(self) -> None:
        """Forget a connection that came to nothing."""
        with self._store.transaction():
            self._store.drop("enrolment")

    @property
    def enrolment(self) -> dict[str, str]:
        """The connection of a coordinator that was asked to enrol this device; empty without one."""
        found: dict[str, str] = self._store.get_json("enrolment") or {}
        return found

    @property
    def sum_exposure(self) -> SumExposure | None:
        """What the smallest sum of this federation, without a guarantee, tells of a device; none before the first."""
        if self._member is None or self._member.federation.privacy is not None:
            return None
        fewest = self._masked.fewest_summed(self._member.federation.lineage.hex())
        return None if fewest is None else SumExposure.of(fewest)

    @property
    def has_ended(self) -> bool:
        """Whether it can be in no sum of its federation any more: it stays with devices of which one was revoked."""
        if self._member is None:
            return False
        return self._masked.has_ended(self._member.federation, self.sharing.device_policy)

    def leave(self) -> None:
        """Leave the federation at once. History, settings and ledger stay; what was sent stays sent."""
        with self._store.transaction():
            Membership.leave(self._store)
            self._masked.renew_identity()
        self._member = None

    # --- a round ------------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> tuple[Key, int]:
        stored = self._store.get_json("root")
        return Key(stored["seed"]).child("learn"), stored["lane"]

    @property
    def _coins(self) -> Key:
        """The key of coins that are tossed once; a restored device tosses the same."""
        stored = self._store.get_json("root")
        return Key(stored.get("coins", stored["seed"]))

    def receive(self, content: bytes) -> Request:
        """Keep a model that was sent here, to recommend from."""
        member = self._joined
        request, last = member.read(content), member.model()
        if last is not None and request.round < last.round:
            raise WireError.because(ReasonCode.MODEL_OUTDATED, round=request.round, earlier=last.round)
        with self._store.transaction():
            self._refuse_if_left()
            member.settle(request.counted)
            member.keep_model(content)
            self.participation.count(member.task, NO_ROUND, len(content))
        return request

    def learn(self, content: bytes) -> int:
        """Answer a request: learn, and put the message on disk with its entry in the ledger; return the entry's number.

        Nothing has left when this returns.
        """
        member, sharing = self._joined, self.sharing
        refuse_if_silent(sharing)
        refuse_readable(sharing, member.federation)
        request, digest = member.read(content), hashlib.sha256(content).hexdigest()
        if not request.learn:
            raise WireError.because(ReasonCode.NOT_A_REQUEST)
        self.participation.admit(member.task, request.round, sharing, len(content), self._masked)
        last = member.answer()
        if last is not None and (last.round, last.request) == (request.round, digest) and last.content:
            refuse_if_narrowed(sharing, last.under)
            return last.entry
        self._refuse_if_answered(member, request.round)
        learnt = learn_locally(member, sharing, request, self.history, *self._root, self._coins)
        answer = write_update(member.federation, request.round, learnt.message)
        with self._store.transaction():
            self._refuse_to_send()
            refuse_if_silent(self.sharing, sharing)
            self._refuse_if_answered(member, request.round)
            rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
            entry = self.ledger.write(self._now(), member.to, request.round, rows, answer, masked=False)
            self._keep_private(member, request, learnt.private, self.history.clients(0, member.catalog).items)
            member.keep_model(content)
            member.keep_answer(Answer(entry, request.round, digest, answer, sharing.model_dump_json()))
            self.participation.count(member.task, request.round, len(content) + len(answer))
        return entry

    def step_session(self, content: bytes) -> tuple[bytes, int | None]:
        """Take one step in a secure sum; return the bytes to send now and, where they hold what was learnt, the entry.

        Everything is on disk, and the ledger says that it may have left, when this returns. The same step again, also
        after a crash, gives the same bytes. After its first masked vector the device sends nothing readable any more.
        What was learnt never decides whether there is an answer: an update that cannot be sent becomes zeros, and the
        ledger says so. What will be added is learnt and kept with the first message of a session, as its masks are.
        """
        member, sharing = self._joined, self.sharing
        refuse_if_silent(sharing)
        asked = read_secure_request(member.federation, content)
        self._store.lock.take()
        again = self._masked.last_reply(content)
        if again is not None:
            with self._store.transaction():
                self._refuse_to_send()
                refuse_if_silent(self.sharing)
                if again.entry is not None:
                    refuse_if_narrowed(self.sharing, again.under)
                    self.ledger.mark(again.entry, "releasing", self._now())
            return again.answer, again.entry
        made, entry, opening, directory = None, None, b"", None
        if asked.phase == ServerPhase.ADVERTS:
            self.participation.admit(member.task, asked.round, sharing, len(content), self._masked)
            opening = asked.request or self._masked.opening(asked.round)
            made, directory = self._prepare(member, sharing, asked, opening)
        elif asked.phase == ServerPhase.VECTORS:
            opening, made = self._masked.opening(asked.round), self._masked.prepared()
            refuse_if_narrowed(sharing, made.under)
        with self._store.transaction(), self._masked.careful():
            self._refuse_to_send()
            refuse_if_silent(self.sharing, sharing)
            if asked.phase == ServerPhase.VECTORS:
                member.refuse_if_answered(asked.round, hashlib.sha256(opening).hexdigest())
            body = self._masked.step(member.federation, sharing.device_policy, asked, made)
            self.directory.keep(directory)
            if made is not None and asked.phase == ServerPhase.VECTORS:
                self._spend(member, sharing, made)
            answer, under = write_secure_reply(member.federation, asked.round, body), sharing.model_dump_json()
            if made is not None and asked.phase == ServerPhase.VECTORS:
                under = made.under
                if self._masked.settles():
                    self._put_sharing(sharing.model_copy(update={"masked_only": True}))
                member.keep_measured(asdict(made.found))
                entry = self.ledger.write(self._now(), member.to, asked.round, made.rows, answer, masked=True)
                self._keep_private(member, member.read(opening), made.private, np.array(made.items, np.int64))
                self.ledger.mark(entry, "releasing", self._now())
                member.keep_model(opening)
                member.keep_answer(Answer(entry, asked.round, hashlib.sha256(opening).hexdigest(), b"", under))
            self._masked.keep(content, LastReply(answer, entry, under))
            self.participation.count(member.task, asked.round, len(content) + len(answer))
        return answer, entry

    def _prepare(
        self, member: Membership, sharing: Sharing, asked: SecureRequest, opening: bytes
    ) -> tuple[PreparedVector, DirectoryState]:
        """Learn what is added to a session, if it may be joined; nothing is kept. Return the directory's state too."""
        request = member.read(opening)
        if not request.learn or request.round != asked.round:
            raise WireError.because(ReasonCode.OTHER_TERMS)
        if asked.request:
            member.refuse_if_answered(request.round)
        session = self._masked.check_invitation(member.federation, sharing.device_policy, asked, opening)
        state = self.directory.check(sharing, member.federation.id, self._masked.identity, session.cohort, asked)
        debit = plan_debit(member.federation, request.shared, session)
        if debit is not None:
            self.budgets.check(member.federation, debit, sharing.most_epsilon)
        learnt = learn_for_sum(member, sharing, request, self.history, *self._root, self._coins)
        found = measure_for_sum(member, sharing, self.history, self.hidden, request, *self._root, self._coins)
        vector, is_measured, zeros = vector_of(learnt, found, session.terms)
        if zeros is not None:
            learnt = empty_update(member, request, self._root[1], zeros)
        if debit is not None and member.federation.guarantee is not None:
            noisy = session.terms.layout, member.federation.guarantee, debit.share, session.n_participants
            add_noise_share(vector, *noisy, self._noise_of(request.round))
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog, is_measured)
        items = self.history.clients(0, member.catalog).items.tolist()
        made = PreparedVector(
            session.context,
            vector.tobytes(),
            replace(rows, zeros=str(zeros or "")),
            learnt.private,
            items,
            found,
            sharing.model_dump_json(),
            debit,
        )
        return made, state

    def _spend(self, member: Membership, sharing: Sharing, made: PreparedVector) -> None:
        """Debit what a vector costs, inside the transaction that submits it."""
        if (made.debit is None) != (member.federation.privacy is None):
            raise WireError.because(ReasonCode.OUT_OF_TURN)
        if made.debit is not None:
            self.budgets.debit(member.federation, made.debit, sharing.most_epsilon, self._now())

    def _noise_of(self, number: int) -> NoiseSource:
        """Return the noise of a round; simulated noise is refused on a device whose root key is its own."""
        source = self._noise(number)
        if source.is_simulated and not self._store.get_json("root").get("is_given"):
            raise DeviceError("Noise that can be repeated protects no user.", "Leave the option 'noise' out.")
        return source

    def upcoming(self) -> UpcomingMessage | None:
        """Return the message that the device would send in the round after the last one it knows; none without a model.

        The device's key and the round fix all draws, so that round sends exactly these rows, unless history or settings
        change before. Nothing is stored, and nothing is sent.
        """
        member, sharing = self._joined, self.sharing
        model, answer = member.model(), member.answer()
        if model is None or not len(self.history):
            return None
        number = 1 + max(model.round, -1 if answer is None else answer.round)
        learnt = learn_locally(member, sharing, replace(model, round=number), self.history, *self._root, self._coins)
        content = write_update(member.federation, number, learnt.message)
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
        return UpcomingMessage(number, member.to, rows, len(content))

    def prove_identity(self, word: str, key: bytes) -> bytes:
        """Return the signature that shows a coordinator, at enrolment, that the identity is this device's own."""
        return self._masked.identity.sign(enrolment_statement(word, key))

    def sign_key_change(self, new: Identity) -> Notice:
        """Return the notice by which another key signs for this device's identity."""
        return key_change(self._masked.identity, new, bytes.fromhex(self.federation_id))

    def next_identity(self) -> Identity:
        """Draw another key for the same identity; it holds once the coordinator has taken it."""
        return self._masked.identity.renew()

    def adopt_identity_key(self, new: Identity, line: Mapping[str, str]) -> None:
        """Sign with another key from now on, and keep the connection without what was asked for."""
        with self._store.transaction():
            self._masked.adopt_key(new)
            self._store.put_json("line", dict(line))

    def sign_hand_over(self, old: bytes, new: bytes) -> bytes:
        """Return the signature by which a coordinator lets this device have a new key in place of its old one."""
        return self._masked.identity.sign(hand_over_statement(old, new))

    def _keep_private(
        self, member: Membership, request: Request, private: dict[str, Array] | None, items: Array
    ) -> None:
        """Keep what an answer made of the private part, inside a transaction; none: it stays as it was."""
        member.settle(request.counted)
        if private is None:
            member.keep_unlearnt()
        else:
            member.keep_learnt(private, items)

    def release(self, entry: int) -> bytes:
        """Return the bytes of a message, to be sent now. From here on the ledger says that it may have left."""
        member = self._joined
        with self._store.transaction():
            self._refuse_to_send()
            refuse_if_silent(self.sharing)
            refuse_readable(self.sharing, member.federation)
            answer = member.answer()
            if answer is None or answer.entry != entry or not answer.content:
                raise DeviceError(
                    f"Entry {entry} of the ledger is not the message that was about to be sent.",
                    "The message was not sent.",
                )
            refuse_if_narrowed(self.sharing, answer.under)
            self.ledger.mark(entry, "releasing", self._now())
        return answer.content

    def mark_sent(self, entry: int) -> None:
        """Note that a message arrived."""
        with self._store.transaction():
            self.ledger.mark(entry, "sent", self._now())

    def mark_broken_off(self, entry: int, why: str) -> None:
        """Note that the transfer of a message failed: its receiver may have it nevertheless."""
        with self._store.transaction():
            self.ledger.mark(entry, "may have left", self._now(), why)

    def mark_not_sent(self, entry: int, why: str) -> None:
        """Note that nothing of a message was handed over."""
        with self._store.transaction():
            self.ledger.mark(entry, "not sent", self._now(), why)

    def _refuse_if_answered(self, member: Membership, number: int) -> None:
        member.refuse_if_answered(number)
        self._masked.refuse_if_opened(number)

    def _refuse_if_left(self) -> None:
        welcome = self._store.get("welcome")
        if welcome is None or digest_in(welcome) != self._joined.federation.digest:
            raise ConsentError.because(ReasonCode.LEFT_FEDERATION)

    def _refuse_to_send(self) -> None:
        """Refuse once the federation is left, and while a proposal waits, though a coordinator keeps to old terms."""
        self._refuse_if_left()
        if proposed_terms(self._store) is not None:
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds")

    # --- what it is for -----------------------------------------------------------------------------------------------

    @property
    def suggests_alone(self) -> bool:
        """Whether recommendations come from its own data and the catalogue alone, because there is no model yet."""
        member = self._member
        if member is None or member.model() is not None:
            return False
        catalog = member.catalog
        has_own = bool(len(self.history) or self.interests)
        return catalog.popularity is not None or (catalog.categories is not None and has_own)

    def recommend(self, n: int = 10) -> list[Recommendation]:
        """Return the best n items outside the history, from the model on this device; nothing is sent.

        While the history is empty, chosen interests stand in for it. Before the first model, items of the categories
        that occur in the history, or were chosen, are returned, and those that the catalogue calls popular.
        """
        interests = self.interests
        if interests and not len(self.history):
            return recommend_by_interests(self._joined, interests, self.hidden, self._root[0], n)
        return recommend(self._joined, self.history, self.hidden, *self._root, n)

    # --- the file -----------------------------------------------------------------------------------------------------

    def change_passphrase(self, passphrase: str, cost: ScryptCost | None = None, keeper: str = "") -> None:
        """Open with another passphrase from now on. Copies made before still open with the old one."""
        self._store.change_passphrase(passphrase, cost or ScryptCost(), keeper)

    def backup(self, path: Path) -> None:
        """Write an encrypted copy that opens with the same passphrase and recovery code. Use one at a time."""
        copies.write_copy(self._store, path)

    def readable(self) -> dict[str, Any]:
        """Return all data of the user, readable: history, settings, ledger, budgets; with titles if they are known."""
        found = copies.readable_copy(self.history, self.sharing, self.hidden, self._member, self.ledger)
        budgets = [budget.as_json() for budget in self.budgets.list()]
        return {**found, "interests": self.interests.to_json(), "budgets": budgets}

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
