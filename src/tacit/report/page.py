"""The report: one HTML file that opens offline, on a phone, on a desktop, in dark mode and on paper."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tacit.config import to_yaml
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.figures import CAPTIONS, draw, inline_svg
from tacit.report.folder import Run, environment
from tacit.report.glossary import metric_entry
from tacit.report.guarantee import guarantee_reports
from tacit.report.marks import COLOURS, line_styles
from tacit.report.sent import describe_sent, join_words, privacy
from tacit.report.table import (
    LEGACY,
    NOT_REPORTED,
    WORSE,
    Table,
    TableLine,
    decimals,
    format_number,
    tabulate,
    title_of,
)
from tacit.report.weights import weight_reports

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TAILS = (5, 25, 50, 75, 95)  # percentiles over users
KINDS = {
    "temporal": "the newest {share} of each history held out",
    "leave-last-out": "each user's newest interaction held out",
    "global-time": "everything from one moment on held out",
    "last-session": "each user's newest session held out",
    "random": "a random {share} of each history held out",
    "k-fold": "one of {folds} random parts of each history held out, each in turn",
    "given": "held-out part as given with the data",
}


def write_report(compared: ComparisonResult, path: Path, figures: Mapping[str, Figure] | None = None) -> None:
    """Write the report of a comparison, or of a single run, as one self-contained HTML file.

    `figures` are those of `draw(compared)`, for those who have drawn them already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(compared, draw(compared) if figures is None else figures), encoding="utf-8")


def render(compared: ComparisonResult, figures: Mapping[str, Figure]) -> str:
    """Return the report as HTML; everything that comes from data or labels is escaped."""
    html: str = _template().render(**describe_comparison(compared, figures))
    return html


def describe_comparison(compared: ComparisonResult, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Return everything that `sections.html` says of a comparison."""
    made = tabulate(compared)
    lines = made.lines
    honest = [line for line in lines if not line.leaking]
    style = line_styles([row.label for row in compared.rows])
    several = len(compared.rows) > 1
    leak_metrics = _leak_metrics(compared)
    leaks = [(line, _leak(line, leak_metrics)) for line in lines]
    return dict(
        title=compared.name if several else f"{lines[0].label} on {_first(compared).result['data']}",
        lead=_lead(compared),
        facts=_facts(compared),
        verdict=_verdict(compared, made),
        several=several,
        table=made,
        groups=[(group, len(list(metrics))) for group, metrics in groupby(made.metrics, key=_group)],
        every_metric=_every_metric(honest),
        honest=honest,
        colour={label: f"c{COLOURS.index(style_of.colour)}" for label, style_of in style.items()},
        not_reported=NOT_REPORTED,
        legacy=LEGACY,
        leak_metrics=leak_metrics,
        leak_words={line.label: _leak_words(line.row, leak_metrics) for line in lines if line.leaking},
        leaks=leaks,
        placebos=_has_placebos(compared),
        blind_to=_blind_spots(compared),
        usual_verdict=_usual([check.reason for _, check in leaks]),
        figures=_inline(figures),
        tails=_tails(compared),
        tail_names=[f"{q} %" for q in TAILS],
        primary=compared.primary,
        privacy=privacy(lines),
        ledgers=[(line, describe_sent(line.row)) for line in lines],
        guarantees=guarantee_reports(lines),
        costs=[(line, _cost(line.row)) for line in lines],
        accounts=weight_reports(compared),
        notes=_notes(compared),
        **_recipe(lines),
        environments=_environments(lines),
        glossary=_glossary(lines),
    )


def _template() -> Any:
    loader = PackageLoader("tacit.report", "")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.globals["style"] = Markup(stylesheet())
    return jinja.get_template("template.html")


def stylesheet() -> str:
    """Return the style of the report and of all pages: one visual language."""
    chips = "\n".join(f".c{place} {{ background: {colour}; }}" for place, colour in enumerate(COLOURS))
    return files("tacit.report").joinpath("style.css").read_text(encoding="utf-8") + chips


def _first(compared: ComparisonResult) -> Run:
    return compared.rows[0].runs[0]


def _group(metric: str) -> str:
    known = metric_entry(metric)
    return "accuracy" if known is None or known.accuracy else "beyond accuracy"


def _state_field(runs: Sequence[Run], field: str) -> str:
    """Say a field of the results once, or all its values if the runs differ."""
    return ", ".join(dict.fromkeys(str(run.result[field]) for run in runs))


def _lead(compared: ComparisonResult) -> str:
    runs = [run for row in compared.rows for run in row.runs]
    counts = runs[0].result["about_data"]["counts"]
    n = len(compared.rows)
    what = f"{n} methods were compared" if n > 1 else f"{compared.rows[0].label} was run"
    seeds = len({run.result["seed"] for run in runs})
    return (
        f"{what} on {_state_field(runs, 'data')}: {counts['users']:,} users, {counts['items']:,} items, "
        f"{_interactions(counts):,} interactions; {_split(runs[0])}, {_protocol(runs[0])}; "
        f"{runs[0].result['users']:,} users were evaluated, with {seeds} seed{'s' if seeds > 1 else ''}."
    )


def _interactions(counts: dict[str, int]) -> int:
    return counts["train"] + counts.get("validation", 0) + counts["test"]


def _split(run: Run) -> str:
    split = run.experiment.split
    return KINDS[split.kind].format(share=f"{100 * split.test:g} %", folds=split.folds)


def _protocol(run: Run) -> str:
    protocol = str(run.result["protocol"])
    if protocol == "full":
        return "ranked among all items outside the history"
    return f"each ranked against {protocol.rpartition('-')[2]} sampled items outside the history"


def _facts(compared: ComparisonResult) -> list[tuple[str, str]]:
    runs = [run for row in compared.rows for run in row.runs]
    counts = runs[0].result["about_data"]["counts"]
    return [
        ("data", _state_field(runs, "data")),
        ("users", f"{counts['users']:,}"),
        ("items", f"{counts['items']:,}"),
        ("training rows", f"{counts['train']:,}"),
        ("held-out rows", f"{counts['test']:,}"),
        ("split", runs[0].experiment.split.kind),
        ("protocol", _state_field(runs, "protocol")),
        ("negatives", _state_field(runs, "sampling")),
        ("seeds", _state_field(runs, "seed")),
    ]


def _verdict(compared: ComparisonResult, made: Table) -> str:
    honest = [line for line in made.lines if not line.leaking]
    if not honest:
        return "No run is reported: all of them leak."
    first = honest[0].cells[0]
    value = f"{first.text} {first.spread}".strip()
    if len(honest) == 1:
        return f"{honest[0].label} reaches {compared.primary} {value}."
    lines_of_text = f"{honest[0].label} has the highest {compared.primary}, {value}. "
    if all(line.row.p_t is None for line in honest):
        return lines_of_text + "Significance was not tested: the rows differ in seeds or in data."
    alike = [line.label for line in honest[1:] if not line.is_worse]
    if not alike:
        return lines_of_text + "All others are significantly worse."
    are = "is" if len(alike) == 1 else "are"
    return (
        lines_of_text
        + f"{join_words(alike)} {are} not significantly different from it (no {WORSE}): their order is not a ranking."
    )


def _every_metric(honest: Sequence[TableLine]) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for line in honest for name in line.row.metrics)
    lines_of_text = []
    for name in names:
        values = [line.row.metrics.get(name) for line in honest]
        places = decimals([value for value in values if value is not None])
        lines_of_text.append((title_of(name), [format_number(value, places) for value in values]))
    return lines_of_text


@dataclass(frozen=True)
class _Leak:
    figures: list[str]
    verdict: str
    reason: str
    known: bool


def _leak_metrics(compared: ComparisonResult) -> list[str]:
    """The metric that decides, and AUC where the check measured it."""
    checks = [run.result["leak"] for row in compared.rows for run in row.runs if run.result["leak"] is not None]
    also = ["AUC"] if any("AUC" in check["local_only"] for check in checks) else []
    return list(dict.fromkeys([compared.primary, *also]))


def _blind_spots(compared: ComparisonResult) -> list[str]:
    """What the checks say they cannot see, each once; runs of earlier versions say nothing."""
    checks = [run.result["leak"] for row in compared.rows for run in row.runs if run.result["leak"] is not None]
    return list(dict.fromkeys(spot for check in checks for spot in check.get("blind_to", [])))


def _has_placebos(compared: ComparisonResult) -> bool:
    """Whether any run was trained once more with random items held out."""
    checks = [run.result["leak"] for row in compared.rows for run in row.runs]
    return any(check is not None and check.get("placebo") is not None for check in checks)


def _leak_mean(row: MethodRow, who: str, metric: str) -> float | None:
    values = [run.result["leak"][who].get(metric) for run in row.runs if run.result["leak"] is not None]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _leak(line: TableLine, metrics: Sequence[str]) -> _Leak:
    checks = [run.result["leak"] for run in line.row.runs if run.result["leak"] is not None]
    figures = [
        format_number(_leak_mean(line.row, who, metric), 4)
        for metric in metrics
        for who in ("local_only", "most_popular")
    ]
    if not checks:
        return _Leak(figures, "not checked", "no local-only model was trained", False)
    worst = next((check for ok in (False, None, True) for check in checks if check["ok"] is ok), checks[0])
    verdict = {False: "leaking", None: "not known", True: "no leak seen"}[worst["ok"]]
    return _Leak(figures, verdict, str(worst.get("reason", "")), worst["ok"] is not None)


def _usual(reasons: Sequence[str]) -> str:
    """Return the reason that several checks share, to be said once; none if each has its own."""
    reason, times = Counter(reasons).most_common(1)[0]
    return reason if times > 1 else ""


def _leak_words(row: MethodRow, metrics: Sequence[str]) -> str:
    both = [
        (metric, *(format_number(_leak_mean(row, who, metric), 4) for who in ("local_only", "most_popular")))
        for metric in metrics
    ]
    reached = join_words([f"{metric} {local_only} (Most Popular {popular})" for metric, local_only, popular in both])
    return f"Its local-only models reach {reached}."


def _inline(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    lines_of_text = []
    for name, figure in figures.items():
        title, caption = CAPTIONS[name]
        svg = Markup(inline_svg(name, figure, str(escape(f"{title} {caption}"))))
        lines_of_text.append({"name": name, "title": title, "caption": caption, "svg": svg})
    return lines_of_text


def _tails(compared: ComparisonResult) -> list[tuple[str, list[str]]]:
    """Return percentiles over users of the metric that decides; rows that leak or hold no users have none."""
    rows = [row for row in compared.rows if not row.leaking and compared.primary in row.runs[0].users.columns]
    each = [np.mean([run.users[compared.primary].to_numpy() for run in row.runs], axis=0) for row in rows]
    found = [np.percentile(values, TAILS).tolist() for values in each]
    places = decimals([value for values in found for value in values])
    return [
        (row.label, [format_number(value, places) for value in values]) for row, values in zip(rows, found, strict=True)
    ]


def _cost(row: MethodRow) -> list[str]:
    learning, evaluating = (_seconds(row.mean(field)) for field in ("train_seconds", "evaluate_seconds"))
    rounds = "–" if row.rounds is None else f"{row.rounds:g}"
    peak = row.mean("peak_mb")
    memory = f"{peak:,.0f} MB" if isfinite(peak) else "–"  # Windows does not say
    return [f"{row.mean('passes'):g}", rounds, learning, evaluating, memory]


def _seconds(time: float) -> str:
    return f"{time:,.3f} s" if time >= 0.0005 else "< 0.001 s"


def _notes(compared: ComparisonResult) -> list[str]:
    """What the runs remarked, each remark once with those who made it, and what a careful reader should know."""
    notes: dict[str, list[str]] = {}
    for row in compared.rows:
        for note in dict.fromkeys(note for run in row.runs for note in run.result["notes"]):
            notes.setdefault(str(note), []).append(row.label)
    everyone = len(compared.rows)
    lines_of_text = [note if len(who) == everyone else f"{join_words(who)}: {note}" for note, who in notes.items()]
    if all(len(row.runs) == 1 for row in compared.rows):
        lines_of_text.append(
            "Each method ran with one seed: the intervals cover the sampling of users, not the randomness of learning."
        )
    if any(run.result["sampling"] == "legacy" for row in compared.rows for run in row.runs):
        lines_of_text.append(
            "Legacy sampling lets training see which items are held out. Do not compare its figures with others."
        )
    if str(_first(compared).result["protocol"]) != "full":
        lines_of_text.append(
            "Figures against sampled items are higher than those of a full ranking and may order methods differently."
        )
    return lines_of_text


def _recipe(lines: Sequence[TableLine]) -> dict[str, Any]:
    """The commands; what all configurations share, said once, and what each adds. Unsaved runs are listed in full."""
    saved = [run.result["run"] for line in lines for run in line.row.runs if run.result["run"]]
    if not saved:
        lines_of_text = [(line, to_yaml(line.row.runs[0].experiment)) for line in lines]
        commands = "# save a configuration below as experiment.yaml, then\ntacit run experiment.yaml"
        return {"commands": commands, "shared": "", "configurations": lines_of_text}
    given = [line.row.runs[0].experiment.model_dump(mode="json") for line in lines]
    shared = {
        key: value for key, value in given[0].items() if len(given) > 1 and all(one[key] == value for one in given)
    }
    own = [{key: value for key, value in one.items() if key not in shared} for one in given]
    return {
        "commands": "\n".join(f"tacit run {shlex.quote(str(Path(folder) / 'experiment.yaml'))}" for folder in saved),
        "shared": _yaml(shared) if shared else "",
        "configurations": [(line, _yaml(one)) for line, one in zip(lines, own, strict=True) if one],
    }


def _yaml(lines_of_text: dict[str, Any]) -> str:
    return yaml.safe_dump(lines_of_text, sort_keys=False, allow_unicode=True)


def _environments(lines: Sequence[TableLine]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Where the numbers were made; the methods are named only if there was more than one place."""
    places: dict[str, list[str]] = {}
    for line in lines:
        for run in line.row.runs:
            places.setdefault(json.dumps(_environment(run)), []).append(line.label)
    return [
        (join_words(list(Counter(who))) if len(places) > 1 else "", _pairs(json.loads(place)))
        for place, who in places.items()
    ]


def _environment(run: Run) -> dict[str, Any]:
    """Return what the run folder says, or this process, which made a run that was not saved."""
    saved = run.folder / "environment.json" if run.folder is not None else None
    if saved is not None and saved.is_file():
        lines_of_text: dict[str, Any] = json.loads(saved.read_text(encoding="utf-8"))
        return lines_of_text
    return environment()


def _pairs(lines_of_text: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for key, value in lines_of_text.items():
        if isinstance(value, dict):
            pairs.append((key, ", ".join(f"{name} {version}" for name, version in value.items())))
        elif value is not None:
            pairs.append((key, str(value)))
    return pairs


def _glossary(lines: Sequence[TableLine]) -> list[tuple[str, str]]:
    names = dict.fromkeys(name.partition("@")[0] for line in lines for name in line.row.metrics)
    known = [found for name in names if (found := metric_entry(name)) is not None]
    arrows = {1: "higher is better", -1: "lower is better"}
    lines_of_text = [("@k", "measured on each user's list of the k best items")] if known else []
    return lines_of_text + [(one.name, f"{one.meaning} ({arrows[one.better]})") for one in known]
