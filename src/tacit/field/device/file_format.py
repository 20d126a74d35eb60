"""The tables of a device's file, version by version."""

from __future__ import annotations

from tacit.errors import DeviceError
from tacit.field.device.sealed_root import RESTORE
from tacit.storage.database import FileFormat

TABLES = ("history", "ledger", "marks", "turns")
SEALED_ROOT = 3  # the first version with a root
MIGRATIONS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE places (name TEXT PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE history (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);
    CREATE TABLE ledger (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);
    CREATE TABLE marks (
        row INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL REFERENCES ledger, sealed BLOB NOT NULL
    );
    CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_stay BEFORE UPDATE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_kept BEFORE DELETE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    """,
    "CREATE TABLE turns (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);",
    """
    DROP TRIGGER ledger_stays;
    DROP TRIGGER ledger_kept;
    DROP TRIGGER marks_stay;
    DROP TRIGGER marks_kept;
    ALTER TABLE places RENAME TO former_places;
    ALTER TABLE history RENAME TO former_history;
    ALTER TABLE ledger RENAME TO former_ledger;
    ALTER TABLE marks RENAME TO former_marks;
    ALTER TABLE turns RENAME TO former_turns;
    CREATE TABLE root (number INTEGER PRIMARY KEY CHECK (number = 0), sealed BLOB NOT NULL);
    CREATE TABLE places (name TEXT PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE history (row INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
    CREATE TABLE ledger (row INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
    CREATE TABLE marks (row INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
    CREATE TABLE turns (row INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
    CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_stay BEFORE UPDATE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_kept BEFORE DELETE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    """,
)
"""What made each version of the file from the one before; the table `versions` says which were applied."""

FILE = FileFormat(0x54434954, "a device's file", MIGRATIONS, DeviceError, RESTORE)
