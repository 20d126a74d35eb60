"""The question at joining, over a real connection: after a refusal the same invitation works, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import device_document, run_command
from helpers.refusals import refused
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, founded
from tacit.errors import ConsentError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device, ScryptCost
from tacit.reasons import ReasonCode

pytest.importorskip("flwr")
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import make_certificates
from tacit.field.invitations import Invitation, InvitationError, accept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
FAR_AWAY = 2**33  # unix seconds


class Listening:
    """A coordinator of a federation without a guarantee that listens."""

    def __init__(self, folder: Path) -> None:
        self.journal = CoordinatorJournal.create(folder / "journal.db", founded(), CATALOG)
        self.tls = make_certificates(folder / "tls", "127.0.0.1")
        self.link = SuperLink(self.journal, "127.0.0.1", 0, self.tls.certificate, self.tls.key)

    def invitation(self) -> Invitation:
        return Invitation(f"127.0.0.1:{self.link.port}", self.journal.invitations.make(FAR_AWAY), self.tls.roots)

    @property
    def n_devices(self) -> int:
        return len(self.journal.members.devices())

    def close(self) -> None:
        self.link.close()
        self.journal.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path)
    yield made
    made.close()


def test_an_invitation_that_was_refused_for_a_question_works_after_a_yes_and_once(
    server: Listening, tmp_path: Path
) -> None:
    line = server.invitation()
    with Device.create(tmp_path / "1.db", PASSPHRASE, cost=CHEAP) as device:
        for _ in range(2):
            with refused(ConsentError, ReasonCode.NO_GUARANTEE):
                accept(device, line)
            assert (device.membership, device.connection) == (None, {})
    with Device.open(tmp_path / "1.db", PASSPHRASE) as device:
        assert accept(device, line, {ReasonCode.NO_GUARANTEE}).federation == founded()
        assert device.connection["address"] == line.address
    with Device.create(tmp_path / "2.db", PASSPHRASE, cost=CHEAP) as other, pytest.raises(InvitationError):
        accept(other, line, {ReasonCode.NO_GUARANTEE})
    assert server.n_devices == 1


def test_the_command_that_a_refusal_names_joins(
    server: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    monkeypatch.setattr("tacit.field.device.device.ScryptCost", lambda: ScryptCost(log_n=10))
    device_document(capsys, "init")
    line = server.invitation().line()
    asked = device_document(capsys, "join", line)["error"]
    assert (asked["kind"], asked["code"]) == ("ConsentError", ReasonCode.NO_GUARANTEE)
    assert "tacit device join --without-guarantee" in asked["hint"]
    for wrong in (["--trial"], ["--also-readable"]):
        code, _, _ = run_command(capsys, "device", "join", *wrong, line)
        assert code == ConsentError.exit_code
    code, out, err = run_command(capsys, "device", "join", "--without-guarantee", line)
    assert code == 0, err
    assert "no guarantee" in out
    assert server.n_devices == 1
