"""What the commands for the database and for this machine need of the store, in one place.

Faces never import the store; they ask here. Everything but nothing is changed: these are reads, and a
copy to a new file.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from orch8_local.store import filesystem
from orch8_local.store.check import (
    BackupReport,
    CheckReport,
    DatabaseInfo,
    backup_database,
    check_database,
    database_info,
)
from orch8_local.store.database import MINIMUM_SQLITE, SQLITE_VERSION, is_private, wal_reset_rule
from orch8_local.store.lease import Owner, read_owner

N_SYNCS = 20


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a database. sync_ms: the median of a few 4 KiB syncs; None if it cannot be written."""

    folder: Path
    kind: str
    is_suitable: bool
    free_bytes: int
    sync_ms: float | None


def look_at_place(database: Path) -> Place:
    """What kind of place a database lies on. OSError if its folder cannot be looked at."""
    folder = database.parent
    while not folder.exists():
        folder = folder.parent
    kind = filesystem.kind_of(folder)
    return Place(
        folder,
        kind,
        not filesystem.is_unsuitable_kind(kind),
        shutil.disk_usage(folder).free,
        _sync_ms(folder),
    )


def _sync_ms(folder: Path) -> float | None:
    """How long a sync takes here: a disk that answers in no time at all does not sync."""
    probe = folder / f".orch8-sync-{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError:
        return None
    times = []
    try:
        for _ in range(N_SYNCS):
            began = time.perf_counter()
            os.pwrite(descriptor, os.urandom(4096), 0)  # noqa: TID251, RUF100 - bytes to write, not a decision
            os.fsync(descriptor)
            times.append(time.perf_counter() - began)
    except OSError:
        return None
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)
    return sorted(times)[len(times) // 2] * 1000


def sqlite_facts() -> tuple[str, bool, str]:
    """(version, new enough, `fixed` or `affected` by the WAL-reset bug)."""
    return ".".join(map(str, SQLITE_VERSION)), SQLITE_VERSION >= MINIMUM_SQLITE, wal_reset_rule(SQLITE_VERSION)


def owner_of(database: Path) -> Owner | None:
    """The living process that owns a database."""
    return read_owner(database)


def is_safe_from_others(database: Path) -> bool:
    """True if nobody but its owner can write the file."""
    return is_private(database)


__all__ = [
    "BackupReport",
    "CheckReport",
    "DatabaseInfo",
    "Place",
    "backup_database",
    "check_database",
    "database_info",
    "is_safe_from_others",
    "look_at_place",
    "owner_of",
    "sqlite_facts",
]
