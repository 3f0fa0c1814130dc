"""The lease: one process owns a database, by an exclusive lock on a file beside it.

The lock file is never deleted and the lock is taken before the database is opened, on the resolved
path. The easy mistake: locking the database file itself; closing any descriptor on it would drop
SQLite's own locks (reliability 1.4).
"""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from orch8_local.errors import OwnedElsewhere, Unsuitable
from orch8_local.model.records import rfc3339
from orch8_local.world import World


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease."""

    pid: int
    host: str
    boot_id: str
    started_at_us: int

    def as_text(self) -> str:
        """For the error message."""
        return f"process {self.pid} on {self.host}, since {rfc3339(self.started_at_us)}"


class Lease:
    """A held lock; given back by `release` or by the end of the process."""

    def __init__(self, descriptor: int, owner: Owner) -> None:
        self._descriptor: int | None = descriptor
        self.owner = owner

    def release(self) -> None:
        """Give the lease back; the file stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_path(database: Path) -> Path:
    """`<db>.lock`."""
    return database.with_name(database.name + ".lock")


def take(database: Path, world: World) -> Lease:
    """Take the lease of a database, or raise OwnedElsewhere naming who has it."""
    path = lock_path(database)
    descriptor = _open(path)
    if not _try_lock(descriptor):
        owner = _read(descriptor)
        os.close(descriptor)
        who = owner.as_text() if owner else "another process"
        raise OwnedElsewhere(
            f"{database} is owned by {who}",
            hint="stop that process, or use a command that asks it (most do)",
            details={"pid": owner.pid if owner else None},
        )
    owner = Owner(os.getpid(), socket.gethostname(), world.ids.token(), world.clock.now_us())
    text = json.dumps(
        {"pid": owner.pid, "host": owner.host, "boot_id": owner.boot_id, "started_at_us": owner.started_at_us}
    )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    return Lease(descriptor, owner)


def read_owner(database: Path) -> Owner | None:
    """Who holds the lease now, or None if nobody does."""
    path = lock_path(database)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        if _try_lock(descriptor, is_shared=True):
            return None
        return _read(descriptor) or Owner(0, "unknown", "", 0)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise Unsuitable(f"the lock file {path} cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unsuitable(f"the lock file {path} is not a regular file")
    return descriptor


def _try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
    if os.name == "nt":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(descriptor: int) -> Owner | None:
    try:
        facts = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(int(facts["pid"]), str(facts["host"]), str(facts["boot_id"]), int(facts["started_at_us"]))
    except (ValueError, KeyError, TypeError):
        return None
