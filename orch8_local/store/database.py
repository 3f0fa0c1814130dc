"""The file: refuse what cannot hold a ledger, take the lease, open it as it must be, close it cleanly.

Order matters: lease, then a look at the header, then the connection, then every setting set *and
read back*, then the checks. The easy mistake: opening the database file by hand while SQLite has it
open in this process; closing that descriptor drops SQLite's locks. The header is read before.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from orch8_local.errors import Corrupt, DiskFull, NotFound, ReadOnly, SchemaNewer, StoreError, Unsuitable
from orch8_local.store import filesystem, lease, migrate
from orch8_local.store.migrate import APPLICATION_ID, Step
from orch8_local.store.views import SqlViews
from orch8_local.store.writer import Tx, Writer
from orch8_local.world import World

MINIMUM_SQLITE = (3, 37, 0)
SQLITE_VERSION = sqlite3.sqlite_version_info
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\x00"

SQL_META = "SELECT is_clean FROM ledger_meta WHERE id = 1"
SQL_NEW_META = "INSERT INTO ledger_meta (id, db_id, created_at_us) VALUES (1, ?, ?)"
SQL_BOOT = "UPDATE ledger_meta SET is_clean = 0, last_boot_id = ? WHERE id = 1"
SQL_ANYTHING = "SELECT 1 FROM sqlite_schema LIMIT 1"
SQL_CLEAN = "UPDATE ledger_meta SET is_clean = 1 WHERE id = 1"

SETTINGS: Sequence[tuple[str, str, object]] = (
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    ("recursive_triggers", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("busy_timeout", "5000", 5000),
    ("wal_autocheckpoint", "0", 0),
    ("journal_size_limit", "67108864", 67108864),
)
MAC_SETTINGS: Sequence[tuple[str, str, object]] = (
    ("fullfsync", "ON", 1),
    ("checkpoint_fullfsync", "ON", 1),
)


def wal_reset_rule(version: tuple[int, ...]) -> str:
    """`fixed` or `affected` by the bug of reliability 1.3."""
    if version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45):
        return "fixed"
    return "affected"


class Database:
    """An open database, owned by this process."""

    def __init__(self, path: Path, world: World, held: lease.Lease, writer: Writer) -> None:
        self.path = path
        self.boot_id = held.owner.boot_id
        self.writer = writer
        self._world = world
        self._lease = held

    @classmethod
    async def open(
        cls,
        path: Path,
        world: World,
        *,
        allow_any_filesystem: bool = False,
        steps: Sequence[Step] | None = None,
    ) -> Self:
        """Own the database at `path`, made if it is not there.

        Raises OwnedElsewhere, Unsuitable, ReadOnly, SchemaNewer, Corrupt; then nothing was changed.
        """
        if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
            raise Unsuitable(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or later is needed")
        known = migrate.steps() if steps is None else steps
        real = Path(os.path.realpath(path))
        filesystem.make_folder(real.parent)
        filesystem.check_place(real, allow_any=allow_any_filesystem)
        held = lease.take(real, world)
        try:
            _check_header(real, known)
            filesystem.make_file(real)
            writer = Writer(lambda: _connect(real), world.crash, wal_path=Path(f"{real}-wal"))
            await writer.open()
            database = cls(real, world, held, writer)
            try:
                await database._begin(known)
            except BaseException:
                await writer.close()
                raise
        except BaseException:
            held.release()
            raise
        return database

    async def open_views(self) -> SqlViews:
        """A reader of this database."""
        return await SqlViews.open(self.path)

    async def close(self) -> None:
        """Mark the end as clean, checkpoint, close, give the lease back."""
        try:
            if not self.writer.is_poisoned:
                await self.writer.transact(lambda tx: tx.execute(SQL_CLEAN) and None, name="close")
        except StoreError:
            pass  # the next start checks the file, as after any unclean end
        finally:
            await self.writer.close()
            self._lease.release()

    async def _begin(self, known: Sequence[Step]) -> None:
        crash = self._world.crash
        await self.writer.maintain(lambda connection: _prepare(connection, self.path, known, crash))

        def body(tx: Tx) -> bool:
            row = tx.one(SQL_META)
            if row is None:
                tx.execute(SQL_NEW_META, (self._world.ids.uuid7(), self._world.clock.now_us()))
            tx.execute(SQL_BOOT, (self.boot_id,))
            return row is None or bool(row[0])

        was_clean = await self.writer.transact(body, name="boot")
        if not was_clean:
            await self.writer.maintain(lambda connection: _quick_check(connection, self.path))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512, check_same_thread=False)
    try:
        settings = (*SETTINGS, *(MAC_SETTINGS if sys.platform == "darwin" else ()))
        for name, value, expected in settings:
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
            found = connection.execute(f"PRAGMA {name}").fetchone()
            if found is None or found[0] != expected:
                got = None if found is None else found[0]
                raise Unsuitable(f"SQLite did not take {name} = {value}; it says {got!r}")
        connection.execute("PRAGMA mmap_size = 0").fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        connection.close()
        raise _opened_badly(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, known: Sequence[Step], crash: object) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version == 0 and connection.execute(SQL_ANYTHING).fetchone() is not None:
        raise _foreign(path)  # what is in its log does not show in the header
    if 0 < version < migrate.newest(known):
        copy = path.with_name(f"{path.name}.before-v{migrate.newest(known)}")
        with sqlite3.connect(copy) as target:
            connection.backup(target)
        target.close()
    migrate.migrate(connection, known, crash)  # type: ignore[arg-type]


def _quick_check(connection: sqlite3.Connection, path: Path) -> None:
    try:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(5)").fetchall()]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise _corrupt(path, "; ".join(found))


def _corrupt(path: Path, why: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: {why}",
        hint="keep the file; restore a backup, or ask `orch8-local db check` what can still be read",
        details={"path": str(path)},
    )


def _opened_badly(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return ReadOnly(f"{path} cannot be written: {error}", hint="check the permissions of the file and its folder")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"another program has {path} open for writing", hint="close it, then try again")
    return _corrupt(path, str(error))


def _check_header(path: Path, known: Sequence[Step]) -> None:
    """Refuse a foreign or newer file before SQLite touches it."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return
    if size_bytes == 0:
        return
    check_header_bytes(path, header, known)


def check_header_bytes(path: Path, header: bytes, known: Sequence[Step]) -> None:
    """Raise Corrupt, Unsuitable or SchemaNewer for a header that is not ours to open."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise _corrupt(path, "it does not begin like an SQLite database")
    version = int.from_bytes(header[60:64], "big")
    application = int.from_bytes(header[68:72], "big")
    n_pages = int.from_bytes(header[28:32], "big")
    if version > migrate.newest(known):
        raise SchemaNewer(
            f"{path} has schema {version}; this program knows schemas up to {migrate.newest(known)}",
            hint="use the newer program, or restore a backup made by this one",
            details={"found": version, "supported": migrate.newest(known)},
        )
    if application != APPLICATION_ID and (version > 0 or n_pages > 1):
        raise _foreign(path)  # one page without a version is one of ours whose making was cut off


def _foreign(path: Path) -> Unsuitable:
    return Unsuitable(f"{path} is a database of another program", hint="choose another path with --db")


async def open_readonly_views(path: Path) -> SqlViews:
    """Read a database without owning it. NotFound, SchemaNewer, Corrupt, Unsuitable as for `open`.

    A file whose making was cut off, or is under way, holds nothing yet: NotFound too.
    """
    real = Path(os.path.realpath(path))
    if not real.exists():
        raise NotFound(f"there is no database {path}", hint="`orch8-local run hello` makes one")
    if lease.read_owner(real) is None:
        await asyncio.to_thread(_check_header, real, migrate.steps())
    views = await SqlViews.open(real, is_immutable=_must_be_immutable(real))
    try:
        if await views.schema() == 0:
            raise unfinished(path)
    except BaseException as error:
        await views.close()
        if isinstance(error, Corrupt) and filesystem.is_full(real.parent):
            raise full_to_read(path) from error
        raise
    return views


def full_to_read(path: Path) -> DiskFull:
    """The error for a disk on which SQLite cannot even make its shared memory."""
    return DiskFull(f"{path} cannot be read: there is no room beside it", hint="free some space on that disk")


def unfinished(path: Path) -> NotFound:
    """The error for a file that has no tables yet."""
    return NotFound(
        f"there is no database in {path} yet: making it was cut off", hint="`orch8-local run hello` makes it anew"
    )


def _must_be_immutable(path: Path) -> bool:
    """A read-only folder without a log: SQLite could not make its shared memory, and nobody can write."""
    wal = path.with_name(path.name + "-wal")
    has_log = wal.exists() and wal.stat().st_size > 0
    return not has_log and not os.access(path.parent, os.W_OK) and lease.read_owner(path) is None


def is_private(path: Path) -> bool:
    """True if nobody but the owner can write it."""
    return not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
