"""Devices, or a coordinator, of an older build of Tacit in a process of their own; messages pass as lines of JSON.

Run by the older build: what it uses must be there. The first line says what to be, the others are messages, each with
one answer. Nothing but bytes that would travel passes between the two builds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PASSPHRASE = "a field of five"
POLICY = {"now": "device_policy", "before": "guards"}  # the name of one option, then and now


def say(**about: Any) -> None:
    """Write one line."""
    print(json.dumps(about), flush=True)


def receive() -> dict[str, Any]:
    """Read one line; the other end closes the line to end this process."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    found: dict[str, Any] = json.loads(line)
    return found


def make_device(path: Path, welcome: bytes, items: list[int], policy: dict[str, Any], masked_only: bool) -> Any:
    """Make a device and let it join."""
    from tacit.field.device import Device, ScryptCost, Sharing
    from tacit.field.device.history import HistoryEntry
    from tacit.protocols.secure_aggregation import DevicePolicy

    device = Device.create(path, PASSPHRASE, cost=ScryptCost(log_n=10), seed=42, lane=0)
    known = {name: value for name, value in policy.items() if name in DevicePolicy.model_fields}
    member = device.join(welcome)
    named = {POLICY[name]: DevicePolicy(**known) for name in POLICY if POLICY[name] in Sharing.model_fields}
    device.share(Sharing(pi=0.7, masked_only=masked_only, **named))
    catalog = member.catalog
    device.history.add([HistoryEntry(catalog.item_ids[item]) for item in items], catalog)
    return device


def be_device(folder: Path) -> None:
    """Answer messages as a device; refusals are answered with their words."""
    from tacit.errors import TacitError
    from tacit.field.exchange import respond

    device = None
    while True:
        asked, answers = receive(), list[bytes]()
        try:
            if "welcome" in asked:
                welcome = bytes.fromhex(asked["welcome"])
                device = make_device(folder / "old.db", welcome, asked["items"], asked["policy"], asked["masked_only"])
                say(identity=device.identity.hex())
            else:
                assert device is not None
                respond(device, bytes.fromhex(asked["content"]), answers.append)
                say(answer=answers[0].hex() if answers else "")
        except TacitError as error:
            say(error=str(error), hint=error.hint)


def be_coordinator(folder: Path, asked: dict[str, Any]) -> None:
    """Found a federation, enrol the devices that are shown, run rounds with them, and give out the model."""
    from tacit.data import DataConfig, load
    from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
    from tacit.protocols.secure_aggregation import DevicePolicy
    from tacit.types import Catalog
    from tacit.wire.federation import Federation

    known = load(DataConfig(source="town", people=5, places=60)).catalog
    catalog = Catalog(known.item_ids, known.titles, known.categories)
    federation = Federation.create("cd" * 16, "same", asked["method"], asked["options"], catalog)
    journal = CoordinatorJournal.create(folder / "old-journal.db", federation, catalog, seed=42)
    say(welcome=journal.welcome.hex())
    for number, identity in enumerate(receive()["identities"]):
        journal.add(bytes([number]), bytes.fromhex(identity))

    class Carrier:
        """Passes messages on to the other end."""

        def present(self) -> frozenset[int]:
            return frozenset(device.number for device in journal.devices())

        def ask(self, requests: Any, seconds: float) -> Any:
            for number, content in requests.items():
                say(to=number, content=content.hex())
                answer = receive()["answer"]
                if answer:
                    yield number, bytes.fromhex(answer)

        def tell(self, messages: Any, seconds: float) -> None:
            list(self.ask(messages, seconds))

        def __getattr__(self, name: str) -> Any:  # what one of the builds knows and the other does not
            return lambda *given: None

    fields = RoundRules.model_fields
    if POLICY["before"] in fields and POLICY["now"] in asked["rules"]:
        kept = DevicePolicy.model_fields
        given = asked["rules"][POLICY["now"]].items()
        asked["rules"][POLICY["before"]] = {name: value for name, value in given if name in kept}
    rules = RoundRules.from_options({k: v for k, v in asked["rules"].items() if k in fields}, "rules")
    coordinator = Coordinator(journal, rules, Carrier())
    coordinator.run()
    shared = {name: array.tolist() for name, array in coordinator.shared.items()}
    say(states=[happened.state for happened in journal.rounds()], shared=shared)


def main() -> None:
    """Be what the first line says."""
    asked = receive()
    folder = Path(asked["folder"])
    if asked["be"] == "device":
        be_device(folder)
    else:
        be_coordinator(folder, asked)


if __name__ == "__main__":
    main()
