"""Which document a name or a path on the command line means.

Owns the order: a file; a file of the project's sequence folders; one that was added; a bundled one;
one that was run before. `name@3` asks for a version. The easy mistake: letting what is stored win
over the file that the person has just edited.
"""

from __future__ import annotations

import difflib
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from orch8_local.cli.catalogue import Entry, available, bundled_entries, project_entries, read_document
from orch8_local.engine.api import SequenceRow, Views
from orch8_local.errors import InputError, NotFound
from orch8_local.settings import Settings

BUNDLED_SOURCE = "bundled:"
SHOW_NAMES = "`orch8-local sequences list` shows all that have a name"


@dataclass(frozen=True, slots=True)
class Source:
    """A document as text, and how messages call it."""

    text: str
    name: str


async def find_source(settings: Settings, given: str) -> Source:
    """The document that a path or a name means; the database is asked for a name only, and if it is there."""
    from orch8_local.app import Need, connect

    found = file_source(given)
    if found is not None:
        return found
    async with AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(connect(settings, need=Need.READ))
        except NotFound:  # no database yet
            return await named_source(settings, given, None)
        return await named_source(settings, given, api.views)


def file_source(given: str) -> Source | None:
    """The file that is meant, or None if the text is a name. NotFound if a path leads nowhere."""
    path = Path(given)
    if os.sep not in given and not given.endswith(".json") and given not in (".", "..") and not path.is_file():
        return None
    if not path.exists():
        near = difflib.get_close_matches(path.name, _names_beside(path), n=1)
        way_out = f"did you mean {path.with_name(near[0])}?" if near else SHOW_NAMES
        raise NotFound(f"there is no file {given}", hint=way_out)
    return Source(read_document(path), given)


async def named_source(settings: Settings, given: str, views: Views | None) -> Source:
    """The document of a name, or of `name@version`; NotFound names the nearest.

    views: of the database, or None if there is none yet. InputError if a project's file of this name
    cannot be read.
    """
    name, version = _split(given)
    rows = [] if views is None else await views.sequences(name=name)
    rows = [row for row in rows if version is None or row.version == version]
    added = [row for row in rows if not row.source.startswith(BUNDLED_SOURCE)]
    entry = _fitting(project_entries(settings), name, version)
    if entry is None and added:
        return await _stored(views, max(added, key=_newest))
    entry = entry or _fitting(bundled_entries(), name, version)
    if entry is not None:
        if entry.problem is not None:
            raise InputError(entry.problem)
        return Source(entry.text, entry.source)
    if rows:
        return await _stored(views, max(rows, key=_newest))
    raise await _no_such(settings, given, name, version, views)


def _newest(row: SequenceRow) -> tuple[int, int]:
    return row.version, row.created_at_us


def _fitting(entries: list[Entry], name: str, version: int | None) -> Entry | None:
    fits = (entry for entry in entries if entry.name == name and version in (None, entry.version))
    return next(fits, None)


def _split(given: str) -> tuple[str, int | None]:
    name, separator, version = given.rpartition("@")
    if not separator:
        return given, None
    if not version.isdecimal() or not name:
        raise InputError(f"{given!r} is not NAME@VERSION", hint="a version is a whole number, for example hello@1")
    return name, int(version)


async def _stored(views: Views | None, row: SequenceRow) -> Source:
    assert views is not None, "a stored row comes from the views"
    full = row if row.document is not None else await views.sequence(row.sha256)
    assert full.document is not None, "one sequence comes with its document"
    return Source(full.document, full.source)


async def _no_such(settings: Settings, given: str, name: str, version: int | None, views: Views | None) -> NotFound:
    stored = [] if views is None else await views.sequences()
    named = [(one.name, one.version) for one in available(settings)] + [(row.name, row.version) for row in stored]
    versions = sorted({known for found, known in named if found == name})
    if version is not None and versions:
        return NotFound(f"{name} has no version {version}", hint=f"there is {', '.join(map(str, versions))}")
    known = sorted({*(entry.name for entry in available(settings)), *(row.name for row in stored)})
    near = difflib.get_close_matches(name, known, n=1)
    if Path(given).is_dir():
        hint = f"{given} is a folder: name its files"
    else:
        hint = f"did you mean {near[0]!r}?" if near else SHOW_NAMES
    return NotFound(f"there is no sequence {given!r}, and no file of that name", hint=hint)


def _names_beside(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir() if entry.suffix == ".json"]
    except OSError:
        return []
