"""What devices sent, in the words of the report."""

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
    """Return whether histories were sent whole, and otherwise what a receiver could read."""
    whole = [line.label for line in lines if _is_whole(line.row)]
    if not whole:
        return f"No device sent a whole history. The table shows what was sent; {_describe_masking(lines)}"
    whose = "Every method here" if len(whole) == len(lines) > 1 else join_words(whole)
    return (
        f"{whose} learnt centrally, from the whole history of every user. These runs have no privacy. They show "
        "what is possible when a server knows everything."
    )


def _describe_masking(lines: Sequence[TableLine]) -> str:
    """Return what a receiver could read."""
    guaranteed = [line.label for line in lines if line.row.runs[0].result.get("privacy")]
    if guaranteed and len(guaranteed) == len(lines):
        return "what all of it tells of any one client is bounded: see the guarantee below."
    masked = [line.label for line in lines if line.row.runs[0].experiment.runtime.secure is not None]
    if not masked:
        return "a receiver may infer more from it."
    whose = "all of it" if len(masked) == len(lines) else f"that of {join_words(masked)}"
    return (
        f"{whose} was masked: a server reads sums and no single message. Bytes include keys, shares and whole masked "
        "vectors, as the protocol sends them. A server may infer more from readable messages and from sums: see the "
        "threat model."
    )


def _is_whole(row: MethodRow) -> bool:
    return any("whole history" in run.ledger["what"].unique().to_list() for run in row.runs)


def describe_sent(row: MethodRow) -> dict[str, str]:
    """Return what the clients of one method sent, in words and sums."""
    ledger = row.runs[0].ledger
    kinds = [str(what) for what in sorted(ledger["what"].unique().to_list())]
    return {
        "what": ", ".join("whole histories" if kind == "whole history" else kind for kind in kinds) or "nothing",
        "users": f"{ledger['user'].n_unique():,}" if len(ledger) else "0",
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
