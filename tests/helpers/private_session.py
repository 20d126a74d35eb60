"""A device in a federation with a guarantee, and a coordinator that may ask it for anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.hostile_sessions import EASY, N_PEOPLE, HostileCoordinator, Step
from helpers.small_federation import CATALOG, first_shared, made, request
from tacit.field.device import Device, Sharing
from tacit.methods.parts.sum_plan import SumPlan
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.protocols.secure_aggregation.encoding import decode_sum
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.types import Array
from tacit.updates import Total
from tacit.wire.federation import Federation
from tacit.wire.messages import model_in

CARE = SecureAggregationConfig(two_stage=False, n_min=N_PEOPLE, k_min=1, corrupted=0.0, dropped=0.0)
EPSILON, DELTA = 4.0, 1e-3


def founded(method: str = "dp-svd", **terms: Any) -> Federation:
    agreed = {"epsilon": EPSILON, "delta": DELTA, **terms}
    given = {"factors": 4}
    if method != "dp-svd":
        agreed = {"bound": 1.0, "participations": 3, **agreed}
    return Federation.create(
        "ab" * 16, "a private field", method, given, CATALOG, privacy=AgreedPrivacyConfig(**agreed)
    )


def member(path: Path, federation: Federation, **sharing: Any) -> Device:
    """A device with a history whose user allows the whole budget, unless it is said otherwise."""
    device = made(path, federation)
    device.share(Sharing(**{"privacy": "balanced", "device_policy": EASY, **sharing}))
    return device


def planned(federation: Federation, share: float, step: int = 0) -> dict[str, Array]:
    """The first model of dp-svd, with a plan whose next sum spends a share."""
    shares = [0.0] * (step + 1)
    shares[step] = share
    return {**first_shared(federation), "plan": SumPlan(step, 0, tuple(shares)).write()}


class PrivateSession(HostileCoordinator):
    """Asks one device for noisy sums."""

    def ask(
        self,
        number: int,
        shared: Mapping[str, Array] | None = None,
        care: SecureAggregationConfig = CARE,
        until: ServerPhase = ServerPhase.UNMASKINGS,
    ) -> list[Step]:
        """Ask for one sum; return what could be seen from outside."""
        model = first_shared(self.federation) if shared is None else shared
        opening = request(self.federation, number, model)
        here = RoundContext(self.federation.digest.hex(), number, model_in(opening), bytes(32))
        guarantee = self.federation.guarantee
        assert guarantee is not None
        shapes = self.federation.built.shapes(model)
        terms = here.adding_all(shapes, self.federation.ring, N_PEOPLE, care, guarantee.count_units)
        return self.hold(number, opening, [terms], until)

    @property
    def spent(self) -> float:
        """The share of the budget that the device says is spent."""
        budget = self.device.budgets.of(self.federation)
        assert budget is not None
        return budget.spent

    def last_sum(self, shapes: Mapping[str, tuple[int, ...]]) -> Total:
        """What the device added to the last sum, noise included: all others added zeros."""
        server = self.servers[-1]
        return decode_sum(server.total, server.session.terms.layout, shapes, N_PEOPLE)


def code_of(steps: list[Step]) -> int | str:
    """The size of the last answer, or the code of the refusal."""
    return steps[-1][2]
