"""In how many periods a device has sent models to a network of peers: leaving and restored copies do not set it back.

A network with a local guarantee ends the sending after some periods. A member that leaves and joins again has the same
history, and so has a copy of its file: what was sent before counts on.
"""

from __future__ import annotations

from tacit.field.device.store import Store

PLACE = "sent_periods"  # by the digest of a network; it outlives the membership
ALL = 2**31


def count_sent_periods(store: Store, network: bytes) -> int:
    """Return in how many periods this device has sent, before it was last a member of a network."""
    return int((store.get_json(PLACE) or {}).get(network.hex(), 0))


def keep_sent_periods(store: Store, network: bytes, periods: int) -> None:
    """Store in how many periods this device has sent, inside a transaction; it never falls."""
    most = max(periods, count_sent_periods(store, network))
    store.put_json(PLACE, {**(store.get_json(PLACE) or {}), network.hex(): most})


def close_sent_periods(store: Store, network: bytes | None) -> None:
    """Let all periods count as sent in, inside a transaction: this file is a copy, and the other may have gone on."""
    known = {*(store.get_json(PLACE) or {}), *([] if network is None else [network.hex()])}
    store.put_json(PLACE, dict.fromkeys(sorted(known), ALL))
