"""Another method in a running federation: devices keep what they have, and take part once their users have agreed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.loopback_federation import KNOWN, Field, masked
from helpers.town_federation import founded
from tacit.errors import ConfigError, ConsentError, StorageError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device.device_state import DeviceStateCode, read_state
from tacit.field.exchange import follow_amendments
from tacit.methods.base import names
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.reasons import ReasonCode
from tacit.types import Catalog
from tacit.wire.amendments import read_amendment, write_amendment
from tacit.wire.federation import Federation

RULES = RoundRules(rounds=9, readable=True, secure=None)
READABLE = {"secure": None, "deadline": 1.0}


def on(field: Field) -> Loopback:
    return Loopback(field.devices, field.journal.amendments.since)


def replace(field: Field, method: str, catalog: Catalog | None = None) -> Federation:
    """Stop the coordinator, replace the method, and open it again; return the terms before."""
    before, wanted = field.journal.federation, founded(method, field.catalog)
    field.journal.replace_method(wanted.method, wanted.options, catalog or field.journal.catalog)
    field.journal.close()
    field.journal = CoordinatorJournal.open(field.folder / "journal.db")
    return before


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in names("federated") if name != "fpl"])
def test_devices_go_on_with_another_method_once_their_users_agree(method: str, tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(on(field), rounds=2, **READABLE)
    lists = {number: device.recommend(20) for number, device in field.devices.items()}
    digest = replace(field, method).digest
    agreed = {number: device for number, device in field.devices.items() if number != 5}
    content = Coordinator(field.journal, RULES, on(field))._write_models(field.journal.members.devices())
    for number, device in field.devices.items():
        for _ in range(2):  # the second time nothing is fetched
            with pytest.raises(ConsentError) as refused:
                follow_amendments(device, content[number], field.journal.amendments.since)
            assert refused.value.code == ReasonCode.METHOD_REPLACED
        assert device.membership is not None
        assert device.membership.federation.digest == digest
        assert device.recommend(20) == lists[number]
        assert len(device.ledger.list()) == 2
    for device in agreed.values():
        assert device.terms.proposal is not None
        assert (device.terms.proposal.before.method, device.terms.proposal.after.method) == ("fpl", method)
        assert device.terms.agree(device.terms.proposal.after.digest)[-1].method == method
        assert device.terms.proposal is None
    field.run(on(field), rounds=4, minimum=4, **READABLE)
    rounds = field.journal.rounds.records()
    assert [(r.number, r.state, r.answered) for r in rounds] == [
        *((n, "finished", 5) for n in (0, 1)),
        *((n, "finished", 4) for n in (2, 3)),
    ]
    for device in agreed.values():
        assert device.membership is not None
        assert device.membership.federation == field.journal.federation
        assert [entry.round for entry in device.ledger.list()] == [0, 1, 2, 3]
        assert device.recommend(5)
    assert [entry.round for entry in field.devices[5].ledger.list()] == [0, 1]
    assert field.devices[5].recommend(20) == lists[5]


@pytest.mark.slow
def test_masked_rounds_go_on_with_another_method_and_devices_remember_their_sums(tmp_path: Path) -> None:
    """Cool-downs and cohorts are of the federation, not of one method: a change must not make devices forget them."""
    field = masked(tmp_path)
    field.run(on(field), rounds=1, **KNOWN)
    before = replace(field, "fed-als")
    for device in field.devices.values():
        with pytest.raises(ConsentError):
            device.terms.amend(field.journal.amendments.since(before.digest))
        assert device.terms.proposal is not None
        device.terms.agree(device.terms.proposal.after.digest)
    field.run(on(field), rounds=2, **KNOWN)
    rounds = field.journal.rounds.records()
    assert [(r.state, r.masked, r.answered) for r in rounds] == [("finished", 1, 5)] * 2
    for device in field.devices.values():
        assert device._masked._machine is not None
        assert {past.round for past in device._masked._machine.history.sums} == {0, 1}
        assert device.recommend(3)


def test_a_program_that_runs_goes_on_when_the_user_agrees_in_another(tmp_path: Path) -> None:
    """`tacit device run` has the file open while `tacit device change` or the page answers."""
    field = Field(tmp_path, "fpl")
    field.run(on(field), rounds=1, **READABLE)
    before = replace(field, "fed-als")
    for device in field.devices.values():
        with pytest.raises(ConsentError):
            device.terms.amend(field.journal.amendments.since(before.digest))
        with device.open_again() as other:
            assert other.terms.proposal is not None
            other.terms.agree(other.terms.proposal.after.digest)
    field.run(on(field), rounds=2, **READABLE)
    assert [r.answered for r in field.journal.rounds.records()] == [5, 5]


def test_a_user_says_no_and_later_yes_and_a_restart_forgets_neither(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(on(field), rounds=1, **READABLE)
    device = field.devices[1]
    before = replace(field, "fed-als")
    with pytest.raises(ConsentError):
        device.terms.amend(field.journal.amendments.since(before.digest))
    device.keep_connection({"address": "127.0.0.1:1", "roots": "", "key": ""})
    assert read_state(device).code == DeviceStateCode.ASKS
    device.terms.decline()
    field.restart(0)
    device = field.devices[1]
    assert read_state(device).code == DeviceStateCode.DECLINED
    assert device.terms.proposal is not None
    assert device.terms.proposal.is_declined
    middle = replace(field, "fed-svd")
    with pytest.raises(ConsentError):
        device.terms.amend(field.journal.amendments.since(before.digest))
    assert device.terms.proposal is not None
    assert (device.terms.proposal.after.method, device.terms.proposal.is_declined) == ("fed-svd", False), (
        "a new proposal asks anew"
    )
    assert middle.method == "fed-als"
    wanted = device.terms.proposal.after.digest
    assert [note.method for note in device.terms.agree(wanted)] == ["fed-als", "fed-svd"]
    with pytest.raises(ConsentError):
        device.terms.agree(wanted)


def test_a_method_that_came_and_went_is_no_question(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(on(field), rounds=1, **READABLE)
    first = replace(field, "fed-als")
    replace(field, "fpl")
    field.run(on(field), rounds=2, **READABLE)
    assert [r.answered for r in field.journal.rounds.records()] == [5, 5]
    for device in field.devices.values():
        assert device.terms.proposal is None
        assert device.membership is not None
        assert device.membership.federation.learns_like(first)


def test_no_roll_back_goes_behind_another_method(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(on(field), rounds=2, **READABLE)
    first = Coordinator(field.journal, RULES, on(field))._model.first_model(1)
    replace(field, "fed-als")
    assert field.journal.model() is None
    coordinator = Coordinator(field.journal, RULES, on(field))
    assert {*coordinator.shared} != {*first}
    with pytest.raises(StorageError, match="another method"):
        field.journal.roll_back(1)
    assert field.journal.federation.number == 1


def test_only_the_authority_replaces_a_method(tmp_path: Path) -> None:
    field, own = Field(tmp_path, "fpl"), Identity.fresh()
    terms = {name: getattr(field.federation, name) for name in Federation.model_fields}
    federation = Federation(**{**terms, "authority": own.public.hex()})
    wanted = founded("fed-als", field.catalog)
    method = wanted.method, wanted.options
    right, amended = write_amendment(federation, field.catalog, field.catalog, own, method=method)
    found = read_amendment(right, federation, field.catalog)
    assert found.replaces_method
    assert found.federation == amended.federation
    assert found.federation.learns_like(wanted)
    forged, _ = write_amendment(federation, field.catalog, field.catalog, Identity.fresh(), method=method)
    with pytest.raises(WireError) as refused:
        read_amendment(forged, federation, field.catalog)
    assert refused.value.code == ReasonCode.UNSIGNED_AMENDMENT
    for wrong in ("ease", "nothing-of-the-kind"):
        try:
            content, _ = write_amendment(federation, field.catalog, field.catalog, own, method=(wrong, {}))
        except ConfigError:
            continue
        with pytest.raises(WireError):
            read_amendment(content, federation, field.catalog)


def test_bits_after_a_change_are_those_of_a_federation_that_began_with_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Field(tmp_path / "one", "fpl"), Field(tmp_path / "two", "fed-als")
    before = replace(one, "fed-als")
    for device in one.devices.values():
        with pytest.raises(ConsentError):
            device.terms.amend(one.journal.amendments.since(before.digest))
        assert device.terms.proposal is not None
        device.terms.agree(device.terms.proposal.after.digest)
    found = [field.run(on(field), rounds=2, **READABLE).shared for field in (one, two)]
    for name in found[0]:
        assert np.array_equal(found[0][name], found[1][name])
