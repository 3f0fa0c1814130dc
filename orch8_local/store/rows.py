"""How rows become records: the column lists and, beside each, the function that reads them.

The easy mistake: changing one and not the other; a test selects every list from a real database and
reads it back.
"""

from __future__ import annotations

import json
from typing import Any

from orch8_local.model.outcome import EffectKind, Mode
from orch8_local.model.records import Event, Failure, Instance, Node, Output, Receipt
from orch8_local.model.states import InstanceState, NodeState, ReceiptState

Row = tuple[Any, ...]

INSTANCE_COLUMNS = (
    "id, sequence_sha256, sequence_name, sequence_version, state, priority, due_at_us, boot_id, claim_epoch,"
    " n_recoveries, n_steps, data, config, run_id, start_key, failure, paused_reason, cancel_requested_at_us,"
    " created_at_us, started_at_us, updated_at_us, ended_at_us, tenant_id, namespace"
)
NODE_COLUMNS = "scope, block_id, state, attempt, wake_at_us, waiting_for, memo, error, started_at_us, ended_at_us"
OUTPUT_COLUMNS = "seq, scope, block_id, kind, attempt, output, effect_id, created_at_us"
EVENT_COLUMNS = "seq, instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state, reason, detail"
RECEIPT_COLUMNS = (
    "seq, id, intent_id, tenant_id, continuity_id, epoch, instance_id, block_id, scope, rerun, attempt, kind, mode,"
    " handler, state, destination_fingerprint, request_sha256, idempotency_key, sent_key, provider_receipt_id, method,"
    " destination, boot_id, request_started, output, outcome_class, reason, version, created_at_us, updated_at_us,"
    " dispatched_at_us"
)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def instance_from_row(row: Row) -> Instance:
    """A run from INSTANCE_COLUMNS."""
    values = list(row)
    values[4] = InstanceState(values[4])
    values[11], values[12] = json.loads(values[11]), json.loads(values[12])
    values[15] = Failure.from_dict(json.loads(values[15])) if values[15] is not None else None
    return Instance(*values)


def node_from_row(row: Row) -> Node:
    """A node from NODE_COLUMNS."""
    scope, block_id, state, attempt, wake_at_us, waiting_for, memo, error, started_at_us, ended_at_us = row
    return Node(
        scope,
        block_id,
        NodeState(state),
        attempt,
        wake_at_us,
        waiting_for,
        _json(memo),
        _json(error),
        started_at_us,
        ended_at_us,
    )


def output_from_row(row: Row) -> Output:
    """An output row from OUTPUT_COLUMNS."""
    seq, scope, block_id, kind, attempt, output, effect_id, created_at_us = row
    return Output(seq, scope, block_id, kind, attempt, json.loads(output), effect_id, created_at_us)


def event_from_row(row: Row) -> Event:
    """A line of the timeline from EVENT_COLUMNS."""
    (seq, instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state, reason, detail) = row
    return Event(
        seq, instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state, reason, _json(detail)
    )


def receipt_from_row(row: Row) -> Receipt:
    """A receipt from RECEIPT_COLUMNS."""
    (*identity, kind, mode, handler, state) = row[:15]
    fingerprint, request, key, sent_key, provider, method, destination, boot_id, started, output = row[15:25]
    return Receipt(  # type: ignore[call-arg]  # the column list and the record have the same order
        *identity,
        EffectKind(kind),
        Mode(mode),
        handler,
        ReceiptState(state),
        fingerprint,
        request,
        key,
        sent_key,
        provider,
        method,
        destination,
        boot_id,
        bool(started),
        _json(output),
        output is not None,
        *row[25:],
    )
