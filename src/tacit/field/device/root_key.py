"""The root key of a device: everything that the device draws while it learns follows from it."""

from __future__ import annotations

from tacit.field.device.store import Store
from tacit.random import Key

ROOT = "root"  # the place of the root key in the file


def keep_root(store: Store, seed: int, lane: int, is_given: bool) -> None:
    """Store the root key of a new device, inside a transaction; `is_given`: it is of a test, and no secret."""
    store.put_json(ROOT, {"seed": seed, "lane": lane, "is_given": is_given})


def root_of(store: Store) -> tuple[Key, int]:
    """Return the key and the lane (the client's number) of all draws."""
    stored = store.get_json(ROOT)
    return Key(stored["seed"]).child("learn"), stored["lane"]


def coins_of(store: Store) -> Key:
    """Return the key of coins that are tossed once; a restored device tosses the same."""
    stored = store.get_json(ROOT)
    return Key(stored.get("coins", stored["seed"]))


def is_root_given(store: Store) -> bool:
    """Say whether the root key is of a test: its draws can be repeated by others."""
    return bool(store.get_json(ROOT).get("is_given"))
