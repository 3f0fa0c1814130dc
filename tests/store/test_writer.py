"""The writer: whole transactions, one sync for many, and the truth about a commit that failed."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orch8_local.errors import CommitUnknown, DiskFull, StoreError
from orch8_local.store import writer as writer_module
from orch8_local.store.writer import Tx, Writer
from orch8_local.world import NoCrash

SCHEMA = "CREATE TABLE pair (id INTEGER PRIMARY KEY, a INTEGER NOT NULL, b INTEGER NOT NULL) STRICT"


class Failing(sqlite3.Connection):
    """A connection whose COMMIT fails with a chosen code, as often as told."""

    failures: list[int] = []  # noqa: RUF012 - one list for the test that sets it

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Fail a COMMIT, or do what is asked."""
        if sql == "COMMIT" and self.failures:
            error = sqlite3.OperationalError("the disk plays up")
            error.sqlite_errorcode = self.failures.pop(0)
            raise error
        return super().execute(sql, parameters)


@asynccontextmanager
async def open_writer(path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection) -> AsyncIterator[Writer]:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, factory=factory)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(SCHEMA)
        connection.execute("INSERT INTO pair VALUES (1, 0, 0)")
        return connection

    writer = Writer(connect, NoCrash(), wal_path=Path(f"{path}-wal"))
    await writer.open()
    try:
        yield writer
    finally:
        await writer.close()


def pair_of(path: Path) -> tuple[int, int]:
    connection = sqlite3.connect(path)
    try:
        found: tuple[int, int] = connection.execute("SELECT a, b FROM pair WHERE id = 1").fetchone()
        return found
    finally:
        connection.close()


def add_one(tx: Tx) -> int:
    """Two statements that belong together."""
    tx.execute("UPDATE pair SET a = a + 1 WHERE id = 1")
    tx.execute("UPDATE pair SET b = b + 1 WHERE id = 1")
    row = tx.one("SELECT a FROM pair WHERE id = 1")
    assert row is not None
    return int(row[0])


async def test_cancelling_a_waiter_never_cuts_a_transaction(tmp_path: Path) -> None:
    """2,000 transactions, waiters cancelled at seeded moments: each ran whole or not at all, none told is lost."""
    chance = random.Random(7)
    acknowledged = 0
    async with open_writer(tmp_path / "db") as writer:

        async def one() -> None:
            nonlocal acknowledged
            await writer.transact(add_one, name="add")
            acknowledged += 1

        for _ in range(200):
            tasks = [asyncio.ensure_future(one()) for _ in range(10)]
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            for task in chance.sample(tasks, chance.randrange(len(tasks))):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    a, b = pair_of(tmp_path / "db")
    assert a == b
    assert acknowledged <= a <= 2000
    assert acknowledged > 200


async def test_what_queues_up_during_a_commit_is_one_transaction(tmp_path: Path) -> None:
    """While the disk is busy everything that comes is put together: far fewer commits than transactions."""
    began, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        began.set()
        go_on.wait(10)
        add_one(tx)

    async with open_writer(tmp_path / "db") as writer:
        first = asyncio.ensure_future(writer.transact(slow, name="slow"))
        await asyncio.to_thread(began.wait)
        others = [asyncio.ensure_future(writer.transact(add_one, name="add")) for _ in range(300)]
        await asyncio.sleep(0)
        before = writer._n_batches
        go_on.set()
        await asyncio.gather(first, *others)
        assert writer._n_batches - before == 2
    assert pair_of(tmp_path / "db") == (301, 301)


async def test_a_function_that_refuses_takes_back_itself_alone(tmp_path: Path) -> None:
    """In a common transaction one function that raises undoes only its own changes; the others stay."""
    began, go_on = threading.Event(), threading.Event()

    def hold(_: Tx) -> None:
        began.set()
        go_on.wait(10)

    def refuse(tx: Tx) -> None:
        add_one(tx)
        raise ValueError("no")

    def duplicate(tx: Tx) -> None:
        tx.execute("INSERT INTO pair VALUES (1, 0, 0)")

    async with open_writer(tmp_path / "db") as writer:
        holding = asyncio.ensure_future(writer.transact(hold, name="hold"))
        await asyncio.to_thread(began.wait)
        jobs: list[Callable[[Tx], Any]] = [add_one, refuse, add_one, duplicate, add_one]
        futures = [asyncio.ensure_future(writer.transact(job, name="job")) for job in jobs]
        await asyncio.sleep(0)
        go_on.set()
        found = await asyncio.gather(*futures, return_exceptions=True)
        await holding
    assert [type(one) for one in found] == [int, ValueError, int, sqlite3.IntegrityError, int]
    assert [one for one in found if isinstance(one, int)] == [1, 2, 3]
    assert pair_of(tmp_path / "db") == (3, 3)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOMEM])
async def test_a_commit_that_failed_poisons_the_writer(tmp_path: Path, code: int) -> None:
    """After a failed commit nobody can know what is on the disk: that transaction and all later ones say so."""
    Failing.failures = [code]
    async with open_writer(tmp_path / "db", Failing) as writer:
        with pytest.raises(CommitUnknown):
            await writer.transact(add_one, name="add")
        assert writer.is_poisoned
        with pytest.raises(CommitUnknown):
            await writer.transact(add_one, name="add")


async def test_a_full_disk_has_written_nothing_and_is_not_the_end(tmp_path: Path) -> None:
    """SQLITE_FULL is the one failure that proves that nothing was written: the next transaction goes on."""
    Failing.failures = [sqlite3.SQLITE_FULL]
    async with open_writer(tmp_path / "db", Failing) as writer:
        with pytest.raises(DiskFull):
            await writer.transact(add_one, name="add")
        assert not writer.is_poisoned
        assert await writer.transact(add_one, name="add") == 1


async def test_a_closed_writer_takes_nothing_and_has_finished_what_it_took(tmp_path: Path) -> None:
    """What was queued before the close is on the disk; afterwards a transaction is refused."""
    async with open_writer(tmp_path / "db") as writer:
        futures = [asyncio.ensure_future(writer.transact(add_one, name="add")) for _ in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*futures)
    assert pair_of(tmp_path / "db") == (50, 50)
    with pytest.raises(StoreError):
        await writer.transact(add_one, name="add")


async def test_the_log_is_bounded_also_after_a_reader_held_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that keeps its snapshot makes the log grow; when it has gone, the log is written from its beginning."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 50)
    path = tmp_path / "db"

    def grow(tx: Tx) -> None:
        tx.executemany("INSERT INTO pair (a, b) VALUES (?, ?)", [(n, n) for n in range(400)])

    async with open_writer(path) as writer:
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM pair").fetchone()
        for _ in range(200):
            await writer.transact(grow, name="grow")
        held_pages = writer._n_pages_in_log()
        assert held_pages > 500
        reader.close()
        for _ in range(200):
            await writer.transact(grow, name="grow")
        assert writer._n_pages_in_log() < held_pages / 2
