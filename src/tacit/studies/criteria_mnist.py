"""Chapter 5 on MNIST: rounds until a share of devices classifies its own digits well, by criteria and their order.

100 clients, a tenth per round, 5 local epochs on the full batch; a client's test digits are those of its kinds. Each
weight follows from dataset size (DS), different labels (LD) and model divergence (MW), in order of priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, field_validator

from tacit.data import load_images
from tacit.data.formats.images import Digits
from tacit.errors import ConfigError, DataError, nearest
from tacit.random import Key
from tacit.report.canvas import new_figure, percent_axis, report_style
from tacit.report.labels import name_ends
from tacit.report.marks import line_styles
from tacit.studies import criteria_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.cnn import torch
from tacit.studies.digits import Curve, DigitFederation, DigitRun, FederationLog, train_federation
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet
from tacit.types import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = "DS"
EVERY = (BASE, "LD", "MW", *(" > ".join(order) for order in permutations((BASE, "LD", "MW"))))
NAMES = {"iid": "IID", "shards": "two shards"}
TARGETS, SHARES = printed.TARGETS, printed.SHARES


class PartitionSettings(Config):
    """How long one way of dealing is followed, and with which steps."""

    rounds: int = Field(ge=0, description="0 leaves it out")
    learning_rate: float = Field(gt=0, description="chosen on validation, see docs/methods/criteria.md")


class DigitStudyConfig(Config):
    """What is run; the defaults are about an hour on two cores, all of the thesis would be days."""

    orders: tuple[str, ...] = Field(
        (BASE, "MW > LD > DS"), description=f"orders of criteria, or all; {BASE} comes first: it is what others gain on"
    )
    iid: PartitionSettings = Field(
        PartitionSettings(rounds=20, learning_rate=0.1), description="pictures dealt at random"
    )
    shards: PartitionSettings = Field(
        PartitionSettings(rounds=40, learning_rate=0.1), description="two shards of one digit each"
    )
    federation: DigitFederation = Field(DigitFederation(), description="sizes, and what devices are judged by")

    @field_validator("orders", mode="before")
    @classmethod
    def _known(cls, given: Any) -> tuple[str, ...]:
        if given == "all":
            return EVERY
        listed = [given] if isinstance(given, str) else given
        orders = tuple(" > ".join(str(order).replace(">", " ").split()) for order in listed)
        for order in orders:
            if order not in EVERY:
                raise ConfigError(f"There is no order '{order}' of DS, LD and MW.", nearest(order, EVERY))
        return (BASE, *(order for order in dict.fromkeys(orders) if order != BASE))


QUICK = DigitStudyConfig(
    iid=PartitionSettings(rounds=2, learning_rate=0.1),
    shards=PartitionSettings(rounds=2, learning_rate=0.1),
    federation=DigitFederation(clients=4, asked=2, local_epochs=1, pictures=240),
)


def recipe(source: str) -> dict[str, Any]:
    """Return the data and what is run of the study."""
    return {"data": {"source": source}, "study": DigitStudyConfig().model_dump(mode="json")}


@reproduction(
    "criteria-mnist",
    "Criteria on MNIST",
    "Ferrara's thesis (2022), tables 5.1 to 5.4, figure 5.1",
    ("mnist",),
    recipe,
    1,
)
def digits_study(setup: StudySetup) -> StudyResult:
    """Rounds until 10 to 90 % of devices reach 70, 80, 90 and 95 % accuracy, IID and in two shards."""
    torch()
    if setup.name != "mnist":
        raise DataError("criteria-mnist classifies digits: it needs mnist.", "Fetch it with `tacit data get mnist`.")
    study = QUICK if setup.quick else DigitStudyConfig.from_options(setup.base["study"], "study")
    pictures = load_images("mnist")
    assert isinstance(pictures, Digits)
    rows: list[PublishedRow] = []
    sheets: list[Sheet] = []
    figures: dict[str, Figure] = {}
    detail: dict[str, Any] = {"study": study.model_dump(mode="json")}
    is_thesis = study.federation == DigitFederation() and not setup.quick
    for partition, part in (("iid", study.iid), ("shards", study.shards)):
        curves = []
        for order, seed in product(study.orders, setup.seeds) if part.rounds else ():
            run = DigitRun(partition, order, part.learning_rate, study.federation, Key(seed))
            kept = FederationLog.of(setup.choices.parent / "reproduce-rounds", run)
            curves.append(train_federation(pictures, run, part.rounds, kept, setup.progress))
        if curves:
            rows += _rows(partition, curves, is_thesis)
            sheets += _sheets(partition, curves, is_thesis)
            figures[f"accuracy-{partition}"] = _draw(curves)
            detail[partition] = [
                {"order": one.order, "seed": one.seed, "accuracy": one.overall, "seconds": one.seconds}
                for one in curves
            ]
    return StudyResult(rows, sheets, figures, _notes(study, setup), detail)


def _notes(study: DigitStudyConfig, setup: StudySetup) -> list[str]:
    left_out = [order for order in EVERY if order not in study.orders]
    size = study.federation
    ran = ", ".join(
        f"{NAMES[name]}: {part.rounds} rounds at learning rate {part.learning_rate:g}"
        for name, part in (("iid", study.iid), ("shards", study.shards))
    )
    return [
        *(["Quick: it only shows that it runs."] if setup.quick else []),
        f"{size.clients} clients, {size.asked} per round, {size.local_epochs} local epochs, "
        f"{len(setup.seeds)} seed(s), "
        f"{size.pictures:,} pictures to learn from at most. {ran}; "
        "'–': not within them. The thesis runs up to 1,000 rounds.",
        *(
            [f"Not run: {', '.join(left_out)}. Ask for them with --set 'study.orders=[...]' or all."]
            if left_out
            else []
        ),
        *([f"Judged by {size.judged} pictures."] if size.judged != "test" else []),
    ]


def _rows(partition: str, curves: Sequence[Curve], is_thesis: bool) -> list[PublishedRow]:
    rows = []
    for order in dict.fromkeys(curve.order for curve in curves):
        mine = [curve for curve in curves if curve.order == order]
        for target in TARGETS:
            known = printed.rounds(partition, order, target) if is_thesis else (None,) * len(SHARES)
            for share, published in zip(SHARES, known, strict=True):
                found = [curve.until(target, share / 100) for curve in mine]
                metric = f"{NAMES[partition]}: rounds until {share} % have {target:.0%}"
                values = [float(r) for r in found if r is not None]
                rows.append(PublishedRow.of(order, metric, values, None if published is None else float(published)))
        rows.append(
            PublishedRow.of(order, f"{NAMES[partition]}: accuracy at the end", [one.overall[-1] for one in mine])
        )
    return rows


def _sheets(partition: str, curves: Sequence[Curve], is_thesis: bool) -> list[Sheet]:
    name, sheets = NAMES[partition], []
    for target in TARGETS:
        lines = []
        for curve, label in _label(curves):
            lines.append([label, *(_cell(curve.until(target, share / 100)) for share in SHARES)])
            if is_thesis and curve.seed == curves[0].seed:
                known = printed.rounds(partition, curve.order, target)
                lines.append([f"{curve.order}, published", *map(_cell, known)])
        title = f"{name}: rounds until so many devices have an accuracy of {target:.0%}"
        sheets.append(Sheet(title, ["order", *(f"{share} %" for share in SHARES)], lines))
    columns = ["order", "accuracy at the end", "best", "in round", "weights from", "to"]
    lines = []
    for curve, label in _label(curves):
        factors = np.array(curve.weights) * len(curve.weights[0])
        best = [f"{curve.overall[curve.best]:.4f}", str(curve.best + 1)]
        lines.append([label, f"{curve.overall[-1]:.4f}", *best, f"{factors.min():.3f}", f"{factors.max():.3f}"])
    sheets.append(Sheet(f"{name}: accuracy over all devices, and weights (1: all alike)", columns, lines))
    return [*sheets, *_find_confused(partition, curves, is_thesis)]


def _label(curves: Sequence[Curve]) -> list[tuple[Curve, str]]:
    several = len({curve.seed for curve in curves}) > 1
    return [(curve, f"{curve.order}, seed {curve.seed}" if several else curve.order) for curve in curves]


def _find_confused(partition: str, curves: Sequence[Curve], is_thesis: bool) -> list[Sheet]:
    """Return which pictures DS and each other curve got wrong, each in its best round."""
    base, lines = curves[0], []
    for curve, label in _label(curves)[1:]:
        wrong, other = ~base.right[base.best], ~curve.right[curve.best]
        counts = [(wrong & other).sum(), (wrong & ~other).sum(), (~wrong & other).sum(), (~wrong & ~other).sum()]
        lines.append([label, *(str(int(count)) for count in counts)])
        if is_thesis and (partition, curve.order) in printed.CONFUSED and curve.seed == base.seed:
            lines.append([f"{curve.order}, published", *map(str, printed.CONFUSED[partition, curve.order])])
    columns = ["order", "both wrong", f"only {BASE} wrong", "only this one wrong", "both right"]
    title = f"{NAMES[partition]}: pictures in the best round of {BASE} and of another"
    return [Sheet(title, columns, lines)] if lines else []


def _cell(rounds: int | None) -> str:
    return "–" if rounds is None else str(rounds)


def _draw(curves: Sequence[Curve]) -> Figure:
    named = _label(curves)
    with report_style():
        figure, (axes,) = new_figure(3.4)
        marks = line_styles([label for _, label in named])
        for curve, label in named:
            after = np.arange(1, len(curve.right) + 1)
            axes.plot(after, curve.overall, **{**marks[label].line, "markersize": 0})
        percent_axis(axes.yaxis)
        axes.set_xlabel("rounds")
        axes.set_ylabel("accuracy over all devices")
        ends = [(float(len(curve.right)), curve.overall[-1]) for curve, _ in named]
        name_ends(figure, axes, ends, [(label, marks[label].colour) for _, label in named])
        return figure
