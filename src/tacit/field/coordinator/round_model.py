"""The model of a coordinator: what each device is sent of it, and what the sum of a round makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.errors import DivergedError
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.journal import CoordinatorJournal
from tacit.field.coordinator.members import EnrolledDevice
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import server_round
from tacit.protocols.robust import combine_groups
from tacit.random import Key
from tacit.types import Array
from tacit.updates import Total
from tacit.wire.federation import LARGEST_LEARNT
from tacit.wire.messages import Request, most_update_bytes, write_request


class RoundModel:
    """The model between two rounds: `shared` is replaced when a round is finished."""

    def __init__(self, journal: CoordinatorJournal, rules: RoundRules, key: Key) -> None:
        self._federation, self._catalog, self._robust, self._key = (
            journal.federation,
            journal.catalog,
            rules.robust,
            key,
        )
        self.path, self._spec = self._federation.path(), self._federation.built.spec
        self._constants = self._federation.constants(journal.catalog)
        learnt = journal.amendments.grow_model(self._federation, journal.catalog, key.child("init"))
        self.shared: dict[str, Array] = {**(learnt or self.first_model(1)), **self._constants}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tables that the next round learns."""
        return self.path.method.shapes(self.shared)

    @property
    def most_update_bytes(self) -> int:
        """The bytes that the answer of a device to the next round has at most, if it can be read."""
        return most_update_bytes(self._federation, self.shapes, self.path.method.most_rows(self.shared))

    @property
    def share(self) -> float:
        """The share of a privacy budget that the next sum spends."""
        return self.path.budget_share(self.shared)

    def drop_constants(self, shared: Mapping[str, Array]) -> dict[str, Array]:
        """Return a model without what follows from the catalogue alone."""
        return {name: array for name, array in shared.items() if name not in self._constants}

    def first_model(self, n_clients: int) -> dict[str, Array]:
        """Return the model before the first round."""
        return self._federation.first_model(self._catalog, self._key.child("init"), n_clients)

    def make_rows(self, members: Sequence[EnrolledDevice]) -> None:
        """Give every member a row of each client table; new rows are those of a first model."""
        most = max((device.number for device in members), default=0)
        for name in self._spec.client_tables:
            here = self.shared[name]
            if len(here) < most:
                self.shared[name] = np.concatenate([here, self.first_model(most)[name][len(here) :]])

    def write_requests(self, number: int, devices: Sequence[EnrolledDevice], learn: bool) -> dict[int, bytes]:
        """Return what each device is sent: the arrays that it downloads, and whether it is asked to learn."""
        written: dict[tuple[int, int], bytes] = {}  # devices that receive the same share one request
        requests = {}
        for device in devices:
            row = device.number - 1 if self._spec.client_tables else 0
            if (device.counted, row) not in written:
                request = Request(number, self._federation.download(self.shared, row), learn, device.counted)
                written[device.counted, row] = write_request(self._federation, request)
            requests[device.number] = written[device.counted, row]
        return requests

    def apply(self, number: int, totals: list[Total], n_asked: int) -> dict[str, Array]:
        """Return the model after a round; this one stays as it is. Refused if it would diverge."""
        total = totals[0] if self._robust is None else combine_groups(totals, self._robust)
        try:
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                shared = dict(server_round(self.path, self.shared, total, n_asked))
        except np.linalg.LinAlgError:
            raise DivergedError(
                f"The sum of round {number} cannot be applied: its equations have no solution."
            ) from None
        for name in self._spec.downloads:
            largest = float(np.abs(shared[name]).max(initial=0.0))
            if not largest < LARGEST_LEARNT:
                raise DivergedError(
                    f"Learning diverged in round {number}: '{name}' reached {largest:.3g}.",
                    "The model of the round before stays in force. Found a new federation with a lower learning_rate.",
                )
        return shared
