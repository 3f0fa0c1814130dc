"""Schema steps: one `.sql` file each, applied with its number in one transaction.

The easy mistake: `executescript`, which commits whatever is open first. Statements are run one by
one inside a transaction that also sets `user_version`, so a step is there whole or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from importlib import resources

from orch8_local.world import CrashPoints

APPLICATION_ID = 0x6F386C31
Step = tuple[int, str]


def steps() -> list[Step]:
    """(number, SQL) of every step this program knows, in order."""
    folder = resources.files("orch8_local.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), (folder / name).read_text(encoding="utf-8")) for name in names]


def newest(known: Sequence[Step]) -> int:
    """The schema number of this program."""
    return known[-1][0]


def migrate(connection: sqlite3.Connection, known: Sequence[Step], crash: CrashPoints) -> int:
    """Apply what is missing; returns how many steps ran."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    n_applied = 0
    for number, sql in known:
        if number <= version:
            continue
        crash.reach("migrate.begin")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
            crash.reach("migrate.commit")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        crash.reach("migrate.after")
        n_applied += 1
    return n_applied


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in sql.splitlines(keepends=True):
        if not statement and (not line.strip() or line.lstrip().startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "a migration ends with a whole statement"
