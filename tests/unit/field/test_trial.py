"""A trial: masked rounds with five devices, if operator and users agree to sums that hide them less."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.town_federation import device_of, journal_of, town
from tacit.errors import ConfigError, ConsentError
from tacit.field.carriers.loopback import Loopback
from tacit.field.check import check_config
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.coordinator.round_policy import count_needed
from tacit.field.device import Device, Sharing
from tacit.field.serve import ServeConfig
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.reasons import ReasonCode
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

GIVEN = {"factors": 4, "local_steps": 20}


def federation_of(trial: int | None) -> Federation:
    _, catalog = town(5)
    return Federation.create("0" * 32, "small", "fpl", GIVEN, catalog, trial=trial)


@pytest.mark.slow
def test_five_devices_with_usual_settings_learn_under_masks(tmp_path: Path) -> None:
    clients, catalog = town(5)
    federation = federation_of(5)
    journal, rules = journal_of(tmp_path, federation, catalog), RoundRules(rounds=3, minimum=10).in_trial(5)
    usual = federation_of(None)
    devices: dict[int, Device] = {}
    for person in range(5):
        device = device_of(tmp_path, clients, person, catalog, write_welcome(usual, catalog))
        device.leave()
        device.share(Sharing())
        device.join(journal.welcome, accepts={ReasonCode.TRIAL})
        devices[journal.members.add(bytes([person]), device.identity)] = device
    coordinator = Coordinator(journal, rules, Loopback(devices))
    first = coordinator.shared["items"].copy()
    coordinator.run()
    assert [(r.state, r.masked, r.answered) for r in journal.rounds.records()] == [("finished", 1, 5)] * 3
    assert (coordinator.shared["items"] != first).any(), "they learn"
    journal.close()


def test_a_device_joins_a_trial_only_if_its_user_agrees(tmp_path: Path) -> None:
    clients, catalog = town(5)
    usual, trial = federation_of(None), federation_of(5)
    with device_of(tmp_path, clients, 0, catalog, write_welcome(usual, catalog)) as device:
        device.leave()
        with pytest.raises(ConsentError) as refused:
            device.join(write_welcome(trial, catalog))
        assert refused.value.code == ReasonCode.TRIAL
        assert device.membership is None
        assert device.join(write_welcome(trial, catalog), accepts={ReasonCode.TRIAL}).federation.trial == 5


def test_a_trial_lowers_what_is_usual_and_nothing_that_a_user_has_set() -> None:
    trial, usual = federation_of(5), federation_of(None)
    assert usual.policy(DevicePolicy()) == DevicePolicy()
    lowered = trial.policy(DevicePolicy())
    assert (lowered.n_min, lowered.k_min, lowered.cool_down) == (4, 2, 0)
    assert (lowered.d_min, lowered.most_cohorts) == (DevicePolicy().d_min, DevicePolicy().most_cohorts)
    assert trial.policy(DevicePolicy(n_min=12)).n_min == 12
    rules = RoundRules(minimum=10, newcomers=13).in_trial(5)
    assert (rules.minimum, rules.newcomers, count_needed(rules, settled=True)) == (4, 5, 5)
    assert count_needed(RoundRules(), settled=True) == 13
    assert "trial" not in usual.canonical().decode()


def test_a_trial_is_a_term_and_promises_nothing(tmp_path: Path) -> None:
    _, catalog = town(5)
    privacy = AgreedPrivacyConfig(epsilon=8.0, delta=1e-3, bound=0.1, participations=3)
    with pytest.raises(ConfigError, match="trial"):
        Federation.create("0" * 32, "small", "fpl", GIVEN, catalog, trial=5, privacy=privacy)
    for wrong in (2, 4, 13):
        with pytest.raises(ConfigError):
            ServeConfig.from_options({"method": {"name": "fpl"}, "trial": wrong}, "config")
    options = {"method": {"name": "fpl", **GIVEN}, "trial": 5, "folder": str(tmp_path), "listen": "127.0.0.1:0"}
    found = check_config(ServeConfig.from_options(options, "config"))
    assert found.needed == 5
    assert any("trial" in warning for warning in found.warnings)
    assert federation_of(5).list_differences(federation_of(None)) == ["trial"]
