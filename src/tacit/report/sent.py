"""What left people's devices, as the report says it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tacit.report.comparison import MethodRow
from tacit.report.table import TableLine


def join_words(names: Sequence[str]) -> str:
    """Return 'a, b and c'.

    >>> join_words(["a", "b", "c"]), join_words(["a"]), join_words([])
    ('a, b and c', 'a', '')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def privacy(lines: Sequence[TableLine]) -> str:
    """Say whether histories were handed over, and if not, what whoever received the rest could read."""
    whole = [line.label for line in lines if _is_whole(line.row)]
    if not whole:
        return f"No history left a device whole. The table says what did; {_describe_masking(lines)}"
    whose = "Every method here" if len(whole) == len(lines) > 1 else join_words(whole)
    return (
        f"{whose} learnt in one place: the whole history of every person was handed over. There is no privacy in these "
        "runs, and no figure here should be read as if there were; they show what is possible when everything is known."
    )


def _describe_masking(lines: Sequence[TableLine]) -> str:
    """Say what whoever received it could read."""
    masked = [line.label for line in lines if line.row.runs[0].experiment.runtime.secure is not None]
    if not masked:
        return "whoever received it may still infer from it."
    whose = "all of it" if len(masked) == len(lines) else f"that of {join_words(masked)}"
    return (
        f"{whose} went into secure sums, of which a server reads the sum and no single message. Bytes hold keys, "
        "shares and whole masked vectors, as the protocol sends them. What is not masked can still be inferred from, "
        "and so can sums: see the threat model."
    )


def _is_whole(row: MethodRow) -> bool:
    return any("whole history" in run.ledger["what"].unique().to_list() for run in row.runs)


def describe_sent(row: MethodRow) -> dict[str, str]:
    """Return what one method's people sent, in words and sums."""
    ledger = row.runs[0].ledger
    kinds = [str(what) for what in sorted(ledger["what"].unique().to_list())]
    return {
        "what": ", ".join("whole histories" if kind == "whole history" else kind for kind in kinds) or "nothing",
        "people": f"{ledger['user'].n_unique():,}" if len(ledger) else "0",
        "rows": f"{ledger.select(pl.col('rows').sum()).item():,}",
        "up": _bytes(row.mean("bytes_up")),
        "down": _bytes(row.mean("bytes_down")),
    }


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
