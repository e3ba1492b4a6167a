"""State of the simulated clouds across requests, processes and commands: one SQLite file per rehearsal.

Several plugin processes share it. Each request is one transaction, so its objects are visible to all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (type TEXT, id TEXT, live TEXT, PRIMARY KEY (type, id));
CREATE TABLE IF NOT EXISTS steps
  (number INTEGER PRIMARY KEY, command TEXT, verb TEXT, type TEXT, urn TEXT, outcome TEXT);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT);
"""


@dataclass(frozen=True)
class Step:
    """A change that the engine requested. `outcome` is "done", the message of a refusal or fault, or "" while it runs.

    `number` counts the requests of a command from 1.
    """

    number: int
    verb: str
    type: str
    urn: str
    outcome: str


class View:
    """The state within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, type_: str, id_: str) -> Json | None:
        """Return a live object or None."""
        row = self._connection.execute("SELECT live FROM objects WHERE type = ? AND id = ?", (type_, id_)).fetchone()
        return None if row is None else json.loads(row[0])

    def all(self, type_: str | None = None) -> Iterator[tuple[str, str, Json]]:
        """Yield every live object as (type, id, live), or those of one type."""
        query = (
            "SELECT type, id, live FROM objects" + ("" if type_ is None else " WHERE type = ?") + " ORDER BY type, id"
        )
        for row in self._connection.execute(query, () if type_ is None else (type_,)).fetchall():
            yield row[0], row[1], json.loads(row[2])

    def put(self, type_: str, id_: str, live: Mapping[str, Any]) -> None:
        """Create or change a live object."""
        self._connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (type_, id_, json.dumps(live)))

    def remove(self, type_: str, id_: str) -> None:
        """Delete a live object."""
        self._connection.execute("DELETE FROM objects WHERE type = ? AND id = ?", (type_, id_))

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a setting of the rehearsal ("command", "faults", "quota"), as JSON."""
        row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, name: str, value: Any) -> None:
        """Change a setting of the rehearsal."""
        self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))

    def begin_step(self, verb: str, type_: str, urn: str) -> int:
        """Record a requested change; return its number within the command, from 1."""
        command = self.setting("command", "")
        count = "SELECT COUNT(*) FROM steps WHERE command = ?"
        number = int(self._connection.execute(count, (command,)).fetchone()[0]) + 1
        self._connection.execute(
            "INSERT INTO steps (command, verb, type, urn, outcome) VALUES (?, ?, ?, ?, '')", (command, verb, type_, urn)
        )
        return number

    def end_step(self, urn: str, outcome: str) -> None:
        """Record the outcome of a change."""
        self._connection.execute("UPDATE steps SET outcome = ? WHERE urn = ? AND outcome = ''", (outcome, urn))

    def steps(self, command: str) -> list[Step]:
        """Return the changes of a command, in order."""
        rows = self._connection.execute(
            "SELECT verb, type, urn, outcome FROM steps WHERE command = ? ORDER BY number", (command,)
        )
        return [Step(number, *row) for number, row in enumerate(rows, 1)]


class State:
    """The state file. Every process opens it by path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._connect() as connection:
            connection.executescript(_SCHEMA)
        connection.close()

    @contextmanager
    def transaction(self) -> Iterator[View]:
        """Open a transaction for one request: all of its changes are committed, or none."""
        connection = self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield View(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        # A simulation does not need durability against power failure, which would take most of the time.
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection
