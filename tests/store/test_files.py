"""The file and who may touch it: the lease, other people's files, newer ones, broken ones, readers, copies."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from orch8_local.errors import (
    AlreadyExists,
    Corrupt,
    DiskFull,
    NotFound,
    OwnedElsewhere,
    SchemaNewer,
    StoreError,
    Unsuitable,
)
from orch8_local.store import filesystem
from orch8_local.store.check import backup_database, check_database, database_info
from orch8_local.store.database import Database, open_readonly_views
from orch8_local.store.lease import lock_path, read_owner
from orch8_local.testing.invariants import connect
from orch8_local.world import real_world
from tests.engine.outside import Outside, document, engine_on, run, step

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import asyncio, sys
from pathlib import Path
from orch8_local.store.database import Database
from orch8_local.world import real_world
async def main():
    await Database.open(Path(sys.argv[1]), real_world())
    print("open", flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


async def filled(path: Path) -> Path:
    """A database with two runs in it, closed."""
    async with engine_on(path, Outside("ok", "ok")) as engine:
        for _ in range(2):
            await run(engine, document(step("a")))
    return path


async def test_the_lease_is_one_process_and_ends_with_it(tmp_path: Path) -> None:
    """While a process has the database nobody else gets it, and the error names it; kill -9 frees it at once."""
    path = tmp_path / "db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(OwnedElsewhere, match=str(holder.pid)):
            await Database.open(path, real_world())
        owner = read_owner(path)
        assert owner is not None
        assert owner.pid == holder.pid
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout and holder.stdout.close()
    assert read_owner(path) is None
    await (await Database.open(path, real_world())).close()
    assert lock_path(path).exists()
    assert lock_path(path) != path


async def test_a_newer_database_is_refused_and_its_bytes_stay(tmp_path: Path) -> None:
    """A schema that this program does not know is named, and not one byte changes."""
    path = await filled(tmp_path / "db")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaNewer, match="999"):
        await Database.open(path, real_world())
    with pytest.raises(SchemaNewer, match="999"):
        await open_readonly_views(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_ledger_is_refused_and_its_bytes_stay(tmp_path: Path) -> None:
    """A text file, and the database of another program, are left as they are."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes, more than a hundred bytes of them; " * 5)
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="does not begin like"):
        await Database.open(path, real_world())
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_the_database_of_another_program_is_refused_and_its_bytes_stay(
    tmp_path: Path, version: int, mode: str
) -> None:
    """Whatever its version and journal: no table of ours is made in it, and no command looks into it."""
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE mine (x)")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(Unsuitable, match="another program"):
        await Database.open(other, real_world())
    with pytest.raises(Unsuitable, match="another program"):
        await open_readonly_views(other)
    with pytest.raises(Unsuitable, match="another program"):
        backup_database(other, tmp_path / "copy")
    assert other.read_bytes() == before
    assert not (tmp_path / "copy").exists()


async def test_what_another_program_has_in_its_log_is_its_own(tmp_path: Path) -> None:
    """A database whose tables are still in the log of its program is refused all the same."""
    other = tmp_path / "other.db"
    with sqlite3.connect(other, isolation_level=None) as theirs:
        theirs.execute("PRAGMA journal_mode = WAL")
        theirs.execute("CREATE TABLE mine (x)")
        with pytest.raises(StoreError):
            await Database.open(other, real_world())
        assert theirs.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    theirs.close()


@pytest.mark.parametrize("n_bytes", [0, 4096])
async def test_a_database_whose_making_was_cut_off_is_none_yet(tmp_path: Path, n_bytes: int) -> None:
    """Readers find nothing there, and the next start makes it whole."""
    path = tmp_path / "db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with path.open("r+b") as file:
        file.truncate(n_bytes)
    path.chmod(0o600)
    with pytest.raises(NotFound, match="cut off"):
        await open_readonly_views(path)
    with pytest.raises(NotFound, match="cut off"):
        database_info(path)
    await (await Database.open(path, real_world())).close()
    assert database_info(path).schema > 0


async def test_half_a_database_is_named_as_damaged(tmp_path: Path) -> None:
    """A file that ends too early is damage, found by every look at it."""
    path = await filled(tmp_path / "db")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert check_database(path).problems
    with pytest.raises(Corrupt, match=str(path)):
        database_info(path)
    with pytest.raises(StoreError):
        backup_database(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_torn_database_is_found_by_the_check_and_by_the_next_start(tmp_path: Path) -> None:
    """Overwritten pages are reported with the file's name; nothing is repaired behind the person's back."""
    path = await filled(tmp_path / "db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE ledger_meta SET is_clean = 0")
    connection.close()
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 2048] = b"\xff" * 2048
    path.write_bytes(content)
    assert check_database(path).problems
    with pytest.raises(StoreError):
        await Database.open(path, real_world())
    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "fuseblk"])
def test_a_file_system_that_cannot_lock_or_sync_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A network or user-space file system is named; a local one is taken."""
    filesystem.check_place(tmp_path / "db", allow_any=False)
    monkeypatch.setattr(filesystem, "kind_of", lambda _: kind)
    with pytest.raises(Unsuitable, match=kind.replace(".", r"\.")):
        filesystem.check_place(tmp_path / "db", allow_any=False)


async def test_a_folder_that_cannot_be_made_is_an_error_of_its_own(tmp_path: Path) -> None:
    """A file in the place of a folder gives one clear error and changes nothing."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file"):
        await Database.open(tmp_path / "file" / "db", real_world())
    assert (tmp_path / "file").read_text() == "x"


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    """The connections of faces refuse every write, also while the owner is away."""
    path = await filled(tmp_path / "db")
    views = await open_readonly_views(path)
    try:
        with pytest.raises(sqlite3.OperationalError):
            await views._connection.execute("DELETE FROM outbox")
    finally:
        await views.close()


async def test_a_sound_database_is_found_sound(tmp_path: Path) -> None:
    """The check of an ordinary database finds nothing, and counts what it looked at."""
    path = await filled(tmp_path / "db")
    report = check_database(path)
    assert report.problems == ()
    assert report.figures["runs"] == 2
    assert report.figures["effects"] == 2
    info = database_info(path)
    assert info.is_clean
    assert info.runs == {"completed": 2}


@pytest.mark.parametrize(
    ("tampering", "finding"),
    [
        ("DROP TRIGGER events_fixed; UPDATE events SET detail = '{}' WHERE seq = 3", "chain of events is broken"),
        ("DROP TRIGGER events_keep; DELETE FROM events WHERE seq = 3", "chain of events is broken"),
        ("UPDATE instance_counts SET n = 7 WHERE state = 'completed'", "counted as completed"),
        ("DROP TRIGGER receipts_move", "receipts_move is missing"),
        ("CREATE TABLE mine (x)", "mine is not ours"),
        ("DELETE FROM outputs", "completed without a result"),
    ],
)
async def test_tampering_is_found(tmp_path: Path, tampering: str, finding: str) -> None:
    """A changed or removed line, a wrong count, a missing rule, a foreign table: each is named."""
    path = await filled(tmp_path / "db")
    with sqlite3.connect(path) as connection:
        schema = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall())
        for statement in tampering.split("; "):
            connection.execute(statement)
            name = statement.removeprefix("DROP TRIGGER ")
            if name in schema and len(tampering.split("; ")) > 1:
                restore = schema[name]
        if "; " in tampering:
            connection.execute(restore)
    connection.close()
    assert any(finding in problem for problem in check_database(path).problems)


async def test_a_backup_is_whole_while_the_owner_works(tmp_path: Path) -> None:
    """A copy made beside a working engine is sound, private, and never overwrites."""
    outside = Outside(*["ok"] * 20)
    async with engine_on(tmp_path / "db", outside) as engine:
        for _ in range(5):
            await run(engine, document(step("a")))
        report = backup_database(tmp_path / "db", tmp_path / "copy")
        await run(engine, document(step("a")))
    assert report.n_events > 0
    assert check_database(tmp_path / "copy").problems == ()
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    with connect(tmp_path / "copy") as connection:
        assert connection.execute("SELECT count(*) FROM instances").fetchone()[0] == 5
    connection.close()
    before = (tmp_path / "copy").read_bytes()
    with pytest.raises(AlreadyExists):
        backup_database(tmp_path / "db", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(NotFound):
        backup_database(tmp_path / "nothing", tmp_path / "other")
    assert not (tmp_path / "other").exists()


async def test_a_backup_is_named_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without hard links the copy gets its name too, and still replaces nothing."""
    path = await filled(tmp_path / "db")

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    assert backup_database(path, tmp_path / "copy").n_events > 0
    assert check_database(tmp_path / "copy").problems == ()
    with pytest.raises(AlreadyExists):
        backup_database(path, tmp_path / "copy")


async def test_a_backup_onto_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is its own error, and nothing half done stays behind."""
    path = await filled(tmp_path / "db")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(DiskFull, match="copy"):
        backup_database(path, tmp_path / "copy")
    assert sorted(entry.name for entry in tmp_path.iterdir() if "copy" in entry.name) == []


async def test_no_room_to_read_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is too full for SQLite to open the file, the error says that and blames no page."""
    path = await filled(tmp_path / "db")

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(Corrupt, match="I/O error"):
        database_info(path)
    monkeypatch.setattr(filesystem, "is_full", lambda _: True)
    with pytest.raises(DiskFull, match="no room"):
        database_info(path)
