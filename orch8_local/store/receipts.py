"""The ledger's rows: every write is a legal move, conditional on what was read, with its event.

A receipt is inserted `prepared` (with the events of both its first moves) and from then on only
moved. The easy mistake: an UPDATE that does not name the state it expects; two writers would then
both believe that they were the one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orch8_local.errors import Bug, NotFound, StaleVersion
from orch8_local.model.ids import canonical_json
from orch8_local.model.outcome import EffectKind, Mode
from orch8_local.model.records import Receipt
from orch8_local.model.states import RECEIPT, ReceiptState, move
from orch8_local.store import events
from orch8_local.store.rows import RECEIPT_COLUMNS, receipt_from_row
from orch8_local.store.writer import Tx

Json = Any

SQL_OF_INTENT = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE intent_id = ? ORDER BY attempt"
SQL_GET = f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE id = ?"
SQL_IN_STATE = (
    f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE state = ? AND state IN ('dispatched','unknown') ORDER BY seq"
)
SQL_UNRESOLVED_OF_INSTANCE = (
    "SELECT id FROM effect_receipts WHERE instance_id = ? AND state IN ('dispatched','unknown') ORDER BY seq"
)
SQL_UNSENT_OF_INSTANCE = (
    f"SELECT {RECEIPT_COLUMNS} FROM effect_receipts WHERE instance_id = ?"
    " AND state IN ('planned','prepared') ORDER BY seq"
)
SQL_INSERT = (
    "INSERT INTO effect_receipts (id, intent_id, tenant_id, continuity_id, epoch, instance_id, block_id, scope, rerun,"
    " attempt, kind, mode, handler, state, destination_fingerprint, request_sha256, idempotency_key, sent_key, method,"
    " destination, created_at_us, updated_at_us) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,'prepared',?,?,?,?,?,?,?,?)"
)
SQL_DISPATCH = (
    "UPDATE effect_receipts SET state = 'dispatched', boot_id = ?, request_started = 1, dispatched_at_us = ?,"
    " updated_at_us = ?, version = version + 1 WHERE id = ? AND state = 'prepared'"
)
SQL_MOVE = (
    "UPDATE effect_receipts SET state = ?, outcome_class = coalesce(?, outcome_class), reason = coalesce(?, reason),"
    " provider_receipt_id = coalesce(?, provider_receipt_id), output = coalesce(?, output), updated_at_us = ?,"
    " version = version + 1 WHERE id = ? AND state = ?"
)
SQL_EPOCH = "SELECT epoch FROM ledger_meta"


@dataclass(frozen=True, slots=True)
class NewReceipt:
    """What is known of an attempt before anything is sent."""

    id: str
    intent_id: str
    tenant_id: str
    continuity_id: str
    epoch: int
    instance_id: str
    block_id: str
    scope: str
    rerun: int
    attempt: int
    kind: EffectKind
    mode: Mode
    handler: str
    destination_fingerprint: str
    request_sha256: str
    idempotency_key: str | None
    sent_key: str | None
    method: str | None
    destination: str | None


def epoch(tx: Tx) -> int:
    """The ownership generation of this file; raised only by an adopt."""
    row = tx.one(SQL_EPOCH)
    assert row is not None, "a migrated database has its ledger_meta row"
    return int(row[0])


def of_intent(tx: Tx, intent_id: str) -> list[Receipt]:
    """All receipts of one business action, oldest attempt first."""
    return [receipt_from_row(row) for row in tx.all(SQL_OF_INTENT, (intent_id,))]


def get(tx: Tx, effect_id: str) -> Receipt:
    """One receipt; NotFound if there is none."""
    row = tx.one(SQL_GET, (effect_id,))
    if row is None:
        raise NotFound(f"there is no effect {effect_id}", hint="`orch8-local effects list` shows all")
    return receipt_from_row(row)


def in_state(tx: Tx, state: ReceiptState) -> list[Receipt]:
    """All receipts that are `dispatched` or `unknown`, oldest first; no other state is asked for."""
    assert state in (ReceiptState.DISPATCHED, ReceiptState.UNKNOWN), state
    return [receipt_from_row(row) for row in tx.all(SQL_IN_STATE, (state,))]


def unresolved_ids(tx: Tx, instance_id: str) -> list[str]:
    """Ids of this run's receipts whose outcome is not known."""
    return [row[0] for row in tx.all(SQL_UNRESOLVED_OF_INSTANCE, (instance_id,))]


def unsent(tx: Tx, instance_id: str) -> list[Receipt]:
    """This run's receipts of which nothing was sent."""
    return [receipt_from_row(row) for row in tx.all(SQL_UNSENT_OF_INSTANCE, (instance_id,))]


def insert_prepared(tx: Tx, new: NewReceipt, *, now_us: int) -> None:
    """Write a new attempt: planned and prepared in one transaction, nothing sent (T0)."""
    tx.execute(
        SQL_INSERT,
        (
            new.id,
            new.intent_id,
            new.tenant_id,
            new.continuity_id,
            new.epoch,
            new.instance_id,
            new.block_id,
            new.scope,
            new.rerun,
            new.attempt,
            new.kind,
            new.mode,
            new.handler,
            new.destination_fingerprint,
            new.request_sha256,
            new.idempotency_key,
            new.sent_key,
            new.method,
            new.destination,
            now_us,
            now_us,
        ),
    )
    _event(tx, new, None, ReceiptState.PLANNED, now_us=now_us)
    _event(tx, new, ReceiptState.PLANNED, ReceiptState.PREPARED, now_us=now_us)


def dispatch(tx: Tx, receipt: Receipt | NewReceipt, *, boot_id: str, now_us: int) -> None:
    """T1: from here on the outside may see something. StaleVersion unless it was `prepared`."""
    cursor = tx.execute(SQL_DISPATCH, (boot_id, now_us, now_us, receipt.id))
    if cursor.rowcount != 1:
        raise StaleVersion(f"effect {receipt.id} is no longer prepared; nothing is sent")
    _event(tx, receipt, ReceiptState.PREPARED, ReceiptState.DISPATCHED, now_us=now_us)


def shift(
    tx: Tx,
    receipt: Receipt | NewReceipt,
    old: ReceiptState,
    new: ReceiptState,
    *,
    now_us: int,
    actor: str = "engine",
    reason: str | None = None,
    outcome_class: str | None = None,
    provider_receipt_id: str | None = None,
    output: Json = None,
    has_output: bool = False,
    evidence: Mapping[str, Json] | None = None,
) -> None:
    """Move one receipt from a state that it must be in; a fact that is not given keeps its old value.

    Raises IllegalMove for a move the table does not have, StaleVersion if the receipt is elsewhere.
    """
    move(RECEIPT, old, new)
    if new is ReceiptState.DISPATCHED:
        raise Bug("a dispatch goes through dispatch(), which records the boot")
    text = canonical_json(output) if has_output else None
    cursor = tx.execute(SQL_MOVE, (new, outcome_class, reason, provider_receipt_id, text, now_us, receipt.id, old))
    if cursor.rowcount != 1:
        raise StaleVersion(f"effect {receipt.id} is no longer {old}", details={"effect_id": receipt.id})
    _event(tx, receipt, old, new, now_us=now_us, actor=actor, reason=reason, evidence=evidence)


def _event(
    tx: Tx,
    receipt: Receipt | NewReceipt,
    old: ReceiptState | None,
    new: ReceiptState,
    *,
    now_us: int,
    actor: str = "engine",
    reason: str | None = None,
    evidence: Mapping[str, Json] | None = None,
) -> None:
    events.append(
        tx,
        receipt.instance_id,
        f"effect.{new}",
        at_us=now_us,
        actor=actor,
        scope=receipt.scope,
        block_id=receipt.block_id,
        effect_id=receipt.id,
        from_state=old,
        to_state=new,
        reason=reason,
        detail=evidence,
    )
