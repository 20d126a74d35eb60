"""The commands for research: tune, reproduce, audit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import app as shell
from tacit.cli.app import Again, ExperimentOptions, Jobs, Json, Out, Set, Threads, app, with_threads
from tacit.cli.arguments import check_exists, takes
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.studies import ReproductionResult


@app.command(epilog="Example: tacit tune examples/search.yaml --set trials=4")
def tune(
    file: Annotated[
        Path,
        typer.Argument(callback=check_exists, help="An experiment in YAML with a 'search:' section: option -> values."),
    ],
    settings: Set = [],  # noqa: B006
    threads: Threads = None,
    out: Out = Path("runs"),
    jobs: Jobs = 1,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Tune options on the validation part, never on the test part, and write the best to best.yaml."""
    from tacit.config import read_config
    from tacit.lab.jobs import JobsConfig
    from tacit.lab.trials import describe_settings
    from tacit.lab.tuning import Tuning
    from tacit.lab.tuning import tune as search
    from tacit.studies.sheets import format_cell

    tuning = read_config(Tuning, file, with_threads(settings, threads))
    tuned = search(tuning, out, shell.screen.progress, jobs=JobsConfig.of(jobs, tuning.runtime, again))
    shell.screen.close()
    shell.screen.document(tuned.as_json())
    names = list(tuned.best.settings)
    rows = [
        [
            *(str(trial.settings[name]) for name in names),
            trial.outcome or format_cell(trial.value),
            str(trial.passes or "–"),
            f"{trial.seconds:.1f}",
        ]
        for trial in tuned.rank()
    ]
    columns = [*(name.split(".")[-1] for name in names), f"{tuned.primary} on validation", "passes", "seconds"]
    shell.screen.table(f"{tuned.data}: {len(tuned.trials)} trials", columns, rows)
    for trial in tuned.trials:
        if trial.failed:
            shell.screen.say(f"· {describe_settings(trial.settings)} failed: {trial.problem}")
    shell.say_reused(tuned.reused, "trials")
    if tuned.privacy is not None:
        shell.screen.say(
            f"Chosen: {describe_settings(tuned.best.settings)}. The search cost epsilon "
            f"{tuned.privacy['epsilon_server']:.3g} at delta {tuned.privacy['delta']:.2g}."
        )
    for note in tuned.notes:
        shell.screen.say(f"· {note}")
    assert tuned.folder is not None
    shell.screen.say(f"\nTo train the best on the validation part too: tacit run {tuned.folder / 'best.yaml'}")


@dataclass(frozen=True)
class ReproduceOptions:
    """The arguments of `tacit reproduce`."""

    name: Annotated[str | None, typer.Argument(help="Name of a table or figure; without it, all are listed.")] = None
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset by name, or your own file.")] = None
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each method; default: as in the recipe.")] = None
    quick: Annotated[bool, typer.Option("--quick", help="Fixed options and few passes: a trial run.")] = False
    settings: Set = field(default_factory=list)
    out: Out = Path("runs")
    jobs: Jobs = 1
    as_json: Json = False


@app.command(epilog="Example: tacit reproduce fpl-accuracy --data ml-1m --seeds 3")
@takes(ReproduceOptions)
def reproduce(options: ReproduceOptions) -> None:
    """Reproduce a published table or figure: the published values beside ours, on the paper's datasets."""
    from tacit.config import parse_overrides
    from tacit.lab.jobs import JobsConfig
    from tacit.studies import plan_studies, reproductions

    if options.name is None:
        known = reproductions().values()
        listed = [{"name": r.name, "title": r.title, "source": r.source, "datasets": r.datasets} for r in known]
        shell.screen.document({"reproductions": listed})
        shell.screen.table("", ["name", "what", "published in"], [[r.name, r.title, r.source] for r in known])
        return
    planned = plan_studies(
        options.name,
        options.data,
        seeds=options.seeds,
        quick=options.quick,
        settings=parse_overrides(options.settings),
        out=options.out,
        progress=shell.screen.progress,
    )
    made = []
    for study in planned:
        if (seconds := study.estimate()) is not None:
            shell.screen.close()
            shell.screen.say(f"{study.setup.name}: this takes at most about {_in_words(seconds)} on this machine.")
        made.append(replace(study, jobs=JobsConfig(options.jobs)).run())
    shell.screen.close()
    shell.screen.document(_together(options.name, made))
    for one in made:
        _show(one)


@dataclass(frozen=True)
class AuditOptions(ExperimentOptions):
    """The arguments of `tacit audit`."""

    seed: Annotated[int | None, typer.Option(help="The seed of noise and coins.")] = None
    canaries: Annotated[int, typer.Option(min=10, help="Canaries in a run, each with an item of its own.")] = 500
    runs: Annotated[int, typer.Option(min=1, help="Runs with new noise; their guesses are counted together.")] = 1
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999999, help="With which the lower bound holds.")] = 0.999
    as_json: Json = False


BOUNDS = {"any_mechanism": "any mechanism", "gaussian_noise": "noise independent in every number"}


@app.command(epilog="Example: tacit audit --method dp-svd --data town --set 'privacy=[{name: dp, epsilon: 2}]'")
@takes(AuditOptions)
def audit(options: AuditOptions) -> None:
    """Audit a guarantee: train with canaries and measure a lower bound of epsilon beside the ledger's."""
    if options.file is None and options.method is None:
        raise ConfigError(
            "Neither a file nor a method is given.", "Give a YAML file, or --method NAME (and --data NAME)."
        )
    from tacit.lab.auditing import AuditConfig
    from tacit.lab.auditing import audit as measure
    from tacit.lab.experiments import prepare_data
    from tacit.methods.base import build_federated
    from tacit.privacy.dp import DPConfig
    from tacit.random import Key

    experiment = options.experiment()
    stages = experiment.stages
    if len(stages) != 1 or not isinstance(stages[0], DPConfig):
        raise ConfigError(
            "An audit needs the privacy stage 'dp', and no other.", "Add --set 'privacy=[{name: dp, epsilon: 2}]'."
        )
    prepared = prepare_data(experiment, progress=shell.screen.progress)
    shell.screen.progress("training with canaries", 0, 0)
    method = build_federated(experiment.method.name, experiment.method.options)
    found = measure(
        method,
        prepared.parts.train,
        prepared.parts.catalog,
        Key(experiment.seed).child("learn"),
        experiment.runtime,
        stages[0],
        AuditConfig(options.canaries, options.runs, options.confidence),
    )
    shell.screen.close()
    shell.screen.document({"method": experiment.method.name, "data": prepared.name, **found.to_dict()})
    rows = [
        ["epsilon by the ledger", f"{found.epsilon_server:.3f}"],
        *([f"lower bound, {BOUNDS[name]}", f"{bound:.3f}"] for name, bound in found.bounds.items()),
        ["right guesses", f"{found.right:,} of {found.canaries:,}"],
        ["the meter's AUC (0.5 is chance)", f"{found.exposure.auc:.3f}"],
        ["named with 90 % certainty", f"{found.exposure.named:,} of {found.exposure.items:,}"],
        ["delta", f"{found.delta:.3g}"],
        ["noisy sums in a run", str(found.rounds)],
    ]
    shell.screen.table(f"{prepared.name}: {experiment.method.name}", ["", "audit"], rows)
    confidence = f"with confidence {found.confidence:g}"
    if found.ok:
        shell.screen.say(f"Nothing was found against the ledger ({confidence}). That proves no guarantee.")
    else:
        shell.screen.say(f"The guarantee does not hold ({confidence}): sums tell more than the ledger says.")
        raise typer.Exit(1)


def _in_words(seconds: float) -> str:
    """Return a time as people say it.

    >>> _in_words(40), _in_words(600), _in_words(9000)
    ('1 minute', '10 minutes', '2.5 hours')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes / 60:.1f} hours" if minutes >= 90 else f"{minutes} minute{'s' if minutes > 1 else ''}"


def _together(name: str, made: list[ReproductionResult]) -> dict[str, Any]:
    """Return one document for the results on one dataset or on several."""
    documents = [one.as_json() for one in made]
    return {
        "name": name,
        "data": ", ".join(document["data"] for document in documents),
        "rows": [row for document in documents for row in document["rows"]],
        "seconds": sum(document["seconds"] for document in documents),
        "folders": [str(one.folder) for one in made],
    }


def _show(one: ReproductionResult) -> None:
    for sheet in one.found.sheets:
        shell.screen.table(f"{one.data}: {sheet.title}", sheet.columns, sheet.lines)
    for note in one.found.notes:
        shell.screen.say(f"· {note}")
    shell.screen.say(f"\nTables and figures: {one.folder}")
