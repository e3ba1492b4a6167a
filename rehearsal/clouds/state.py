"""What the simulated clouds remember between requests, processes and commands: one SQLite file per rehearsal.

Several plugin processes share it; each request is one transaction, so what one of them made is there for all.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.clouds.kind import Json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (type TEXT, id TEXT, live TEXT, PRIMARY KEY (type, id));
CREATE TABLE IF NOT EXISTS steps
  (number INTEGER PRIMARY KEY, command TEXT, verb TEXT, type TEXT, urn TEXT, outcome TEXT, began REAL, ended REAL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT);
"""


@dataclass(frozen=True)
class Step:
    """A change that the engine asked for: `outcome` is "done", a refusal's or fault's words, or "" while under way.

    `number` counts within `command` from 1, in the order in which requests arrived.
    """

    number: int
    command: str
    verb: str
    type: str
    urn: str
    outcome: str


class View:
    """The world inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, type_: str, id_: str) -> Json | None:
        """A live object, or None."""
        row = self._connection.execute("SELECT live FROM objects WHERE type = ? AND id = ?", (type_, id_)).fetchone()
        return None if row is None else json.loads(row[0])

    def all(self, type_: str | None = None) -> Iterator[tuple[str, str, Json]]:
        """Every live object as (type, id, live), or those of one type."""
        query = (
            "SELECT type, id, live FROM objects" + ("" if type_ is None else " WHERE type = ?") + " ORDER BY type, id"
        )
        for row in self._connection.execute(query, () if type_ is None else (type_,)).fetchall():
            yield row[0], row[1], json.loads(row[2])

    def put(self, type_: str, id_: str, live: Mapping[str, Any]) -> None:
        """Make or change a live object."""
        self._connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (type_, id_, json.dumps(live)))

    def remove(self, type_: str, id_: str) -> None:
        """Take a live object away."""
        self._connection.execute("DELETE FROM objects WHERE type = ? AND id = ?", (type_, id_))

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting of the rehearsal ("command", "faults", "quota"), as JSON."""
        row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, name: str, value: Any) -> None:
        """Change a setting of the rehearsal."""
        self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))

    def begin_step(self, verb: str, type_: str, urn: str) -> int:
        """Note that a change was asked for; returns its number within the command, from 1."""
        command = self.setting("command", "")
        count = "SELECT COUNT(*) FROM steps WHERE command = ?"
        number = int(self._connection.execute(count, (command,)).fetchone()[0]) + 1
        self._connection.execute(
            "INSERT INTO steps (command, verb, type, urn, outcome, began) VALUES (?, ?, ?, ?, '', ?)",
            (command, verb, type_, urn, time.time()),
        )
        return number

    def end_step(self, urn: str, outcome: str) -> None:
        """Note how the change of a resource went."""
        self._connection.execute(
            "UPDATE steps SET outcome = ?, ended = ? WHERE urn = ? AND outcome = ''", (outcome, time.time(), urn)
        )

    def steps(self, command: str) -> list[Step]:
        """What was asked for during a command, in order."""
        rows = self._connection.execute(
            "SELECT command, verb, type, urn, outcome FROM steps WHERE command = ? ORDER BY number", (command,)
        )
        return [Step(number, *row) for number, row in enumerate(rows, 1)]


class State:
    """The file. Open it by path in every process that needs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._connect() as connection:
            connection.executescript(_SCHEMA)
        connection.close()

    @contextmanager
    def transaction(self) -> Iterator[View]:
        """The world for one request: all of its changes happen, or none."""
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
        # Durability against power loss is no concern of a simulation, and costs most of the time.
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection
