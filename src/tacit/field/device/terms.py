"""The terms of a device's federation: joining, what changes later, what the user has to answer, and leaving."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tacit.errors import ConfigError, ConsentError, WireError
from tacit.field.device.amendments import AmendmentNote, follow, read_notes
from tacit.field.device.budget import Budgets
from tacit.field.device.device_file import DeviceFile
from tacit.field.device.directory import normalise_key
from tacit.field.device.masked_rounds import MaskedRounds
from tacit.field.device.membership import Membership
from tacit.field.device.proposals import (
    MethodProposal,
    decline_proposal,
    read_proposal,
    read_proposed_chain,
    read_proposed_terms,
)
from tacit.languages.sentences import Sentence
from tacit.reasons import ReasonCode
from tacit.types import Catalog
from tacit.wire.envelope import digest_in
from tacit.wire.federation import Federation
from tacit.wire.messages import read_welcome
from tacit.wire.network import read_network

QUESTIONS = frozenset({ReasonCode.TRIAL, ReasonCode.NO_GUARANTEE})  # refusals to join that a user may answer with yes


class DeviceTerms:
    """The federation that a device takes part in, as its user agreed to it; `member` is none where there is none."""

    def __init__(self, file: DeviceFile, masked: MaskedRounds, budgets: Budgets) -> None:
        self._file, self._masked, self._budgets = file, masked, budgets
        self.member = Membership.of(file.store)

    def reread(self) -> None:
        """Notice that another program joined or left a federation with this file."""
        welcome, member = self._file.store.get("welcome"), self.member
        joined = None if welcome is None else digest_in(welcome)
        if joined != (None if member is None else member.federation.digest):
            self.member = Membership.of(self._file.store)

    @property
    def catalog(self) -> Catalog:
        """The catalogue of the federation, or of the network of peers."""
        if self.member is None and (network := self._file.store.get("network")) is not None:
            return read_network(network)[1]
        return self.require().catalog

    def require(self) -> Membership:
        """Return the federation of this device; refused where there is none."""
        if self.member is None:
            raise ConsentError.because(ReasonCode.NOT_A_MEMBER)
        return self.member

    def join(
        self, welcome: bytes, address: str = "", witness: str = "", accepts: Collection[ReasonCode] = ()
    ) -> Membership:
        """Become a member of a federation; nothing leaves by that. `witness` is the key of who watches over it.

        A federation without a guarantee is joined only if the user `accepts` that, and a trial only if they accept the
        trial: of these QUESTIONS each federation asks one at most. A trial has no guarantee, and its yes includes that.
        """
        if self._file.store.get("network") is not None:
            raise ConsentError("This device is a member of a network of peers.", "Leave it first: tacit peer leave.")
        if self._file.store.get("welcome") is not None:
            raise ConsentError.because(ReasonCode.ALREADY_A_MEMBER)  # before any question
        asked, catalog = read_welcome(welcome)
        try:
            asked.check_terms(catalog)
        except ConfigError as error:
            raise WireError(
                Sentence("These terms cannot be kept: {why}", why=error.message), "Ask the operator."
            ) from None
        self._budgets.refuse_without_guarantee(asked)
        _refuse_unaccepted(asked, accepts)
        member = Membership.join(self._file.store, welcome, address, normalise_key(witness))
        with self._file.store.transaction():
            self._budgets.begin(member.federation)
        self.member = member
        return member

    def is_behind(self, content: bytes) -> bool:
        """Say whether a message is of other terms than this device's: perhaps of later ones, not of a proposal."""
        if self.member is None or (asked := digest_in(content)) == self.member.federation.digest:
            return False
        there = Membership.of(self._file.store)  # the user may have agreed to a change in another program
        if there is not None and there.federation.lineage == self.member.federation.lineage:
            self.member = there
        if asked == self.member.federation.digest:
            return False
        if asked == read_proposed_terms(self._file.store):
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)
        return True

    def amend(self, chain: bytes) -> list[AmendmentNote]:
        """Follow amendments of the federation, all or none of them; return what changed.

        Another method is refused here, and kept as a `proposal` for the user.
        """
        with self._file.store.transaction():
            notes = self._apply_chain(chain)
        self.member = Membership.of(self._file.store)
        if read_proposed_terms(self._file.store) is not None:
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)
        return notes

    def _apply_chain(self, chain: bytes, agrees: bool = False) -> list[AmendmentNote]:
        """Follow amendments, inside a transaction."""
        self.refuse_if_left()
        notes, sharing = follow(self._file.store, self.require(), chain, self._file.sharing, self._file.now(), agrees)
        self._file.put_sharing(sharing)
        return notes

    @property
    def proposal(self) -> MethodProposal | None:
        """Another method that the operator proposes; none if there is nothing to answer."""
        return read_proposal(self._file.store)

    def agree(self, terms: bytes) -> list[AmendmentNote]:
        """Say yes to another method: the device takes part again, and the old model is dropped.

        `terms` is the digest of what the user has read: a proposal that came since is not what they agreed to.
        """
        with self._file.store.transaction():
            chain = read_proposed_chain(self._file.store)
            if chain is None:
                raise ConsentError("There is no change to agree to.", "Nothing was changed.")
            if read_proposed_terms(self._file.store) != terms:
                raise ConsentError(
                    "The operator proposes something else now. Nothing was changed.", "Read it, and answer again."
                )
            notes = self._apply_chain(chain, agrees=True)
        self.member = Membership.of(self._file.store)
        return notes

    def decline(self) -> None:
        """Say no to another method: the device keeps its model, and takes no part while that is in force."""
        with self._file.store.transaction():
            decline_proposal(self._file.store)

    @property
    def amendments(self) -> list[AmendmentNote]:
        """What has changed in the federation since this device joined, oldest first."""
        return read_notes(self._file.store)

    def keep_enrolment(self, line: Mapping[str, str]) -> None:
        """Store the connection of a coordinator that is asked to enrol this device: it holds only once it is joined.

        It is kept before the coordinator is asked, so that the same invitation can be shown again after a crash.
        """
        with self._file.store.transaction():
            self._masked.renew_identity()  # the next coordinator does not learn which one this device asked before
            self._file.store.put_json("enrolment", dict(line))

    def forget_enrolment(self) -> None:
        """Forget a connection that came to nothing."""
        with self._file.store.transaction():
            self._file.store.drop("enrolment")

    @property
    def enrolment(self) -> dict[str, str]:
        """The connection of a coordinator that was asked to enrol this device; empty without one."""
        found: dict[str, str] = self._file.store.get_json("enrolment") or {}
        return found

    def leave(self) -> None:
        """Leave the federation at once. History, settings and ledger stay; what was sent stays sent."""
        with self._file.store.transaction():
            Membership.leave(self._file.store)
            self._masked.renew_identity()
        self.member = None

    def refuse_if_left(self) -> None:
        """Refuse once another program of this user has left the federation, or joined another."""
        welcome = self._file.store.get("welcome")
        if welcome is None or digest_in(welcome) != self.require().federation.digest:
            raise ConsentError.because(ReasonCode.LEFT_FEDERATION)

    def refuse_to_send(self) -> None:
        """Refuse once the federation is left, and while a proposal waits, though a coordinator keeps to old terms."""
        self.refuse_if_left()
        if read_proposed_terms(self._file.store) is not None:
            raise ConsentError.because(ReasonCode.METHOD_REPLACED)


def _refuse_unaccepted(asked: Federation, accepts: Collection[ReasonCode]) -> None:
    """Refuse terms that protect less than they could, unless the user said yes to just that."""
    if asked.trial is not None:
        if ReasonCode.TRIAL not in accepts:
            raise ConsentError.because(ReasonCode.TRIAL, needed=asked.trial)
    elif asked.privacy is None and ReasonCode.NO_GUARANTEE not in accepts:
        raise ConsentError.because(ReasonCode.NO_GUARANTEE)
