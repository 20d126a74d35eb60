"""The commands of models that serve: recommend, fit, export."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app
from tacit.cli.arguments import check_exists, takes

if TYPE_CHECKING:
    from tacit.serving.lists import ListFilter
    from tacit.serving.recommender import Recommender
    from tacit.types import Catalog

MOST_COMMAS = 3  # in a title


@dataclass(frozen=True)
class RecommendOptions:
    """The arguments of `tacit recommend`."""

    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model of `tacit fit`.")]
    user: Annotated[str | None, typer.Option(help="The id of a user in the data.")] = None
    history: Annotated[
        list[str],
        typer.Option(
            "--history", help="An item (id or title) of somebody who is not in the data; repeat it, the oldest first."
        ),
    ] = field(default_factory=list)
    items: Annotated[
        str | None, typer.Option("--items", help="The same as one list of ids or titles, the oldest item first: a,b,c.")
    ] = None
    all_users: Annotated[bool, typer.Option("--all", help="Lists of all users, into the file of --out.")] = False
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Length of the list.")] = 10
    exclude: Annotated[list[str], typer.Option("--exclude", help="An item that is not listed.")] = field(
        default_factory=list
    )
    only: Annotated[list[str], typer.Option("--only", help="An item that may be listed; no others are.")] = field(
        default_factory=list
    )
    category: Annotated[list[str], typer.Option("--category", help="List items of this category only.")] = field(
        default_factory=list
    )
    out: Annotated[
        Path | None, typer.Option("--out", help="With --all: a file .tsv, .csv, .parquet, .jsonl or .trec.")
    ] = None
    as_json: Json = False

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if (self.user is not None) + bool(self.history) + (self.items is not None) + self.all_users != 1:
            raise click.UsageError(
                "It is not clear for whom: give one of --user ID, --history ITEM, --items A,B and --all."
            )
        if self.all_users != (self.out is not None):
            raise click.UsageError("--all and --out go together: write --all --out lists.tsv.")

    def new_history(self, catalog: Catalog) -> list[str]:
        """Return the items of a new user, the oldest first; a title may have commas of its own."""
        if self.items is None:
            return self.history
        parts, found = [item.strip() for item in self.items.split(",") if item.strip()], list[str]()
        while parts:
            sizes = range(min(len(parts), MOST_COMMAS + 1), 0, -1)
            size = next((n for n in sizes if catalog.find(", ".join(parts[:n])) is not None), 1)
            found.append(", ".join(parts[:size]))
            parts = parts[size:]
        return found

    def filter(self) -> ListFilter:
        """Return which items may be listed."""
        from tacit.serving.lists import ListFilter

        return ListFilter(tuple(self.exclude), tuple(self.only) or None, tuple(self.category))


@app.command(epilog="Example: tacit recommend runs/town-ease-42-1a2b3c4d --user 7 -k 5")
@takes(RecommendOptions)
def recommend(options: RecommendOptions) -> None:
    """Show the best recommendations for a user, with explanations; or write those of all users to a file."""
    from tacit.report.folder import open_recommender

    options.check()
    model = open_recommender(options.folder)
    if options.out is not None:
        _write_all(model, options, options.out)
        return
    found = (
        model.recommend(options.user, options.k, options.filter())
        if options.user is not None
        else model.recommend_for(options.new_history(model.catalog), options.k, options.filter())
    )
    whom = {"user": options.user} if options.user is not None else {"history": options.new_history(model.catalog)}
    rows = [asdict(one) for one in found]
    shell.screen.document({"run": str(options.folder), **whom, "recommendations": rows, "notices": list(found.notices)})
    table = [[str(i), f"{r.title}", f"{r.score:.3f}", r.why] for i, r in enumerate(found, 1)]
    shell.screen.table(f"For {options.user or 'this history'}", ["", "item", "score", "why"], table)
    for notice in found.notices:
        shell.screen.say(f"· {notice}")


def _write_all(model: Recommender, options: RecommendOptions, out: Path) -> None:
    """Write the lists of all users."""
    from tacit.serving.lists import check_ending, write_lists

    check_ending(out)
    lists = model.recommend_all(k=options.k, among=options.filter())
    write_lists(lists, out)
    users = lists["user"].n_unique()
    shell.screen.document({"run": str(options.folder), "file": str(out), "users": users, "rows": len(lists)})
    shell.screen.say(f"{len(lists):,} recommendations for {users:,} users: {out}")


@app.command(epilog="Example: tacit fit runs/town-ease-42-1a2b3c4d --out model")
def fit(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", callback=check_exists, help="A run folder, or an experiment in YAML.")
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
    document = {"model": str(out), "method": model.name, "users": len(model.clients), "items": model.catalog.n_items}
    shell.screen.document({**document, "interactions": len(model.clients.items)})
    shell.screen.say(
        f"{model.name} has learnt from all {len(model.clients.items):,} interactions of {len(model.clients):,} users."
    )
    try_it = shlex.join(["tacit", "recommend", str(out), "--user", str(model.user_ids[0])])
    shell.screen.say(f"Model: {out}\nTry: {try_it}")


@app.command(epilog="Example: tacit export model --out exported")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", callback=check_exists, help="A run folder, or a model of `tacit fit`.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the matrix, the items and the scorers.")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write model.onnx for ONNX runtimes instead; needs the extra 'onnx'.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export a model that scores from a history: a matrix, and scorers in Python and JavaScript without Tacit."""
    from tacit.report.folder import open_recommender
    from tacit.serving.export import export as write_matrix
    from tacit.serving.onnx_export import export_onnx

    _refuse_full(out)
    about = (export_onnx if onnx else write_matrix)(open_recommender(folder), out)
    shell.screen.document({**about, "folder": str(out)})
    shell.screen.say(f"{about['method']} of {about['n_items']:,} items: {out}")
    if onnx:
        shell.screen.say(f"Input of {out / 'model.onnx'}: {about['input']}, one row for each user. Output: scores.")
    else:
        shell.screen.say(f"Try: {shlex.join(['python', str(out / 'scorer.py'), str(out), '10', 'ITEM', 'ITEM'])}")


def _refuse_full(out: Path) -> None:
    """Refuse a folder that already holds something, or cannot be made."""
    from tacit.errors import StorageError
    from tacit.report.folder import check_writable

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"'{out}' already exists and is not empty.", "Give another folder with --out.")
    check_writable(out.parent)
