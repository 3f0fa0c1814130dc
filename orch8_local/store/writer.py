"""The single writer: one thread, one connection, whole transactions, one sync for many.

A transaction is one function. It runs whole or not at all; cancelling whoever waits for it cannot
cut it. Whatever has queued up while the disk was busy is committed together. The easy mistake:
believing that a COMMIT which raised has not happened. Only SQLITE_FULL proves that nothing was
written; after any other failure this writer is poisoned and the next start reads the truth
(reliability 1.2).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, Protocol, TypeVar

from orch8_local.errors import CommitUnknown, DiskFull, ReadOnly, StoreError
from orch8_local.world import CrashPoints

log = logging.getLogger("orch8_local")
T = TypeVar("T")

CHECKPOINT_PAGES = 1000
PAGE_BYTES = 4096
WAL_ALARM_BYTES = 64 * 1024 * 1024
WAL_TRUNCATE_BYTES = 4 * 1024 * 1024
BATCHES_BETWEEN_LOOKS = 4
WAL_INDEX_VERSION = 3_007_000

SQL_APPEND_EVENT = (
    "INSERT INTO events (instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state,"
    " reason, detail, prev_sha256, entry_sha256) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


class Tx:
    """The connection inside one transaction.

    chain_head: the last event's hash, once it is known. events: lines of the timeline that are written
    together before the commit, as nothing inside a transaction reads them.
    """

    __slots__ = ("chain_head", "events", "execute", "executemany")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany
        self.chain_head: str | None = None
        self.events: list[tuple[Any, ...]] = []

    def flush(self) -> None:
        """Write what is kept together."""
        if self.events:
            self.executemany(SQL_APPEND_EVENT, self.events)
            self.events.clear()

    def one(self, sql: LiteralString, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self.execute(sql, params).fetchone()
        return row

    def all(self, sql: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.execute(sql, params).fetchall()


class WriterApi(Protocol):
    """What the engine needs of a writer."""

    @property
    def is_poisoned(self) -> bool:
        """True once a commit's fate is unknown; nothing more is accepted."""
        ...

    async def transact(self, fn: Callable[[Tx], T], *, name: str) -> T:
        """Run `fn` whole in one transaction and return when it is on disk.

        Raises what `fn` raised (its changes alone are undone), DiskFull (nothing of the batch was
        written), or CommitUnknown.
        """
        ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class _Job:
    fn: Callable[[Any], Any]
    name: str
    future: asyncio.Future[Any]
    is_maintenance: bool = False
    result: Any = None
    error: BaseException | None = None


class Writer:
    """The real writer. Owns its connection from the first transaction to `close`."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        crash: CrashPoints,
        *,
        wal_path: Path | None = None,
        on_poison: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._connect = connect
        self._crash = crash
        self._wal_path = wal_path
        self._on_poison = on_poison
        self._queue: deque[_Job] = deque()
        self._condition = threading.Condition()
        self._poison: BaseException | None = None
        self._is_closing = False
        self._is_dirty = False
        self._n_batches = 0
        self._has_alarmed = False
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name="orch8-writer", daemon=True)

    @property
    def is_poisoned(self) -> bool:
        """True once a commit's fate is unknown."""
        return self._poison is not None

    async def open(self) -> None:
        """Start the thread and its connection; raises what `connect` raised."""
        self._thread.start()
        await asyncio.shield(self._opened)

    async def transact(self, fn: Callable[[Tx], T], *, name: str) -> T:
        """See WriterApi."""
        if self._poison is not None:
            raise commit_unknown(self._poison)
        if self._is_closing:
            raise StoreError("the database is being closed")
        future: asyncio.Future[T] = self._loop.create_future()
        with self._condition:
            self._queue.append(_Job(fn, name, future))
            self._condition.notify()
        return await future

    async def maintain(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` on the thread with the bare connection, outside a transaction: migration, checks."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._condition:
            self._queue.append(_Job(fn, "", future, is_maintenance=True))
            self._condition.notify()
        return await future

    async def close(self) -> None:
        """Finish what is queued, checkpoint, and close the connection."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread.is_alive() or self._closed.done():
            await asyncio.shield(self._closed)

    # --- the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:
            self._tell(self._opened.set_exception, error)
            self._tell(self._closed.set_result, None)
            return
        self._tell(self._opened.set_result, None)
        try:
            while (batch := self._next_batch()) is not None:
                if not batch:
                    self._rest(connection)
                    continue
                if self._poison is not None:
                    for job in batch:
                        job.error = commit_unknown(self._poison)
                else:
                    self._maintain(connection, batch)
                    self._commit(connection, [job for job in batch if not job.is_maintenance])
                self._tell(_settle, batch)
                self._look_at_log(connection)
            self._checkpoint(connection, "TRUNCATE")
        finally:
            connection.close()
            self._tell(self._closed.set_result, None)

    def _tell(self, fn: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(fn, *arguments)
        except RuntimeError:
            log.debug("the loop is gone", extra={"action": "writer_orphaned"})

    def _next_batch(self) -> list[_Job] | None:
        with self._condition:
            while not self._queue:
                if self._is_closing:
                    return None
                self._condition.wait(2.0 if self._is_dirty else None)
                if not self._queue and self._is_dirty and not self._is_closing:
                    return []
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _maintain(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        for job in batch:
            if job.is_maintenance:
                try:
                    job.result = job.fn(connection)
                except BaseException as error:
                    job.error = error

    def _commit(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        """All functions in one transaction. If one of them refuses, all are run again, each undone alone."""
        if not batch:
            return
        try:
            if not self._together(connection, batch):
                self._one_by_one(connection, batch)
            for job in batch:
                self._crash.reach(f"{job.name}.commit")
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(connection, batch, error)
        else:
            self._is_dirty = True
            self._n_batches += 1
            for job in batch:
                self._crash.reach(f"{job.name}.after")

    def _together(self, connection: sqlite3.Connection, batch: list[_Job]) -> bool:
        """Run every function; False, and nothing done, if one raised: that is rare, and this is fast."""
        connection.execute("BEGIN IMMEDIATE")
        tx = Tx(connection)
        try:
            for job in batch:
                self._crash.reach(f"{job.name}.begin")
                job.result = job.fn(tx)
            tx.flush()
        except BaseException as error:
            if not _is_refusal(error):
                raise
            connection.execute("ROLLBACK")
            return False
        return True

    def _one_by_one(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        """Run every function in a savepoint of its own, so that one that raises takes only itself back."""
        connection.execute("BEGIN IMMEDIATE")
        tx = Tx(connection)
        for job in batch:
            head = tx.chain_head
            connection.execute("SAVEPOINT one")
            try:
                job.result = job.fn(tx)
                tx.flush()
            except BaseException as error:
                if not _is_refusal(error):
                    raise
                job.error = error
                tx.events.clear()
                tx.chain_head = head
                connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")

    def _fail(self, connection: sqlite3.Connection, batch: list[_Job], error: sqlite3.Error) -> None:
        """The whole batch failed: say for each whether it is certain that nothing was written."""
        found = as_store_error(error)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            log.debug("rollback failed: %s", second, extra={"action": "rollback_failed"})
        if isinstance(found, CommitUnknown):
            self._poison = error
            log.critical("%s", found, extra={"action": "writer_poisoned"})
            if self._on_poison is not None:
                self._tell(self._on_poison, found)
        for job in batch:
            job.error = job.error or found

    # --- the log -------------------------------------------------------------------------------

    def _look_at_log(self, connection: sqlite3.Connection) -> None:
        """Checkpoint after about a thousand pages: a longer log makes readers and the next start slow."""
        if self._wal_path is None or not self._is_dirty or self._poison is not None:
            return
        if self._n_batches % BATCHES_BETWEEN_LOOKS:
            return
        n_pages = self._n_pages_in_log()
        if n_pages < CHECKPOINT_PAGES:
            return
        self._checkpoint(connection, "PASSIVE")
        if n_pages * PAGE_BYTES > WAL_ALARM_BYTES and not self._has_alarmed:
            self._has_alarmed = True
            log.warning(
                "the log has grown to %d MiB: a reader keeps it from being reset",
                n_pages * PAGE_BYTES // 1048576,
                extra={"action": "wal_large"},
            )

    def _n_pages_in_log(self) -> int:
        """How many pages wait in the log, from the index that SQLite keeps beside it.

        The size of the log does not tell: a log that was carried over is written again from its
        beginning and keeps its size. Source: SQLite's description of the WAL index, bytes 0 and 16.
        """
        assert self._wal_path is not None
        try:
            with self._wal_path.with_name(self._wal_path.name.removesuffix("-wal") + "-shm").open("rb") as index:
                header = index.read(20)
            size_bytes = self._wal_path.stat().st_size
        except FileNotFoundError:
            return 0
        if len(header) == 20 and int.from_bytes(header[:4], sys.byteorder) == WAL_INDEX_VERSION:
            return int.from_bytes(header[16:20], sys.byteorder)
        return size_bytes // PAGE_BYTES

    def _rest(self, connection: sqlite3.Connection) -> None:
        """Nothing to do for a while: give a large log's space back, then sleep without a time-out."""
        self._is_dirty = False
        if self._wal_path is None or self._poison is not None:
            return
        try:
            size_bytes = self._wal_path.stat().st_size
        except FileNotFoundError:
            return
        if size_bytes > WAL_TRUNCATE_BYTES:
            self._checkpoint(connection, "TRUNCATE")
            self._has_alarmed = False

    def _checkpoint(self, connection: sqlite3.Connection, how: LiteralString) -> None:
        try:
            connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        except sqlite3.Error as error:
            log.warning("checkpoint failed: %s", error, extra={"action": "checkpoint_failed"})


def _settle(batch: Iterable[_Job]) -> None:
    for job in batch:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _is_refusal(error: BaseException) -> bool:
    """True for what concerns one function alone: its own error, or a constraint that it broke."""
    return isinstance(error, sqlite3.IntegrityError) or not isinstance(error, sqlite3.DatabaseError)


def commit_unknown(cause: BaseException) -> CommitUnknown:
    """What is said once a commit's fate is not known."""
    return CommitUnknown(
        f"the disk refused a commit ({cause}); only a restart can tell whether it was written",
        hint="check the disk, then start again: what is on it is the truth",
    )


def as_store_error(error: sqlite3.Error) -> StoreError:
    """The one table from SQLite's words to ours."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    if primary == sqlite3.SQLITE_FULL:
        return DiskFull("the disk is full; nothing of this transaction was written", hint="free some space")
    if primary == sqlite3.SQLITE_READONLY:
        return ReadOnly(f"the database cannot be written: {error}", hint="check its permissions and its disk")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            "another program writes to this database",
            hint="close it: only the owner of the lease may write",
        )
    if primary == sqlite3.SQLITE_ERROR:
        return StoreError(f"the database refused a statement: {error}")
    return commit_unknown(error)
