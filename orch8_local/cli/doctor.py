"""`orch8-local doctor`: is this machine fit, is this database, what was set where; one next step each.

Changes nothing, and a finding never hides the next: every check runs, whatever the others found. The
easy mistake: a red line that leaves the person alone; each finding that is not fine has a way out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from orch8_local import __version__
from orch8_local.cli.invocation import Invocation, common_options
from orch8_local.errors import Orch8Error

if TYPE_CHECKING:
    from orch8_local.settings import Settings

Json = Any
OK, WARNING, BAD = "ok", "warning", "bad"
LITTLE_SPACE_BYTES = 200 * 1024 * 1024
HONEST_SYNC_MS = 0.02
"""A disk that says within twenty microseconds that 4 KiB are safe has not looked."""
BLOCKED_STATUS = 3


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

    try:
        settings: Settings | None = invocation.settings()
        findings = list(_findings(settings)) if settings is not None else []
    except Orch8Error as error:
        settings = None
        findings = [Finding("settings", BAD, error.message, error.hint or "")]
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
        show_facts(invocation, [(value.key, f"{_plain(value.value)} ({value.source})") for value in values])
    return 1 if is_bad else 0


_STATES = {OK: "completed", WARNING: "blocked", BAD: "failed"}


def _text(finding: Finding) -> str:
    return f"{finding.text}; {finding.next_step}" if finding.next_step else finding.text


def _plain(value: Json) -> Json:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _findings(settings: Settings) -> Iterator[Finding]:
    """Every check, each guarded: one that cannot be made is a finding itself."""
    checks: list[tuple[str, Callable[[Settings], Finding]]] = [
        ("program", _program),
        ("sqlite", _sqlite),
        ("place", _place),
        ("free space", _space),
        ("disk sync", _sync),
        ("permissions", _permissions),
        ("database", _database),
        ("owner", _owner),
        ("effects", _effects),
        ("handlers", _handlers),
        ("sequences", _sequences),
        ("clock", _clock),
        ("terminal", _terminal),
    ]
    for name, check in checks:
        try:
            yield check(settings)
        except Orch8Error as error:
            yield Finding(name, BAD, error.message, error.hint or "")
        except OSError as error:
            yield Finding(name, WARNING, f"cannot be looked at: {error}")


def _program(_: Settings) -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("program", OK, f"orch8-local {__version__} on Python {version}")


def _sqlite(_: Settings) -> Finding:
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
        return Finding("permissions", WARNING, text, f"chmod go-w {settings.database}")
    return Finding("permissions", OK, "nobody else may write it")


def _database(settings: Settings) -> Finding:
    from orch8_local.upkeep import database_info

    if not settings.database.exists():
        return Finding("database", OK, f"none yet at {settings.database}")
    info = database_info(settings.database)
    return Finding("database", OK, f"{settings.database}, schema {info.schema}, {sum(info.runs.values())} runs")


def _owner(settings: Settings) -> Finding:
    from orch8_local.upkeep import database_info, owner_of

    owner = owner_of(settings.database)
    if owner is not None:
        return Finding("owner", OK, f"an engine runs: {owner.as_text()}")
    left = 0
    if settings.database.exists():
        runs = database_info(settings.database).runs
        left = sum(runs.get(state, 0) for state in ("scheduled", "running", "waiting"))
    if left:
        return Finding("owner", WARNING, f"no engine runs, and {left} runs are not finished", "orch8-local up")
    return Finding("owner", OK, "no engine runs")


def _effects(settings: Settings) -> Finding:
    from orch8_local.upkeep import database_info

    if not settings.database.exists():
        return Finding("effects", OK, "none yet")
    effects = database_info(settings.database).effects
    n_open = effects.get("unknown", 0) + effects.get("dispatched", 0)
    if n_open:
        text = f"{n_open} not resolved: nobody knows whether they happened"
        return Finding("effects", WARNING, text, "orch8-local effects list --unresolved")
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
    bad = [entry.name for entry in entries if entry.problem or inspect(entry.text).has_errors]
    if bad:
        first = next(entry for entry in entries if entry.name == bad[0])
        text = f"{len(bad)} of {len(entries)} cannot be used: {', '.join(bad[:5])}"
        return Finding("sequences", WARNING, text, f"orch8-local validate {first.source}")
    return Finding("sequences", OK, f"{len(entries)} can be named")


def _clock(_: Settings) -> Finding:
    from orch8_local.model.records import rfc3339
    from orch8_local.world import real_world

    now_us = real_world().clock.now_us()
    text = rfc3339(now_us)
    if text < "2025":
        return Finding("clock", WARNING, text, "set the clock: due times are counted by it")
    return Finding("clock", OK, text)


def _terminal(_: Settings) -> Finding:
    from orch8_local.cli.screen import can_show, is_terminal

    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    colour = "no colour (NO_COLOR)" if "NO_COLOR" in os.environ else os.environ.get("TERM", "no TERM")
    if not is_terminal():
        return Finding("terminal", OK, f"output goes elsewhere, {encoding}")
    if not can_show("✓▲"):
        return Finding("terminal", OK, f"{encoding}, {colour}; signs are shown in ASCII")
    return Finding("terminal", OK, f"{encoding}, {colour}")
