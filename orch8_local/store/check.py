"""Looking at a whole database: what it is, whether it is sound, a copy of it. Never changes it.

Works beside a living owner, on connections that cannot write. The easy mistake: copying the file; a
database is more than its main file while it is in use, so a backup is made by SQLite, page by page
in one read transaction, and read back before it gets its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orch8_local.errors import AlreadyExists, Corrupt, DiskFull, NotFound, ReadOnly, StoreError
from orch8_local.store import filesystem, migrate
from orch8_local.store.database import check_header_bytes, full_to_read, unfinished
from orch8_local.store.events import SQL_CHAIN, first_broken_link

Json = Any
MOST_PROBLEMS = 50

SQL_META = "SELECT db_id, epoch, created_at_us, is_clean FROM ledger_meta WHERE id = 1"
SQL_STATES = "SELECT state, count(*) FROM instances GROUP BY state"
SQL_COUNTS = "SELECT state, n FROM instance_counts"
SQL_RECEIPT_STATES = "SELECT state, count(*) FROM effect_receipts GROUP BY state"
SQL_N_EVENTS = "SELECT count(*) FROM events"
RULES: Mapping[str, str] = {
    "a run is blocked but none of its effects is unresolved": (
        "SELECT id FROM instances AS i WHERE is_blocked = 1 AND NOT EXISTS (SELECT 1 FROM effect_receipts AS r"
        " WHERE r.instance_id = i.id AND r.state IN ('dispatched','unknown'))"
    ),
    "an unresolved effect belongs to a run that has completed": (
        "SELECT r.id FROM effect_receipts AS r JOIN instances AS i ON i.id = r.instance_id"
        " WHERE r.state IN ('dispatched','unknown') AND i.state = 'completed'"
    ),
    "an effect belongs to no run": (
        "SELECT id FROM effect_receipts AS r WHERE NOT EXISTS (SELECT 1 FROM instances AS i WHERE i.id = r.instance_id)"
    ),
    "an effect's state is not that of its last event": (
        "SELECT r.id FROM effect_receipts AS r WHERE r.state != (SELECT e.to_state FROM events AS e"
        " WHERE e.instance_id = r.instance_id AND e.effect_id = r.id AND e.to_state IS NOT NULL"
        " ORDER BY e.seq DESC LIMIT 1)"
    ),
    "a step is completed without a result": (
        "SELECT n.instance_id || ' ' || n.block_id FROM nodes AS n JOIN instances AS i ON i.id = n.instance_id"
        " WHERE n.state = 'completed' AND EXISTS (SELECT 1 FROM effect_receipts AS r WHERE"
        " r.instance_id = n.instance_id AND r.block_id = n.block_id AND r.scope = n.scope) AND NOT EXISTS"
        " (SELECT 1 FROM outputs AS o WHERE o.instance_id = n.instance_id AND o.block_id = n.block_id"
        " AND o.scope = n.scope AND o.kind = 'result')"
    ),
    "two attempts of one action are unresolved at once": (
        "SELECT intent_id FROM effect_receipts WHERE state IN ('dispatched','unknown')"
        " GROUP BY intent_id HAVING count(*) > 1"
    ),
}
"""What must hold between the tables; each query lists what breaks the rule."""


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """What a database is. Sizes in bytes, times in microseconds UTC."""

    path: Path
    db_id: str
    schema: int
    epoch: int
    created_at_us: int
    is_clean: bool
    size_bytes: int
    log_bytes: int
    n_events: int
    runs: Mapping[str, int]
    effects: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """problems: empty if the database is sound. figures: what was looked at."""

    problems: tuple[str, ...]
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A finished copy, read back."""

    path: Path
    size_bytes: int
    n_events: int


def database_info(path: Path) -> DatabaseInfo:
    """The facts of a database. NotFound, Corrupt, SchemaNewer, Unsuitable as for opening it."""
    with _reading(path) as connection:
        row = connection.execute(SQL_META).fetchone() or ("", 0, 0, 0)
        log = path.with_name(path.name + "-wal")
        return DatabaseInfo(
            path=path,
            db_id=row[0],
            schema=connection.execute("PRAGMA user_version").fetchone()[0],
            epoch=row[1],
            created_at_us=row[2],
            is_clean=bool(row[3]),
            size_bytes=path.stat().st_size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            n_events=connection.execute(SQL_N_EVENTS).fetchone()[0],
            runs=dict(connection.execute(SQL_STATES).fetchall()),
            effects=dict(connection.execute(SQL_RECEIPT_STATES).fetchall()),
        )


def check_database(path: Path) -> CheckReport:
    """Look at every page, every rule between tables, and every link of the event chain."""
    try:
        with _reading(path) as connection:
            return _check(connection)
    except Corrupt as error:
        return CheckReport((error.message,))


def _check(connection: sqlite3.Connection) -> CheckReport:
    connection.execute("BEGIN")
    problems = [
        str(row[0])
        for row in connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall()
        if row[0] != "ok"
    ]
    problems += [f"{row[0]} row {row[1]} refers to nothing" for row in connection.execute("PRAGMA foreign_key_check")]
    problems += _schema_faults(connection)
    if problems:  # the rules would only repeat it in other words
        return CheckReport(tuple(problems[:MOST_PROBLEMS]))
    for rule, sql in RULES.items():
        problems += [f"{rule}: {row[0]}" for row in connection.execute(f"{sql} LIMIT 5")]
    counted = dict(connection.execute(SQL_STATES).fetchall())
    for state, n in connection.execute(SQL_COUNTS):
        if n != counted.get(state, 0):
            problems.append(f"{n} runs are counted as {state}, and there are {counted.get(state, 0)}")
    n_events, broken = _chain(connection)
    if broken is not None:
        problems.append(f"the chain of events is broken at event {broken}: it, or one before it, was changed")
    figures = {
        "events": n_events,
        "runs": sum(counted.values()),
        "effects": sum(n for _, n in connection.execute(SQL_RECEIPT_STATES)),
    }
    return CheckReport(tuple(problems[:MOST_PROBLEMS]), figures)


def _chain(connection: sqlite3.Connection) -> tuple[int, int | None]:
    """(how many events, the first one that does not follow from the one before it)."""
    n_events, after, previous = 0, 0, None
    while rows := connection.execute(SQL_CHAIN, (after,)).fetchall():
        broken = first_broken_link(rows) if previous is None else first_broken_link(rows, previous)
        if broken is not None:
            return n_events, broken
        n_events += len(rows)
        after, previous = rows[-1][0], rows[-1][-1]
    return n_events, None


def _schema_faults(connection: sqlite3.Connection) -> list[str]:
    """Tables, indexes and triggers that are missing, changed or too many, by a database made afresh."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate.migrate(fresh, migrate.steps(), _NoCrash())
        wanted, found = _schema(fresh), _schema(connection)
    faults = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"{name} is not ours" for name in sorted(found.keys() - wanted.keys())]
    faults += [f"{name} was changed" for name in sorted(wanted.keys() & found.keys()) if wanted[name] != found[name]]
    return faults


def _schema(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {name: " ".join(sql.split()) for name, sql in rows if "sqlite_stat" not in name}


class _NoCrash:
    def reach(self, point: str) -> None:
        """Nothing dies while a fresh schema is made for comparison."""


def backup_database(path: Path, target: Path) -> BackupReport:
    """A consistent copy at `target`, which must not exist; it appears there whole or not at all."""
    if target.exists() or target.is_symlink():
        raise _is_there(target)
    partial = target.with_name(target.name + ".partial")
    try:
        with _reading(path) as source:
            filesystem.make_folder(target.parent)
            partial.unlink(missing_ok=True)
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            _copy(source, partial, path, target)
        report = check_database(partial)
        if report.problems:
            raise Corrupt(
                f"the copy of {path} is not sound: {report.problems[0]}",
                hint="`orch8-local db check` looks at the original",
            )
        _sync(partial)
        _name(partial, target)
        filesystem.sync_folder(target.parent)
    except FileExistsError as error:
        raise _is_there(target) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(target) from error
        raise ReadOnly(f"{target} cannot be written: {error.strerror}", hint="choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return BackupReport(target, target.stat().st_size, report.figures.get("events", 0))


def _copy(source: sqlite3.Connection, partial: Path, path: Path, target: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise _no_room(target) from error
        raise StoreError(f"{path} could not be copied: {error}", hint="`orch8-local db check` says more") from error


def _name(partial: Path, target: Path) -> None:
    """Give the copy its name without ever replacing another file."""
    try:
        os.link(partial, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if target.exists():  # a file system without hard links, such as that of a USB stick
            raise FileExistsError(errno.EEXIST, "is there already") from error
        partial.rename(target)
    else:
        partial.unlink()


def _is_there(target: Path) -> AlreadyExists:
    return AlreadyExists(f"{target} is there already", hint="choose another name; a backup never overwrites")


def _no_room(target: Path) -> DiskFull:
    return DiskFull(f"there is no room for {target}", hint="free some space or choose another disk")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, on a file that is ours to read."""
    path = Path(os.path.realpath(path))
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise NotFound(f"there is no database {path}", hint="`orch8-local run hello` makes one") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}", hint="look at its permissions") from error
    if not header:
        raise unfinished(path)
    check_header_bytes(path, header, migrate.steps())
    is_in_use = path.with_name(path.name + "-wal").exists()
    mode = "mode=ro" if is_in_use or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("PRAGMA query_only = ON")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                raise unfinished(path)
            yield connection
    except sqlite3.DatabaseError as error:
        if filesystem.is_full(path.parent):
            raise full_to_read(path) from error
        raise Corrupt(
            f"SQLite cannot read {path}: {error}", hint="`orch8-local db check` says more; keep the file as it is"
        ) from error
