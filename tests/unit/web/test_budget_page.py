"""The privacy budget on a user's pages, on the operator's page, in commands and in metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import barriers
from helpers.commands import device_document, run_command
from helpers.loopback_federation import KNOWN, private
from helpers.page_visitor import Visitor
from helpers.private_session import PrivateSession, founded, member
from helpers.small_federation import PASSPHRASE, first_shared, request
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import RoundRules
from tacit.field.device.settings import USUAL_PI
from tacit.web.budget import view_budget
from tacit.web.device_view import DeviceView
from tacit.web.operator import FederationStatus, operator_page
from tacit.web.own import build_user_page
from tacit.web.server import serving

pytestmark = pytest.mark.slow


@pytest.fixture
def session(tmp_path: Path) -> Iterator[PrivateSession]:
    federation = founded()
    with member(tmp_path / "device.db", federation, pi=0.5) as device:
        device.receive(request(federation, 0, first_shared(federation), learn=False))
        yield PrivateSession(federation, device)


@pytest.fixture
def visitor(session: PrivateSession) -> Iterator[Visitor]:
    with serving(build_user_page(DeviceView(session.device))) as address:
        yield Visitor(address)


def test_the_page_says_what_is_spent_and_lets_a_level_be_chosen(session: PrivateSession, visitor: Visitor) -> None:
    assert visitor.get("/sharing").of("used") == "0 % spent"
    session.ask(1)
    view = view_budget(session.device)
    assert view is not None
    page = visitor.get("/sharing")
    assert page.of("used") == f"{100 * view.used:.0f} % spent"
    assert page.of("certainty") == f"{round(100 * view.certainty)} of 100"
    assert visitor.save_sharing(pi="70", privacy="strict", measure="yes").status == 303
    assert session.device.sharing.privacy == "strict"
    assert session.device.sharing.pi == USUAL_PI, "nothing else changed"
    strict = view_budget(session.device)
    assert strict is not None
    assert strict.used > view.used, "the same spending is more of a smaller budget"
    assert visitor.save_sharing(pi="50", privacy="none").status == 400
    assert session.device.sharing.privacy == "strict"


def test_a_page_that_is_older_than_a_choice_does_not_undo_it(session: PrivateSession, visitor: Visitor) -> None:
    page = visitor.get("/sharing")
    visitor.save_sharing(pi="50", privacy="open", measure="yes")
    visitor.save_sharing(page, pi="40", privacy="balanced", measure="yes")
    assert (session.device.sharing.privacy, session.device.sharing.pi) == ("open", 0.4)


def test_a_page_with_a_spent_budget_says_that_suggestions_continue(session: PrivateSession, visitor: Visitor) -> None:
    for number in range(1, 8):
        session.ask(number, {**first_shared(session.federation)})
    session.device.change(lambda before: before.model_copy(update={"privacy": "strict"}))
    view = view_budget(session.device)
    assert view is not None
    assert view.is_spent
    assert [level.is_passed for level in view.levels] == [True, False, False], "strict came too late to be promised"
    assert visitor.get("/sharing").of("used") == "100 % spent"
    assert visitor.get("/").status == 200
    sent = visitor.get("/sent")
    assert sent.html.count("noise is in every number") == 6
    assert session.device.recommend(3)


def test_a_federation_without_a_guarantee_has_no_budget(visitor: Visitor, session: PrivateSession) -> None:
    session.device.leave()
    assert view_budget(session.device) is None
    assert 'id="budget"' not in visitor.get("/sharing").html


def test_the_page_has_no_barrier(browser: Any, session: PrivateSession) -> None:
    session.ask(1)
    with serving(build_user_page(DeviceView(session.device))) as address:
        assert barriers(browser, address, ("/sharing", "/sent")) == []


def test_commands_say_what_is_spent_and_set_the_level(
    session: PrivateSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ask(1)
    session.device.close()
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    found = device_document(capsys, "privacy", "strict")
    assert (found["level"], found["most_epsilon"]) == ("strict", 1.0)
    (budget,) = found["budgets"]
    assert (budget["spent"], [debit["round"] for debit in budget["debits"]]) == (0.15, [1])
    assert 0 < budget["spent_epsilon"] < budget["epsilon"] == 4.0
    assert device_document(capsys, "privacy")["level"] == "strict"
    assert [one["spent"] for one in device_document(capsys, "ledger")["budgets"]] == [0.15]
    assert run_command(capsys, "device", "ledger")[0] == 0
    assert run_command(capsys, "device", "privacy", "loose")[0] != 0


def test_the_operator_sees_epsilon_by_version_and_rounds_without_noise(tmp_path: Path) -> None:
    field = private(tmp_path, "dp-svd")
    field.run(Loopback(field.devices), rounds=9, **KNOWN)
    rules = RoundRules.from_options({"rounds": 9, **KNOWN}, "rules")
    status = FederationStatus.of(field.journal, rules, 5)
    rounds = [one.round for one in field.journal.versions()]
    epsilons = [status.epsilon(number) for number in sorted(rounds)]
    assert epsilons == sorted(epsilons, key=float)
    assert epsilons[-1] == status.epsilon()
    assert 0 < epsilons[0] < epsilons[-1] <= 8.0
    assert status.spent == pytest.approx(1.0, abs=1e-5)
    assert status.without_noise == 0
    with serving(operator_page(tmp_path / "journal.db", rules, lambda: 5)) as address:
        page = Visitor(address).get("/")
    assert "all sums made: no device is asked any more" in page.text
    assert f"epsilon {epsilons[0]:.3g}" in page.text


def test_metrics_hold_epsilon_and_what_is_spent(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="the field needs prometheus-client")
    from tacit.field.metrics import registry_of

    field = private(tmp_path, "dp-svd")
    carrier = Loopback(field.devices)
    field.run(carrier, rounds=1, **KNOWN)
    registry = registry_of(tmp_path / "journal.db", carrier)
    share = field.journal.sums.spendings()[0].share
    assert registry.get_sample_value("tacit_budget_spent") == share
    assert registry.get_sample_value("tacit_epsilon_agreed") == 8.0
    epsilon = registry.get_sample_value("tacit_epsilon")
    assert epsilon is not None
    assert 0 < epsilon < 8.0
    assert registry.get_sample_value("tacit_rounds_without_noise_total") == 0
