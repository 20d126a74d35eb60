"""What hiding an update costs: our masks beside encrypted sums, Paillier as in FedMF and packed BFV. Ours to compare.

One item table with a column for counts, whole numbers of 32 bits. Seconds are processor time of one core. Encrypting is
what one participant does, adding what the server does with all of them, opening what whoever holds the secret key does
with the sum. Paillier's costs are the same for every ciphertext: a few are timed, and the time of all follows. Masks
need no key holder; their "opening" is the server's whole work on all messages, without dropouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np

from tacit.errors import SecureSumError
from tacit.protocols.secure_aggregation import (
    DevicePolicy,
    Identity,
    SecureDevice,
    SecureServer,
    Terms,
    Vector,
    VectorLayout,
    plan_masking,
)
from tacit.protocols.secure_aggregation.encoding import Segment, SegmentKind
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.homomorphic import Bfv, PaillierSecret, Whole
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell

GROUPS = {"ml-100k": 20, "foursquare-nyc": 50}
COLUMNS = 12 + 1  # factors of FedNCF, and the count
LOOSE = DevicePolicy(n_min=2, k_min=1, d_min=0, cool_down=0, most_cohorts=None)
TIMES = 5  # sessions of masks; the best of them
TIMED = 12  # ciphertexts of Paillier
KEYS = (2048, 3072)  # bits; 3,072 are as hard to break as what masks and BFV rest on
Result = TypeVar("Result")


@dataclass(frozen=True)
class AggregationCost:
    """Seconds and bytes of one way of adding up."""

    client: float
    adding: float
    opening: float
    up: float  # bytes per participant
    down: float

    def cells(self) -> list[str]:
        """Return it as cells."""
        seconds = (self.client, self.adding, self.opening)
        return [*(format_cell(one) for one in seconds), *(f"{one / 1000:,.0f}" for one in (self.up, self.down))]


def recipe(source: str) -> dict[str, Any]:
    """Return the data; only its number of items matters."""
    return {"data": {"source": source, "min_per_user": 5}, "split": {"kind": "leave-last-out"}}


@reproduction("secure-costs", "What hiding an update costs", "A study of our own", tuple(GROUPS), recipe, seeds=1)
def cost_study(setup: StudySetup) -> StudyResult:
    """Measure one participant and the server on the dataset's table."""
    size, n_participants = setup.parts.catalog.n_items * COLUMNS, GROUPS.get(setup.name, 20)
    bound = (2**31 - 1) // n_participants
    participants = [
        np.random.default_rng([setup.seeds[0], participant]).integers(-bound, bound + 1, size)
        for participant in range(n_participants)
    ]
    timed = 2 if setup.quick else TIMED
    masked = [_masks(participants, bound) for _ in range(1 if setup.quick else TIMES)]
    found = {
        "masks (ours), all phases": AggregationCost(
            *(min(values) for values in zip(*map(astuple, masked), strict=True))
        )
    }
    for bits in KEYS[: 1 if setup.quick else None]:
        secret = PaillierSecret.fresh(bits)
        for packed in (True, False):
            name = f"Paillier {bits:,}, " + (f"{secret.public.slots} to a ciphertext" if packed else "each on its own")
            found[name] = _paillier(secret, participants, bound, packed, timed)
    notes = [
        f"{size:,} numbers of 32 bits, {n_participants} users; one core, processor time.",
        f"Paillier: {timed} ciphertexts timed, and multiplied. FedMF encrypts each number on its own.",
        "Encrypted sums: whoever holds the secret key can read every single update; with masks no party can.",
    ]
    try:
        found["BFV 4,096 (tenseal)"] = _bfv(participants, bound)
    except SecureSumError as error:
        notes.append(f"BFV was left out. {error}")
    metrics = ("s user", "s adding", "s opening", "kB up", "kB down")
    rows = []
    for name, cost in found.items():
        values = (cost.client, cost.adding, cost.opening, cost.up / 1000, cost.down / 1000)
        rows += [PublishedRow.of(name, metric, [value]) for metric, value in zip(metrics, values, strict=True)]
    columns = ["way", "user, s", "server adds, s", "opened, s", "kB up", "kB down"]
    lines = [[name, *cost.cells()] for name, cost in found.items()]
    return StudyResult(rows, [Sheet("Hiding one round's updates", columns, lines)], notes=notes)


def _time(act: Callable[[], Result]) -> tuple[Result, float]:
    started = time.process_time()
    kept = act()
    return kept, time.process_time() - started


def _check(found: Whole, participants: list[Whole]) -> None:
    if not np.array_equal(found, np.sum(participants, axis=0)[: len(found)]):
        raise SecureSumError("A sum came out wrong.")


def _masks(participants: list[Whole], bound: int) -> AggregationCost:
    """Run a whole session: one participant's five answers, and the server."""
    n_participants, size = len(participants), len(participants[0])
    layout = VectorLayout.of([Segment("items", SegmentKind.NUMBERS, size // COLUMNS, COLUMNS, 32, bound)])
    chosen = plan_masking(n_participants, 0.2, 0.1)
    terms = Terms(
        "costs", 1, 2, bytes(32), layout, 2, 1, 0, chosen.degree, chosen.threshold, bytes(32), bytes(32)
    )  # fmt: skip
    devices = sorted((SecureDevice(Identity.fresh(), LOOSE) for _ in participants), key=lambda one: one.identity.public)
    server = SecureServer.start(terms, [one.identity.public for one in devices])
    inbox = dict.fromkeys(range(n_participants), server.invitation)
    spent = {"client": 0.0, "adding": 0.0, "opening": 0.0}
    up = down = 0
    while server.phase < ServerPhase.DONE:
        phase, answers = server.phase, []
        for participant, message in inbox.items():
            vector = Vector(layout.sizes, participants[participant].astype("<u4", casting="unsafe").tobytes())
            answer, seconds = _time(lambda: _answer(devices[participant], phase, message, lambda: vector))  # noqa: B023
            answers.append(answer)
            if participant == 0:
                spent["client"] += seconds
                up, down = up + len(answer), down + len(message)
        side = "adding" if phase == ServerPhase.VECTORS else "opening"
        inbox, seconds = _time(lambda: ([server.receive(one) for one in answers], server.advance())[1])  # noqa: B023
        spent[side] += seconds
    _check(server.total.parts[1].view("<i4").astype(np.int64), participants)
    return AggregationCost(**spent, up=up, down=down)


def _paillier(
    secret: PaillierSecret, participants: list[Whole], bound: int, packed: bool, timed: int
) -> AggregationCost:
    """Time some ciphertexts of each participant; a participant has `n_all` of them."""
    key, size, n_participants = secret.public, len(participants[0]), len(participants)
    each = key.slots if packed else 1
    n_all = -(-size // each)
    some = min(timed, n_all)
    few = [one[: some * each] for one in participants]
    first, client = _time(lambda: key.encrypt_vector(few[0], bound, packed=packed))
    second = key.encrypt_vector(few[1], bound, packed=packed)
    _, adding = _time(lambda: key.add_vectors([first] + [second] * (n_participants - 1)))
    two = key.add_vectors([first, second])
    total, opening = _time(lambda: secret.decrypt_sum(two, len(few[0]), 2, bound, packed=packed))
    _check(total, few[:2])
    times, sent = n_all / some, float(n_all * key.ciphertext_bytes)
    return AggregationCost(client * times, adding * times, opening * times, sent, sent)


def _bfv(participants: list[Whole], bound: int) -> AggregationCost:
    keys = Bfv()
    sent = []
    clients = []
    for one in participants:
        made, seconds = _time(lambda: keys.encrypt_vector(one, bound))  # noqa: B023
        sent.append(made)
        clients.append(seconds)
    total, adding = _time(lambda: keys.add_vectors(sent))
    opened, opening = _time(lambda: keys.decrypt_sum(total, len(participants), bound))
    _check(opened, participants)
    return AggregationCost(min(clients), adding, opening, sum(map(len, sent[0])), sum(map(len, total)))
