"""A federation without a guarantee is a choice: its operator says so when founding it, and each user when joining."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers import private_session
from helpers.refusals import refused
from helpers.small_federation import CATALOG, CHEAP, NAMES, PASSPHRASE, founded
from tacit.errors import ConfigError, ConsentError, WireError
from tacit.field.check import check_config
from tacit.field.device import Device
from tacit.field.device.terms import QUESTIONS
from tacit.field.serve import ServeConfig, open_federation, replace_method
from tacit.protocols.secure_aggregation.identity import SIGNATURE_BYTES
from tacit.reasons import ReasonCode
from tacit.wire.amendments import read_amendment, write_amendment, write_chain
from tacit.wire.catalogue import canonical
from tacit.wire.envelope import AMENDMENT, seal_message
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

AGREED = {"epsilon": 4.0, "delta": 1e-4, "bound": 0.1, "participations": 3}
FPL, OTHER = {"name": "fpl", "factors": 4, "local_steps": 6}, {"name": "fpl", "factors": 5, "local_steps": 6}
GUARANTEED, PLAIN = private_session.founded(), founded()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as made:
        yield made


def config_of(folder: Path, **given: Any) -> ServeConfig:
    usual = {"folder": str(folder / "state"), "catalog": "town", "method": FPL, "listen": "127.0.0.1:0"}
    return ServeConfig.from_options({**usual, **given}, "a test")


def changed(federation: Federation, **terms: Any) -> Federation:
    """The same federation with other terms."""
    return Federation.model_validate({name: getattr(federation, name) for name in Federation.model_fields} | terms)


@pytest.mark.parametrize("given", [{}, {"privacy": None}])
def test_what_does_not_say_whether_there_is_a_guarantee_founds_nothing(tmp_path: Path, given: dict[str, None]) -> None:
    for attempt in (open_federation, check_config):
        with pytest.raises(ConfigError) as caught:
            attempt(config_of(tmp_path, **given))
        assert "'privacy'" in caught.value.message
        assert "privacy: none" in caught.value.hint
        assert "epsilon" in caught.value.hint
    assert not (tmp_path / "state").exists()


def test_what_the_refusal_tells_an_operator_to_write_can_be_written(tmp_path: Path) -> None:
    open_federation(config_of(tmp_path / "none", privacy="none")).close()
    guaranteed = {"method": {"name": "dp-svd"}, "privacy": {"epsilon": 4, "delta": 1.0e-5}}
    open_federation(config_of(tmp_path / "some", **guaranteed)).close()
    assert config_of(tmp_path, privacy="none").guarantee is None
    with pytest.raises(ConfigError, match=r"privacy\.delt"):
        config_of(tmp_path, privacy={"epsilon": 4, "delt": 1.0e-5})
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, privacy="non")
    assert "'none'" in caught.value.hint


@pytest.mark.parametrize("given", [{}, {"privacy": "none"}])
def test_the_operator_of_a_trial_has_chosen(tmp_path: Path, given: dict[str, str]) -> None:
    journal = open_federation(config_of(tmp_path, trial=5, **given))
    assert (journal.federation.trial, journal.federation.privacy) == (5, None)
    journal.close()


def test_a_federation_of_before_goes_on_with_its_configuration_as_it_is(tmp_path: Path) -> None:
    journal = open_federation(config_of(tmp_path, privacy="none"))
    digest = journal.federation.digest
    journal.close()
    for given in ({}, {"privacy": "none"}, {"privacy": None}):
        again = open_federation(config_of(tmp_path, **given), amends=True)
        assert again.federation.digest == digest
        again.close()
        assert check_config(config_of(tmp_path, **given)).is_founded
    assert replace_method(config_of(tmp_path, method=OTHER)).number == 1


@pytest.mark.parametrize("given", [{}, {"privacy": "none"}, {"privacy": {**AGREED, "epsilon": 8.0}}])
def test_no_configuration_takes_a_guarantee_away(tmp_path: Path, given: dict[str, Any]) -> None:
    open_federation(config_of(tmp_path, privacy=AGREED)).close()
    before = (tmp_path / "state" / "journal.db").read_bytes()
    for attempt in (open_federation, check_config):
        with pytest.raises(ConfigError, match="founded with other values of privacy"):
            attempt(config_of(tmp_path, **given))
    with pytest.raises(ConfigError, match="founded with other values of privacy"):
        replace_method(config_of(tmp_path, method=OTHER, **given))
    assert (tmp_path / "state" / "journal.db").read_bytes() == before


@pytest.mark.parametrize("accepts", [(), {ReasonCode.TRIAL}, {ReasonCode.WEAK_NOISE}])
def test_a_device_joins_without_a_guarantee_only_if_its_user_accepts_just_that(
    device: Device, accepts: set[ReasonCode]
) -> None:
    with refused(ConsentError, ReasonCode.NO_GUARANTEE):
        device.join(write_welcome(PLAIN, CATALOG), accepts=accepts)
    assert (device.membership, device.store.get("welcome")) == (None, None)
    assert device.join(write_welcome(PLAIN, CATALOG), accepts={ReasonCode.NO_GUARANTEE}).federation == PLAIN


def test_a_trial_asks_one_question_and_a_guarantee_none(device: Device) -> None:
    trial = changed(PLAIN, trial=5)
    with refused(ConsentError, ReasonCode.TRIAL):
        device.join(write_welcome(trial, CATALOG), accepts={ReasonCode.NO_GUARANTEE})
    device.join(write_welcome(trial, CATALOG), accepts={ReasonCode.TRIAL})
    device.leave()
    device.join(write_welcome(GUARANTEED, CATALOG))
    assert device.budgets.of(GUARANTEED) is not None


def test_nobody_is_asked_about_what_is_refused_anyway(device: Device) -> None:
    device.join(write_welcome(GUARANTEED, CATALOG))
    with refused(ConsentError, ReasonCode.ALREADY_A_MEMBER):
        device.join(write_welcome(PLAIN, CATALOG))
    device.leave()
    for accepts in (frozenset[ReasonCode](), QUESTIONS):
        for trial in (None, 5):
            under_its_id = changed(GUARANTEED, privacy=None, trial=trial)
            with refused(ConsentError, ReasonCode.OTHER_GUARANTEE):
                device.join(write_welcome(under_its_id, CATALOG), accepts=accepts)


CHANGES: dict[str, dict[str, Any]] = {
    "catalogue": {"after": replace(CATALOG, titles=["Renamed", *NAMES[1:]])},
    "rollback": {"rollback": (1, 3)},
    "method": {"method": ("dp-svd", {"factors": 5})},
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_amendment_takes_a_guarantee_away(change: str) -> None:
    given = {"after": CATALOG, **CHANGES[change]}
    content, amended = write_amendment(GUARANTEED, CATALOG, given.pop("after"), None, **given)
    read = read_amendment(content, GUARANTEED, CATALOG).federation
    assert read.privacy == amended.federation.privacy == GUARANTEED.privacy
    assert "privacy" not in read.list_differences(GUARANTEED)
    assert "privacy" in changed(read, privacy=None).list_differences(GUARANTEED)


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_an_amendment_that_names_another_guarantee_changes_none(device: Device, place: str) -> None:
    """A coordinator that was changed writes what no coordinator writes."""
    device.join(write_welcome(GUARANTEED, CATALOG))
    about: dict[str, Any] = {"catalog": GUARANTEED.catalog, "change": {}}
    (about if place == "beside" else about["change"])["privacy"] = None
    packed = bytes(SIGNATURE_BYTES) + zlib.compress(canonical(about), 9)
    device.terms.amend(write_chain([seal_message(AMENDMENT, GUARANTEED.digest, 1, packed)]))
    assert device.membership is not None
    assert device.membership.federation.privacy == GUARANTEED.privacy
    without = changed(GUARANTEED.amend(GUARANTEED.catalog), privacy=None)
    with pytest.raises(WireError):
        device.terms.amend(write_chain([seal_message(AMENDMENT, without.digest, 2, packed)]))
