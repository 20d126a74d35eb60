"""Differential privacy in simulations: noise from epsilon and the schedule, a log of noisy sums, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, PrivacyError
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.methods.base import Federated
from tacit.privacy.accounting import Guarantee, PrivacyEvent, account
from tacit.privacy.dp import DifferentialPrivacy, DPConfig
from tacit.privacy.noise import NoiseSource
from tacit.privacy.pure import build_guarantee
from tacit.protocols.guarantee import (
    contribution_spec,
    made_up_client,
    refuse_exact_counts,
    refuse_first_of_data,
    refuse_groups,
    refuse_unaccounted,
    tells_items,
)
from tacit.protocols.rounds import RoundsConfig, draw_attendance
from tacit.protocols.secure_aggregation.encoding import decode_sum, rows_layout
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.noise_shares import add_noise_share
from tacit.random import Key
from tacit.types import Catalog, Clients
from tacit.updates import Ring, Total

TOLERANCE = 1e-6  # of a budget: shares of a plan travel in single precision
NoiseShares = Callable[[int, int], NoiseSource]
"""Where the share of a client, by its id, comes from in a round."""


def build_privacy(
    config: DPConfig,
    method: Federated,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    ring: Ring,
    rounds: RoundsConfig,
) -> DifferentialPrivacy:
    """Return the stage whose noise makes all rounds of a method together cost epsilon."""
    refuse_unaccounted(method, catalog)
    refuse_releases(rounds)
    refuse_more_dropouts(config, rounds)
    refuse_first_of_data(method, catalog, key.child("init"), clients, made_up_client(1, catalog, len(clients)))
    first = method.init(clients.take([0]), catalog, key.child("init")).shared
    of = contribution_spec(method, count_participations(method, clients, rounds, key))
    of = replace(of, tells_items=tells_items(method, first))
    stage = build_guarantee(config, of, ring, len(clients))
    n_asked = min(method.schedule(clients).clients_per_round, len(clients))
    stage.refuse_coarse(stage.share_of(method.budget_share(first)), n_asked, method.shapes(first))
    return stage


def refuse_releases(rounds: RoundsConfig) -> None:
    """Refuse rounds that would reveal something of clients beside the noisy sums."""
    if rounds.criteria is not None:
        raise ConfigError(
            "runtime.rounds.criteria is a release without noise: weights depend on what all clients did.",
            "Remove it, or the stage 'dp'.",
        )
    refuse_groups(rounds.robust, "runtime.rounds.robust")


def refuse_more_dropouts(config: DPConfig, rounds: RoundsConfig) -> None:
    """Refuse rounds of which most would have fewer clients than their noise needs."""
    if config.mode == "distributed" and rounds.dropout > config.dropped:
        raise ConfigError(
            f"runtime.rounds.dropout is {rounds.dropout:g}, but privacy.dropped is {config.dropped:g}: fewer clients "
            "than the noise needs would be left in most rounds, and these would be abandoned.",
            f"Set privacy.dropped to more than {rounds.dropout:g}, so that a share of noise is large enough.",
        )


def count_participations(method: Federated, clients: Clients, rounds: RoundsConfig, key: Key) -> int:
    """Return in how many rounds a client takes part at most; draws are keyed and know nothing of histories."""
    schedule, n_clients = method.schedule(clients), len(clients)
    if schedule.clients_per_round >= n_clients:
        return max(1, schedule.rounds)
    times = np.zeros(n_clients, np.int64)
    for number in range(schedule.rounds):
        times[draw_attendance(schedule, rounds, key, number, n_clients).answered] += 1
    return max(1, int(times.max()))


def refuse_other_sums(secure: SecureRoundsConfig | None) -> None:
    """Refuse secure sums that publish exact counts or parts, or whose participants are not known beforehand."""
    refuse_exact_counts(secure is not None and secure.two_stage, "runtime.secure.two_stage")
    if secure is not None and secure.mode == "protocol":
        raise ConfigError(
            "runtime.secure.mode=protocol has no noise in its messages.",
            "Set runtime.secure.mode=exact, whose sums carry it.",
        )
    if secure is not None and secure.draw:
        raise ConfigError(
            "With runtime.secure.draw it is not known beforehand in how many sums a client will be.",
            "Set runtime.secure.draw=false.",
        )
    if secure is not None and secure.coordinators > 1:
        raise ConfigError(
            "runtime.secure.coordinators shows a total of each coordinator, with the noise of its own clients only.",
            "Set runtime.secure.coordinators=1.",
        )


class SimulatedBudgets:
    """What each client of a simulation has spent of its budget: no sum is made that would spend more than all of it."""

    def __init__(self, n_clients: int) -> None:
        self.spent = np.zeros(n_clients)

    def debit(self, who: NDArray[np.int64] | None, share: float) -> None:
        """Spend a share of the budget of the clients at some positions, none: of all; refuse if one has less left."""
        asked = slice(None) if who is None else who
        most = float(self.spent[asked].max(initial=0.0))
        if not most + share <= 1 + TOLERANCE:
            raise PrivacyError(
                f"The next sum spends {share:.3g} of a client's privacy budget, and {most:.3g} of it is spent: there "
                "are more rounds than the budget holds.",
                "Make fewer rounds, or build the stage for as many rounds as there are.",
            )
        self.spent[asked] += share


@dataclass(frozen=True)
class NoisyRound:
    """One noisy sum: who was in it, what it cost each of them, and how large the noise was."""

    number: int
    event: PrivacyEvent
    share: float  # of the budget
    n_asked: int
    n_summed: int
    who: NDArray[np.int64] | None  # positions; None: all clients
    noise: float  # standard deviation in every number of the sum
    signal: float  # root mean square of the numbers without noise: known in the lab only


@dataclass
class PrivacyLog:
    """All noisy sums of a simulation."""

    rounds: list[NoisyRound] = field(default_factory=list)

    def worst_events(self, n_clients: int) -> list[PrivacyEvent]:
        """Return the releases of the client that spent most."""
        spent = np.zeros(n_clients)
        for one in self.rounds:
            spent[slice(None) if one.who is None else one.who] += one.share
        worst = int(spent.argmax()) if n_clients else 0
        return [one.event for one in self.rounds if one.who is None or worst in one.who]

    def guarantee(self, n_clients: int, delta: float) -> Guarantee:
        """Return what all sums together reveal about any one client, from what happened."""
        return account(self.worst_events(n_clients), delta)

    def list_events(self, n_clients: int) -> list[dict[str, Any]]:
        """Return the same releases for JSON, equal ones as one with their number."""
        times: dict[PrivacyEvent, int] = {}
        for event in self.worst_events(n_clients):
            bare = replace(event, label="")
            times[bare] = times.get(bare, 0) + event.count
        return [replace(event, count=n).to_dict() for event, n in times.items()]

    def describe(self, privacy: DifferentialPrivacy, n_clients: int) -> dict[str, Any]:
        """Return what a report says of the guarantee."""
        found = self.guarantee(n_clients, privacy.delta).to_dict()
        config = privacy.config
        return {
            **found,
            "unit": "one client with all it did",
            "mode": config.mode,
            "mechanism": privacy.mechanism,
            "bound": privacy.bound,
            "dropped": config.dropped,
            "corrupted": config.corrupted,
            "clients": n_clients,
            "simulated_noise": True,
            "events": self.list_events(n_clients),
            "rounds": [
                {
                    "round": one.number + 1,
                    "share": one.share,
                    "clients": one.n_summed,
                    "noise": one.noise,
                    "signal": one.signal,
                    "noise_multiplier": one.event.noise_multiplier,
                }
                for one in self.rounds
            ],
        }


def root_mean_square(total: Total, ring: Ring) -> float:
    """Return the root mean square of all numbers of a sum, in the unit of values."""
    squares = sum(float(np.square(array / float(ring.scale)).sum()) for array in total.sums.values())
    return float(np.sqrt(squares / max(1, sum(array.size for array in total.sums.values()))))


def add_noise_shares(
    total: Total, privacy: DifferentialPrivacy, share: float, n_asked: int, sources: Iterable[NoiseSource]
) -> Total:
    """Return a sum with the noise of each device that is in it, drawn as these devices draw it."""
    layout = rows_layout(total.shapes, privacy.ring, n_asked, counted=privacy.count_units)
    noise = Vector(layout.sizes)
    for source in sources:
        add_noise_share(noise, layout, privacy, share, n_asked, source)
    return total + decode_sum(noise, layout, total.shapes, 0)
