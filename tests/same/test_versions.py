"""A device of an older build with this coordinator, and the reverse: it takes part, or is told what to upgrade."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.loopback_federation import Field
from helpers.town_federation import BOLD, OPTIONS, PI, device_of, town
from helpers.waiting import read_line
from tacit.field.carriers.loopback import Loopback
from tacit.field.device import Sharing
from tacit.field.exchange import respond
from tacit.wire.envelope import MOST_BYTES
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

pytestmark = pytest.mark.slow

OLDER = "23de7aa57df57dadabddd4304f2e7578da4edfcc"  # the build before amendments, guarantees and directories
ROOT = Path(__file__).parents[2]
OLD_PERSON = 4
CARE = {"n_min": 3, "two_stage": False, "corrupted": 0.0, "k_min": 1, "spare": 0, "dropped": 0.2}
RULES = {
    "readable": {"rounds": 2, "secure": None, "readable": True},
    "masked": {"rounds": 2, "secure": CARE, "device_policy": BOLD.model_dump()},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = subprocess.run(["git", "archive", OLDER, "src"], cwd=ROOT, capture_output=True, check=False, timeout=60)
    if packed.returncode:
        pytest.skip(f"the history of this clone does not go back to {OLDER}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class OlderBuild:
    """A process that runs the older build."""

    def __init__(self, source: Path, **asked: Any) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"}
        script = ROOT / "tests" / "helpers" / "older_build.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.say(**asked)

    def say(self, **about: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(about), file=self._process.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        line = read_line(self._process, "an answer of the older build")
        assert line, "the older build has died; see what it printed"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def builds(source: Path, tmp_path: Path) -> Iterator[Any]:
    begun: list[OlderBuild] = []

    def begin(**asked: Any) -> OlderBuild:
        begun.append(OlderBuild(source, folder=str(tmp_path), **asked))
        return begun[-1]

    yield begin
    for build in begun:
        build.close()


class WithOlder(Loopback):
    """A carrier to devices of this build and one of the older."""

    def __init__(self, field: Field, older: OlderBuild) -> None:
        super().__init__(field.devices)
        self.older, self.refusals = older, list[str]()

    def present(self) -> frozenset[int]:
        return super().present() | {OLD_PERSON + 1}

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            if number != OLD_PERSON + 1:
                yield from super().ask({number: content}, seconds, most_bytes)
                continue
            self.older.say(content=content.hex())
            said = self.older.receive()
            if said.get("answer"):
                yield number, bytes.fromhex(said["answer"])
            elif "error" in said:
                self.refusals.append(said["error"])

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        list(self.ask({n: m for n, m in messages.items() if n == OLD_PERSON + 1}, seconds, MOST_BYTES))
        super().tell({n: m for n, m in messages.items() if n != OLD_PERSON + 1}, seconds)


def joined(field: Field, older: OlderBuild, is_masked: bool) -> dict[str, Any]:
    person = field.clients.take([OLD_PERSON])
    older.say(
        welcome=field.journal.welcome.hex(),
        items=[int(item) for item in person.items[person.in_order]],
        policy=BOLD.model_dump(),
        masked_only=is_masked,
    )
    return older.receive()


@pytest.mark.parametrize("how", RULES)
def test_an_older_device_takes_part(tmp_path: Path, builds: Any, how: str) -> None:
    field, older = Field(tmp_path, "fcf"), builds(be="device")
    field.devices.pop(OLD_PERSON + 1).close()
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", masked_only=how == "masked", device_policy=BOLD))
    said = joined(field, older, how == "masked")
    with field.journal.file.transaction():
        field.journal.file.connection.execute(
            "UPDATE devices SET identity = ? WHERE number = ?", (bytes.fromhex(said["identity"]), OLD_PERSON + 1)
        )
    carrier = WithOlder(field, older)
    field.run(carrier, **RULES[how])
    assert carrier.refusals == []
    assert [(one.state, one.answered) for one in field.journal.rounds.records()] == [("finished", 5)] * 2


@pytest.mark.parametrize("how", RULES)
def test_devices_take_part_with_an_older_coordinator(tmp_path: Path, builds: Any, how: str) -> None:
    older = builds(be="coordinator", method="fcf", options=OPTIONS.get("fcf", {}), rules=RULES[how])
    welcome = bytes.fromhex(older.receive()["welcome"])
    clients, catalog = town(5)
    devices = {person + 1: device_of(tmp_path, clients, person, catalog, welcome) for person in range(5)}
    for device in devices.values():
        device.share(Sharing(pi=PI, coin="row", masked_only=how == "masked", device_policy=BOLD))
    older.say(identities=[device.identity.hex() for device in devices.values()])
    while "states" not in (said := older.receive()):
        answers: list[bytes] = []
        respond(devices[said["to"]], bytes.fromhex(said["content"]), answers.append)
        older.say(answer=answers[0].hex() if answers else "")
    assert said["states"] == ["finished"] * 2
    assert all(np.isfinite(np.array(array)).all() for array in said["shared"].values())


def test_an_older_device_is_told_to_upgrade_by_terms_that_it_does_not_know(tmp_path: Path, builds: Any) -> None:
    catalog, older = town()[1], builds(be="device")
    newer = Federation.create("cd" * 16, "same", "fcf", {}, catalog, authority="ab" * 32)
    older.say(welcome=write_welcome(newer, catalog).hex(), items=[], policy={}, masked_only=False)
    assert "version of Tacit" in older.receive()["hint"]
