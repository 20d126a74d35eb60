"""Recovery codes: a second secret that opens a device whose passphrase is forgotten, or whose keyring is lost."""

from __future__ import annotations

import secrets

from tacit.errors import DeviceError
from tacit.field.device.vault import ScryptCost

SYMBOLS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # without those that look alike
GROUPS, GROUP = 5, 5  # 125 bits
ALIKE = str.maketrans("OIL", "011")
COST = ScryptCost(log_n=14)  # 2^125 codes cannot be tried, whatever one costs


def draw_code() -> str:
    """Return a new code, in groups that can be written down."""
    return "-".join("".join(secrets.choice(SYMBOLS) for _ in range(GROUP)) for _ in range(GROUPS))


def read_code(text: str) -> str:
    """Return a code as it was drawn, however it was typed."""
    symbols = "".join(text.upper().replace("-", " ").split()).translate(ALIKE)
    if len(symbols) != GROUPS * GROUP or not set(symbols) <= set(SYMBOLS):
        raise DeviceError(
            "This is not a recovery code.", f"It has {GROUPS} groups of {GROUP} letters or digits, as init printed it."
        )
    return "-".join(symbols[start : start + GROUP] for start in range(0, len(symbols), GROUP))
