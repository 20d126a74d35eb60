"""What a run guarantees its clients, in the words of the report: epsilons, what they cover, noise beside signal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.table import TableLine

MODES = {
    "distributed": "every device adds a share of the noise inside a secure sum",
    "central": "a trusted server adds the noise",
    "local": "every message carries the whole noise",
}

BOUNDS = {
    "laplace": "The magnitudes of all that a client adds to a sum are at most {:g} together",
    "randomised-response": "No client tells more than {:g} items",
}


def describe_guarantee(found: Mapping[str, Any]) -> str:
    """Return one sentence on what all noisy sums of a run reveal about any one client."""
    server, others, delta = found["epsilon_server"], found["epsilon_others"], found["delta"]
    both = f"epsilon {server:.3g} against the server and {others:.3g} against everybody else, delta {delta:.2g}"
    n_sums = len(found["rounds"])
    sums = f"{n_sums} {'sum' if n_sums == 1 else 'sums'} of {found['clients']:,} clients"
    if found["mode"] == "distributed":
        sums += ", taken to be a secure sum" if n_sums == 1 else ", each taken to be a secure sum"
    return f"{both}, for {found['unit']}, over {sums}; simulated noise"


def guarantee_reports(lines: Sequence[TableLine]) -> list[dict[str, Any]]:
    """Return what the report says of every method that ran under differential privacy, by its first run."""
    every = [(line, line.row.runs[0].result.get("privacy")) for line in lines]
    return [_report(line, found) for line, found in every if found is not None]


def _report(line: TableLine, found: Mapping[str, Any]) -> dict[str, Any]:
    rounds = [
        [
            f"{one['round']}",
            f"{one['share']:.1%}",
            f"{one['clients']:,}",
            f"{one['noise']:.3g}",
            f"{one['signal']:.3g}",
            f"{people_needed(one):,}",
        ]
        for one in found["rounds"]
    ]
    return {
        "line": line,
        "summary": describe_guarantee(found),
        "mode": MODES[found["mode"]],
        "mechanism": found["mechanism"],
        "bound": BOUNDS.get(found["mechanism"], "No client adds a vector longer than {:g}").format(found["bound"]),
        "dropped": f"{found['dropped']:.0%}",
        "corrupted": f"{found['corrupted']:.0%}",
        "rounds": rounds,
    }


def people_needed(one: Mapping[str, Any]) -> int:
    """Return with how many clients like these the numbers of a sum would be as large as its noise, on average."""
    return math.ceil(float(one["clients"]) * float(one["noise"]) / max(float(one["signal"]), 1e-12))
