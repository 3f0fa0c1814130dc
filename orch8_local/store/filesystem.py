"""Where a ledger may lie: kind of file system, ownership, permissions.

The easy mistake: trusting a synchronised folder; it copies the database and its log at different
moments, and may bring an older pair back.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from orch8_local.errors import ReadOnly, Unsuitable

NETWORK_KINDS = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "drvfs", "afs", "ceph", "glusterfs", "davfs", "sshfs"}
)
CLOUD_FOLDERS = ("Dropbox", "OneDrive", "Google Drive", "GoogleDrive", "iCloud Drive", "Mobile Documents", "Nextcloud")


def kind_of(path: Path) -> str:
    """The file system kind that a path lies on, or `unknown`."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    target = str(path)
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mount = fields[4].replace("\\040", " ")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def is_unsuitable_kind(kind: str) -> bool:
    """True for file systems whose locks or syncs cannot be relied on."""
    return kind in NETWORK_KINDS or kind.startswith("fuse")


def make_folder(folder: Path) -> None:
    """Make the folder, private, and its directory entry durable."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {folder} cannot be made: {error.strerror}"
        raise ReadOnly(message, hint="choose another with --db") from None
    sync_folder(folder.parent)


def make_file(path: Path) -> None:
    """Make an empty, private file if there is none; its log and shared memory take its mode."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise ReadOnly(f"{path} cannot be made: {error.strerror}", hint="choose another with --db") from None
    os.close(descriptor)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(folder: Path) -> bool:
    """True if there is not even room for the 32 KiB that SQLite needs to read beside a log."""
    return shutil.disk_usage(folder).free < 32 * 1024


def check_place(path: Path, *, allow_any: bool) -> None:
    """Raise Unsuitable or ReadOnly unless a ledger can live at this path."""
    if not allow_any:
        kind = kind_of(path.parent)
        if is_unsuitable_kind(kind):
            raise Unsuitable(
                f"{path} lies on {kind}, whose locks and syncs cannot be relied on",
                hint="choose a local disk with --db",
            )
        cloud = next((name for name in CLOUD_FOLDERS if name in path.parts), None)
        if cloud is not None:
            raise Unsuitable(f"{path} lies in a synchronised folder ({cloud})", hint="choose a local folder with --db")
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not os.access(path.parent, os.W_OK):
            raise ReadOnly(f"the folder {path.parent} cannot be written", hint="choose another with --db") from None
        return
    if not stat.S_ISREG(found.st_mode):
        raise Unsuitable(f"{path} is not a regular file")
    if found.st_nlink > 1:
        raise Unsuitable(f"{path} has {found.st_nlink} names (hard links); a ledger must have one")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise Unsuitable(f"{path} belongs to another user", hint="run as that user, or choose another path with --db")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unsuitable(f"{path} can be written by others", hint=f"chmod 600 {path}")
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise ReadOnly(f"{path} cannot be written", hint="reading works: list, show, timeline")
