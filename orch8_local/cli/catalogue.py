"""The sequences that can be named without a path: those of the project's folders and the bundled ones.

Owns the list of them; `source` owns which one a name means. What was added to the database is read
through `EngineApi`. The easy mistake: letting one broken file hide the others; a file that is no
JSON is listed under its own name, and what is wrong with it is for `validate` to say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orch8_local.errors import InputError
from orch8_local.sequence.bundled import bundled_names, bundled_source, bundled_text
from orch8_local.settings import Settings

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
PROJECT = "project"
BUNDLED = "bundled"


@dataclass(frozen=True, slots=True)
class Entry:
    """One document that can be named. origin: `project` or `bundled`. source: a path, or `bundled:NAME`.

    name, version: as the document says; the file's own name and 1 if it cannot be read. text: empty
    and problem: why, if the file cannot be read at all.
    """

    name: str
    version: int
    origin: str
    source: str
    text: str
    problem: str | None = None


def available(settings: Settings) -> list[Entry]:
    """Every document that can be named, the project's first."""
    return [*project_entries(settings), *bundled_entries()]


def project_entries(settings: Settings) -> list[Entry]:
    """The `*.json` files of the settings' sequence folders, in the order of folders and names."""
    found: list[Entry] = []
    for folder in settings.sequence_folders:
        found.extend(_entry(path) for path in sorted(folder.glob("*.json")) if not path.is_dir())
    return found


def bundled_entries() -> list[Entry]:
    """The sequences that ship with the program."""
    return [_named(name, BUNDLED, bundled_source(name), bundled_text(name)) for name in bundled_names()]


def read_document(path: Path) -> str:
    """The text of a document file; InputError names the file and what is wrong."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from error


def read_bytes(path: Path) -> bytes:
    """A document file as it is, for what reports its faults itself; InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder", hint="name its files") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_DOCUMENT_BYTES:
        raise InputError(f"{path} is longer than {MAX_DOCUMENT_BYTES // 1024 // 1024} MiB: that is no sequence")
    return content


def _entry(path: Path) -> Entry:
    try:
        return _named(path.stem, PROJECT, str(path), read_document(path))
    except InputError as error:
        return Entry(path.stem, 1, PROJECT, str(path), "", error.message)


def _named(fallback: str, origin: str, source: str, text: str) -> Entry:
    """Name and version as the document says, without checking the rest of it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    fields = document if isinstance(document, dict) else {}
    name, version = fields.get("name"), fields.get("version", 1)
    return Entry(
        name if isinstance(name, str) and name.strip() else fallback,
        version if isinstance(version, int) and not isinstance(version, bool) else 1,
        origin,
        source,
        text,
    )
