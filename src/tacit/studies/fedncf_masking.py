"""FedNCF's table 8 and figure 4: what masking costs a participant, with real keys, shares and signatures beside.

The paper's figures are milliseconds on 8 cores of 4.0 GHz, for drawing masks from a framework's generator and adding
them: no keys are agreed, nothing is shared, no participant may drop out, and whoever has the seed can draw the same
masks. Ours are processor milliseconds of one device on one core of this machine. `masks`: agreeing on a key with each
neighbour and adding the streams. `all`: also the signatures, the shares of both secrets, confirmation and unmasking.
"""

from __future__ import annotations

import time
from typing import Any

from tacit.models.ncf import gmf, mlp, neumf
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
from tacit.protocols.secure_aggregation.masks import PIECE
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell

DATASETS = ("ml-100k", "ml-1m", "lastfm-2k", "foursquare-nyc")
GROUPS = {"ml-100k": 20, "ml-1m": 120, "lastfm-2k": 50, "foursquare-nyc": 50}
PUBLISHED = {  # table 8, milliseconds
    ("FedGMF", "ml-100k"): 3.0,
    ("FedGMF", "ml-1m"): 5.0,
    ("FedGMF", "lastfm-2k"): 16.0,
    ("FedGMF", "foursquare-nyc"): 49.0,
    ("FedNeuMF", "ml-100k"): 7.0,
    ("FedNeuMF", "ml-1m"): 12.0,
    ("FedNeuMF", "lastfm-2k"): 33.0,
    ("FedNeuMF", "foursquare-nyc"): 93.0,
}
FACTORS, LAYERS = 12, (48, 24, 12, 6)
SHAPES = {"FedGMF": gmf(FACTORS), "FedMLP": mlp(FACTORS, LAYERS), "FedNeuMF": neumf(FACTORS, LAYERS)}
FIGURE_ITEMS, FIGURE_PEOPLE = 1000, (10, 20, 50, 100, 150)
LOOSE = DevicePolicy(n_min=2, k_min=1, d_min=0, cool_down=0, most_cohorts=None)
TIMES = 5


def recipe(source: str) -> dict[str, Any]:
    """Return the data; only its number of items matters."""
    extra: dict[str, Any] = {"table": "tags"} if source == "lastfm-2k" else {}
    return {"data": {"source": source, "min_per_user": 5, **extra}, "split": {"kind": "leave-last-out"}}


@reproduction("fedncf-masking", "What masking costs", "FedNCF, table 8 and figure 4", DATASETS, recipe, seeds=1)
def masking_study(setup: StudySetup) -> StudyResult:
    """Measure one device of the paper's group on the dataset's table."""
    n_items, n_participants = setup.parts.catalog.n_items, GROUPS.get(setup.name, 20)
    rows, lines = [], []
    for name in ("FedGMF", "FedNeuMF"):
        shape = SHAPES[name]
        best = _best(n_items, shape.width, shape.n_layers + 1, n_participants, 1 if setup.quick else TIMES)
        published = PUBLISHED.get((name, setup.name)) if setup.is_named else None
        for part, seconds in best.items():
            printed = published if part == "masks" else None
            rows.append(PublishedRow(name, f"ms {part}", printed, 1000 * seconds, None, 1))
        sent = 4 * n_items * (shape.width + 1) + 8 * (shape.n_layers + 1)
        lines.append(
            [name, format_cell(published), *(format_cell(1000 * one) for one in best.values()), f"{sent / 1000:,.0f}"]
        )
    table = Sheet(
        f"Masking a table of {n_items:,} items, {n_participants} users, milliseconds",
        ["model", "published", *(f"ours, {part}" for part in best), "kB sent"],
        lines,
    )
    notes = ["Published on 8 cores of 4.0 GHz without keys, shares or signatures; ours on one core, processor time."]
    return StudyResult([*rows, *_growth_rows()], [table, _growth()], notes=notes)


def parameters(name: str, n_participants: int, n_items: int = FIGURE_ITEMS) -> int:
    """Return how many numbers a participant draws for its masks, by the paper's formulas (figure 4)."""
    shape = SHAPES[name]
    return (n_participants - 1) * (shape.width * n_items + shape.n_layers + n_items)


def _growth_rows() -> list[PublishedRow]:
    return [
        PublishedRow(name, f"numbers drawn, |c| = {people}", None, float(parameters(name, people)), None, 1)
        for name in SHAPES
        for people in FIGURE_PEOPLE
    ]


def _growth() -> Sheet:
    lines = []
    for people in FIGURE_PEOPLE:
        drawn = [parameters(name, people) for name in SHAPES]
        lines.append([str(people), *(f"{n:,}" for n in drawn), f"{4 * drawn[-1] / 1e6:.1f}", f"{PIECE / 1e6:.2f}"])
    columns = ["people", *SHAPES, "MB if kept (NeuMF)", "MB held here"]
    return Sheet(f"Figure 4: numbers drawn by one participant, {FIGURE_ITEMS:,} items", columns, lines)


def _best(n_items: int, width: int, n_layers: int, n_participants: int, times: int) -> dict[str, float]:
    found = [_costs(n_items, width, n_layers, n_participants) for _ in range(times)]
    return {part: min(one[part] for one in found) for part in found[0]}


def _costs(n_items: int, width: int, n_layers: int, n_participants: int) -> dict[str, float]:
    """Return the processor seconds of one device for one sum, and those of its masks alone."""
    bound = (2**31 - 1) // n_participants
    layout = VectorLayout.of(
        [
            Segment("items", SegmentKind.NUMBERS, n_items, width, 32, bound),
            Segment("items", SegmentKind.MENTIONS, n_items, 1, 32, 1),
            Segment("layers", SegmentKind.NUMBERS, 1, n_layers, 64, 2**40),
        ]
    )
    chosen = plan_masking(n_participants, 0.2, 0.1)
    terms = Terms(
        "costs", 1, 2, bytes(32), layout, 2, 1, 0, chosen.degree, chosen.threshold, bytes(32), bytes(32)
    )  # fmt: skip
    devices = sorted(
        (SecureDevice(Identity.fresh(), LOOSE) for _ in range(n_participants)), key=lambda one: one.identity.public
    )
    server, first = SecureServer.start(terms, [one.identity.public for one in devices]), devices[0]
    spent = {"masks": 0.0, "all": 0.0}

    def timed(answer: Any, is_mask: bool = False) -> bytes:
        started = time.process_time()
        printed: bytes = answer()
        spent["all"] += time.process_time() - started
        spent["masks"] += time.process_time() - started if is_mask else 0.0
        return printed

    server.receive(timed(lambda: first.advertise(server.invitation)))
    for one in devices[1:]:
        server.receive(one.advertise(server.invitation))
    rosters = server.advance()
    server.receive(timed(lambda: first.share(rosters[0])))
    for at, one in enumerate(devices[1:], start=1):
        server.receive(one.share(rosters[at]))
    inboxes, vector = server.advance(), Vector(layout.sizes)
    server.receive(timed(lambda: first.submit(inboxes[0], vector), is_mask=True))
    for at, one in enumerate(devices[1:], start=1):
        server.receive(one.submit(inboxes[at], Vector(layout.sizes)))
    survivors = server.advance()
    server.receive(timed(lambda: first.confirm(survivors[0])))
    for at, one in enumerate(devices[1:], start=1):
        server.receive(one.confirm(survivors[at]))
    confirmed = server.advance()
    timed(lambda: first.unmask(confirmed[0]))
    return spent
