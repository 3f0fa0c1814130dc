"""`orch8-local db`: what the database is, whether it is sound, a copy of it.

The easy mistake: owning the database to look at it; all three read beside a living owner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orch8_local.cli.invocation import Group, Invocation, common_options
from orch8_local.errors import Corrupt

Json = Any


@click.group(cls=Group)
def db() -> None:
    """Check, back up and describe the database."""


@db.command()
@common_options
def info(invocation: Invocation) -> None:
    """Show where the database is, how large, and what is in it."""
    from orch8_local.cli.render import clock_text, count_text
    from orch8_local.cli.screen import Cell, show_facts
    from orch8_local.model.records import rfc3339
    from orch8_local.upkeep import database_info, owner_of

    path = invocation.settings().database
    found, owner = database_info(path), owner_of(path)
    if invocation.is_json:
        invocation.write_json(
            {
                "path": str(path),
                "id": found.db_id,
                "schema": found.schema,
                "epoch": found.epoch,
                "created_at": rfc3339(found.created_at_us),
                "closed_cleanly": found.is_clean,
                "size_bytes": found.size_bytes,
                "log_bytes": found.log_bytes,
                "n_events": found.n_events,
                "runs": dict(found.runs),
                "effects": dict(found.effects),
                "owner": None if owner is None else {"pid": owner.pid, "host": owner.host},
            }
        )
        return
    facts: list[tuple[str, Cell | str]] = [
        ("database", str(path)),
        ("id", found.db_id),
        ("schema", str(found.schema)),
        ("made", clock_text(found.created_at_us)),
        ("size", f"{_size(found.size_bytes)}, log {_size(found.log_bytes)}"),
        ("owner", "nobody" if owner is None else owner.as_text()),
        ("runs", _counts(found.runs)),
        ("effects", _counts(found.effects)),
        ("events", count_text(found.n_events, "event")),
    ]
    show_facts(invocation, facts)


def _size(size_bytes: int) -> str:
    if size_bytes < 1024 * 1024:
        return f"{(size_bytes + 1023) // 1024} KiB"
    return f"{size_bytes / (1024 * 1024):.1f} MiB"


def _counts(counts: Any) -> str:
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none"


@db.command()
@common_options
def check(invocation: Invocation) -> int:
    """Look at every page, every rule and every link of the event chain; exit 9 if something is wrong."""
    from orch8_local.cli.render import count_text
    from orch8_local.upkeep import check_database

    path = invocation.settings().database
    report = check_database(path)
    if invocation.is_json:
        invocation.write_json(
            {"ok": not report.problems, "problems": list(report.problems), "figures": dict(report.figures)}
        )
        return Corrupt.exit_status if report.problems else 0
    for problem in report.problems:
        invocation.write(f"wrong: {problem}")
    if report.problems:
        raise Corrupt(
            f"{path} is not sound ({count_text(len(report.problems), 'finding')})",
            hint="stop the engine, keep the file as it is, and go back to a backup",
        )
    looked_at = ", ".join(count_text(n, name.removesuffix("s")) for name, n in report.figures.items())
    invocation.write(f"ok: {path} is sound ({looked_at})")
    return 0


@db.command()
@click.argument("target", type=click.Path(path_type=Path), metavar="FILE")
@common_options
def backup(invocation: Invocation, target: Path) -> None:
    """Copy the database to a new FILE, also while an engine works on it; the copy is read back."""
    from orch8_local.upkeep import backup_database

    report = backup_database(invocation.settings().database, target)
    if invocation.is_json:
        invocation.write_json({"path": str(report.path), "size_bytes": report.size_bytes, "n_events": report.n_events})
        return
    invocation.write(f"{report.path}: {_size(report.size_bytes)}, read back and sound")
