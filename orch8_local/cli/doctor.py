"""`orch8-local doctor`: is this machine fit, is this database, what was set where; one next step each.

Changes nothing, and a finding never hides the next: every check runs, whatever the others found. The
easy mistake: a red line that leaves the person alone; each finding that is not fine has a way out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orch8_local import __version__
from orch8_local.cli.invocation import Invocation, common_options
from orch8_local.cli.render import count_text
from orch8_local.errors import NotFound, Orch8Error, StoreError

if TYPE_CHECKING:
    from orch8_local.engine.api import SequenceRow
    from orch8_local.settings import Settings
    from orch8_local.upkeep import DatabaseInfo

Json = Any
OK, WARNING, BAD = "ok", "warning", "bad"
LITTLE_SPACE_BYTES = 200 * 1024 * 1024
LEAST_LIKELY_US = 1_735_689_600_000_000  # the year 2025: a machine without a battery begins much earlier
HONEST_SYNC_MS = 0.02
"""A disk that says within twenty microseconds that 4 KiB are safe has not looked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: level is ok, warning or bad; next_step: what to do about it, empty if nothing."""

    name: str
    level: str
    text: str
    next_step: str = ""


@click.command()
@common_options
def doctor(invocation: Invocation) -> int:
    """Check this machine, with one next step per finding; exit 1 if something is bad.

    Shows every setting and where it came from.
    """
    from orch8_local.cli.screen import Cell, heading, show_facts, show_table

    settings, findings = _examine(invocation)
    is_bad = any(finding.level == BAD for finding in findings)
    values = [] if settings is None else settings.values
    if invocation.is_json:
        invocation.write_json(
            {
                "ok": not is_bad,
                "version": __version__,
                "checks": [{"name": f.name, "level": f.level, "text": f.text, "next": f.next_step} for f in findings],
                "settings": [
                    {"name": value.key, "value": _plain(value.value), "source": value.source} for value in values
                ],
            }
        )
        return 1 if is_bad else 0
    table: list[list[Cell | str]] = [
        [finding.name, Cell(finding.level, _STATES[finding.level], is_state=True), _text(finding)]
        for finding in findings
    ]
    show_table(invocation, ["CHECK", "STATE", "WHAT"], table)
    if values:
        heading(invocation, "settings")
        show_facts(invocation, [(value.key, f"{_in_words(value.value)} ({value.source})") for value in values])
    return 1 if is_bad else 0


_STATES = {OK: "completed", WARNING: "blocked", BAD: "failed"}


def _text(finding: Finding) -> str:
    return f"{finding.text}; {finding.next_step}" if finding.next_step else finding.text


def _plain(value: Json) -> Json:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _in_words(value: Json) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, (list, tuple)) else str(value)


def _examine(invocation: Invocation) -> tuple[Settings | None, list[Finding]]:
    """The settings, if they can be read, and every finding."""
    machine = [_program(), _sqlite(), _clock(), _terminal()]
    try:
        settings = invocation.settings()
    except Orch8Error as error:
        return None, [Finding("settings", BAD, error.message, error.hint or ""), *machine]
    return settings, [*machine, *_findings(settings)]


def _findings(settings: Settings) -> Iterator[Finding]:
    """Every check of what the settings name, each guarded: one that cannot be made is a finding itself."""
    checks: list[tuple[str, Callable[[Settings], Finding]]] = [
        ("place", _place),
        ("free space", _space),
        ("disk sync", _sync),
        ("permissions", _permissions),
        ("owner", _owner),
        ("database", _database),
        ("runs", _runs),
        ("effects", _effects),
        ("handlers", _handlers),
        ("sequences", _sequences),
    ]
    is_readable = True
    for name, check in checks:
        if name in ("runs", "effects") and not is_readable:
            yield Finding(name, WARNING, "cannot be told while the database cannot be read")
            continue
        try:
            yield check(settings)
        except Orch8Error as error:
            is_readable &= name != "database"
            yield Finding(name, BAD, error.message, error.hint or "")
        except OSError as error:
            yield Finding(name, WARNING, f"cannot be looked at: {error}", "look at the permissions there")


def _program() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("program", OK, f"orch8-local {__version__} on Python {version}")


def _sqlite() -> Finding:
    from orch8_local.upkeep import sqlite_facts

    version, is_new_enough, rule = sqlite_facts()
    if not is_new_enough:
        return Finding("sqlite", BAD, f"SQLite {version} is too old", "3.37 or later is needed")
    if rule == "affected":
        why = "it has the WAL-reset bug, which a single writer cannot meet"
        return Finding("sqlite", OK, f"SQLite {version}; {why}")
    return Finding("sqlite", OK, f"SQLite {version}")


def _place(settings: Settings) -> Finding:
    from orch8_local.upkeep import look_at_place

    place = look_at_place(settings.database)
    if not place.is_suitable:
        text = f"{place.folder} lies on {place.kind}, whose locks and syncs cannot be relied on"
        return Finding("place", BAD, text, "choose a local disk with --db")
    return Finding("place", OK, f"{place.folder} ({place.kind})")


def _space(settings: Settings) -> Finding:
    from orch8_local.upkeep import look_at_place

    free_bytes = look_at_place(settings.database).free_bytes
    text = f"{free_bytes // (1024 * 1024)} MiB"
    if free_bytes < LITTLE_SPACE_BYTES:
        return Finding("free space", WARNING, text, "free some space: a full disk stops every run")
    return Finding("free space", OK, text)


def _sync(settings: Settings) -> Finding:
    from orch8_local.upkeep import look_at_place

    sync_ms = look_at_place(settings.database).sync_ms
    if sync_ms is None:
        return Finding(
            "disk sync", BAD, "the folder cannot be written", "make it writable, or choose another with --db"
        )
    text = f"{sync_ms:.2f} ms for 4 KiB"
    if sync_ms < HONEST_SYNC_MS:
        return Finding("disk sync", WARNING, text, "that is too fast to be true: a power cut may undo what was saved")
    return Finding("disk sync", OK, text)


def _permissions(settings: Settings) -> Finding:
    from orch8_local.upkeep import is_safe_from_others

    if not settings.database.exists():
        return Finding("permissions", OK, "no database yet")
    if not is_safe_from_others(settings.database):
        text = f"others may write {settings.database}"
        return Finding("permissions", BAD, text, f"chmod go-w {settings.database}")
    if not os.access(settings.database, os.W_OK):
        text = f"{settings.database} cannot be written: looking works, running does not"
        return Finding("permissions", WARNING, text, "run as its owner, or choose another with --db")
    return Finding("permissions", OK, "nobody else may write it")


def _owner(settings: Settings) -> Finding:
    from orch8_local.upkeep import owner_of

    owner = owner_of(settings.database)
    return Finding("owner", OK, "no engine runs" if owner is None else f"an engine runs: {owner.as_text()}")


def _info(settings: Settings) -> DatabaseInfo | None:
    """The facts of the database; None if there is none yet."""
    from orch8_local.upkeep import database_info

    try:
        return database_info(settings.database)
    except NotFound:
        return None


def _database(settings: Settings) -> Finding:
    info = _info(settings)
    if info is None:
        return Finding("database", OK, f"none yet at {settings.database}")
    return Finding("database", OK, f"{settings.database}, schema {info.schema}, {count_text(info.n_events, 'event')}")


def _runs(settings: Settings) -> Finding:
    from orch8_local.upkeep import owner_of

    info = _info(settings)
    runs = {} if info is None else info.runs
    text = ", ".join(f"{n} {state}" for state, n in sorted(runs.items())) or "none yet"
    left = sum(runs.get(state, 0) for state in ("scheduled", "running", "waiting"))
    if left and owner_of(settings.database) is None:
        return Finding("runs", WARNING, f"{text}; no engine runs for those that have not ended", "orch8-local up")
    return Finding("runs", OK, text)


def _effects(settings: Settings) -> Finding:
    from orch8_local.upkeep import owner_of

    info = _info(settings)
    effects = {} if info is None else info.effects
    under_way = effects.get("dispatched", 0)
    n_open = effects.get("unknown", 0)
    if owner_of(settings.database) is None:
        n_open += under_way
        under_way = 0
    if n_open:
        text = f"of {count_text(n_open, 'effect')} nobody knows whether {'it' if n_open == 1 else 'they'} happened"
        return Finding("effects", WARNING, text, "orch8-local effects list --unresolved")
    if under_way:
        return Finding("effects", OK, f"{under_way} under way, every other outcome is known")
    return Finding("effects", OK, "every outcome is known")


def _handlers(settings: Settings) -> Finding:
    from orch8_local.app import build_registry

    specs = build_registry(settings).specs()
    n_own = sum(not spec.is_builtin for spec in specs)
    return Finding("handlers", OK, f"{len(specs) - n_own} built in, {n_own} of yours")


def _sequences(settings: Settings) -> Finding:
    from orch8_local.cli.catalogue import available
    from orch8_local.sequence.document import inspect

    entries = available(settings)
    bad = [entry for entry in entries if entry.problem or inspect(entry.text).has_errors]
    if bad:
        names = ", ".join(entry.name for entry in bad[:5])
        text = f"{len(bad)} of {len(entries)} cannot be used: {names}"
        return Finding("sequences", WARNING, text, f"orch8-local validate {bad[0].source}")
    changed = _changed(settings, {entry.name for entry in entries})
    if changed:
        text = f"the file of {', '.join(changed)} is another one than was added"
        return Finding("sequences", WARNING, text, f"orch8-local sequences add {next(iter(changed.values()))}")
    return Finding("sequences", OK, f"{len(entries)} can be named")


def _changed(settings: Settings, found_as_files: Collection[str]) -> dict[str, str]:
    """Name and file of what is run from the database by its name while its file says something else."""
    from orch8_local.cli.author import stored_sequences
    from orch8_local.cli.catalogue import read_bytes
    from orch8_local.errors import InputError
    from orch8_local.sequence.document import inspect

    try:
        rows = stored_sequences(settings)
    except StoreError:  # a finding of its own
        return {}
    newest: dict[str, SequenceRow] = {}
    for row in rows:
        if row.name not in found_as_files and Path(row.source).is_absolute():
            newest[row.name] = max(newest.get(row.name, row), row, key=lambda one: (one.version, one.created_at_us))
    changed = {}
    for name, row in newest.items():
        try:
            definition = inspect(read_bytes(Path(row.source))).definition
        except InputError:  # the file is gone, and what was added stays
            continue
        if definition is None or definition.content_sha256 != row.sha256:
            changed[name] = row.source
    return changed


def _clock() -> Finding:
    from orch8_local.cli.render import local_zone
    from orch8_local.model.records import rfc3339
    from orch8_local.world import real_world

    now_us = real_world().clock.now_us()
    text = f"{rfc3339(now_us)}, shown here in {local_zone(now_us)}"
    if now_us < LEAST_LIKELY_US:
        return Finding("clock", WARNING, text, "set the clock: due times are counted by it")
    return Finding("clock", OK, text)


def _terminal() -> Finding:
    from orch8_local.cli.screen import can_show, is_terminal

    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    colour = "no colour (NO_COLOR)" if "NO_COLOR" in os.environ else os.environ.get("TERM", "no TERM")
    if not is_terminal():
        return Finding("terminal", OK, f"output goes elsewhere, {encoding}")
    if not can_show("✓▲"):
        return Finding("terminal", OK, f"{encoding}, {colour}; signs are shown in ASCII")
    return Finding("terminal", OK, f"{encoding}, {colour}")
