"""What a reproduction is, the registry that finds them, and the folder each leaves behind.

A file of this folder holds one paper: its printed numbers, and recipes registered with `@reproduction`.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data import SOURCES, datasets
from tacit.errors import ConfigError, nearest
from tacit.lab.experiments import silent
from tacit.lab.jobs import ONE_AT_A_TIME, JobsConfig
from tacit.report.figures import save_figures
from tacit.report.folder import environment, whole_folder, write_json
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet
from tacit.types import Progress, notice_former_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUILT_IN = "town"
FORMER_NAMES = {"robust-liars": "robust-adversaries"}  # of studies; the old name works for one version


@dataclass(frozen=True)
class StudyResult:
    """What a recipe found on one dataset."""

    rows: Sequence[PublishedRow]
    sheets: Sequence[Sheet]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)  # choices and curves, for result.json


@dataclass(frozen=True)
class Reproduction:
    """A published table or figure, and the recipe that makes it again."""

    name: str
    title: str
    source: str
    datasets: tuple[str, ...]  # those of the paper
    seeds: int  # runs of each method, unless told otherwise
    recipe: Callable[[str], Mapping[str, Any]]  # dataset -> data, split and evaluation of an experiment
    make: Callable[[StudySetup], StudyResult]
    estimate: Callable[[StudySetup], float] | None = None  # seconds that it takes at most, if that can be told


@dataclass(frozen=True)
class ReproductionResult:
    """A reproduction on one dataset."""

    name: str
    data: str
    found: StudyResult
    seconds: float
    folder: Path

    def as_json(self) -> dict[str, Any]:
        """Return what `result.json` holds."""
        rows = [{**asdict(row), "data": self.data} for row in self.found.rows]
        return {"name": self.name, "data": self.data, "rows": rows, "seconds": self.seconds}


_REGISTRY: dict[str, Reproduction] = {}
Recipe = Callable[[StudySetup], StudyResult]


def reproduction(
    name: str,
    title: str,
    source: str,
    datasets: tuple[str, ...],
    recipe: Callable[[str], Mapping[str, Any]],
    seeds: int = 3,
    estimate: Callable[[StudySetup], float] | None = None,
) -> Callable[[Recipe], Recipe]:
    """Register a recipe under a name."""

    def add(make: Recipe) -> Recipe:
        _REGISTRY[name] = Reproduction(name, title, source, datasets, seeds, recipe, make, estimate)
        return make

    return add


@cache
def reproductions() -> dict[str, Reproduction]:
    """Return every reproduction by name; the files of this folder are read once."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


@dataclass(frozen=True)
class PlannedStudy:
    """A reproduction on one dataset, before it runs."""

    chosen: Reproduction
    setup: StudySetup
    out: Path
    jobs: JobsConfig = ONE_AT_A_TIME  # how many trials and seeds run side by side

    def estimate(self) -> float | None:
        """Return about how many seconds it takes at most on this machine; None if that is not known, or it is quick."""
        return None if self.chosen.estimate is None or self.setup.quick else self.chosen.estimate(self.setup)

    def run(self) -> ReproductionResult:
        """Make the table or figure, and write its folder."""
        self.setup.jobs = self.jobs
        started = time.perf_counter()
        found = self.chosen.make(self.setup)
        name, data = self.chosen.name, self.setup.name
        folder = self.out / f"reproduce-{name}-{data}"
        result = ReproductionResult(name, data, found, round(time.perf_counter() - started, 1), folder)
        _write(result, self.chosen, self.setup)
        return result


def plan_studies(
    name: str,
    data: str | None = None,
    *,
    seeds: int | None = None,
    quick: bool = False,
    settings: Mapping[str, Any] | None = None,
    out: Path = Path("runs"),
    progress: Progress = silent,
) -> list[PlannedStudy]:
    """Return what `reproduce` would run, one study for each dataset."""
    known = reproductions()
    if name in FORMER_NAMES:
        notice_former_name(name, FORMER_NAMES[name])
        name = FORMER_NAMES[name]
    if name not in known:
        raise ConfigError(f"There is no reproduction '{name}'.", nearest(name, known))
    chosen = known[name]
    setups = [
        StudySetup(
            source,
            chosen.recipe(source),
            settings or {},
            seeds=seeds or (1 if quick else chosen.seeds),
            quick=quick,
            choices=out / "reproduce-choices",
            progress=progress,
        )
        for source in ([data] if data is not None else present(chosen))
    ]
    return [PlannedStudy(chosen, setup, out) for setup in setups]


def reproduce(name: str, data: str | None = None, jobs: int = 1, **how: Any) -> list[ReproductionResult]:
    """Make a published table or figure again, on one dataset or on all of the paper's that are at hand.

    Options are those of `plan_studies`. `quick` takes fixed options, few passes and one seed: it shows that everything
    runs, not what the method can do. `settings` override the recipe (`{"data.min_per_user": 5}`).
    """
    return [replace(study, jobs=JobsConfig(jobs)).run() for study in plan_studies(name, data, **how)]


def present(chosen: Reproduction) -> list[str]:
    """Return the paper's datasets that need no download; the built-in town if there is none."""
    here = {status.name for status in datasets() if status.state in ("here", "cached")}
    return [name for name in chosen.datasets if name in here and name in SOURCES] or [BUILT_IN]


def _write(result: ReproductionResult, chosen: Reproduction, setup: StudySetup) -> None:
    found = result.found
    with whole_folder(result.folder) as partial:
        document = result.as_json() | {
            "source": chosen.source,
            "seeds": list(setup.seeds),
            "quick": setup.quick,
            "notes": list(found.notes),
            "detail": found.detail,
            "recipe": setup.base,
            "environment": environment(),
        }
        write_json(partial / "result.json", document)
        head = [f"# {chosen.title}: {result.data}", "", f"{chosen.source}."]
        tables = [text for sheet in found.sheets for text in ("", sheet.markdown())]
        notes = ["", *(f"* {note}" for note in found.notes)] if found.notes else []
        (partial / "table.md").write_text("\n".join([*head, *tables, *notes]) + "\n", encoding="utf-8")
        save_figures(found.figures, partial)
