"""The results table, made once: as a page, a terminal, Markdown, LaTeX or CSV shows it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tacit.errors import ConfigError, nearest
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.glossary import main_metrics, metric_entry

LEVEL = 0.05  # below it, a difference from the best is marked
WORSE = "†"
NOT_REPORTED = "leaking: not reported"
LEGACY = "legacy sampling"


@dataclass(frozen=True)
class Cell:
    """One number as it is printed: the mean, what surrounds it, and whether it is the best of its column."""

    text: str
    spread: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class TableLine:
    """One method: either its numbers, or the reason why it has none."""

    row: MethodRow
    label: str
    cells: tuple[Cell, ...]  # empty for a leaking run
    p_t: str
    p_wilcoxon: str
    p: str  # the larger of the two: what a table with one column shows
    is_worse: bool  # than the best, significantly by both tests
    is_best: bool
    is_legacy: bool

    @property
    def leaking(self) -> bool:
        """True if the run is not reported."""
        return not self.cells

    @property
    def badges(self) -> list[str]:
        """What a reader must know beside the name."""
        return [*([NOT_REPORTED] if self.leaking else []), *([LEGACY] if self.is_legacy else [])]


@dataclass(frozen=True)
class Table:
    """Methods by main metrics, best first, leaking runs last."""

    metrics: tuple[str, ...]
    lines: tuple[TableLine, ...]
    footnotes: dict[str, str]  # what the table needs said, by the thing it explains

    @property
    def footnote(self) -> str:
        """All footnotes, one after the other."""
        return " ".join(self.footnotes.values())

    @property
    def cut(self) -> str:
        """The list length, as in `@10`, if all metrics share it; it need be said only once then."""
        cuts = {metric.partition("@")[2] for metric in self.metrics}
        return f"@{cuts.pop()}" if len(cuts) == 1 and "" not in cuts else ""

    @property
    def short_titles(self) -> list[str]:
        """The titles without a list length that they share."""
        return [title.replace(f"{self.cut} ", " ") for title in self.titles]

    @property
    def titles(self) -> list[str]:
        """The metrics with an arrow towards better."""
        return [title_of(metric) for metric in self.metrics]


def tabulate(compared: ComparisonResult) -> Table:
    """Lay out the comparison: main metrics, number formats, best of each column, marks against the best."""
    honest = sorted(reportable_rows(compared), key=lambda row: -row.metrics[compared.primary])
    measured = {name for row in compared.rows for name in row.metrics}
    metrics = tuple(main_metrics(measured, compared.primary))
    columns = [_column(honest, metric) for metric in metrics]
    lines = [_line(compared, row, tuple(column[i] for column in columns)) for i, row in enumerate(honest)]
    lines += [_line(compared, row, ()) for row in compared.rows if row.leaking]
    n_seeds = max(len(row.runs) for row in compared.rows)
    return Table(metrics, tuple(lines), _footnotes(compared, lines, n_seeds))


def reportable_rows(compared: ComparisonResult) -> list[MethodRow]:
    """Return the rows that may be reported, in the order given."""
    return [row for row in compared.rows if not row.leaking]


def title_of(metric: str) -> str:
    """Return a metric with an arrow towards better."""
    known = metric_entry(metric)
    return metric if known is None else f"{metric} {'↑' if known.better > 0 else '↓'}"


def decimals(values: Sequence[float]) -> int:
    """Return how many decimals a column needs, so that all its numbers align."""
    known = [abs(value) for value in values if math.isfinite(value)]
    top = max(known, default=0.0)
    if top > 1 and all(value.is_integer() for value in known):
        return 0
    return 4 if top <= 1 else 2 if top < 100 else 0


def format_number(value: float | None, places: int) -> str:
    """Return a number with fixed decimals and thousands separated; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.{places}f}"


def p_value(p: float | None) -> str:
    """Return a p-value as papers print it."""
    if p is None or not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _column(rows: Sequence[MethodRow], metric: str) -> list[Cell]:
    values = [row.metrics.get(metric) for row in rows]
    present = [value for value in values if value is not None]
    places = decimals(present)
    known = metric_entry(metric)
    best = max(present, key=lambda value: value * known.better) if known and len(rows) > 1 and present else None
    return [
        Cell(format_number(value, places), _spread(row, metric, places), value is not None and value == best)
        for row, value in zip(rows, values, strict=True)
    ]


def _spread(row: MethodRow, metric: str, places: int) -> str:
    """Several seeds: their standard deviation. One seed: the interval over users, where there is one."""
    if len(row.runs) > 1:
        return f"± {format_number(row.sd.get(metric), places)}"
    if metric not in row.ci:
        return ""
    low, high = row.ci[metric]
    mean = row.metrics[metric]
    if math.isclose(mean - low, high - mean, rel_tol=0.01, abs_tol=0.5 / 10**places):
        return f"± {format_number((high - low) / 2, places)}"
    return f"[{format_number(low, places)}, {format_number(high, places)}]"


def _line(compared: ComparisonResult, row: MethodRow, cells: tuple[Cell, ...]) -> TableLine:
    honest = bool(cells)
    tested = [p for p in (row.p_t, row.p_wilcoxon) if p is not None]
    larger = max(tested, default=None)
    return TableLine(
        row,
        row.label,
        cells,
        p_value(row.p_t) if honest else "",
        p_value(row.p_wilcoxon) if honest else "",
        p_value(larger) if honest else "",
        honest and larger is not None and larger < LEVEL,
        honest and len(compared.rows) > 1 and row is compared.best,
        row.is_legacy,
    )


def _footnotes(compared: ComparisonResult, lines: Sequence[TableLine], n_seeds: int) -> dict[str, str]:
    notes = {}
    if n_seeds > 1:
        notes["spread"] = f"Means of {n_seeds} seeds ± standard deviation over the seeds."
    else:
        notes["spread"] = "Means over users ± half the 95 % confidence interval."
    if sum(not line.leaking for line in lines) > 1:
        notes["bold"] = "Bold: best of the column."
        notes["mark"] = (
            f"{WORSE}: differs from the best in {compared.primary} "
            f"(paired t-test and Wilcoxon's test over users, Holm-corrected, both p < {LEVEL:g}; p is the larger)."
        )
    if any(line.leaking for line in lines):
        notes["leaking"] = "Leaking: the run failed the leak check, so it is not reported."
    if any(line.is_legacy for line in lines):
        notes["legacy"] = (
            "Legacy sampling: training negatives avoid the held-out items, as in much published code; "
            "compare these figures only with published ones of the same kind."
        )
    return notes


def as_text(compared: ComparisonResult, width: int | None = None) -> str:
    """Return the table for a terminal: means only, aligned; a list length that all metrics share is said once.

    Metrics that do not fit into `width` are left out, the last ones first, and counted below.
    """
    made = tabulate(compared)
    head = [f"method ({made.cut})" if made.cut else "method", *made.short_titles, "p"]
    body = [
        [_mark(line), *([cell.text for cell in line.cells] or [""] * len(made.metrics)), line.p] for line in made.lines
    ]
    columns = [[row[i] for row in [head, *body]] for i in range(len(head))]
    widths = [max(map(len, column)) for column in columns]
    left_out = 0
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width and len(widths) > 3:
        del columns[-2], widths[-2]
        left_out += 1
    rows = [
        "  ".join(
            text.ljust(size) if i == 0 else text.rjust(size)
            for i, (text, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in zip(*columns, strict=True)
    ]
    notes = [note for about, note in made.footnotes.items() if about not in ("spread", "bold")]
    if left_out:
        notes.append(f"{left_out} more metrics are in the report; a wider terminal shows them too.")
    rule = "  ".join("─" * size for size in widths)
    return "\n".join([rows[0].rstrip(), rule, *(row.rstrip() for row in rows[1:]), *notes]) + "\n"


def as_markdown(compared: ComparisonResult) -> str:
    """Return the table in GitHub's Markdown."""
    made = tabulate(compared)
    head = ["method", *made.titles, "p (t)", "p (Wilcoxon)"]
    lines = [_pipes(head), _pipes([":--", *["--:"] * (len(head) - 1)])]
    for line in made.lines:
        cells = [_in_markdown(cell) for cell in line.cells] or ["–"] * len(made.metrics)
        lines.append(_pipes([_escape(_mark(line), _MARKDOWN), *cells, line.p_t or "–", line.p_wilcoxon or "–"]))
    return "\n".join([*lines, "", made.footnote]) + "\n"


def as_html(compared: ComparisonResult) -> str:
    """Return the table as a notebook shows it."""
    made = tabulate(compared)
    heads = "".join(f"<th>{escape(text)}</th>" for text in (f"method ({made.cut})", *made.short_titles, "p"))
    rows = []
    for line in made.lines:
        values = [f"<b>{escape(cell.text)}</b>" if cell.is_best else escape(cell.text) for cell in line.cells]
        values = values or [f'<td colspan="{len(made.metrics)}">{NOT_REPORTED}</td>']
        cells = "".join(value if value.startswith("<td") else f"<td>{value}</td>" for value in values)
        rows.append(f"<tr><th>{escape(_mark(line))}</th>{cells}<td>{escape(line.p)}</td></tr>")
    body = "".join(rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table><p>{escape(made.footnote)}</p>"


def as_latex(compared: ComparisonResult) -> str:
    """Return the table for LaTeX with the booktabs package."""
    made = tabulate(compared)
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    titles = [_escape(metric, _LATEX) + _arrow(metric, arrows) for metric in made.metrics]
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(made.metrics) + 1)}}}",
        r"\toprule",
        " & ".join(["method", *titles, "$p$"]) + r" \\",
        r"\midrule",
    ]
    for line in made.lines:
        name = _escape(line.label, _LATEX) + (r"$^\dagger$" if line.is_worse else "")
        name += "".join(rf" \emph{{({badge})}}" for badge in line.badges)
        cells = [_in_latex(cell) for cell in line.cells] or ["--"] * len(made.metrics)
        lines.append(" & ".join([name, *cells, _escape(line.p, _LATEX) or "--"]) + r" \\")
    footnote = _escape(made.footnote, _LATEX)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", "", rf"% {footnote}"]) + "\n"


def as_csv(compared: ComparisonResult) -> str:
    """Return every metric at full precision, one row per method; the numbers of leaking runs are left empty."""
    rows = [line.row for line in tabulate(compared).lines]
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    wide = [f"{name}{part}" for name in metrics for part in ("", " low", " high", " sd")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", "method", "data", "sampling", "seeds", "leaking", "p_t", "p_wilcoxon", *wide, *_COSTS])
    for row in rows:
        first = row.runs[0].result
        seeds = " ".join(str(run.result["seed"]) for run in row.runs)
        cells: list[float | None] = [row.p_t, row.p_wilcoxon]
        for name in metrics:
            low, high = row.ci.get(name, (None, None))
            cells += [row.metrics.get(name), low, high, row.sd.get(name) if len(row.runs) > 1 else None]
        numbers = ["" if row.leaking or value is None else repr(float(value)) for value in cells]
        costs = [repr(row.mean(cost)) for cost in _COSTS]
        named = [_no_formula(str(text)) for text in (row.label, first["method"], first["data"])]
        writer.writerow([*named, first["sampling"], seeds, str(row.leaking).lower(), *numbers, *costs])
    return out.getvalue()


FORMATS: dict[str, Callable[[ComparisonResult], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
}


def table(compared: ComparisonResult, format: str = "text") -> str:
    """Return the results table as `text`, `markdown`, `latex` or `csv`."""
    if format not in FORMATS:
        raise ConfigError(f"There is no table format '{format}'.", nearest(format, FORMATS))
    return FORMATS[format](compared)


def write_tables(compared: ComparisonResult, folder: Path) -> list[Path]:
    """Write results.md, results.tex and results.csv into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"results.md": as_markdown, "results.tex": as_latex, "results.csv": as_csv}
    for name, made in files.items():
        (folder / name).write_text(made(compared), encoding="utf-8")
    return [folder / name for name in files]


_COSTS = ("train_seconds", "evaluate_seconds", "peak_mb", "bytes_up", "bytes_down")
_MARKDOWN = {character: f"\\{character}" for character in r"\`*_[]<>|"} | {"\n": " ", "\r": " "}
_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "–": "--",
    "\n": " ",
    "\r": " ",
}


def _mark(line: TableLine) -> str:
    name = " ".join(line.label.splitlines()) + (f" {WORSE}" if line.is_worse else "")
    return name + "".join(f" ({badge})" for badge in line.badges)


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_markdown(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.is_best else cell.text
    return f"{text} {cell.spread}".strip()


def _in_latex(cell: Cell) -> str:
    text = _escape(cell.text, _LATEX)
    text = rf"\textbf{{{text}}}" if cell.is_best else text
    return text + (rf" {{\scriptsize {_escape(cell.spread, _LATEX)}}}" if cell.spread else "")


def _arrow(metric: str, arrows: dict[str, str]) -> str:
    return next((f" {drawn}" for sign, drawn in arrows.items() if title_of(metric).endswith(sign)), "")


def _escape(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(character, character) for character in text)


def _no_formula(text: str) -> str:
    """Spreadsheets run cells that begin like a formula; a leading apostrophe keeps them text."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
