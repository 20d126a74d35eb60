"""FedNCF's experiments on costs made again: what a device computes, sends and waits for."""

from __future__ import annotations

import time

import numpy as np

from tacit.evaluation.neural_costs import NeuralCost, local_flops, spread_of, touched_rows
from tacit.methods.base import build_federated, options
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath, device_round
from tacit.random import Key
from tacit.studies import fedncf_figures as draw
from tacit.studies import fedncf_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fedncf import legacy, recipe
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import Ring

COSTS = {
    "fed-gmf": NeuralCost(printed.FACTORS),
    "fed-mlp": NeuralCost(printed.FACTORS, printed.LAYERS, has_product=False),
    "fed-neumf": NeuralCost(printed.FACTORS, printed.LAYERS),
}
LARGE = 40_000  # items: more than the longest history of figure 7 needs
TIMES = 5  # the shortest of so many


@reproduction("fedncf-cost", "Costs of a device", f"{printed.PAPER}, table 7", printed.DATASETS, recipe, seeds=1)
def cost_study(setup: StudySetup) -> StudyResult:
    """Operations and bytes of a device: as printed, by our count, and with sparse rows."""
    train = (legacy(setup) if setup.name == "lastfm-2k" else setup).prepared.parts.train  # the paper's rows
    observations = (train.sizes + 1).tolist()  # the held-out one counts in its table
    known = printed.TABLE_7.get(setup.name, {}) if setup.is_named else {}
    rows, operations, sizes = [], [], []
    for name, model in COSTS.items():
        theirs = [local_flops(printed.PER_SAMPLE[name], n) / 1e3 for n in observations]
        counted = [local_flops(model.forward, n) / 1e3 for n in observations]
        published = known.get(name, (None,) * 4)
        cells = []
        for at, label in enumerate(("mean", "least", "most")):
            mine, our = spread_of(theirs)[at], spread_of(counted)[at]
            rows.append(
                PublishedRow.of(name, f"kFLOPs {label}", [mine], published[at], f"{printed.PER_SAMPLE[name]} a sample")
            )
            rows.append(PublishedRow.of(name, f"kFLOPs {label}, counted", [our], None, f"{model.forward} a sample"))
            cells += [format_cell(published[at]), format_cell(mine), format_cell(our)]
        operations.append([name, *cells])
        dense = model.dense(train.n_items) * 4 / 1e3
        touched = [touched_rows(float(n - 1), train.n_items) for n in observations]
        sparse = [float(np.mean([model.sparse_bytes(n, b) for n in touched])) / 1e3 for b in (4, 8)]
        rows.append(PublishedRow.of(name, "KB, dense float32", [dense], published[3]))
        rows += [
            PublishedRow.of(name, f"KB, sparse rows, {b} bits", [kb]) for b, kb in zip((32, 64), sparse, strict=True)
        ]
        sizes.append([name, *map(format_cell, (published[3], dense, *sparse))])
    columns = [text for label in ("mean", "least", "most") for text in (f"{label} published", "its rate", "our count")]
    sheets = [
        Sheet("Thousands of operations of a device in a round", ["model", *columns], operations),
        Sheet(
            "KB that a device sends in a round", ["model", "published", "dense", "sparse, 32 bits", "64 bits"], sizes
        ),
    ]
    notes = [
        "'its rate': five samples per observation times 32, 2,856 and 2,891 operations, which is what the table of the "
        "paper comes to on all four datasets; 'our count': multiply-adds, biases and activations of a forward pass.",
        "Sparse rows: those that an average user touches in a round, each with its id; the layers with their weight.",
        "The published KB are less than four bytes a number: the paper does not say how its numbers are packed.",
    ]
    return StudyResult(rows, sheets, {}, notes)


@reproduction(
    "fedncf-heterogeneity", "Long and short histories", f"{printed.PAPER}, figure 7", ("ml-100k",), recipe, seeds=1
)
def heterogeneity(setup: StudySetup) -> StudyResult:
    """How long a device's round takes by the length of its history, on one thread."""
    instances = printed.INSTANCES[: 2 if setup.quick else None]
    rows, lines, drawn = [], [], {}
    for name in printed.MODELS:
        seconds = {n: _seconds(name, n) for n in instances}
        drawn[name] = [(float(n), s) for n, s in seconds.items()]
        rows += [PublishedRow.of(name, f"seconds, {n} observations", [s]) for n, s in seconds.items()]
        lines.append([name, *(f"{s * 1e3:.1f}" for s in seconds.values())])
    sheet = Sheet("Milliseconds of a round (two local epochs)", ["model", *(f"{n:,}" for n in instances)], lines)
    notes = [
        f"One made-up user among {LARGE:,} items; processor time, one thread, the shortest of {TIMES}. A device "
        "learns on one core whatever it has: the paper found 10 % between one core and sixteen.",
        "Printed in the paper's text, GMF: below 1 s for 10,000 observations on one core; 0.045 and 0.089 s where the "
        "observations double to 2,000.",
    ]
    return StudyResult(rows, [sheet], {"heterogeneity": draw.over_instances(drawn)}, notes, {})


def _seconds(name: str, observations: int) -> float:
    """Return the processor time of a device's round."""
    items = np.arange(observations, dtype=np.int32)
    client = Clients(np.zeros(1, np.int64), np.array([0, observations]), items, LARGE)
    path = UpdatePath(build_federated(name, options(name, {"epochs": 1})), (), Ring())
    model = path.method.init(client, Catalog(Vocabulary(np.arange(LARGE))), Key(0))
    times = []
    with one_blas_thread():
        for number_ in range(TIMES + 1):
            started = time.process_time()
            device_round(path, model, client, Key(number_), number_)
            times.append(time.process_time() - started)
    return min(times[1:])  # the first one may compile
