"""What a device answers in a round: it learns as a cohort of one, and records every message before it is sent.

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
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np

from tacit.errors import DeviceError, WireError
from tacit.field.device.budget import Budgets, plan_debit
from tacit.field.device.consent import refuse_if_narrowed, refuse_if_silent, refuse_readable
from tacit.field.device.device_file import DeviceFile
from tacit.field.device.directory import DirectoryState
from tacit.field.device.history import History
from tacit.field.device.learning import empty_update, learn_for_sum, learn_locally
from tacit.field.device.ledger import MentionedItems, UpcomingMessage
from tacit.field.device.limits import NO_ROUND
from tacit.field.device.masked_rounds import LastReply, MaskedRounds, PreparedVector, vector_of
from tacit.field.device.membership import Answer, Membership
from tacit.field.device.preferences import Preferences
from tacit.field.device.quality import AllowedItems, measure_for_sum
from tacit.field.device.root_key import coins_of, is_root_given, root_of
from tacit.field.device.settings import Sharing
from tacit.field.device.terms import DeviceTerms
from tacit.languages.sentences import Sentence
from tacit.privacy.noise import NoiseSource, SystemNoise
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.protocols.secure_aggregation.noise_shares import add_noise_share
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.wire.messages import Request, SecureRequest, read_secure_request, write_secure_reply, write_update

NoiseOfRound = Callable[[int], NoiseSource]


def system_noise(number: int) -> NoiseSource:
    """Return fresh noise from the operating system, for any round."""
    return SystemNoise()


class DeviceAnswers:
    """The answers of one device, in the rounds of its federation."""

    def __init__(
        self,
        file: DeviceFile,
        terms: DeviceTerms,
        masked: MaskedRounds,
        history: History,
        budgets: Budgets,
        preferences: Preferences,
        noise: NoiseOfRound,
    ) -> None:
        self._file, self._store, self._terms, self._masked = file, file.store, terms, masked
        self._history, self._budgets, self._preferences, self._noise = history, budgets, preferences, noise

    def receive(self, content: bytes) -> Request:
        """Store a model that was sent here, to recommend from."""
        member = self._terms.require()
        request, last = member.read(content), member.model()
        if last is not None and request.round < last.round:
            raise WireError.because(ReasonCode.MODEL_OUTDATED, round=request.round, earlier=last.round)
        with self._store.transaction():
            self._terms.refuse_if_left()
            member.settle(request.counted)
            member.keep_model(content)
            self._file.participation.count(member.task, NO_ROUND, len(content))
        return request

    def learn(self, content: bytes) -> int:
        """Answer a request: learn, and put the message on disk with its entry in the ledger; return the entry's number.

        Nothing has left when this returns.
        """
        member, sharing = self._terms.require(), self._file.sharing
        refuse_if_silent(sharing)
        refuse_readable(sharing, member.federation)
        request, digest = member.read(content), hashlib.sha256(content).hexdigest()
        if not request.learn:
            raise WireError.because(ReasonCode.NOT_A_REQUEST)
        self._file.participation.admit(member.task, request.round, sharing, len(content), self._masked)
        last = member.answer()
        if last is not None and (last.round, last.request) == (request.round, digest) and last.content:
            refuse_if_narrowed(sharing, last.under)
            return last.entry
        self._refuse_if_answered(member, request.round)
        learnt = learn_locally(member, sharing, request, self._history, *root_of(self._store), coins_of(self._store))
        answer = write_update(member.federation, request.round, learnt.message)
        with self._store.transaction():
            self._terms.refuse_to_send()
            refuse_if_silent(self._file.sharing, sharing)
            self._refuse_if_answered(member, request.round)
            rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
            entry = self._file.ledger.write(self._file.now(), member.to, request.round, rows, answer, masked=False)
            self._keep_private(member, request, learnt.private, self._history.clients(0, member.catalog).items)
            member.keep_model(content)
            member.keep_answer(Answer(entry, request.round, digest, answer, sharing.model_dump_json()))
            self._file.participation.count(member.task, request.round, len(content) + len(answer))
        return entry

    def step_session(self, content: bytes) -> tuple[bytes, int | None]:
        """Take one step in a secure sum; return the bytes to send now and, where they hold what was learnt, the entry.

        Everything is on disk, and the ledger says that it may have left, when this returns. The same step again, also
        after a crash, gives the same bytes. After its first masked vector the device sends nothing readable any more.
        What was learnt never decides whether there is an answer: an update that cannot be sent becomes zeros, and the
        ledger says so. What will be added is learnt and kept with the first message of a session, as its masks are.
        """
        member, sharing = self._terms.require(), self._file.sharing
        refuse_if_silent(sharing)
        asked = read_secure_request(member.federation, content)
        self._store.lock.take()
        again = self._masked.last_reply(content)
        if again is not None:
            with self._store.transaction():
                self._terms.refuse_to_send()
                refuse_if_silent(self._file.sharing)
                if again.entry is not None:
                    refuse_if_narrowed(self._file.sharing, again.under)
                    self._file.ledger.mark(again.entry, "releasing", self._file.now())
            return again.answer, again.entry
        made, entry, opening, directory = None, None, b"", None
        if asked.phase == ServerPhase.ADVERTS:
            self._file.participation.admit(member.task, asked.round, sharing, len(content), self._masked)
            opening = asked.request or self._masked.opening(asked.round)
            made, directory = self._prepare(member, sharing, asked, opening)
        elif asked.phase == ServerPhase.VECTORS:
            opening, made = self._masked.opening(asked.round), self._masked.read_prepared()
            refuse_if_narrowed(sharing, made.under)
        with self._store.transaction(), self._masked.careful():
            self._terms.refuse_to_send()
            refuse_if_silent(self._file.sharing, sharing)
            if asked.phase == ServerPhase.VECTORS:
                member.refuse_if_answered(asked.round, hashlib.sha256(opening).hexdigest())
            body = self._masked.step(member.federation, sharing.device_policy, asked, made)
            self._file.directory.keep(directory)
            if made is not None and asked.phase == ServerPhase.VECTORS:
                self._spend(member, sharing, made)
            answer, under = write_secure_reply(member.federation, asked.round, body), sharing.model_dump_json()
            if made is not None and asked.phase == ServerPhase.VECTORS:
                under = made.under
                if self._masked.note_first_rows():
                    self._file.put_sharing(sharing.model_copy(update={"masked_only": True}))
                member.keep_measured(asdict(made.found))
                entry = self._file.ledger.write(
                    self._file.now(), member.to, asked.round, made.rows, answer, masked=True
                )
                self._keep_private(member, member.read(opening), made.private, np.array(made.items, np.int64))
                self._file.ledger.mark(entry, "releasing", self._file.now())
                member.keep_model(opening)
                member.keep_answer(Answer(entry, asked.round, hashlib.sha256(opening).hexdigest(), b"", under))
            self._masked.keep(content, LastReply(answer, entry, under))
            self._file.participation.count(member.task, asked.round, len(content) + len(answer))
        return answer, entry

    def _prepare(
        self, member: Membership, sharing: Sharing, asked: SecureRequest, opening: bytes
    ) -> tuple[PreparedVector, DirectoryState]:
        """Learn what is added to a session, if it may be joined; nothing is stored. Return the directory state too."""
        request = member.read(opening)
        if not request.learn or request.round != asked.round:
            raise WireError.because(ReasonCode.OTHER_TERMS)
        if asked.request:
            member.refuse_if_answered(request.round)
        session = self._masked.check_invitation(member.federation, sharing.device_policy, asked, opening)
        state = self._file.directory.check(sharing, member.federation.id, self._masked.identity, session.cohort, asked)
        debit = plan_debit(member.federation, request.shared, session)
        if debit is not None:
            self._budgets.check(member.federation, debit, sharing.most_epsilon)
        learnt = learn_for_sum(member, sharing, request, self._history, *root_of(self._store), coins_of(self._store))
        key, client_id = root_of(self._store)
        allowed = AllowedItems(member, sharing, self._history, client_id, coins_of(self._store))
        found = measure_for_sum(allowed, self._preferences.hidden, request, key)
        vector, is_measured, zeros = vector_of(learnt, found, session.terms)
        if zeros is not None:
            learnt = empty_update(member, request, root_of(self._store)[1], zeros)
        if debit is not None and member.federation.guarantee is not None:
            noisy = session.terms.layout, member.federation.guarantee, debit.share, session.n_participants
            add_noise_share(vector, *noisy, self._noise_of(request.round))
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog, is_measured)
        items = self._history.clients(0, member.catalog).items.tolist()
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
            self._budgets.debit(member.federation, made.debit, sharing.most_epsilon, self._file.now())

    def _noise_of(self, number: int) -> NoiseSource:
        """Return the noise of a round; simulated noise is refused on a device whose root key is its own."""
        source = self._noise(number)
        if source.is_simulated and not is_root_given(self._store):
            raise DeviceError("Noise that can be repeated protects no user.", "Leave the option 'noise' out.")
        return source

    def upcoming(self) -> UpcomingMessage | None:
        """Return the message that the device would send in the round after the last one it knows; none without a model.

        The device's key and the round fix all draws, so that round sends exactly these rows, unless history or settings
        change before. Nothing is stored, and nothing is sent.
        """
        member, sharing = self._terms.require(), self._file.sharing
        model, answer = member.model(), member.answer()
        if model is None or not len(self._history):
            return None
        number = 1 + max(model.round, -1 if answer is None else answer.round)
        learnt = learn_locally(
            member, sharing, replace(model, round=number), self._history, *root_of(self._store), coins_of(self._store)
        )
        content = write_update(member.federation, number, learnt.message)
        rows = MentionedItems.of(learnt.message, member.federation.built.spec, member.catalog)
        return UpcomingMessage(number, member.to, rows, len(content))

    def _keep_private(
        self, member: Membership, request: Request, private: dict[str, Array] | None, items: Array
    ) -> None:
        """Store what an answer made of the private part, inside a transaction; none: it stays as it was."""
        member.settle(request.counted)
        if private is None:
            member.keep_unlearnt()
        else:
            member.keep_learnt(private, items)

    def release(self, entry: int) -> bytes:
        """Return the bytes of a message, to be sent now. From here on the ledger says that it may have left."""
        member = self._terms.require()
        with self._store.transaction():
            self._terms.refuse_to_send()
            refuse_if_silent(self._file.sharing)
            refuse_readable(self._file.sharing, member.federation)
            answer = member.answer()
            if answer is None or answer.entry != entry or not answer.content:
                raise DeviceError(
                    Sentence("Entry {entry} of the ledger is not the message that was about to be sent.", entry=entry),
                    "The message was not sent.",
                )
            refuse_if_narrowed(self._file.sharing, answer.under)
            self._file.ledger.mark(entry, "releasing", self._file.now())
        return answer.content

    def mark_sent(self, entry: int) -> None:
        """Note that a message arrived."""
        with self._store.transaction():
            self._file.ledger.mark(entry, "sent", self._file.now())

    def mark_broken_off(self, entry: int, why: str) -> None:
        """Note that the transfer of a message failed: its receiver may have it nevertheless."""
        with self._store.transaction():
            self._file.ledger.mark(entry, "may have left", self._file.now(), why)

    def mark_not_sent(self, entry: int, why: str) -> None:
        """Note that nothing of a message was handed over."""
        with self._store.transaction():
            self._file.ledger.mark(entry, "not sent", self._file.now(), why)

    def _refuse_if_answered(self, member: Membership, number: int) -> None:
        member.refuse_if_answered(number)
        self._masked.refuse_if_opened(number)
