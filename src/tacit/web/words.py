"""Numbers as people say them."""

from __future__ import annotations

from datetime import UTC, datetime


def count(n: int, one: str, many: str = "") -> str:
    """Return '1 item', '1,200 items'.

    >>> count(1, "item"), count(1200, "item"), count(0, "category", "categories")
    ('1 item', '1,200 items', '0 categories')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def size(n: float) -> str:
    """Return a number of bytes.

    >>> size(999), size(15_300), size(2_000_000)
    ('999 bytes', '15.3 kB', '2 MB')
    """
    if n < 1000:
        return f"{n:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        n /= 1000
        if n < 1000 or unit == "GB":
            break
    return f"{n:.3g} {unit}"


def day(when: int | str | None) -> str:
    """Return a day and time, UTC; nothing for none.

    >>> day(1_700_000_000), day("2026-03-01T12:00:00+00:00"), day(None)
    ('14 Nov 2023, 22:13', '1 Mar 2026, 12:00', '')
    """
    if when is None:
        return ""
    moment = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when, UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M}"


def percent(share: float) -> str:
    """Return a share in per cent.

    >>> percent(0.414), percent(1.0), percent(0.004)
    ('41 %', '100 %', 'under 1 %')
    """
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"
