"""What a secure sum costs each person and the server, one core, processor time, best of several.

`client` is all that one device does from the invitation to its last answer, in all five phases: keys, checking the
neighbours' signatures, shares, the masked vector, confirmation, unmasking. `masks` is the part of it that the
literature reports (the phase of vectors: agreeing on masks and adding them); `signatures` the part that checks whose
keys they are. `floor` is what the primitives alone would take, timed in the same run: two key agreements and one
verification per neighbour, two keys, one signature, the streams. `server` is all that the server does once the
messages are there, a tenth of the people having dropped out before their vectors. The tables are those of FedNCF's
datasets with one column for counts, in 32 bits. `peer` is the goal, in the same unit. Python's collector of garbage
rests while a side is timed: here all sides live in one process, and it would walk through everybody's objects.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.protocols.secure_aggregation import (
    DevicePolicy,
    Identity,
    SecureDevice,
    SecureServer,
    ServerPhase,
    Terms,
    Vector,
    VectorLayout,
    plan_masking,
)
from tacit.protocols.secure_aggregation.encoding import Segment, SegmentKind
from tacit.protocols.secure_aggregation.identity import verify
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.masks import mask

GUARDS = DevicePolicy(n_min=2, k_min=1, d_min=0, cool_down=0)
CASES: dict[str, tuple[int, int, int, dict[str, float]]] = {  # rows, columns, people, goals in seconds
    "1682x13": (1682, 13, 20, {"client": 0.002}),
    "38333x13": (38333, 13, 50, {"client": 0.060}),
    "3706x13": (3706, 13, 120, {"server": 0.3}),
    "1682x13-1000": (1682, 13, 1000, {"server": 10.0}),
}


def session(n_rows: int, width: int, n_participants: int) -> dict[str, Any]:
    """Run one session with a tenth dropping out; return processor seconds of one device and of the server."""
    bound = (2**31 - 1) // n_participants
    layout = VectorLayout.of([Segment("items", SegmentKind.NUMBERS, n_rows, width, 32, bound)])
    chosen = plan_masking(n_participants, 0.2, 0.1)
    terms = Terms(
        "bench", 1, 2, bytes(32), layout, 2, 1, 0, chosen.degree, chosen.threshold, bytes(32), bytes(32)
    )  # fmt: skip
    devices = sorted(
        (SecureDevice(Identity.fresh(), GUARDS) for _ in range(n_participants)), key=lambda one: one.identity.public
    )
    server = SecureServer.start(terms, [one.identity.public for one in devices])
    gone = set(range(0, n_participants, 10)) - {5}
    watched, parts = 5, dict.fromkeys(("client", "signatures", "masks", "floor", "server", "up"), 0.0)
    values = np.random.default_rng(0).integers(0, 2**20, n_rows * width, dtype=np.uint32)
    inbox = dict.fromkeys(range(n_participants), server.invitation)
    gc.collect()
    gc.disable()
    while server.phase < ServerPhase.DONE:
        answers = []
        for person, message in inbox.items():
            if person in gone and server.phase >= ServerPhase.VECTORS:
                continue
            vector = Vector(layout.sizes, values.tobytes())
            before = time.process_time()
            answers.append(_answer(devices[person], server.phase, message, lambda vector=vector: vector))  # type: ignore[misc]
            if person == watched:
                spent = time.process_time() - before
                parts["client"] += spent
                parts["masks"] += spent if server.phase == ServerPhase.VECTORS else 0
                parts["up"] += len(answers[-1])
        before = time.process_time()
        for answer in answers:
            server.receive(answer)
        inbox = server.advance()
        parts["server"] += time.process_time() - before
    gc.enable()
    whole = np.zeros(n_rows * width, np.uint32)
    for _ in server.survivors:
        whole += values
    assert np.array_equal(server.total.parts[1], whole), "the sum is wrong"
    parts["signatures"] = signatures(devices[watched])
    parts["floor"] = parts["signatures"] + primitives(devices[watched], layout)
    return {**parts, "degree": chosen.degree, "threshold": chosen.threshold, "bytes": layout.sizes[1] * 4}


def signatures(one: SecureDevice) -> float:
    """Return the seconds that checking the neighbours' signatures took."""
    state = one._state
    assert state is not None
    before = time.process_time()
    for advert in state.adverts.values():
        signed = advert.signed_part(state.context)
        verify(state.session.cohort[advert.sender], signed, advert.signature, advert.sender)
    return time.process_time() - before


def primitives(one: SecureDevice, layout: VectorLayout) -> float:
    """Return the seconds of key agreements, new keys, a signature and the streams, the signatures' checks aside."""
    state = one._state
    assert state is not None
    n_neighbours, vector = len(state.adverts), Vector(layout.sizes)
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()

    def of(times: int, call: Callable[[], object]) -> float:
        before = time.process_time()
        for _ in range(times):
            call()
        return time.process_time() - before

    return (
        of(2 * n_neighbours + 1, lambda: own.exchange(other))
        + of(2, X25519PrivateKey.generate)
        + of(1, lambda: one.identity.sign(bytes(200)))
        + of(1, lambda: mask(vector, [bytes(32)] * (n_neighbours + 1), []))
    )


def main() -> None:
    """Print one JSON line per case and side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for name in CASES if given.only is None else (given.only,):
        n_rows, width, n_participants, goals = CASES[name]
        found = [session(n_rows, width, n_participants) for _ in range(1 if n_participants > 500 else given.times)]
        best = {part: min(one[part] for one in found) for part in found[0]}
        for side in ("client", "server"):
            goal = goals.get(side)
            line = {
                "bench": f"secure-sum-{side}",
                "data": name,
                "people": n_participants,
                "threads": 1,
                "ours": round(best[side], 5),
                "masks": round(best["masks"], 5),
                "signatures": round(best["signatures"], 5),
                "floor": round(best["floor"], 5) if side == "client" else None,
                "peer": goal,
                "peer_name": "goal",
                "ratio": None if goal is None else round(goal / best[side], 2),
                "unit": "s per round",
                "degree": best["degree"],
                "threshold": best["threshold"],
                "bytes_up": int(best["up"]),
                "bytes_of_vector": best["bytes"],
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "commit": commit,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
