"""Founding a federation with a guarantee: its terms, a trial round with noise, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.private_session import founded
from helpers.town_federation import OPTIONS, town
from tacit.errors import ConfigError
from tacit.field.coordinator.trial import try_round
from tacit.field.serve import ServeConfig, open_federation
from tacit.methods.base import build_federated, names
from tacit.privacy.dp import AgreedPrivacyConfig, DifferentialPrivacy
from tacit.updates import Ring
from tacit.wire.federation import Federation
from tacit.wire.messages import read_welcome, write_welcome

MASKABLE = [name for name in names("federated") if not build_federated(name).spec.client_tables]
AGREED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-4}


def create(method: str, given: dict[str, Any] | None = None, ring: Ring | None = None, **more: Any) -> Federation:
    """A federation of the town with a guarantee."""
    own = {"dp-svd": {}, "dp-popular": {"participations": 3}}.get(method, {"bound": 0.1, "participations": 3})
    privacy = AgreedPrivacyConfig.from_options({**AGREED, **own, **more}, "privacy")
    options = OPTIONS.get(method, {}) if given is None else given
    return Federation.create("cd" * 16, "same", method, options, town()[1], ring=ring, privacy=privacy)


@pytest.mark.parametrize("method", MASKABLE)
def test_every_method_runs_a_trial_with_noise_and_masks(method: str) -> None:
    federation = create(method)
    assert isinstance(federation.stages[-1], DifferentialPrivacy)
    try_round(federation, town()[1])


def test_the_guarantee_is_part_of_what_members_agree_on() -> None:
    federation, other = founded(), founded(epsilon=2.0)
    assert federation.digest != other.digest
    assert federation.list_differences(other) == ["privacy"]
    plain = Federation.create("ab" * 16, "plain", "fpl", {"local_steps": 4}, town()[1])
    assert b"privacy" not in plain.canonical(), "federations of earlier versions keep their digest"
    again, _ = read_welcome(write_welcome(create("fpl"), town()[1]))
    assert again.privacy is not None
    assert again.privacy.epsilon == 4.0


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fed-svd", {"bound": None}),
        ("fed-svd", {"participations": None}),
        ("dp-svd", {"participations": 3}),
        ("dp-svd", {"bound": 0.5}),
        ("fedfast", {}),
        ("fed-svd", {"mode": "central"}),
        ("fed-svd", {"mode": "local"}),
        ("fed-svd", {"dropped": 0.6, "corrupted": 0.5}),
        ("fed-svd", {"epsilon": 0.0}),
        ("fed-svd", {"epsilon": float("nan")}),
        ("fed-svd", {"delta": 1.0}),
        ("fed-svd", {"bound": 1e-7}),
        ("fed-svd", {"bound": 1e-4}),
    ],
)
def test_terms_without_a_guarantee_are_refused(method: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        create(method, **more)


def test_a_first_model_that_depends_on_histories_is_refused() -> None:
    with pytest.raises(ConfigError):
        create("fpl", {})  # its number of local steps is the average of all histories


def config_of(folder: Path, **more: Any) -> ServeConfig:
    given = {
        "folder": str(folder),
        "catalog": "town",
        "method": {"name": "dp-svd"},
        "privacy": AGREED,
        **more,
    }
    return ServeConfig.from_options(given, "a test")


@pytest.mark.parametrize(
    "rounds",
    [
        {"secure": None},
        {"secure": {"n_min": 10, "k_min": 3}},  # two stages
        {"robust": {"rule": "median", "groups": 3}},
        {"quorum": 10_000},  # delta is 1 / 10,000
        {"clients_per_round": 20_000},
    ],
)
def test_rounds_under_which_it_would_not_hold_are_refused(tmp_path: Path, rounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        open_federation(config_of(tmp_path, rounds=rounds))
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "per_round", "holds"), [(3, 0, True), (4, 0, False), (4, 60, True)])
def test_more_rounds_than_a_budget_holds_are_refused(tmp_path: Path, rounds: int, per_round: int, holds: bool) -> None:
    """Where every device is asked in every round; where some are drawn, it is not known beforehand how often."""
    terms = {"method": {"name": "fed-svd", "factors": 4}, "privacy": {**AGREED, "bound": 0.1, "participations": 3}}
    config = config_of(tmp_path, **terms, rounds={"rounds": rounds, "clients_per_round": per_round})
    if holds:
        open_federation(config).close()
    else:
        with pytest.raises(ConfigError) as caught:
            open_federation(config)
        assert "privacy.participations" in caught.value.message
    assert (tmp_path / "journal.db").exists() == holds


def test_a_federation_goes_on_with_the_guarantee_that_it_was_founded_with(tmp_path: Path) -> None:
    open_federation(config_of(tmp_path)).close()
    open_federation(config_of(tmp_path)).close()
    with pytest.raises(ConfigError) as caught:
        open_federation(config_of(tmp_path, privacy={**AGREED, "epsilon": 8.0}))
    assert "privacy" in caught.value.message
