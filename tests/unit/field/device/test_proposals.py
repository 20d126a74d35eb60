"""A proposal of another method: a yes is to what was read, and until then nothing leaves, whatever is asked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import CATALOG, CHEAP, NAMES, PASSPHRASE, founded, made, request
from tacit.errors import ConsentError, WireError
from tacit.field.device import Device
from tacit.field.exchange import respond
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.reasons import ReasonCode
from tacit.updates import Ring
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.wire.amendments import write_amendment, write_chain
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

OPTIONS = ({"factors": 5, "local_steps": 6}, {"factors": 6, "local_steps": 6})  # of one proposal, and of the next


def propose(device: Device, *changes: dict[str, int]) -> None:
    """Let an operator replace the options of the method, some times in a row, and the device follow it."""
    federation, chain = founded(), []
    for options in changes:
        content, amended = write_amendment(federation, CATALOG, CATALOG, None, method=("fpl", options))
        federation, chain = amended.federation, [*chain, content]
    with pytest.raises(ConsentError) as refused:
        device.terms.amend(write_chain(chain))
    assert refused.value.code == ReasonCode.METHOD_REPLACED


def terms_of(device: Device) -> Federation:
    assert device.membership is not None
    return device.membership.federation


def test_a_yes_is_to_the_proposal_that_was_read(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device:
        propose(device, OPTIONS[0])
        read = device.terms.proposal
        assert read is not None
        propose(device, *OPTIONS)
        with pytest.raises(ConsentError):
            device.terms.agree(read.after.digest)
        assert terms_of(device) == founded()
        assert device.terms.proposal is not None
        device.terms.agree(device.terms.proposal.after.digest)
        assert terms_of(device).options["factors"] == 6


def test_a_yes_on_a_page_is_to_the_proposal_that_it_showed(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
        propose(device, OPTIONS[0])
        shown = re.search(r'name="terms" value="([^"]*)"', visitor.get("/mine").html)
        assert shown
        propose(device, *OPTIONS)
        for stale in (shown[1], "", "no digest"):
            assert visitor.post("/mine/change/yes", {"terms": stale}).status == 400
            assert terms_of(device) == founded()
        shown = re.search(r'name="terms" value="([^"]*)"', visitor.get("/mine").html)
        assert shown
        assert visitor.post("/mine/change/yes", {"terms": shown[1]}).status == 303
        assert terms_of(device).options["factors"] == 6


@pytest.mark.parametrize("is_declined", [False, True])
def test_nothing_leaves_while_a_proposal_waits_though_a_coordinator_keeps_to_the_old_terms(
    is_declined: bool, tmp_path: Path
) -> None:
    with made(tmp_path / "device.db") as device:
        took_part(device, 1)
        made_before = device.learn(request(founded(), 1))
        propose(device, OPTIONS[0])
        if is_declined:
            device.terms.decline()
        sent: list[bytes] = []
        for number in (1, 2):
            with pytest.raises(ConsentError) as refused:
                respond(device, request(founded(), number), sent.append)
            assert refused.value.code == ReasonCode.METHOD_REPLACED
        with pytest.raises(ConsentError):
            device.release(made_before)
        assert not sent
        assert [entry.state for entry in device.ledger.list()] == ["sent", "prepared"]


def test_a_proposal_ends_where_the_terms_go_another_way(tmp_path: Path) -> None:
    """A coordinator that was restored from a copy has forgotten its proposal, and amends something else."""
    other, amended = write_amendment(founded(), CATALOG, replace(CATALOG, titles=["Renamed", *NAMES[1:]]), None)
    with made(tmp_path / "device.db") as device:
        propose(device, OPTIONS[0])
        device.terms.amend(write_chain([other]))
        assert device.terms.proposal is None
        assert terms_of(device) == amended.federation


def test_a_proposal_that_cannot_be_is_not_kept(tmp_path: Path) -> None:
    """Its page would show nothing but an error, with no way to leave."""
    content, _ = write_amendment(founded(), CATALOG, CATALOG, None, method=("fpl", {"factors": 5}))
    with made(tmp_path / "device.db") as device:
        with pytest.raises(WireError):
            device.terms.amend(write_chain([content]))
        assert device.terms.proposal is None


def test_no_proposal_undermines_a_guarantee(tmp_path: Path) -> None:
    """FedFast's server reads a row of every client."""
    agreed = AgreedPrivacyConfig(epsilon=8.0, delta=1e-3, participations=5, bound=0.1)
    options = {"factors": 4, "local_steps": 6}
    terms = Federation.create("ab" * 16, "the small field", "fpl", options, CATALOG, ring=Ring(), privacy=agreed)
    content, _ = write_amendment(terms, CATALOG, CATALOG, None, method=("fedfast", {"factors": 4}))
    with made(tmp_path / "device.db", terms) as device:
        with pytest.raises(WireError):
            device.terms.amend(write_chain([content]))
        assert device.terms.proposal is None


def test_no_device_joins_where_the_guarantee_cannot_hold(tmp_path: Path) -> None:
    """A coordinator that was changed promises a guarantee with a method whose server reads a row of every client."""
    agreed = AgreedPrivacyConfig(epsilon=8.0, delta=1e-3, participations=5, bound=0.1)
    honest = Federation.create("ab" * 16, "the small field", "fedfast", {"factors": 4}, CATALOG, ring=Ring())
    with Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as device:
        with pytest.raises(WireError):
            device.join(write_welcome(honest.model_copy(update={"privacy": agreed}), CATALOG), "127.0.0.1")
        assert device.membership is None
        assert device.store.get("welcome") is None
        assert device.budgets.list() == []
        device.join(write_welcome(honest, CATALOG), "127.0.0.1", accepts={ReasonCode.NO_GUARANTEE})
