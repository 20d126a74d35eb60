"""Table 4 of the JIIS paper: total communication cost of FPL on Brazil, in 10^12 vectors."""

from __future__ import annotations

import pytest

from tacit.config import Experiment
from tacit.evaluation.communication import cost_per_epoch, total_cost
from tacit.lab.experiments import run

PEOPLE, ITEMS, POSITIVES = 17_473, 47_270, 599_958  # table 1
SHARE = POSITIVES / PEOPLE
PI = [n / 10 for n in range(1, 11)]
ONE_TRIPLE = [1.27623, 1.27623, 1.27624, 1.27624, 1.27624, 1.27624, 1.27625, 1.27625, 1.27625, 1.27625]
PUBLISHED = {
    "sFPL": ONE_TRIPLE,
    "sFPL+": [1.41913, 1.41924, 1.41934, 1.41944, 1.41955, 1.41965, 1.41975, 1.41985, 1.41996, 1.42006],
    "pFPL": ONE_TRIPLE,
    "pFPL+": [0.99339, 0.99347, 0.99354, 0.99361, 0.99368, 0.99375, 0.99383, 0.99390, 0.99397, 0.99404],
}
# rounds per epoch, clients per round, local steps, epochs
CONFIGURATIONS = {
    "sFPL": (POSITIVES, 1, 1, 45),
    "sFPL+": (PEOPLE, 1, SHARE, 50),
    "pFPL": (SHARE, PEOPLE, 1, 45),
    "pFPL+": (1, PEOPLE, SHARE, 35),
}


def printed(name: str, pi: float) -> float:
    rounds, clients, steps, epochs = CONFIGURATIONS[name]
    return total_cost(cost_per_epoch(rounds, clients, ITEMS, steps, pi), epochs) / 1e12


@pytest.mark.parametrize("name", ["sFPL", "pFPL"])
def test_one_triple_per_round_costs_what_is_printed(name: str) -> None:
    assert [round(printed(name, pi), 5) for pi in PI] == PUBLISHED[name]


@pytest.mark.parametrize("name", ["sFPL+", "pFPL+"])
def test_many_triples_per_round_cost_a_share_of_what_is_printed(name: str) -> None:
    """The paper's own formula gives T times less than it prints for the two configurations with T triples.

    Its text sets rpe |U-| = |U| for them; the printed values need rpe |U-| = X+, as for one triple per round.
    """
    assert [round(SHARE * printed(name, pi), 5) for pi in PI] == PUBLISHED[name]


@pytest.mark.parametrize(("preset", "pi"), [("pFPL+", 1.0), ("sFPL", 0.0), ("sFPL+", 1.0), ("pFPL", 0.5)])
def test_a_run_records_the_cost_that_the_formula_expects(preset: str, pi: float) -> None:
    given = {
        "data": {"source": "town", "users": 60, "places": 50, "visits": 15},
        "method": {"name": "fpl", "preset": preset, "pi": pi, "epochs": 3},
        "evaluation": {"local_only_users": 0},
    }
    made = run(Experiment.from_options(given, "test"))
    clients, method = made.recommender.clients, made.recommender.method
    schedule, shared = method.schedule(clients), made.recommender.model.shared
    steps = int(shared["local_steps"])
    expected = cost_per_epoch(schedule.rounds_per_pass, schedule.clients_per_round, len(shared["items"]), steps, pi)
    assert made.result["cce"] == pytest.approx(expected, rel=0 if pi in (0, 1) else 0.01)
    assert made.result["tcc"] == pytest.approx(3 * made.result["cce"])
    asked = 3 * schedule.rounds_per_pass * schedule.clients_per_round
    both = made.result["bytes_up"] + made.result["bytes_down"]
    assert made.result["bytes_per_client_and_round"] == pytest.approx(both / asked)
