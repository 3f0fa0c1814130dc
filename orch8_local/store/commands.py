"""Commands that came through the inbox, and what became of them: each is applied once per id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orch8_local.model.command import Command
from orch8_local.model.ids import canonical_json
from orch8_local.store.writer import Tx

Json = Any

SQL_SEEN = "SELECT status, result FROM operator_commands WHERE id = ?"
SQL_RECORD = (
    "INSERT INTO operator_commands (id, kind, arguments, actor, received_at_us, status, result) VALUES (?,?,?,?,?,?,?)"
)


def seen(tx: Tx, command_id: str) -> tuple[str, Json] | None:
    """(status, result) if a command with this id was applied or refused before."""
    row = tx.one(SQL_SEEN, (command_id,))
    return (row[0], json.loads(row[1])) if row else None


def record(tx: Tx, command: Command, *, status: str, result: Mapping[str, Json], now_us: int) -> None:
    """Keep what became of a command, in the transaction that applied it."""
    arguments = canonical_json({k: v for k, v in command.arguments.items() if k != "document"})
    tx.execute(
        SQL_RECORD, (command.id, command.kind, arguments, command.actor, now_us, status, canonical_json(dict(result)))
    )
