"""Rounds under differential privacy: the simulator's bits, the noise that was promised, and a round without enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.loopback_federation import KNOWN, Egress, Field, private
from helpers.town_federation import assert_same, simulated
from tacit.methods.base import build_federated, names
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.updates import Ring, Total

pytestmark = pytest.mark.slow

ROUNDS = 3
MASKABLE = [name for name in names("federated") if not build_federated(name).spec.client_tables]


@pytest.mark.parametrize("method", MASKABLE)
def test_noisy_rounds_are_the_simulators(tmp_path: Path, method: str) -> None:
    """With the same shares of noise, which only tests can repeat: the same model, bit for bit."""
    field = private(tmp_path, method)
    coordinator = field.run(Egress(field), rounds=ROUNDS, **KNOWN)
    expected = simulated(field.federation, field.clients, field.catalog, ROUNDS)
    assert_same(expected, coordinator.shared, field.people())
    finished = [happened for happened in field.journal.rounds.records() if happened.state == "finished"]
    assert finished
    assert all(happened.masked for happened in field.journal.rounds.records())
    assert [one.round for one in field.journal.sums.spendings()] == [happened.number for happened in finished]
    for device in field.devices.values():
        budget = device.budgets.of(field.federation)
        assert budget is not None
        assert [debit.round for debit in budget.debits] == [happened.number for happened in finished]
        assert budget.spent == pytest.approx(sum(one.share for one in field.journal.sums.spendings()))
        assert 0 < budget.spent_epsilon <= 8.0


def test_a_narrow_ring_and_devices_that_restart_in_every_phase(tmp_path: Path) -> None:
    field = private(tmp_path, "fed-svd", ring=Ring(bits=32, fraction=20))
    carrier = Egress(field)
    carrier.restarts = True
    coordinator = field.run(carrier, rounds=2, **KNOWN)
    assert_same(simulated(field.federation, field.clients, field.catalog, 2), coordinator.shared, field.people())


def test_a_newcomer_takes_part_in_the_next_round(tmp_path: Path) -> None:
    """Noise is what hides devices in cohorts that change, so that there are no batches to wait for."""
    field = private(tmp_path, "fed-svd", people=6)
    late = field.devices.pop(6)
    field.run(Egress(field), rounds=1, **KNOWN)
    field.devices[6] = late
    field.run(Egress(field), rounds=2, **KNOWN)
    assert [(r.state, r.masked, r.answered) for r in field.journal.rounds.records()] == [
        ("finished", 1, 5),
        ("finished", 1, 6),
    ]
    assert late.recommend(3)


def test_a_plan_that_is_done_asks_no_device_any_more(tmp_path: Path) -> None:
    field = private(tmp_path, "dp-svd")
    coordinator = field.run(Egress(field), rounds=9, **KNOWN)
    assert coordinator.is_done
    done = len(field.journal.rounds.records())
    assert done < 9
    reason = coordinator.run()
    assert reason is not None
    assert reason.code == ReasonCode.PLAN_DONE
    assert len(field.journal.rounds.records()) == done
    for device in field.devices.values():
        budget = device.budgets.of(field.federation)
        assert budget is not None
        assert budget.spent == pytest.approx(1.0, abs=1e-5)
        assert budget.spent_epsilon <= 8.0


PEOPLE = 10  # of them 2 may drop out, and 2 collude: 6 are sure to add noise


def noise_of_a_sum(folder: Path, n_lost: int) -> tuple[Field, NDArray[np.float64] | None]:
    """The sum of devices without histories is noise alone; some of them are lost before they send their vectors."""
    field = private(folder, "fed-als", PEOPLE)
    for number, device in list(field.devices.items()):
        for entry in device.history.list():
            device.history.remove(entry.item, field.catalog)
        device.close()
        field.devices[number] = type(device).open(folder / f"{number - 1}.db", "a field of five")  # noise of the system
    seen: list[NDArray[np.float64]] = []
    lost = {(number, 0): ServerPhase.VECTORS for number in range(1, n_lost + 1)}
    rules = {"rounds": 1, "minimum": 1, **KNOWN}
    method = field.federation.built

    def record(shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        seen.extend(sums.ravel().astype(float) for sums in total.sums.values())
        return shared

    method.apply = record  # type: ignore[method-assign]
    privacy = field.federation.guarantee
    assert privacy is not None
    read = privacy.read
    object.__setattr__(privacy, "read", lambda total, *how: seen.append(total.counts["normal"]) or read(total, *how))
    field.run(Egress(field, lost), **rules)
    return field, np.concatenate(seen) if seen else None


@pytest.mark.parametrize("n_lost", [0, 2])
def test_a_masked_sum_carries_the_noise_that_is_stated(tmp_path: Path, n_lost: int) -> None:
    field, noise = noise_of_a_sum(tmp_path, n_lost)
    assert noise is not None
    assert [happened.answered for happened in field.journal.rounds.records()] == [PEOPLE - n_lost]
    privacy = field.federation.guarantee
    assert privacy is not None
    share = field.journal.sums.spendings()[0].share
    stated = privacy.variance(share, PEOPLE, PEOPLE - n_lost) * float(privacy.ring.scale) ** 2
    assert stated >= (PEOPLE - n_lost) / 6 * (privacy.std(share) * float(privacy.ring.scale)) ** 2 * (1 - 1e-12)
    off = noise.var() / stated - 1
    assert abs(off) < 5 * np.sqrt(2 / noise.size), "five standard deviations of a variance over so many numbers"
    assert abs(noise.mean()) < 5 * np.sqrt(stated / noise.size)


def test_with_one_more_dropout_the_round_is_abandoned(tmp_path: Path) -> None:
    """It has cost the others their share, and is not repeated at once."""
    field, noise = noise_of_a_sum(tmp_path, 3)
    (happened,) = field.journal.rounds.records()
    assert noise is None
    assert happened.state == "abandoned"
    assert happened.reason is not None
    assert happened.reason.code == ReasonCode.TOO_MANY_DROPOUTS
    spent = [device.budgets.of(field.federation) for device in field.devices.values()]
    assert [budget is not None and budget.spent > 0 for budget in spent] == [False] * 3 + [True] * 7, "never refunded"


def test_devices_that_stop_at_their_users_level_do_not_stop_the_others(tmp_path: Path) -> None:
    """They count as dropouts where they refuse, and are then not asked for a while."""
    field = private(tmp_path, "dp-svd", 8)
    for number in (2, 5, 7):
        field.devices[number].change(lambda before: before.model_copy(update={"privacy": "strict"}))
    coordinator = field.run(Egress(field), rounds=6, **KNOWN)
    rounds = field.journal.rounds.records()
    assert [(happened.state, happened.asked) for happened in rounds[:3]] == [
        ("abandoned", 8),
        ("finished", 5),
        ("finished", 5),
    ]
    assert coordinator.is_done
    spent = [device.budgets.of(field.federation) for device in field.devices.values()]
    assert [budget is not None and budget.spent > 0 for budget in spent] == [
        number not in (2, 5, 7) for number in range(1, 9)
    ]
    assert [one.round for one in field.journal.sums.spendings()] == [1, 2], (
        "nothing was spent where no vector was asked for"
    )
