"""Several methods on the same users: one row each, means over seeds, intervals and significance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.report.folder import Run


def is_leaking(runs: Sequence[Run]) -> bool:
    """Return whether any of these runs failed the leak test."""
    return any(run.result["leak"] is not None and run.result["leak"]["ok"] is False for run in runs)


@dataclass(frozen=True)
class MethodRow:
    """One method (at one point of the grid): its runs, one per seed."""

    label: str
    runs: tuple[Run, ...]
    ci: dict[str, tuple[float, float]]  # 95 % interval of the mean over users
    p_t: float | None  # paired t-test against the best method, Holm-corrected; None for the best itself
    p_wilcoxon: float | None
    conditions: str = ""  # data, split and protocol: rows are comparable where they are equal

    @property
    def metrics(self) -> dict[str, float]:
        """Means over the seeds."""
        return {name: float(np.mean([run.metrics[name] for run in self.runs])) for name in self.runs[0].metrics}

    @property
    def sd(self) -> dict[str, float]:
        """Standard deviation over the seeds; 0 with one seed."""
        spread = {name: [run.metrics[name] for run in self.runs] for name in self.runs[0].metrics}
        return {name: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for name, values in spread.items()}

    @property
    def leaking(self) -> bool:
        """True if any of its runs failed the leak test."""
        return is_leaking(self.runs)

    @property
    def is_legacy(self) -> bool:
        """True if training or evaluation was given the held-out items, for comparison with published numbers."""
        return any(run.result.get("sampling") == "legacy" for run in self.runs)

    def mean(self, field: str) -> float:
        """Return the mean over the seeds of a number in the run's result (train_seconds, peak_mb, ...)."""
        return float(np.mean([run.result[field] for run in self.runs]))

    @property
    def rounds(self) -> float | None:
        """Communication rounds that were run, mean over the seeds; none if it is centralised, or not known."""
        each = [run.result["rounds"] for run in self.runs]
        return None if None in each else float(np.mean(each))


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The rows of a comparison, in the order given, with the metric that decides."""

    name: str
    primary: str
    rows: tuple[MethodRow, ...]
    folder: Path | None = None
    reused: int = 0  # runs that were finished before

    @property
    def best(self) -> MethodRow:
        """The row with the highest primary metric among those that do not leak; legacy only if there is no other."""
        clean = [row for row in self.rows if not row.leaking]
        honest = [row for row in clean if not row.is_legacy] or clean or list(self.rows)
        return max(honest, key=lambda row: row.metrics[self.primary])

    def __repr__(self) -> str:
        from tacit.report.table import as_text  # tables are made of comparisons

        return as_text(self).rstrip()

    def _repr_html_(self) -> str:
        from tacit.report.table import as_html

        return as_html(self)

    def as_json(self) -> dict[str, Any]:
        """Return the document that `tacit compare --json` prints."""
        return {
            "name": self.name,
            "primary": self.primary,
            "best": self.best.label if len({row.conditions for row in self.rows}) == 1 else None,
            "rows": [
                {
                    "label": row.label,
                    "method": row.runs[0].result["method"],
                    "data": row.runs[0].result["data"],
                    "sampling": row.runs[0].result["sampling"],
                    "seeds": [run.result["seed"] for run in row.runs],
                    "metrics": row.metrics,
                    "sd": row.sd,
                    "ci": {name: list(interval) for name, interval in row.ci.items()},
                    "p_value_vs_best": row.p_t,
                    "p_wilcoxon_vs_best": row.p_wilcoxon,
                    "leaking": row.leaking,
                    "passes": row.mean("passes"),
                    "rounds": row.rounds,
                    "train_seconds": row.mean("train_seconds"),
                    "peak_mb": row.mean("peak_mb"),
                    "runs": [run.result["run"] for run in row.runs],
                }
                for row in self.rows
            ],
            "report": str(self.folder / "report.html") if self.folder is not None else None,
        }
