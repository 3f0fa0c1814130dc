"""The sequences that can be named without a path: those of the project's folders and the bundled ones.

Owns the order in which a name is looked for: the project's folders first, then the bundled. What was
added to the database is not here; it is read through `EngineApi`. The easy mistake: letting one broken
file hide the others; a file that is no JSON is listed under its own name, with its problem.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orch8_local.errors import InputError
from orch8_local.sequence.bundled import bundled_names, bundled_source, bundled_text
from orch8_local.settings import Settings

MAX_BYTES = 64 * 1024 * 1024
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
    """Every document that can be named, in the order in which a name is looked for."""
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


def find(settings: Settings, name: str, version: int | None = None) -> Entry | None:
    """The first document of this name (and version, if given), or None."""
    fits = (entry for entry in available(settings) if entry.name == name)
    return next((entry for entry in fits if version is None or entry.version == version), None)


def read_document(path: Path) -> str:
    """The text of a sequence file; InputError that names the file and what is wrong with it."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_BYTES:
            raise InputError(f"{path} has {size_bytes} bytes; a sequence has at most {MAX_BYTES}")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}", hint="save it as UTF-8"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            hint="`orch8-local sequences list` shows what there is",
        ) from error


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
