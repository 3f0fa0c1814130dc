"""The two halves of the harness alone: reading a trace, and what a cut may leave."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.power.disk import SECTOR_BYTES, Disk
from tests.power.trace import (
    Name,
    Said,
    Send,
    SyncBegun,
    SyncEnded,
    TraceError,
    Truncate,
    Write,
    read,
)

ROOT = Path("/r")


def hexed(text: str) -> str:
    """A string as `-xx` prints it."""
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def opened(name: str, flags: str = "O_RDWR|O_CREAT", number: int = 3) -> str:
    """The line of an openat that succeeded."""
    path = hexed(f"/r/{name}")
    return f'7 openat(AT_FDCWD<{hexed("/r")}>, "{path}", {flags}, 0644) = {number}<{path}>'


def test_a_file_made_again_is_another_file() -> None:
    """Files are told apart by inode: a log deleted and made again does not inherit the old bytes."""
    lines = [
        opened("a"),
        f'7 write(3<{hexed("/r/a")}>, "{hexed("old")}", 3) = 3',
        f'7 unlink("{hexed("a")}") = 0',
        opened("a", number=4),
        f'7 pwrite64(4<{hexed("/r/a")}>, "{hexed("new")}", 3, 5) = 3',
    ]
    assert read(lines, ROOT) == [
        Name("/r", "a", 1),
        Write(1, 0, b"old"),
        Name("/r", "a", None),
        Name("/r", "a", 2),
        Write(2, 5, b"new"),
    ]


def test_an_interrupted_sync_promises_at_its_return() -> None:
    """A sync that another thread's write interrupts does not cover that write."""
    lines = [
        opened("a"),
        f'7 pwrite64(3<{hexed("/r/a")}>, "{hexed("1")}", 1, 0) = 1',
        f"7 fdatasync(3<{hexed('/r/a')}> <unfinished ...>",
        f'8 pwrite64(3<{hexed("/r/a")}>, "{hexed("2")}", 1, 1) = 1',
        "7 <... fdatasync resumed>) = 0",
        f"7 fsync(5<{hexed('/r')}>) = 0",
    ]
    operations = read(lines, ROOT)
    assert [type(op) for op in operations] == [Name, Write, SyncBegun, Write, SyncEnded, SyncBegun, SyncEnded]
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    assert disk.nothing_survives() == {"/r/a": b"1"}
    assert disk.everything_survives() == {"/r/a": b"12"}


def test_sends_and_acknowledgements_are_seen() -> None:
    """Bytes to a socket and to standard output are part of the record, a shared-memory file is not."""
    lines = [
        opened("a.db-shm"),
        f'7 pwrite64(3<{hexed("/r/a.db-shm")}>, "{hexed("x")}", 1, 0) = 1',
        f'7 sendto(6<{hexed("socket:[1]")}>, "{hexed("POST")}", 4, 0, NULL, 0) = 4',
        f'7 write(1<{hexed("pipe:[2]")}>, "{hexed("ack")}", 3) = 3',
        f'7 sendto(6<{hexed("socket:[1]")}>, "{hexed("lost")}", 4, 0, NULL, 0) = -1 EPIPE (Broken pipe)',
    ]
    assert read(lines, ROOT) == [Send(2, b"POST"), Said(b"ack")]


def test_what_the_model_does_not_know_is_refused() -> None:
    """A call that changes a tracked file in a way the model lacks stops the proof."""
    with pytest.raises(TraceError, match="fallocate"):
        read([opened("a"), f"7 fallocate(3<{hexed('/r/a')}>, 0, 0, 4096) = 0"], ROOT)
    with pytest.raises(TraceError, match="memory"):
        mapped = f"7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3<{hexed('/r/a')}>, 0) = 0x7f00"
        read([opened("a"), mapped], ROOT)


def test_a_name_needs_the_sync_of_its_directory() -> None:
    """A synced file whose directory was not synced is gone after a cut that keeps nothing."""
    disk = Disk()
    for operation in (Name("/r", "a", 1), Write(1, 0, b"x"), SyncBegun(1, 1, None), SyncEnded(1)):
        disk.apply(operation)
    assert disk.nothing_survives() == {}
    assert disk.everything_survives() == {"/r/a": b"x"}


def test_a_rename_is_whole_or_not_at_all() -> None:
    """After a rename a cut leaves the old name or the new one, never both and never neither."""
    disk = Disk()
    for operation in (
        Name("/r", "tmp", 1),
        Write(1, 0, b"new"),
        SyncBegun(1, 1, None),
        SyncEnded(1),
        SyncBegun(2, None, "/r"),
        SyncEnded(2),
        Name("/r", "final", 1, old="tmp"),
    ):
        disk.apply(operation)
    states = [tuple(disk.random_state(Random(seed))) for seed in range(50)]
    assert set(states) == {("/r/tmp",), ("/r/final",)}


def test_writes_are_torn_at_sectors() -> None:
    """A cut keeps any sectors of a pending write, and what it drops reads as before."""
    disk = Disk()
    old, new = b"o" * (4 * SECTOR_BYTES), b"n" * (4 * SECTOR_BYTES)
    for operation in (
        Name("/r", "a", 1),
        SyncBegun(1, None, "/r"),
        SyncEnded(1),
        Write(1, 0, old),
        SyncBegun(2, 1, None),
        SyncEnded(2),
        Write(1, 0, new),
        Truncate(1, 2 * SECTOR_BYTES),
    ):
        disk.apply(operation)
    contents = {disk.random_state(Random(seed))["/r/a"] for seed in range(200)}
    assert {len(content) for content in contents} == {2 * SECTOR_BYTES, 4 * SECTOR_BYTES}
    for content in contents:
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]
        assert set(sectors) <= {old[:SECTOR_BYTES], new[:SECTOR_BYTES]}
    assert len(contents) > 10
