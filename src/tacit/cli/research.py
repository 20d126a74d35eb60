"""The commands for research: tune, reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, Out, Set, Threads, app, with_threads
from tacit.cli.arguments import existing

if TYPE_CHECKING:
    from tacit.studies import ReproductionResult


@app.command(epilog="Example: tacit tune examples/search.yaml --set trials=4")
def tune(
    file: Annotated[
        Path,
        typer.Argument(callback=existing, help="An experiment in YAML with a 'search:' section: option -> values."),
    ],
    settings: Set = [],  # noqa: B006
    threads: Threads = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Tune options on the validation part, never on the test part, and write the best to best.yaml."""
    from tacit.config import read_config
    from tacit.lab.tuning import Tuning
    from tacit.lab.tuning import tune as search
    from tacit.studies.sheets import format_cell

    tuned = search(read_config(Tuning, file, with_threads(settings, threads)), out, shell.screen.progress)
    shell.screen.close()
    shell.screen.document(tuned.as_json())
    names = list(tuned.best.settings)
    rows = [
        [
            *(str(trial.settings[name]) for name in names),
            "diverged" if trial.diverged else format_cell(trial.value),
            str(trial.passes or "–"),
            f"{trial.seconds:.1f}",
        ]
        for trial in tuned.rank()
    ]
    columns = [*(name.split(".")[-1] for name in names), f"{tuned.primary} on validation", "passes", "seconds"]
    shell.screen.table(f"{tuned.data}: {len(tuned.trials)} trials", columns, rows)
    assert tuned.folder is not None
    shell.screen.say(f"\nTo train the best on the validation part too: tacit run {tuned.folder / 'best.yaml'}")


@app.command(epilog="Example: tacit reproduce fpl-accuracy --data ml-1m --seeds 3")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Name of a table or figure; without it, all are listed.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset by name, or your own file.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each method; default: as in the recipe.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fixed options and few passes: a trial run.")] = False,
    settings: Set = [],  # noqa: B006
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Reproduce a published table or figure: the published values beside ours, on the paper's datasets."""
    from tacit.config import parse_overrides
    from tacit.studies import reproduce as make
    from tacit.studies import reproductions

    if name is None:
        known = reproductions().values()
        listed = [{"name": r.name, "title": r.title, "source": r.source, "datasets": r.datasets} for r in known]
        shell.screen.document({"reproductions": listed})
        shell.screen.table("", ["name", "what", "published in"], [[r.name, r.title, r.source] for r in known])
        return
    made = make(
        name,
        data,
        seeds=seeds,
        quick=quick,
        settings=parse_overrides(settings),
        out=out,
        progress=shell.screen.progress,
    )
    shell.screen.close()
    shell.screen.document(_together(name, made))
    for one in made:
        _show(one)


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
