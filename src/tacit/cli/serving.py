"""The commands that make a model to serve: fit, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app
from tacit.cli.arguments import existing


@app.command(epilog="Example: tacit fit runs/town-ease-42-1a2b3c4d --out model")
def fit(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", callback=existing, help="A run folder, or an experiment in YAML.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the model; `tacit recommend` reads it.")],
    as_json: Json = False,
) -> None:
    """Fit on everything: train the method of a run on all interactions, held-out ones too, for serving."""
    from tacit.config import Experiment, read_config
    from tacit.lab.fitting import fit as fit_everything
    from tacit.report.folder import Run, whole_folder

    _refuse_full(out)
    experiment = Run.open(source) if source.is_dir() else read_config(Experiment, source)
    model = fit_everything(experiment, progress=shell.screen.progress)
    shell.screen.close()
    with whole_folder(out) as partial:
        model.save(partial)
    document = {"model": str(out), "method": model.name, "people": len(model.clients), "items": model.catalog.n_items}
    shell.screen.document({**document, "interactions": len(model.clients.items)})
    shell.screen.say(
        f"{model.name} has learnt from all {len(model.clients.items):,} interactions of {len(model.clients):,} people."
    )
    shell.screen.say(f"Model: {out}\nTry: tacit recommend {out} --user {model.user_ids[0]}")


@app.command(epilog="Example: tacit export model --out exported")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", callback=existing, help="A run folder, or a model of `tacit fit`.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the matrix, the items and the scorers.")],
    as_json: Json = False,
) -> None:
    """Export a model that scores from a history: a matrix, and scorers in Python and JavaScript without Tacit."""
    from tacit.report.folder import open_recommender
    from tacit.serving.export import export as write_matrix

    _refuse_full(out)
    about = write_matrix(open_recommender(folder), out)
    shell.screen.document({**about, "folder": str(out)})
    shell.screen.say(f"{about['method']} of {about['n_items']:,} items: {out}")
    shell.screen.say(f"Try: python {out / 'scorer.py'} {out} 10 ITEM ITEM")


def _refuse_full(out: Path) -> None:
    """Refuse a folder that already holds something, or cannot be made."""
    from tacit.errors import StorageError
    from tacit.report.folder import check_writable

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"'{out}' already exists and is not empty.", "Give another folder with --out.")
    check_writable(out.parent)
