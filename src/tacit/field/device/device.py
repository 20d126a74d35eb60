"""A device: it learns as a cohort of one, sends what its user allows, and records every message before sending it.

A round, as the device sees it:

    learn     a request -> `device_round` -> message, private part, ledger entry and model: all on disk, or nothing
    release   the settings are read again, the entry is marked, and only then are there bytes to send
    sent      or `not_sent`: what the transport says

The new private part of an answer is kept when the next message says that the answer counted, and undone otherwise.
Each round is answered once: asked again, also after a crash, the device gives the very same bytes. A request for a
round gone by, or for the last round with another model, is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import ConsentError, DeviceError, WireError
from tacit.field.device import copies
from tacit.field.device.consent import refuse_if_narrowed, refuse_if_silent, refuse_readable
from tacit.field.device.history import History
from tacit.field.device.learning import empty_update, learn_for_sum, learn_locally, recommend
from tacit.field.device.ledger import Clock, Ledger, MentionedItems, UpcomingMessage, system_clock
from tacit.field.device.masked_rounds import LastReply, MaskedRounds, PreparedVector, vector_of
from tacit.field.device.membership import Answer, Membership
from tacit.field.device.quality import measure_for_sum
from tacit.field.device.settings import Sharing, find_item
from tacit.field.device.store import Store
from tacit.field.device.vault import ScryptCost
from tacit.protocols.secure_aggregation import Identity, ServerPhase
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.serving.recommender import Recommendation
from tacit.types import Array, Catalog, Label
from tacit.wire.enrolment import enrolment_statement
from tacit.wire.messages import (
    Request,
    SecureRequest,
    digest_in,
    read_secure_request,
    write_secure_reply,
    write_update,
)

SEED_BITS = 256


class Device:
    """An open device. Its user can read `history`, `sharing` and `ledger` at any time."""

    def __init__(self, store: Store, clock: Clock = system_clock) -> None:
        self._store, self._clock = store, clock
        self.history, self.ledger = History(store), Ledger(store)
        self._member = Membership.of(store)
        self._masked = MaskedRounds(store)

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

        A `seed` and a `lane` (the person's number) are for tests that compare with a simulation: whoever knows the seed
        can tell what was positive in each message. `keeper` is the name under which a keyring has the passphrase.
        """
        store = Store.create(path, passphrase, cost or ScryptCost(), keeper)
        with store.transaction():
            store.put_json("root", {"seed": secrets.randbits(SEED_BITS) if seed is None else seed, "lane": lane})
            store.put("identity", Identity.fresh().secret)
            store.put("sharing", Sharing().model_dump_json().encode())
        return cls(store, clock)

    @classmethod
    def open(cls, path: Path, passphrase: str, clock: Clock = system_clock) -> Device:
        """Open a device with its passphrase."""
        return cls(Store.open(path, passphrase), clock)

    def close(self) -> None:
        """Let the file go."""
        self._store.close()

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

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    # --- user's settings ----------------------------------------------------------------------------------------------

    @property
    def sharing(self) -> Sharing:
        """What may leave, as it is on disk now."""
        stored = self._store.get("sharing")
        if stored is None:
            raise DeviceError("This device's file has no settings.", "Restore a copy: tacit device import.")
        return Sharing.model_validate_json(stored)

    def share(self, sharing: Sharing) -> None:
        """Decide what may leave, from the next message on. Every name must exist."""
        self.change(lambda before: sharing)

    def change(self, decide: Callable[[Sharing], Sharing]) -> Sharing:
        """Decide on the grounds of what is on disk, with nothing in between; return what holds from now on."""
        with self._store.transaction():
            settled = decide(before := self.sharing)
            if self._member is not None and settled != before.model_copy(update={"paused": settled.paused}):
                settled.stage(self._root[1], self._member.catalog)
            self._store.put("sharing", settled.model_dump_json().encode())
        return settled

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
    def hidden(self) -> list[Label]:
        """Items that the user has hidden."""
        found: list[Label] = self._store.get_json("hidden") or []
        return found

    # --- federation ---------------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership | None:
        """The federation of this device, if any."""
        return self._member

    @property
    def catalog(self) -> Catalog:
        """The catalogue of the federation."""
        return self._joined.catalog

    @property
    def _joined(self) -> Membership:
        if self._member is None:
            raise ConsentError.because(ReasonCode.NOT_A_MEMBER)
        return self._member

    def join(self, welcome: bytes, address: str = "") -> Membership:
        """Become a member of a federation; nothing leaves by that."""
        self._member = Membership.join(self._store, welcome, address)
        return self._member

    def keep_connection(self, line: Mapping[str, str]) -> None:
        """Keep what the carrier needs to reach the coordinator: an address, certificates, this device's key there."""
        with self._store.transaction():
            self._store.put_json("line", dict(line))

    @property
    def connection(self) -> dict[str, str]:
        """What the carrier needs to reach the coordinator; empty without one."""
        found: dict[str, str] = self._store.get_json("line") or {}
        return found

    def leave(self) -> None:
        """Leave the federation at once. History, settings and ledger stay; what was sent stays sent."""
        Membership.leave(self._store)
        self._member = None

    # --- a round ------------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> tuple[Key, int]:
        stored = self._store.get_json("root")
        return Key(stored["seed"]).child("learn"), stored["lane"]

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
        return request

    def learn(self, content: bytes) -> int:
        """Answer a request: learn, and put the message on disk with its entry in the ledger; return the entry's number.

        Nothing has left when this returns.
        """
        member, sharing = self._joined, self.sharing
        refuse_if_silent(sharing)
        refuse_readable(sharing)
        request, digest = member.read(content), hashlib.sha256(content).hexdigest()
        if not request.learn:
            raise WireError.because(ReasonCode.NOT_A_REQUEST)
        last = member.answer()
        if last is not None and (last.round, last.request) == (request.round, digest) and last.content:
            refuse_if_narrowed(sharing, last.under)
            return last.entry
        self._refuse_if_answered(member, request.round)
        learnt = learn_locally(member, sharing, request, self.history, *self._root)
        answer = write_update(member.federation, request.round, learnt.message)
        with self._store.transaction():
            self._refuse_if_left()
            refuse_if_silent(self.sharing, sharing)
            self._refuse_if_answered(member, request.round)
            rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
            entry = self.ledger.write(self._now(), member.to, request.round, rows, answer, masked=False)
            self._keep_private(member, request, learnt.private, self.history.clients(0, member.catalog).items)
            member.keep_model(content)
            member.keep_answer(Answer(entry, request.round, digest, answer, sharing.model_dump_json()))
        return entry

    def turn(self, content: bytes) -> tuple[bytes, int | None]:
        """Take one turn in a secure sum; return the bytes to send now and, where they hold what was learnt, the entry.

        Everything is on disk, and the ledger says that it may have left, when this returns. The same turn again, also
        after a crash, gives the same bytes. After its first masked vector the device sends nothing readable any more.
        What was learnt never decides whether there is an answer: an update that cannot be sent becomes zeros, and the
        ledger says so. What will be added is learnt and kept with the first message of a session, as its masks are.
        """
        member, sharing = self._joined, self.sharing
        refuse_if_silent(sharing)
        turn = read_secure_request(member.federation, content)
        again = self._masked.last_reply(content)
        if again is not None:
            with self._store.transaction():
                self._refuse_if_left()
                refuse_if_silent(self.sharing)
                if again.entry is not None:
                    refuse_if_narrowed(self.sharing, again.under)
                    self.ledger.mark(again.entry, "releasing", self._now())
            return again.answer, again.entry
        made, entry, opening = None, None, b""
        if turn.phase == ServerPhase.ADVERTS:
            opening = turn.request or self._masked.opening(turn.round)
            made = self._prepare(member, sharing, turn, opening)
        elif turn.phase == ServerPhase.VECTORS:
            opening, made = self._masked.opening(turn.round), self._masked.prepared()
            refuse_if_narrowed(sharing, made.under)
        with self._store.transaction(), self._masked.careful():
            self._refuse_if_left()
            refuse_if_silent(self.sharing, sharing)
            if turn.phase == ServerPhase.VECTORS:
                member.refuse_if_answered(turn.round, hashlib.sha256(opening).hexdigest())
            body = self._masked.step(member.federation, sharing.guards, turn, made)
            answer, under = write_secure_reply(member.federation, turn.round, body), sharing.model_dump_json()
            if made is not None and turn.phase == ServerPhase.VECTORS:
                under = made.under
                if self._masked.settles():
                    latched = sharing.model_copy(update={"masked_only": True})
                    self._store.put("sharing", latched.model_dump_json().encode())
                member.keep_measured(asdict(made.found))
                entry = self.ledger.write(self._now(), member.to, turn.round, made.rows, answer, masked=True)
                self._keep_private(member, member.read(opening), made.private, np.array(made.items, np.int64))
                self.ledger.mark(entry, "releasing", self._now())
                member.keep_model(opening)
                member.keep_answer(Answer(entry, turn.round, hashlib.sha256(opening).hexdigest(), b"", under))
            self._masked.keep(content, LastReply(answer, entry, under))
        return answer, entry

    def _prepare(self, member: Membership, sharing: Sharing, turn: SecureRequest, opening: bytes) -> PreparedVector:
        """Learn what is added to a session, if it may be joined; nothing is kept."""
        request = member.read(opening)
        if not request.learn or request.round != turn.round:
            raise WireError.because(ReasonCode.OTHER_TERMS)
        if turn.request:
            member.refuse_if_answered(request.round)
        session = self._masked.check_invitation(member.federation, sharing.guards, turn, opening)
        learnt = learn_for_sum(member, sharing, request, self.history, *self._root)
        found = measure_for_sum(member, sharing, self.history, self.hidden, request, *self._root)
        vector, is_measured, zeros = vector_of(learnt, found, session.terms)
        if zeros is not None:
            learnt = empty_update(member, request, self._root[1], zeros)
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog, is_measured)
        items = self.history.clients(0, member.catalog).items.tolist()
        return PreparedVector(
            session.context,
            vector.tobytes(),
            replace(rows, zeros=str(zeros or "")),
            learnt.private,
            items,
            found,
            sharing.model_dump_json(),
        )

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
        learnt = learn_locally(member, sharing, replace(model, round=number), self.history, *self._root)
        content = write_update(member.federation, number, learnt.message)
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
        return UpcomingMessage(number, member.to, rows, len(content))

    @property
    def identity(self) -> bytes:
        """The public key by which others know this device in secure sums."""
        return self._masked.identity.public

    def prove_identity(self, word: str, key: bytes) -> bytes:
        """Return the signature that shows a coordinator, at enrolment, that the identity is this device's own."""
        return self._masked.identity.sign(enrolment_statement(word, key))

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
            self._refuse_if_left()
            refuse_if_silent(self.sharing)
            refuse_readable(self.sharing)
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

    def mark_not_sent(self, entry: int, why: str) -> None:
        """Note that a message did not arrive."""
        with self._store.transaction():
            self.ledger.mark(entry, "not sent", self._now(), why)

    def _refuse_if_answered(self, member: Membership, number: int) -> None:
        member.refuse_if_answered(number)
        self._masked.refuse_if_opened(number)

    def _refuse_if_left(self) -> None:
        welcome = self._store.get("welcome")
        if welcome is None or digest_in(welcome) != self._joined.federation.digest:
            raise ConsentError.because(ReasonCode.LEFT_FEDERATION)

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds")

    # --- what it is for -----------------------------------------------------------------------------------------------

    def recommend(self, n: int = 10) -> list[Recommendation]:
        """Return the best n items outside the history, from the model on this device; nothing is sent."""
        return recommend(self._joined, self.history, self.hidden, *self._root, n)

    # --- the file -----------------------------------------------------------------------------------------------------

    def change_passphrase(self, passphrase: str, cost: ScryptCost | None = None, keeper: str = "") -> None:
        """Open with another passphrase from now on. Copies made before still open with the old one."""
        self._store.change_passphrase(passphrase, cost or ScryptCost(), keeper)

    def export(self, path: Path) -> None:
        """Write an encrypted copy that opens with the same passphrase. Use one copy at a time."""
        copies.write_copy(self._store, path)

    def readable(self) -> dict[str, Any]:
        """Return all data of the user, readable: history, settings, ledger; with titles if they are known."""
        return copies.readable_copy(self.history, self.sharing, self.hidden, self._member, self.ledger)

    def export_readable(self, path: Path) -> None:
        """Write all data of the user into a readable file."""
        copies.write_readable(path, self.readable())

    @classmethod
    def import_copy(cls, copy: Path, path: Path, passphrase: str, clock: Clock = system_clock) -> Device:
        """Make a device from an exported copy; one that is already at `path` is never touched.

        It does not go on with a secure sum that the copy was in: the device it was copied from may have gone on.
        """
        copies.import_device(copy, path, passphrase)
        device = cls.open(path, passphrase, clock)
        with device._store.transaction():
            device._masked.leave_session()
        return device

    def erase(self) -> None:
        """Destroy everything on this device, and its key in a keyring. What was sent before stays where it is."""
        copies.erase_device(self._store)

    @property
    def is_erased(self) -> bool:
        """Whether its file is gone."""
        return not self._store.path.exists()
