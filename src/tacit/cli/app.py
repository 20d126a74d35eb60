"""The verbs: demo, data, run, compare, recommend, methods, doctor; `research`, `device` and `field` add theirs."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from tacit.cli.doctor import examine
from tacit.cli.screen import Screen
from tacit.errors import ConfigError, StorageError, TacitError

if TYPE_CHECKING:
    from tacit.report.compared import Compared

app = typer.Typer(
    name="tacit",
    help="Recommendations that learn from people without collecting what they did.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(no_args_is_help=True, help="The datasets: which there are, get one, look into one.")
app.add_typer(data_app, name="data")

screen = Screen()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Out = Annotated[Path, typer.Option("--out", help="Folder that receives the run folders.")]
Set = Annotated[list[str], typer.Option("--set", help="Override an option, e.g. --set method.reg=300.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads that rank and measure; the numbers do not depend on it.")
]
STOPPED = 130  # as a shell counts a command that Ctrl-C ended; typer turns the interrupt into it too
DEMO = Path(__file__).parent / "demo.yaml"


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"tacit {version('tacit')}")
        raise typer.Exit


@app.callback()
def _whole(
    version_wanted: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and exit.")
    ] = False,
) -> None:
    """Recommendations that learn from people without collecting what they did."""


@app.command(epilog="Example: tacit demo")
def demo(
    out: Out = Path("runs"),
    page: Annotated[bool, typer.Option("--page", help="Open a person's page in the town instead.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free one.")] = 0,
    as_json: Json = False,
) -> None:
    """Take the tour: several methods on the built-in town, a table and a report. No download."""
    if page:
        from tacit.cli.pages import town_page

        town_page(port)
        return
    screen.say("A town of 1,000 people and 800 places, generated from a seed. Who recommends the next place best?\n")
    best = _compare(DEMO, [], out, None).best.runs[0].folder
    called = "tacit" if shutil.which("tacit") else os.path.relpath(sys.argv[0])
    screen.say(
        "\nNext: open the report in a browser, then try (a run also learns from the validation part set aside above)"
    )
    for line in ("data list", "run --method ease --data town", f"recommend {best} --user 7"):
        screen.say(f"  {called} {line}")


@app.command(epilog="Example: tacit run --method ease --data ml-1m --set method.reg=500 --repeat 3")
def run(
    file: Annotated[Path | None, typer.Argument(help="An experiment in YAML; options below override it.")] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="A method by name.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset by name, or a file of your own.")] = None,
    settings: Set = [],  # noqa: B006
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How many seeds, one after the other.")] = 1,
    threads: Threads = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run one experiment and write its folder."""
    from tacit.comparisons import run_repeatedly
    from tacit.config import Experiment, overridden, parsed, read
    from tacit.report.page import write_report

    chosen = {"method": method, "data": data, "seed": seed}
    shortcuts = {key: value for key, value in chosen.items() if value is not None}
    if threads is not None:
        settings = [*settings, f"runtime.threads={threads}"]
    if file is not None:
        base = read(Experiment, file).model_dump(mode="json")
        given = {**base, **{k: v for k, v in shortcuts.items() if k == "seed"}}
        if method is not None:
            given["method"] = {"name": method}
        if data is not None:
            given["data"] = {**base["data"], "source": data}
    else:
        if method is None:
            raise ConfigError("There is nothing to run.", "Give a YAML file, or --method NAME (and --data NAME).")
        given = {**shortcuts, **({"data": {"source": data}} if data else {})}
    experiment = Experiment.checked(overridden(given, parsed(settings)), str(file or "the command line"))
    compared = run_repeatedly(experiment, repeat, out, screen.progress)
    screen.close()
    row = compared.rows[0]
    for single in row.runs:
        assert single.folder is not None
        write_report(compared, single.folder / "report.html")
    document: dict[str, Any] = dict(row.runs[0].result)
    if repeat > 1:
        costs = ("train_seconds", "evaluate_seconds", "bytes_up", "bytes_down", "peak_mb")
        document |= {"metrics": row.metrics, "sd": row.sd, "ci": row.ci, "seeds": [r.result["seed"] for r in row.runs]}
        document |= {cost: row.mean(cost) for cost in costs}
        leaks = [r.result["leak"] for r in row.runs if r.result["leak"] and not r.result["leak"]["ok"]]
        document |= {"leak": (leaks or [row.runs[0].result["leak"]])[0], "runs": [r.result["run"] for r in row.runs]}
    screen.document(document)
    _show(compared)
    for note in row.runs[0].result["notes"]:
        screen.say(f"· {note}")
    screen.say(f"\nRun folder: {row.runs[0].folder}")


@app.command(epilog="Example: tacit compare examples/baselines.yaml --set data.source=ml-100k")
def compare(
    file: Annotated[Path, typer.Argument(help="A comparison in YAML: the methods, the data, the protocol.")],
    settings: Set = [],  # noqa: B006
    threads: Threads = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run many methods under one protocol: table, significance, figures and an HTML report."""
    _compare(file, settings, out, threads)


@app.command(epilog="Example: tacit recommend runs/town-ease-42-1a2b3c4d --user 7 -k 5")
def recommend(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    user: Annotated[str, typer.Option(help="The person, by the id in the data.")],
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many.")] = 10,
    as_json: Json = False,
) -> None:
    """Show the top of a person's list, with reasons."""
    from tacit.report.folder import Run

    found = Run.open(folder).recommend(user, k)
    rows = [{"item": r.item, "title": r.title, "score": r.score, "why": r.why} for r in found]
    screen.document({"run": str(folder), "user": user, "recommendations": rows})
    table = [[str(i), f"{r.title}", f"{r.score:.3f}", r.why] for i, r in enumerate(found, 1)]
    screen.table(f"For {user}", ["", "item", "score", "why"], table)


@data_app.command("list", epilog="Example: tacit data list")
def data_list(as_json: Json = False) -> None:
    """List the named datasets: at hand, to be downloaded, or to be asked for."""
    from tacit.data import datasets

    known = datasets()
    screen.document({"datasets": [asdict(status) for status in known]})
    rows = [[status.name, status.state, status.title, status.licence] for status in known]
    screen.table("", ["name", "state", "what", "licence"], rows)


@data_app.command("get", epilog="Example: tacit data get ml-100k")
def data_get(name: str, as_json: Json = False) -> None:
    """Download a dataset from its official home, check it and keep it."""
    from tacit.data import fetch

    place = fetch(name, lambda done, total: screen.progress(f"getting {name}", done, total or 0))
    screen.close()
    screen.document({"name": name, "folder": str(place.folder)})
    screen.say(f"{name} is in {place.folder}")


@data_app.command("info", epilog="Example: tacit data info mine.csv")
def data_info(
    source: Annotated[str, typer.Argument(help="A dataset by name, or a file.")],
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Say what is in a dataset, and what its columns were taken for."""
    from tacit.config import overridden, parsed
    from tacit.data import DataConfig, describe, load
    from tacit.data.describe import in_words

    given = overridden({"data": {"source": source}}, parsed(settings))["data"]
    about = describe(load(DataConfig.checked(given, "data")))
    screen.document(about)
    screen.table("", ["", source], in_words(about))


@app.command(epilog="Example: tacit methods ease")
def methods(
    name: Annotated[str | None, typer.Argument(help="One method: its options.")] = None, as_json: Json = False
) -> None:
    """List the methods, or the options of one."""
    from tacit.methods.base import entry
    from tacit.methods.base import methods as every

    if name is None:
        known = every()
        screen.document({"methods": [{"name": e.name, "summary": e.summary} for e in known.values()]})
        screen.table("", ["method", "what it is"], [[e.name, e.summary] for e in known.values()])
        return
    found = entry(name)
    fields = found.config.model_fields
    rows = [[key, str(f.default), f.description or ""] for key, f in fields.items()]
    screen.document({"name": name, "summary": found.summary, "options": found.config.model_json_schema()["properties"]})
    screen.table(f"{name}: {found.summary}", ["option", "default", "meaning"], rows)


@app.command(epilog="Example: tacit doctor")
def doctor(as_json: Json = False) -> None:
    """Say what is missing on this machine and how to mend it."""
    from tacit.data import cache_folder, datasets

    findings = list(examine(cache_folder(), lambda: [d.name for d in datasets() if d.state in ("here", "cached")]))
    healthy = all(finding.ok for finding in findings)
    screen.document({"ok": healthy, "findings": [finding.as_json() for finding in findings]})
    rows = [["ok" if f.ok else "MEND", f.what, f.seen if f.ok else f"{f.seen}. {f.mend}"] for f in findings]
    screen.table("", ["", "what", "seen"], rows)
    screen.say("Everything is in order." if healthy else "Some things need mending: see above.")
    if not healthy:
        raise typer.Exit(1)


def _compare(file: Path, settings: list[str], out: Path, threads: int | None) -> Compared:
    from tacit.comparisons import compare as run_comparison
    from tacit.config import Comparison, read

    if threads is not None:
        settings = [*settings, f"runtime.threads={threads}"]
    compared = run_comparison(read(Comparison, file, settings), out, screen.progress)
    screen.close()
    screen.document(compared.as_json())
    _show(compared)
    assert compared.folder is not None
    screen.say(f"\nReport: {compared.folder / 'report.html'}")
    return compared


def _show(compared: Compared) -> None:
    from tacit.report.table import as_text

    screen.say(as_text(compared, screen.width).rstrip())


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every error becomes one message and an exit number."""
    global screen
    import tacit.cli.device_history
    import tacit.cli.device_run
    import tacit.cli.field
    import tacit.cli.pages
    import tacit.cli.research  # noqa: F401 - their verbs join the others

    arguments = sys.argv[1:] if arguments is None else arguments
    screen = Screen(as_json="--json" in arguments)
    try:
        code = app(arguments, standalone_mode=False)
    except TacitError as error:
        screen.fail(error)
        code = error.exit_code
    except click.ClickException as error:
        screen.fail(ConfigError(error.format_message(), "See --help."))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = STOPPED
    except (OSError, MemoryError) as error:
        if not isinstance(error, BrokenPipeError):
            problem = StorageError(f"The machine refused: {error or 'not enough memory'}.", "See `tacit doctor`.")
            screen.fail(problem)
            sys.exit(problem.exit_code)
        # the reader of a pipe went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    finally:
        screen.close()
    if code == STOPPED:
        screen.fail(TacitError("Stopped.", "Nothing of the unfinished run was kept; finished ones are."))
    sys.exit(code if isinstance(code, int) else 0)
