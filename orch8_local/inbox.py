"""The command inbox: how a process that does not own the database asks the owner for a change.

Owns the file format of `<db>.inbox/` (product D7): one JSON file per command, written under a
temporary name, synced, renamed, and the folder synced, so that a command is there whole or not at
all. The owner lists them in the order they were written, applies each once per id, and removes the
file only after its result is on disk. The easy mistake: reading a `.part` file, which is somebody's
half-written command.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from orch8_local.errors import DiskFull, InputError, ReadOnly, StoreError, Unsuitable
from orch8_local.model.command import Command

FORMAT = 1
SUFFIX = ".json"
REFUSED = ".refused"
MAX_BYTES = 64 * 1024 * 1024
KINDS = frozenset({"start", "add_sequence", "cancel", "retry", "resolve"})
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_FIELDS = frozenset({"format", "id", "kind", "arguments", "actor", "at_us"})


def inbox_folder(database: Path) -> Path:
    """Where the commands for a database lie: `<db>.inbox`."""
    return database.with_name(database.name + ".inbox")


def write_command(folder: Path, command: Command, *, at_us: int) -> Path:
    """Put one command into the inbox and return its file; it survives a crash from then on.

    at_us: now, UTC microseconds; orders the commands of one client. Raises DiskFull, ReadOnly,
    Unsuitable; then no command is there.
    """
    if not _ID.fullmatch(command.id):
        raise InputError(f"a command id is 1 to 64 letters, digits, - or _; this is {command.id!r}")
    text = json.dumps(
        {
            "format": FORMAT,
            "id": command.id,
            "kind": command.kind,
            "arguments": dict(command.arguments),
            "actor": command.actor,
            "at_us": at_us,
        },
        allow_nan=False,
    )
    name = f"{at_us:020d}-{command.id}{SUFFIX}"
    try:
        _make_folder(folder)
        return _write_whole(folder, name, text.encode("ascii"))
    except OSError as error:
        raise _as_store_error(error, folder) from error


def list_commands(folder: Path) -> list[Path]:
    """The whole command files of an inbox, oldest first; none if there is no inbox."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(SUFFIX) and not e.name.startswith(".")]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]


def read_command(path: Path) -> Command:
    """The command in a file; InputError says what is wrong with it.

    A symbolic link, a device or a file beyond 64 MB is refused without reading it.
    """
    fields = _parsed(_bytes_of(path))
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise InputError(f"the command has unknown fields: {', '.join(map(repr, unknown))}")
    if fields.get("format") != FORMAT:
        raise InputError(f"the command has format {fields.get('format')!r}; this program reads {FORMAT}")
    command_id, kind, arguments = fields.get("id"), fields.get("kind"), fields.get("arguments")
    actor = fields.get("actor", "operator")
    if not isinstance(command_id, str) or not _ID.fullmatch(command_id):
        raise InputError(f"the command's id is {command_id!r}, which is no command id")
    if kind not in KINDS:
        raise InputError(f"the command's kind is {kind!r}; known are {', '.join(sorted(KINDS))}")
    if not isinstance(arguments, dict):
        raise InputError("the command's arguments are not an object")
    if not isinstance(actor, str) or not actor:
        raise InputError("the command's actor is not text")
    return Command(id=command_id, kind=kind, arguments=arguments, actor=actor)


def remove_command(path: Path) -> None:
    """Take an applied command out of the inbox; nothing to do if it is gone already."""
    with suppress(FileNotFoundError):
        path.unlink()


def refuse_command(path: Path, reason: str) -> Path:
    """Move a file that is no command aside, with the reason beside it, so it is not read again."""
    aside = path.with_name(path.name + REFUSED)
    path.replace(aside)
    with suppress(OSError):  # the reason is a help for people; the move is what counts
        aside.with_name(aside.name + ".txt").write_text(reason + "\n", encoding="utf-8")
    return aside


def _bytes_of(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"the command cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError("the command is not a regular file")
        if found.st_size > MAX_BYTES:
            raise InputError(f"the command has {found.st_size} bytes; the most is {MAX_BYTES}")
        return file.read(MAX_BYTES + 1)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"the command is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("the command is not a JSON object")
    return value


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond the range of a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has the same key twice")
    return fields


def _make_folder(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Unsuitable(f"{folder} is not a folder", hint="move it away; the inbox is made anew")
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        raise Unsuitable(
            f"{folder} belongs to another user", hint="run the command as the owner of the database"
        )


def _write_whole(folder: Path, name: str, raw: bytes) -> Path:
    part = folder / f".{name}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        target = folder / name
        part.rename(target)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
    sync_folder(folder)
    return target


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_store_error(error: OSError, folder: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"the command could not be written to {folder}", hint="free some space and try again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnly(
            f"the command could not be written to {folder}: {error.strerror}",
            hint="run the command as the owner of the database",
        )
    return Unsuitable(f"the command could not be written to {folder}: {error.strerror}")


__all__ = [
    "inbox_folder",
    "list_commands",
    "read_command",
    "refuse_command",
    "remove_command",
    "sync_folder",
    "write_command",
]
