"""Write docs/protocol-vectors.json: one secure sum and some messages, every secret given, for a second implementation.

python tools/protocol_vectors.py            write the file
python tools/protocol_vectors.py --check    fail if it is not what this code makes
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.protocols.directory import DirectoryCheckpoint
from tacit.protocols.merkle import MerkleTree, leaf_hash
from tacit.protocols.secure_aggregation import DevicePolicy, Identity, SecureServer, Terms, shamir
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.encoding import rows_layout
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.pairing import own_mask, pair_mask
from tacit.updates import Ring
from tacit.wire.envelope import AMENDMENT, KINDS, seal_message

PATH = Path(__file__).parents[1] / "docs" / "protocol-vectors.json"
N_PARTICIPANTS, THRESHOLD, LOST = 5, 3, 2
EASY = DevicePolicy(n_min=2, k_min=1, cool_down=0, d_min=0, corrupted=0, most_cohorts=None)


def _steady_bytes() -> Any:
    """Return what gives the same bytes in every run, in place of the system's entropy."""
    numbers = count()

    def draw(size: int) -> bytes:
        return hashlib.shake_256(b"tacit protocol vectors" + next(numbers).to_bytes(4, "big")).digest(size)

    return draw


def _hex(found: Any) -> Any:
    if isinstance(found, bytes):
        return found.hex()
    if isinstance(found, dict):
        return {str(name): _hex(value) for name, value in found.items()}
    return [_hex(one) for one in found] if isinstance(found, (list, tuple)) else found


def make_vectors() -> dict[str, Any]:
    """Return all vectors; bytes are hexadecimal."""
    with patch.object(secrets, "token_bytes", _steady_bytes()):
        return {
            "about": "docs/protocol.md says what each of these is. Bytes are hexadecimal, numbers little-endian.",
            "sum": _hex(_session()),
            "shamir": _hex(_shares()),
            "directory": _hex(_directory()),
            "wire": _hex(_wire()),
        }


def _session() -> dict[str, Any]:
    """One sum of five participants; the third falls silent before its vector."""
    people = sorted((Identity.fresh() for _ in range(N_PARTICIPANTS)), key=lambda one: one.public)
    layout = rows_layout({"items": (3, 2), "layers": (1, 2)}, Ring(), N_PARTICIPANTS)
    terms = Terms(
        "vectors", 7, 2, bytes(32), layout, 3, 1, 0, N_PARTICIPANTS - 1, THRESHOLD, bytes(range(32)), bytes(32)
    )
    server = SecureServer.start(terms, [one.public for one in people])
    devices = [SecureDevice(one, EASY) for one in people]
    messages: dict[str, Any] = {"invitation": server.invitation}
    inputs = [_vector(layout.sizes, at) for at in range(N_PARTICIPANTS)]
    adverts = [device.advertise(server.invitation) for device in devices]
    rosters = _passed(server, dict(enumerate(adverts)))
    shares = {at: devices[at].share(rosters[at]) for at in rosters}
    inboxes = _passed(server, shares)
    states = [device._state for device in devices]
    assert all(state is not None for state in states)
    vectors = {at: devices[at].submit(inboxes[at], Vector(layout.sizes, inputs[at])) for at in inboxes if at != LOST}
    survivors = _passed(server, vectors)
    confirmations = {at: devices[at].confirm(survivors[at]) for at in survivors}
    confirmed = _passed(server, confirmations)
    unmaskings = {at: devices[at].unmask(confirmed[at]) for at in confirmed}
    _passed(server, unmaskings)
    messages |= {"adverts": adverts, "rosters": rosters, "shares": shares, "inboxes": inboxes, "vectors": vectors}
    messages |= {"survivors": survivors, "confirmations": confirmations, "confirmed": confirmed}
    messages |= {"unmaskings": unmaskings}
    context = server.context
    secret = [
        {
            "identity": one.secret,
            "public": one.public,
            "mask_secret": state.mask_pair.secret,
            "mask_public": state.mask_pair.public,
            "seal_secret": state.seal_pair.secret,
            "seal_public": state.seal_pair.public,
            "seed": state.seed,
            "link_key": state.link_key,
            "own_mask_key": own_mask(context, state.position, state.seed),
            "pair_mask_keys": {
                other.position: pair_mask(
                    state.mask_pair, state.position, other.mask_pair.public, other.position, context
                )
                for other in states
                if other is not None and other is not state
            },
            "input": inputs[at],
        }
        for at, (one, state) in enumerate(zip(people, states, strict=True))
        if state is not None
    ]
    return {
        "context": context,
        "n_participants": N_PARTICIPANTS,
        "threshold": THRESHOLD,
        "lost": LOST,
        "sizes": list(layout.sizes),
        "server_secret": server._pair.secret,
        "participants": secret,
        "messages": messages,
        "total": server.total.tobytes(),
    }


def _passed(server: SecureServer, answers: dict[int, bytes]) -> dict[int, bytes]:
    for answer in answers.values():
        server.receive(answer)
    return server.advance()


def _vector(sizes: tuple[int, int, int], at: int) -> bytes:
    vector, generator = Vector(sizes), np.random.default_rng(at)
    for part in vector.parts:
        part[:] = generator.integers(-(2**14), 2**14, len(part)).astype(part.dtype)
    return vector.tobytes()


def _shares() -> dict[str, Any]:
    """A secret, the key of its polynomial, and its shares."""
    secret, key = secrets.token_bytes(32), secrets.token_bytes(32)
    places = [1, 2, 5, 9]
    shares = shamir.split_secret(int.from_bytes(secret, "little"), places, 3, key)
    written = {place: share.to_bytes(shamir.SHARE_BYTES, "little") for place, share in zip(places, shares, strict=True)}
    return {"secret": secret, "key": key, "threshold": 3, "shares": written}


def _directory() -> dict[str, Any]:
    """A list of identities, its roots, a proof of growth, and a checkpoint that a witness signed."""
    witness, entries = Identity.fresh(), [Identity.fresh().public for _ in range(7)]
    tree = MerkleTree(entries)
    checkpoint = DirectoryCheckpoint.sign(witness, bytes(16), 7, tree.root(7), 1_700_000_000)
    return {
        "entries": entries,
        "leaves": [leaf_hash(entry) for entry in entries],
        "roots": {size: tree.root(size) for size in range(1, 8)},
        "growth_3_to_7": list(tree.prove_growth(3, 7)),
        "witness": witness.public,
        "checkpoint": checkpoint.encode(),
        "statement": checkpoint.statement,
    }


def _wire() -> dict[str, Any]:
    """The head of every kind of message, around a body of three bytes."""
    digest = hashlib.sha256(b"a federation").digest()
    kinds = {name: seal_message(kind, digest, 5, b"abc") for kind, name in KINDS.items() if kind != AMENDMENT}
    return {"digest": digest, "round": 5, "body": b"abc", "messages": kinds}


def main() -> None:
    """Write the file, or check it."""
    text = json.dumps(make_vectors(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        if not PATH.exists() or PATH.read_text() != text:
            sys.exit(f"{PATH} is not what this code makes: run tools/protocol_vectors.py, and say so in the changelog")
        return
    PATH.write_text(text)


if __name__ == "__main__":
    main()
