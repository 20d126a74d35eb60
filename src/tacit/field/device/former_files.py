"""Files that earlier versions wrote: their rows, as they are stored now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from tacit.field.device.sealed_root import damage_error
from tacit.field.device.vault import Vault


def read_former_rows(connection: sqlite3.Connection, vault: Vault) -> Iterator[tuple[str, str, bytes]]:
    """Yield (table, place, content) of every row of formats 1 and 2, in order.

    There a mark's entry stood in the clear, and a message whose transfer failed was called "not sent", although its
    receiver may have it.
    """
    for name, sealed in connection.execute("SELECT name, sealed FROM former_places").fetchall():
        yield "places", name, vault.unseal_former(sealed, "places", name)
    entries = 0
    for table in ("history", "ledger", "turns"):
        found = connection.execute(f"SELECT row, sealed FROM former_{table} ORDER BY row").fetchall()
        if table == "ledger" and [row for row, _ in found] != list(range(1, len(found) + 1)):
            raise damage_error("ledger", "as a whole")
        entries = len(found) if table == "ledger" else entries
        for row, sealed in found:
            yield table, "", vault.unseal_former(sealed, table, row)
    for row, entry, sealed in connection.execute("SELECT row, entry, sealed FROM former_marks ORDER BY row").fetchall():
        mark = json.loads(vault.unseal_former(sealed, "marks", row))
        if not isinstance(entry, int) or not 1 <= entry <= entries:
            raise damage_error("marks", row)
        state = "may have left" if mark["state"] == "not sent" else mark["state"]
        yield "marks", "", json.dumps(mark | {"state": state, "entry": entry}).encode()
