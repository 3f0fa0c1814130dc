"""Reads for faces: each one short, whole, and by key, over a read-only connection.

The easy mistake: holding a cursor over an await; it would pin the log for as long as nobody asks
for the next row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString, Self

import aiosqlite

from orch8_local.errors import Corrupt, InputError, NotFound, StoreError
from orch8_local.model.reading import Backlog, Change, EffectFilter, InstanceFilter, InstanceView, SequenceRow
from orch8_local.model.records import Event, Instance, Receipt
from orch8_local.store.rows import (
    EVENT_COLUMNS,
    INSTANCE_COLUMNS,
    NODE_COLUMNS,
    OUTPUT_COLUMNS,
    RECEIPT_COLUMNS,
    event_from_row,
    instance_from_row,
    node_from_row,
    output_from_row,
    receipt_from_row,
)
from orch8_local.store.sequences import SEQUENCE_COLUMNS, sequence_from_row

Json = Any
Row = tuple[Any, ...]

SQL_COUNTS = "SELECT state, n FROM instance_counts"
SQL_INSTANCE = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE id = ?"
SQL_INSTANCE_BY_KEY = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE tenant_id = 'local' AND start_key = ?"
SQL_INSTANCE_PREFIX = "SELECT id FROM instances WHERE id >= ? AND id < ? LIMIT 5"
SQL_EFFECT_PREFIX = "SELECT id FROM effect_receipts WHERE id >= ? AND id < ? LIMIT 5"
SQL_NODES = f"SELECT {NODE_COLUMNS} FROM nodes WHERE instance_id = ?"
SQL_OUTPUTS = f"SELECT {OUTPUT_COLUMNS} FROM outputs WHERE instance_id = ? ORDER BY seq"
SQL_RECEIPTS = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE instance_id = ? ORDER BY seq"
SQL_STATE = "SELECT key, value FROM instance_state WHERE instance_id = ?"
SQL_DOCUMENT = "SELECT document FROM sequences WHERE sha256 = ?"
SQL_EVENTS_OF_INSTANCE = f"SELECT {EVENT_COLUMNS} FROM events WHERE instance_id = ? AND seq > ? ORDER BY seq LIMIT ?"
SQL_EVENTS_OF_EFFECT = (
    f"SELECT {EVENT_COLUMNS} FROM events WHERE instance_id = (SELECT instance_id FROM effect_receipts WHERE id = ?)"
    " AND effect_id = ? AND seq > ? ORDER BY seq LIMIT ?"
)
SQL_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
SQL_EFFECT = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE id = ?"
SQL_SIBLINGS = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE intent_id = ? ORDER BY attempt"
SQL_BACKLOG = "SELECT count(*), min(created_at_us) FROM effect_receipts WHERE state IN ('dispatched','unknown')"
SQL_SEQUENCES = f"SELECT {SEQUENCE_COLUMNS} FROM sequences ORDER BY name, version, seq"
SQL_SEQUENCES_NAMED = f"SELECT {SEQUENCE_COLUMNS} FROM sequences WHERE name = ? ORDER BY version, seq"
SQL_SEQUENCE = f"SELECT {SEQUENCE_COLUMNS} FROM sequences WHERE sha256 = ?"
SQL_COMMAND = "SELECT status, result FROM operator_commands WHERE id = ?"
SQL_LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM events"
SQL_CHANGES = "SELECT seq, instance_id, effect_id, kind FROM events WHERE seq > ? ORDER BY seq LIMIT ?"


class SqlViews:
    """`engine.api.Views` over one connection that cannot write."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, *, is_immutable: bool = False) -> Self:
        """Open a database read-only."""
        uri = path.absolute().as_uri() + ("?mode=ro&immutable=1" if is_immutable else "?mode=ro")
        try:
            connection = await aiosqlite.connect(uri, uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        return cls(connection)

    async def close(self) -> None:
        """Close the connection and end its thread."""
        await self._connection.close()

    async def schema(self) -> int:
        """The number of the schema; 0 for a file without tables."""
        return int((await self._all("PRAGMA user_version"))[0][0])

    async def _all(self, sql: LiteralString, params: Sequence[Any] = ()) -> list[Row]:
        try:
            rows = await self._connection.execute_fetchall(sql, params)
        except sqlite3.DatabaseError as error:
            raise Corrupt(f"the database cannot be read: {error}", hint="`orch8-local db check` tells more") from error
        return [tuple(row) for row in rows]

    async def instances(self, which: InstanceFilter) -> list[Instance]:
        """Runs, newest first."""
        clauses, params = ["1"], list[Any]()
        if which.states:
            clauses.append(f"state IN ({','.join('?' * len(which.states))})")
            params += which.states
        if which.sequence_name is not None:
            clauses.append("sequence_name = ?")
            params.append(which.sequence_name)
        if which.is_blocked is not None:
            clauses.append("is_blocked = ?")
            params.append(int(which.is_blocked))
        if which.before_seq is not None:
            clauses.append("seq < ?")
            params.append(which.before_seq)
        where = " AND ".join(clauses)
        sql = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE {where} ORDER BY seq DESC LIMIT ?"
        rows = await self._all(sql, [*params, which.limit])
        return [instance_from_row(row) for row in rows]

    async def instance_counts(self) -> dict[str, int]:
        """How many runs are in each state, from counters."""
        return {row[0]: row[1] for row in await self._all(SQL_COUNTS)}

    async def instance_id(self, prefix: str) -> str:
        """The run that a unique prefix names."""
        return await self._by_prefix(SQL_INSTANCE_PREFIX, prefix, "run", "instances list")

    async def effect_id(self, prefix: str) -> str:
        """The effect that a unique prefix names."""
        return await self._by_prefix(SQL_EFFECT_PREFIX, prefix, "effect", "effects list")

    async def _by_prefix(self, sql: LiteralString, prefix: str, what: str, command: str) -> str:
        wanted = prefix.strip().lower()
        found = [row[0] for row in await self._all(sql, (wanted, wanted + "\x7f"))] if wanted else []
        if wanted in found or len(found) == 1:
            return str(wanted if wanted in found else found[0])
        if not found:
            raise NotFound(f"there is no {what} {prefix!r}", hint=f"`orch8-local {command}` shows all")
        raise InputError(
            f"{prefix!r} is the beginning of several {what}s: {', '.join(found)}", hint="give more characters"
        )

    async def instance(self, instance_id: str) -> InstanceView:
        """One run with all that belongs to it, as of one moment."""
        await self._connection.execute("BEGIN")
        try:
            rows = await self._all(SQL_INSTANCE, (instance_id,))
            if not rows:
                raise NotFound(f"there is no run {instance_id}", hint="`orch8-local instances list` shows all")
            instance = instance_from_row(rows[0])
            nodes = [node_from_row(row) for row in await self._all(SQL_NODES, (instance_id,))]
            outputs = [output_from_row(row) for row in await self._all(SQL_OUTPUTS, (instance_id,))]
            receipts = [receipt_from_row(row) for row in await self._all(SQL_RECEIPTS, (instance_id,))]
            state = {row[0]: json.loads(row[1]) for row in await self._all(SQL_STATE, (instance_id,))}
            document = (await self._all(SQL_DOCUMENT, (instance.sequence_sha256,)))[0][0]
        finally:
            await self._connection.execute("ROLLBACK")
        return InstanceView(instance, nodes, outputs, receipts, state, document)

    async def instance_by_key(self, start_key: str) -> Instance | None:
        """The run that a start key belongs to."""
        rows = await self._all(SQL_INSTANCE_BY_KEY, (start_key,))
        return instance_from_row(rows[0]) if rows else None

    async def events(
        self, *, instance_id: str | None = None, effect_id: str | None = None, after_seq: int = 0, limit: int = 1000
    ) -> list[Event]:
        """The timeline of a run, of an effect, or of everything; oldest first."""
        if effect_id is not None:
            rows = await self._all(SQL_EVENTS_OF_EFFECT, (effect_id, effect_id, after_seq, limit))
        elif instance_id is not None:
            rows = await self._all(SQL_EVENTS_OF_INSTANCE, (instance_id, after_seq, limit))
        else:
            rows = await self._all(SQL_EVENTS, (after_seq, limit))
        return [event_from_row(row) for row in rows]

    async def effects(self, which: EffectFilter) -> list[Receipt]:
        """Receipts, newest first."""
        clauses, params = ["1"], list[Any]()
        if which.is_unresolved:
            clauses.append("state IN ('dispatched','unknown')")
        for column, value in (("instance_id", which.instance_id), ("state", which.state), ("kind", which.kind)):
            if value is not None:
                clauses.append(f"{column} = ?")
                params.append(value)
        if which.before_seq is not None:
            clauses.append("seq < ?")
            params.append(which.before_seq)
        where = " AND ".join(clauses)
        sql = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE {where} ORDER BY seq DESC LIMIT ?"
        rows = await self._all(sql, [*params, which.limit])
        return [receipt_from_row(row) for row in rows]

    async def effect(self, effect_id: str) -> Receipt:
        """One receipt."""
        rows = await self._all(SQL_EFFECT, (effect_id,))
        if not rows:
            raise NotFound(f"there is no effect {effect_id}", hint="`orch8-local effects list` shows all")
        return receipt_from_row(rows[0])

    async def siblings(self, intent_id: str) -> list[Receipt]:
        """All attempts of one action, oldest first."""
        return [receipt_from_row(row) for row in await self._all(SQL_SIBLINGS, (intent_id,))]

    async def backlog(self) -> Backlog:
        """How many outcomes are unknown, and since when."""
        (row,) = await self._all(SQL_BACKLOG)
        return Backlog(row[0], row[1])

    async def sequences(self, *, name: str | None = None) -> list[SequenceRow]:
        """Stored revisions."""
        rows = await self._all(SQL_SEQUENCES) if name is None else await self._all(SQL_SEQUENCES_NAMED, (name,))
        return [sequence_from_row(row) for row in rows]

    async def sequence(self, sha256: str) -> SequenceRow:
        """One revision."""
        rows = await self._all(SQL_SEQUENCE, (sha256,))
        if not rows:
            raise NotFound(f"there is no revision {sha256[:12]}")
        return sequence_from_row(rows[0])

    async def command_result(self, command_id: str) -> tuple[str, Json] | None:
        """(status, result) of an applied command."""
        rows = await self._all(SQL_COMMAND, (command_id,))
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    async def last_seq(self) -> int:
        """Where the change feed ends now."""
        return int((await self._all(SQL_LAST_SEQ))[0][0])

    async def changes_since(self, seq: int, limit: int = 1000) -> list[Change]:
        """What was written after this point of the feed."""
        return [Change(*row) for row in await self._all(SQL_CHANGES, (seq, limit))]
