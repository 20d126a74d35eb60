"""Bad input of differential privacy: each is one clear error, before anything is learnt and before anything leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import run_command
from tacit.errors import ConfigError, PrivacyError
from tacit.lab.guarantee import SimulatedBudgets, build_privacy
from tacit.lab.simulation import simulate
from tacit.methods.base import Federated, build_federated, names, options
from tacit.methods.dp_popular import DPPopular, DPPopularConfig
from tacit.privacy.dp import DifferentialPrivacy, DPConfig
from tacit.protocols.federated import UpdatePath
from tacit.protocols.guarantee import contribution_spec
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model, Vocabulary
from tacit.updates import Ring

KEY, N_ITEMS, N_CLIENTS = Key(3), 12, 30
TOWN = ["--data", "town", "--set", "data.users=60", "--set", "data.places=40"]


def world() -> tuple[Clients, Catalog]:
    rng = np.random.default_rng(2)
    histories = [np.sort(rng.choice(N_ITEMS - 2, 4, replace=False)) for _ in range(N_CLIENTS)]  # the last two: nobody
    items = np.concatenate(histories).astype(np.int32)
    clients = Clients(np.arange(N_CLIENTS), np.arange(N_CLIENTS + 1) * 4, items, N_ITEMS)
    return clients, Catalog(Vocabulary(np.arange(N_ITEMS)))


def stage_for(method: Federated, rounds: RoundsConfig | None = None, **given: Any) -> Any:
    config = DPConfig(**{"epsilon": 1.0, **given})
    return build_privacy(config, method, *world(), KEY, Ring(), rounds or RoundsConfig())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "given", "named"),
    [
        ("dp-svd", "epsilon: 0", "epsilon"),
        ("dp-svd", "epsilon: -2", "epsilon"),
        ("dp-svd", "epsilon: .nan", "epsilon"),
        ("dp-svd", "epsilon: .inf", "epsilon"),
        ("dp-svd", "epsilon: much", "epsilon"),
        ("dp-svd", "delta: 1.0e-5", "epsilon"),  # it has no default
        ("dp-svd", "epsilon: 1, delta: 0", "delta"),
        ("dp-svd", "epsilon: 1, delta: .nan", "delta"),
        ("dp-svd", "epsilon: 1, delta: 0.05", "delta"),  # of 60 people one in twenty
        ("fed-svd", "epsilon: 1", "bound"),
        ("fed-svd", "epsilon: 1, bound: 0", "bound"),
        ("fed-svd", "epsilon: 1, bound: .nan", "bound"),
        ("fpl", "epsilon: 1, bound: 1", "local_steps"),
        ("fedfast", "epsilon: 1, bound: 1", "people"),
        ("dp-svd", "epsilon: 1, dropped: 0.6, corrupted: 0.4", "corrupted"),
        ("ease", "epsilon: 1", "privacy"),
    ],
)
def test_a_command_says_what_is_wrong_and_writes_nothing(
    method: str, given: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--method", method, *TOWN, "--set", f"privacy=[{{name: dp, {given}}}]"]
    code, out, _ = run_command(capsys, *words, "--out", str(tmp_path / "runs"), "--json")
    error = json.loads(out)["error"]
    assert code == ConfigError.exit_code
    assert named in error["message"] + error["hint"]
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("name", [n for n in names("federated") if build_federated(n).spec.bound is None])
def test_what_has_no_bound_is_named(name: str) -> None:
    method = build_federated(name)
    with pytest.raises(ConfigError) as caught:
        DifferentialPrivacy.build(DPConfig(epsilon=1.0), contribution_spec(method, 1), Ring(), N_CLIENTS)
    assert all(repr(table) in caught.value.message for table in method.spec.tables)
    assert "privacy.bound" in caught.value.hint


def test_more_rounds_than_the_budget_holds_are_refused() -> None:
    """A stage for three rounds, and a fourth: it is refused before the clients learn anything for it."""
    method = build_federated("fed-svd", options("fed-svd", {"factors": 2, "epochs": 4}))
    short = build_federated("fed-svd", options("fed-svd", {"factors": 2, "epochs": 3}))
    path = UpdatePath(method, [stage_for(short, bound=1.0)], Ring())
    rounds = simulate(path, *world(), KEY)
    for _ in range(3):
        next(rounds)
    with pytest.raises(PrivacyError):
        next(rounds)


class Greedy(DPPopular):
    """Its plan spends a share that it does not have."""

    share = 1.5

    def budget_share(self, shared: Mapping[str, Array]) -> float:
        return self.share


@pytest.mark.parametrize("share", [1.5, 1.01, np.nan])
def test_a_plan_that_spends_more_than_all_is_refused_before_its_sum(share: float) -> None:
    method = Greedy(DPPopularConfig())
    stage = stage_for(DPPopular(DPPopularConfig()))
    method.share = share
    with pytest.raises(PrivacyError):
        next(simulate(UpdatePath(method, [stage], Ring()), *world(), KEY))


def test_a_budget_is_that_of_each_client() -> None:
    budgets = SimulatedBudgets(3)
    budgets.debit(np.array([0, 1]), 0.6)
    budgets.debit(np.array([2]), 1.0)
    with pytest.raises(PrivacyError):
        budgets.debit(np.array([1, 2]), 0.4)
    budgets.debit(np.array([0, 1]), 0.4)
    assert budgets.spent.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("dropout", "dropped", "holds"), [(0.3, 0.2, False), (0.1, 0.0, False), (0.2, 0.25, True)])
def test_fewer_clients_than_the_noise_needs_are_refused(dropout: float, dropped: float, holds: bool) -> None:
    method = DPPopular(DPPopularConfig())
    given: dict[str, Any] = {"dropped": dropped}
    if holds:
        assert stage_for(method, RoundsConfig(dropout=dropout), **given).n_needed(N_CLIENTS) == 23
    else:
        with pytest.raises(ConfigError):
            stage_for(method, RoundsConfig(dropout=dropout), **given)
    stage_for(method, RoundsConfig(dropout=dropout), mode="central")  # a trusted server adds all of it


class FewRows(DPPopular):
    """Its table has a row for items that enough clients have: which rows there are tells what clients did."""

    least = 1

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        n_rows = int((np.bincount(clients.items, minlength=catalog.n_items) >= self.least).sum())
        return Model({"counts": np.zeros((n_rows, 1), np.float32)}, {})


class FirstCounts(DPPopular):
    """Its first model is the exact counts of items that the catalogue's first clients of a trial never have."""

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        counts = np.bincount(clients.items[clients.items >= N_ITEMS - 3], minlength=catalog.n_items)
        return Model({"counts": counts.astype(np.float32)[:, None]}, {})


@pytest.mark.parametrize(("kind", "least"), [(FewRows, 1), (FewRows, 5), (FewRows, 20), (FirstCounts, 0)])
def test_a_support_or_a_first_model_that_depends_on_data_is_refused(kind: type[DPPopular], least: int) -> None:
    method = kind(DPPopularConfig())
    method.least = least  # type: ignore[attr-defined]
    with pytest.raises(ConfigError) as caught:
        stage_for(method)
    assert "'counts'" in caught.value.message
