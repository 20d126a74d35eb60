"""What stands in the clear in a device's file: its id, how its key is wrapped, and who keeps the passphrase.

A checksum distinguishes a damaged disk from a wrong passphrase; the sealed root shows a fact that was changed on
purpose.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping

from tacit.field.device.sealed_root import damage_error
from tacit.field.device.vault import Vault

SUM = "sum"  # name of the fact that is the checksum of the others


def read_facts(connection: sqlite3.Connection) -> dict[str, str]:
    """Return what stands in the clear; what a disk has damaged is not taken for a wrong passphrase."""
    facts = {str(name): str(value) for name, value in connection.execute("SELECT name, value FROM facts")}
    if SUM in facts and facts[SUM] != _checksum(facts):
        raise damage_error("facts", "as a whole")
    return facts


def write_facts(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Write what stands in the clear, and its checksum, inside a transaction."""
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
    stored = {str(name): str(value) for name, value in connection.execute("SELECT name, value FROM facts")}
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (SUM, _checksum(stored)))


def mark_facts(connection: sqlite3.Connection, vault: Vault) -> int:
    """Return the mark of all facts, by which the sealed root knows them."""
    facts = sorted(read_facts(connection).items())
    return vault.mark_bytes(json.dumps(facts).encode())


def _checksum(facts: Mapping[str, str]) -> str:
    stored = sorted((name, value) for name, value in facts.items() if name != SUM)
    return hashlib.sha256(json.dumps(stored).encode()).hexdigest()
