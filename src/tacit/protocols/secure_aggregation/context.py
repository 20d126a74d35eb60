"""What all participants of a round must agree on, and its hash, to which every derived key is bound.

A server that shows two participants different models, cohorts or options gives them different contexts: their masks do
not cancel, and what it adds up is noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tacit.errors import DevicePolicyError, MessageError
from tacit.protocols.secure_aggregation.bytes import MOST_PARTICIPANTS, ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.encoding import VectorLayout
from tacit.protocols.secure_aggregation.graph import NeighbourGraph
from tacit.protocols.secure_aggregation.identity import KEY_BYTES
from tacit.reasons import ReasonCode

VERSION, OLDEST = 1, 1  # of the messages of a sum: the newest that is known, and the oldest
NAME = b"tacit secure sum"
HASH_BYTES = 32


@dataclass(frozen=True)
class Terms:
    """The terms of one sum: which, of what, and with how much safety."""

    task: str
    round: int
    stage: int  # 1: counts of participants, 2: rows
    model: bytes  # hash of the shared model that participants learnt from
    layout: VectorLayout
    n_min: int  # participants in the sum, at least
    k_min: int  # participants behind each row of it, at least
    spare: int  # participants who may be lost between the two stages
    degree: int
    threshold: int
    beacon: bytes  # randomness that orders the graph; with a verified draw, no participant chose it
    server_key: bytes  # X25519, of this sum only

    def write(self, writer: ByteWriter) -> None:
        """Add the terms to a message."""
        writer.text(self.task).number(self.round, 8).number(self.stage, 1).raw(self.model)
        for value in (self.n_min, self.k_min, self.spare, self.degree, self.threshold):
            writer.number(value, 4)
        writer.raw(self.beacon).raw(self.server_key)
        self.layout.write(writer)

    @classmethod
    def read(cls, reader: ByteReader) -> Terms:
        """Take terms out of a message."""
        task, number, stage, model = reader.text(), reader.number(8), reader.number(1, 2, 1), reader.raw(HASH_BYTES)
        n_min, k_min, spare, degree, threshold = (reader.number(4, MOST_PARTICIPANTS) for _ in range(5))
        beacon, server_key = reader.raw(HASH_BYTES), reader.raw(KEY_BYTES)
        layout = VectorLayout.read(reader)
        return cls(task, number, stage, model, layout, n_min, k_min, spare, degree, threshold, beacon, server_key)


@dataclass(frozen=True)
class Session:
    """One sum: its terms and its cohort, as public identities in ascending order."""

    terms: Terms
    cohort: tuple[bytes, ...]

    @classmethod
    def of(cls, terms: Terms, identities: Sequence[bytes]) -> Session:
        """Put a cohort into its one order."""
        return cls(terms, tuple(sorted(identities)))

    @property
    def n_participants(self) -> int:
        """How many were invited."""
        return len(self.cohort)

    @cached_property
    def context(self) -> bytes:
        """The hash of version, task, round, stage, model, cohort and options."""
        writer = ByteWriter().raw(NAME).number(VERSION, 1)
        self.terms.write(writer)
        return hashlib.sha256(writer.raw(cohort_root(self.cohort)).done()).digest()

    @cached_property
    def graph(self) -> NeighbourGraph:
        """Who is whose neighbour: keyed by beacon, task, round and cohort, not by what a server may choose late."""
        terms = self.terms
        writer = ByteWriter().raw(b"graph").raw(terms.beacon).text(terms.task).number(terms.round, 8)
        key = hashlib.sha256(writer.number(terms.stage, 1).raw(cohort_root(self.cohort)).done()).digest()
        return NeighbourGraph(self.n_participants, terms.degree, key)

    def position(self, identity: bytes) -> int:
        """Return the position of an identity in the cohort."""
        try:
            return self.cohort.index(identity)
        except ValueError:
            raise DevicePolicyError.because(ReasonCode.NOT_INVITED) from None

    def check(self) -> None:
        """Refuse terms that are unsafe whatever participants send: done by both sides before a key is made."""
        terms, n_participants = self.terms, self.n_participants
        if any(a >= b for a, b in pairwise(self.cohort)):
            raise MessageError("A cohort must list each identity once, in ascending order.")
        if n_participants < terms.n_min or terms.n_min < 2:
            raise DevicePolicyError.because(
                ReasonCode.COHORT_TOO_SMALL, cohort=n_participants, needed=max(2, terms.n_min)
            )
        whole = terms.degree == n_participants - 1
        if not whole and (terms.degree % 2 or not 0 < terms.degree < n_participants - 1):
            raise MessageError(f"{n_participants} participants cannot have {terms.degree} neighbours each.")
        if not terms.degree // 2 < terms.threshold <= terms.degree:
            raise DevicePolicyError.because(ReasonCode.UNSAFE_THRESHOLD, threshold=terms.threshold, degree=terms.degree)
        terms.layout.check(n_participants)


def cohort_root(cohort: Sequence[bytes]) -> bytes:
    """Return the hash of a cohort."""
    return hashlib.sha256(b"cohort" + b"".join(cohort)).digest()
