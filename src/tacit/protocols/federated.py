"""A federated round is two functions, and every runtime calls these two. A device is a cohort of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.methods.base import Federated
from tacit.privacy.dp import DifferentialPrivacy
from tacit.privacy.update_sink import Stage, UpdateSink
from tacit.random import Key
from tacit.types import Array, Clients, Model
from tacit.updates import Message, Release, Ring, Total

Shared = Mapping[str, Array]


@dataclass(frozen=True)
class UpdatePath:
    """What all updates of a federation pass on their way: the same on a device and in a simulation."""

    method: Federated
    stages: Sequence[Stage]
    ring: Ring

    @property
    def privacy(self) -> DifferentialPrivacy | None:
        """The stage that gives a guarantee, if there is one."""
        return next((stage for stage in self.stages if isinstance(stage, DifferentialPrivacy)), None)

    def budget_share(self, shared: Shared) -> float:
        """Return which share of a client's privacy budget the next round spends: 0 without a guarantee."""
        return 0.0 if self.privacy is None else self.privacy.share_of(self.method.budget_share(shared))


@dataclass(frozen=True)
class Contribution:
    """What a cohort gave to a round: a message, or rows added to a total; and what stays."""

    message: Message | None  # none: rows went into a total
    release: Release  # of those whose numbers fit the ring
    private: Mapping[str, Array]  # the new private part; clients whose numbers do not fit stay as they were
    is_fit: NDArray[np.bool_]  # [C]


def device_round(
    path: UpdatePath, model: Model, clients: Clients, key: Key, number: int | str, total: Total | None = None
) -> Contribution:
    """Learn from the clients' own histories in round `number`, and let what the stages allow leave.

    With a `total`, a simulation adds the rows of the cohort to it; without, they are written into a message.
    """
    method, learning, sealing = path.method, key.child("learn", number), key.child("seal", number)
    plan = method.plan(model, clients, learning)
    for part in plan.parts:
        if part.sensitive is not False and part.table not in method.spec.item_tables and part.mentions is None:
            raise MethodError(
                f"Rows of '{part.table}' are sensitive, but do not say which items they are about.",
                "Give 'mentions', so that what a user never shares can be kept back.",
            )
    keyed = [(stage, sealing.child(at)) for at, stage in enumerate(path.stages)]
    for stage, chance in keyed:
        plan = stage.narrow(plan, chance)
    shapes = method.shapes(model.shared) if total is None else total.shapes
    if total is None:  # a client's own row has the number of its id
        n_rows = int(clients.ids.max(initial=0)) + 1
        shapes |= {name: (n_rows, *shapes[name][1:]) for name in method.spec.client_tables}
    sink = UpdateSink(plan, keyed, path.ring, shapes, total)
    private = method.learn(model, clients, plan, sink, learning)
    message, release, is_fit = sink.finish()
    if not is_fit.all():
        private = {name: np.where(_along(is_fit, array), array, model.private[name]) for name, array in private.items()}
    return Contribution(message, release, private, is_fit)


def server_round(path: UpdatePath, shared: Shared, total: Total, n_asked: int | None = None) -> Shared:
    """Move the shared model by a sum, unless it wrapped around; the sum of no clients moves nothing.

    Under differential privacy the sum holds its noise already; `n_asked` clients were to add it (none: those summed).
    """
    for sums in total.sums.values():
        if len(sums) > 1:  # one row, of dense layers, travels in 64 bits whatever the ring
            path.ring.check(sums)
    if not total.n_clients:
        return shared
    if path.privacy is not None:
        total = path.privacy.read(total, path.budget_share(shared), total.n_clients if n_asked is None else n_asked)
    return path.method.apply(shared, total, path.ring)


def _along(mask: Array, array: Array) -> Array:
    """Shape a mask over clients so that it broadcasts over an array whose first axis they are."""
    return mask.reshape(-1, *[1] * (array.ndim - 1))
