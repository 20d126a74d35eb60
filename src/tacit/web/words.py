"""Numbers in words, in the language of the page: counts, bytes, times, shares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tacit.languages import format_moment, translate, write_number


def join_names(names: Sequence[str]) -> str:
    """Return 'a, b and c'.

    >>> join_names(["a", "b", "c"]), join_names(["a"]), join_names([])
    ('a, b and c', 'a', '')
    """
    return translate("{first} and {last}", first=", ".join(names[:-1]), last=names[-1]) if names[1:] else "".join(names)


def plural(n: int, one: str, many: str = "") -> str:
    """Return '1 item', '1,200 items'.

    >>> plural(1, "item"), plural(1200, "item"), plural(0, "category", "categories")
    ('1 item', '1,200 items', '0 categories')
    """
    return translate(f"{{n}} {one if n == 1 else many or one + 's'}", n=write_number(n))


def format_bytes(n: float) -> str:
    """Return a number of bytes.

    >>> format_bytes(999), format_bytes(15_300), format_bytes(2_000_000)
    ('999 bytes', '15.3 kB', '2 MB')
    """
    if n < 1000:
        return translate("{n} bytes", n=f"{n:.0f}")
    for unit in ("kB", "MB", "GB"):
        n /= 1000
        if n < 1000 or unit == "GB":
            break
    return f"{write_number(n, '%.3g')} {unit}"


def format_time(when: int | str | None) -> str:
    """Return a day and time, UTC; nothing for none.

    >>> format_time(1_700_000_000), format_time("2026-03-01T12:00:00+00:00"), format_time(None)
    ('14 Nov 2023, 22:13', '1 Mar 2026, 12:00', '')
    """
    if when is None:
        return ""
    moment = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when, UTC)
    return format_moment(moment)


def format_percent(share: float) -> str:
    """Return a share in per cent.

    >>> format_percent(0.414), format_percent(1.0), format_percent(0.004)
    ('41 %', '100 %', 'under 1 %')
    """
    if 0 < share < 0.01:
        return translate("under 1 %")
    if 0.99 < share < 1:
        return translate("over 99 %")
    return f"{100 * share:.0f} %"
