"""The commands demo, data, run, compare, recommend, methods, doctor; `research`, `device` and `field` add others."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
import typer.main

from tacit.cli.arguments import asks_for_json, check_exists, check_method, takes
from tacit.cli.screen import Screen
from tacit.errors import ConfigError, StorageError, TacitError

if TYPE_CHECKING:
    from tacit.config import Experiment
    from tacit.methods.registry import Entry
    from tacit.report.comparison import ComparisonResult

app = typer.Typer(
    name="tacit",
    help="Recommenders that learn from users' histories without collecting them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(no_args_is_help=True, help="List, download and describe datasets.")
app.add_typer(data_app, name="data")

screen = Screen()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the run folders.")]
Set = Annotated[list[str], typer.Option("--set", help="Override an option, e.g. --set method.reg=300.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads for ranking and metrics; results do not depend on it.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        min=1,
        max=1024,
        help="Runs side by side, as processes, at most one for each core; with runtime.engine=dask on that cluster.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Make finished runs anew instead of reusing them.")]
STOPPED = 130  # exit number of a command that Ctrl-C ended
DEMO = Path(__file__).parent / "demo.yaml"


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tacit {version('tacit')}")
        raise typer.Exit


@app.callback()
def _whole(
    version_wanted: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Recommenders that learn from users' histories without collecting them."""


@app.command(epilog="Example: tacit demo")
def demo(
    out: Out = Path("runs"),
    page: Annotated[bool, typer.Option("--page", help="Open the page of one user of the town instead.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free port.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare several methods on the built-in dataset 'town': a table and a report. No download."""
    if page:
        from tacit.cli.pages import town_page

        town_page(port)
        return
    screen.say(
        "Which method recommends a person's next place best? Data: a generated town, 1,000 people and 800 places.\n"
    )
    best = _compare(DEMO, [], out).best.runs[0].folder
    called = "tacit" if shutil.which("tacit") else os.path.relpath(sys.argv[0])
    screen.say("\nNext: open the report in a browser, then try these (`run` trains on the validation part too)")
    for line in ("data list", "run --method ease --data town", f"recommend {best} --user 7"):
        screen.say(f"  {called} {line}")


@dataclass(frozen=True)
class ExperimentOptions:
    """The arguments that say which experiment a command is about: a file, a method and data, and what differs."""

    file: Annotated[
        Path | None, typer.Argument(callback=check_exists, help="An experiment in YAML; options below override it.")
    ] = None
    method: Annotated[str | None, typer.Option("--method", "-m", callback=check_method, help="A method by name.")] = (
        None
    )
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset by name, or your own file.")] = None
    settings: Set = field(default_factory=list)
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None

    def overrides(self) -> list[str]:
        """Return what the command line sets, as `a.b=c`."""
        return self.settings

    def experiment(self) -> Experiment:
        """Return the experiment that the file and the options describe."""
        from tacit.config import Experiment, apply_overrides, parse_overrides, read_config

        given = {} if self.file is None else read_config(Experiment, self.file).model_dump(mode="json")
        if self.seed is not None:
            given["seed"] = self.seed
        if self.method is not None:
            given["method"] = {"name": self.method}
        if self.data is not None:
            given["data"] = {**given.get("data", {}), "source": self.data}
        settings = parse_overrides(self.overrides())
        return Experiment.from_options(apply_overrides(given, settings), str(self.file or "the command line"))


@dataclass(frozen=True)
class RunOptions(ExperimentOptions):
    """The arguments of `tacit run`."""

    repeat: Annotated[int, typer.Option(min=1, help="Number of runs, with consecutive seeds.")] = 1
    threads: Threads = None
    out: Out = Path("runs")
    jobs: Jobs = 1
    again: Again = False
    as_json: Json = False

    def overrides(self) -> list[str]:
        """Return what the command line sets, as `a.b=c`."""
        return with_threads(self.settings, self.threads)


@app.command(epilog="Example: tacit run --method ease --data ml-1m --set method.reg=500 --repeat 3")
@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Run one experiment: train a method, evaluate it, write a run folder."""
    if options.file is None and options.method is None:
        raise ConfigError(
            "Neither a file nor a method is given.", "Give a YAML file, or --method NAME (and --data NAME)."
        )
    from tacit.lab.comparisons import run_repeatedly
    from tacit.lab.jobs import JobsConfig
    from tacit.report.guarantee import describe_guarantee
    from tacit.report.page import write_report

    experiment = options.experiment()
    jobs = JobsConfig.of(options.jobs, experiment.runtime, options.again)
    compared = run_repeatedly(experiment, options.repeat, options.out, screen.progress, jobs=jobs)
    screen.close()
    row = compared.rows[0]
    for single in row.runs:
        assert single.folder is not None
        write_report(compared, single.folder / "report.html")
    document: dict[str, Any] = dict(row.runs[0].result)
    if options.repeat > 1:
        costs = ("train_seconds", "evaluate_seconds", "bytes_up", "bytes_down", "peak_mb", "passes", "passes_run")
        document |= {"metrics": row.metrics, "sd": row.sd, "ci": row.ci, "seeds": [r.result["seed"] for r in row.runs]}
        document |= {cost: row.mean(cost) for cost in costs} | {"rounds": row.rounds}
        leaks = [r.result["leak"] for r in row.runs if r.result["leak"] and r.result["leak"]["ok"] is not True]
        document |= {"leak": (leaks or [row.runs[0].result["leak"]])[0], "runs": [r.result["run"] for r in row.runs]}
    screen.document(document)
    _show(compared)
    for note in row.runs[0].result["notes"]:
        screen.say(f"· {note}")
    guarantee = row.runs[0].result.get("privacy")
    if guarantee is not None:
        screen.say(f"· Differential privacy: {describe_guarantee(guarantee)}")
    say_reused(compared.reused, "runs")
    screen.say(f"\nRun folder: {row.runs[0].folder}")


@app.command(epilog="Example: tacit compare examples/baselines.yaml --set data.source=ml-100k")
def compare(
    file: Annotated[
        Path, typer.Argument(callback=check_exists, help="A comparison in YAML: methods, data, split, evaluation.")
    ],
    settings: Set = [],  # noqa: B006
    threads: Threads = None,
    out: Out = Path("runs"),
    jobs: Jobs = 1,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Compare methods on the same data and split: table, significance tests, figures, HTML report."""
    _compare(file, with_threads(settings, threads), out, jobs, again)


@data_app.command("list", epilog="Example: tacit data list")
def data_list(as_json: Json = False) -> None:
    """List the named datasets: present, downloadable, or available on request."""
    from tacit.data import datasets

    known = datasets()
    screen.document({"datasets": [asdict(status) for status in known]})
    rows = [[status.name, status.state, status.title, status.licence] for status in known]
    screen.table("", ["name", "state", "what", "licence"], rows)


@data_app.command("get", epilog="Example: tacit data get ml-100k")
def data_get(name: str, as_json: Json = False) -> None:
    """Download a dataset from its official site, check it and store it."""
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
    """Describe a dataset: its size, and the role of each column."""
    from tacit.config import apply_overrides, parse_overrides
    from tacit.data import DataConfig, describe, load
    from tacit.data.describe import describe_in_words

    given = apply_overrides({"data": {"source": source}}, parse_overrides(settings))["data"]
    about = describe(load(DataConfig.from_options(given, "data")))
    screen.document(about)
    screen.table("", ["", source], describe_in_words(about))


@app.command(epilog="Example: tacit methods ease")
def methods(
    name: Annotated[str | None, typer.Argument(help="A method; its options are shown.")] = None, as_json: Json = False
) -> None:
    """List the methods, or the options of one."""
    from tacit.methods.registry import entry
    from tacit.methods.registry import methods as every

    if name is None:
        known = every().values()
        if screen.as_json:  # options are imported with their methods, which takes time: only JSON shows them
            screen.document({"methods": [_describe_methods(method) for method in known]})
        screen.table("", ["method", "kind", "what it is"], [[one.name, one.kind, one.summary] for one in known])
        return
    found = entry(name)
    fields = found.config.model_fields
    rows = [[key, str(f.default), f.description or ""] for key, f in fields.items()]
    screen.document(_describe_methods(found))
    screen.table(f"{name} ({found.kind}): {found.summary}", ["option", "default", "meaning"], rows)


def _describe_methods(method: Entry) -> dict[str, Any]:
    options = method.config.model_json_schema().get("properties", {})
    return {"name": method.name, "kind": method.kind, "summary": method.summary, "options": options}


@app.command(epilog="Example: tacit doctor")
def doctor(as_json: Json = False) -> None:
    """Check this machine: what is missing, and how to fix it."""
    from tacit.cli.doctor import examine
    from tacit.data import cache_folder, datasets

    findings = list(examine(cache_folder(), lambda: [d.name for d in datasets() if d.state in ("here", "cached")]))
    healthy = all(finding.ok for finding in findings)
    screen.document({"ok": healthy, "findings": [finding.as_json() for finding in findings]})
    rows = [["ok" if f.ok else "FIX", f.what, f.seen if f.ok else f"{f.seen}. {f.mend}"] for f in findings]
    screen.table("", ["", "what", "seen"], rows)
    screen.say("Everything is in order." if healthy else "Some checks failed. The rows marked FIX say what to do.")
    if not healthy:
        raise typer.Exit(1)


def _compare(file: Path, settings: list[str], out: Path, jobs: int = 1, again: bool = False) -> ComparisonResult:
    from tacit.config import Comparison, read_config
    from tacit.lab.comparisons import compare as run_comparison
    from tacit.lab.jobs import JobsConfig

    comparison = read_config(Comparison, file, settings)
    config = JobsConfig.of(jobs, comparison.runtime, again)
    compared = run_comparison(comparison, out=out, progress=screen.progress, jobs=config)
    screen.close()
    screen.document(compared.as_json())
    _show(compared)
    say_reused(compared.reused, "runs")
    assert compared.folder is not None
    screen.say(f"\nReport: {compared.folder / 'report.html'}")
    return compared


def with_threads(settings: list[str], threads: int | None) -> list[str]:
    """Add the option --threads to the settings."""
    return settings if threads is None else [*settings, f"runtime.threads={threads}"]


def say_reused(reused: int, what: str) -> None:
    """Say how many results come from an earlier command."""
    if reused:
        screen.say(f"· {reused} {what} were finished before and are reused; --again makes them anew.")


def _show(compared: ComparisonResult) -> None:
    from tacit.report.table import as_text

    screen.say(as_text(compared, screen.width).rstrip())


def _wrong_usage(error: click.ClickException) -> ConfigError:
    """Return the error for arguments that the parser refuses."""
    if isinstance(error, click.NoSuchOption):
        close = f"Did you mean {error.possibilities[0]}? " if error.possibilities else ""
        return ConfigError(f"There is no option {error.option_name}.", f"{close}See --help.")
    text = error.format_message()
    several = "A pattern that matches several paths gives all of them: name one. " if "extra argument" in text else ""
    return ConfigError(text, f"{several}See --help.")


def import_commands() -> None:
    """Import the modules whose commands join those of the app."""
    import tacit.cli.device_api
    import tacit.cli.device_batches
    import tacit.cli.device_change
    import tacit.cli.device_directory
    import tacit.cli.device_draw
    import tacit.cli.device_file
    import tacit.cli.device_history
    import tacit.cli.device_interests
    import tacit.cli.device_keys
    import tacit.cli.device_limits
    import tacit.cli.device_privacy
    import tacit.cli.device_run
    import tacit.cli.device_service
    import tacit.cli.federation
    import tacit.cli.field
    import tacit.cli.mlflow
    import tacit.cli.pages
    import tacit.cli.peer
    import tacit.cli.research
    import tacit.cli.serving
    import tacit.cli.witness  # noqa: F401 - importing them registers their commands


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every error becomes one message and an exit number."""
    global screen
    import_commands()
    arguments = sys.argv[1:] if arguments is None else arguments
    command = typer.main.get_command(app)
    screen = Screen(as_json=asks_for_json(command, arguments))
    try:
        code = command(arguments, standalone_mode=False)
    except TacitError as error:
        screen.fail(error)
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # the help has been shown
        code = error.exit_code
    except click.ClickException as error:
        screen.fail(_wrong_usage(error))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = STOPPED
    except (OSError, MemoryError) as error:
        if not isinstance(error, BrokenPipeError):
            problem = StorageError(
                f"The operating system refused: {error or 'not enough memory'}.",
                "Check this machine with `tacit doctor`.",
            )
            screen.fail(problem)
            sys.exit(problem.exit_code)
        # the reader of a pipe has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception as error:  # a bug: its traceback goes to standard error
        if screen.as_json:
            screen.refuse(
                type(error).__name__,
                str(error),
                "This is a bug in Tacit or in a package that extends it. Please report it.",
            )
        raise
    finally:
        screen.close()
    if code == STOPPED:
        screen.fail(TacitError("Stopped.", "The unfinished run was discarded. Finished runs are kept."))
    sys.exit(code if isinstance(code, int) else 0)
