"""Runs, their nodes, outputs and key-value state: one function per thing a transaction does.

No function here begins or commits. Every write to a run that an executor makes names the claim it
was made under, so that a task which lost its claim can change nothing. The easy mistake: moving the
state of a run without its event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orch8_local.errors import NotFound, StaleVersion
from orch8_local.model.ids import canonical_json
from orch8_local.model.outcome import Change, SetState
from orch8_local.model.records import Failure, Instance, Node, Output
from orch8_local.model.states import INSTANCE, InstanceState, move
from orch8_local.store import events
from orch8_local.store.rows import (
    INSTANCE_COLUMNS,
    NODE_COLUMNS,
    OUTPUT_COLUMNS,
    instance_from_row,
    node_from_row,
    output_from_row,
)
from orch8_local.store.writer import Tx

Json = Any

SQL_INSERT = (
    "INSERT INTO instances (id, sequence_sha256, sequence_name, sequence_version, tenant_id, namespace, state,"
    " priority, due_at_us, data, config, run_id, start_key, input_sha256, created_at_us, updated_at_us)"
    " VALUES (?,?,?,?,?,?,'scheduled',?,?,?,?,?,?,?,?,?)"
)
SQL_GET = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE id = ?"
SQL_BY_KEY = "SELECT id, sequence_sha256, input_sha256 FROM instances WHERE tenant_id = ? AND start_key = ?"
SQL_DUE = "SELECT id FROM instances WHERE priority = ? AND due_at_us <= ? ORDER BY due_at_us, seq LIMIT ?"
SQL_NEXT_DUE = "SELECT due_at_us FROM instances WHERE priority = ? AND due_at_us > ? ORDER BY due_at_us LIMIT 1"
SQL_CLAIM = (
    "UPDATE instances SET state = 'running', due_at_us = NULL, boot_id = ?, claim_epoch = claim_epoch + 1,"
    " started_at_us = coalesce(started_at_us, ?), updated_at_us = ? WHERE id = ?"
)
SQL_IN_STATE = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE state = ? ORDER BY seq"
SQL_FENCE = "SELECT 1 FROM instances WHERE id = ? AND claim_epoch = ? AND state = 'running'"
SQL_PROGRESS = (
    "UPDATE instances SET n_steps = n_steps + ?, n_recoveries = iif(? > 0, 0, n_recoveries), updated_at_us = ?"
    " WHERE id = ? AND state = 'running' AND claim_epoch = ?"
)
SQL_MOVE = (
    "UPDATE instances SET state = ?, due_at_us = ?, boot_id = NULL, failure = ?, is_blocked = ?, paused_reason = ?,"
    " ended_at_us = ?, updated_at_us = ? WHERE id = ? AND state = ?"
)
SQL_FAILURE = "UPDATE instances SET failure = ?, is_blocked = ?, updated_at_us = ? WHERE id = ? AND state = 'failed'"
SQL_RECOVERIES = "UPDATE instances SET n_recoveries = ? WHERE id = ?"
SQL_CANCEL = "UPDATE instances SET cancel_requested_at_us = ?, updated_at_us = ? WHERE id = ?"
SQL_NEW_RUN = "UPDATE instances SET run_id = ?, n_recoveries = 0, cancel_requested_at_us = NULL WHERE id = ?"
SQL_NODES = f"SELECT {NODE_COLUMNS} FROM nodes WHERE instance_id = ?"
SQL_NODE = f"SELECT {NODE_COLUMNS} FROM nodes WHERE instance_id = ? AND scope = ? AND block_id = ?"
SQL_PUT_NODE = (
    "INSERT INTO nodes (instance_id, scope, block_id, state, attempt, wake_at_us, waiting_for, memo, error,"
    " started_at_us, ended_at_us) VALUES (?,?,?,?,?,?,?,?,?,?,?)"
    " ON CONFLICT (instance_id, scope, block_id) DO UPDATE SET state = excluded.state, attempt = excluded.attempt,"
    " wake_at_us = excluded.wake_at_us, waiting_for = excluded.waiting_for, memo = excluded.memo,"
    " error = excluded.error, started_at_us = excluded.started_at_us, ended_at_us = excluded.ended_at_us"
)
SQL_OUTPUTS = f"SELECT {OUTPUT_COLUMNS} FROM outputs WHERE instance_id = ? ORDER BY seq"
SQL_RESULT = "SELECT 1 FROM outputs WHERE instance_id = ? AND scope = ? AND block_id = ? AND kind = 'result'"
SQL_PUT_OUTPUT = (
    "INSERT INTO outputs (instance_id, scope, block_id, kind, attempt, output, effect_id, created_at_us)"
    " VALUES (?,?,?,?,?,?,?,?)"
)
SQL_STATE = "SELECT key, value FROM instance_state WHERE instance_id = ?"
SQL_SET_STATE = (
    "INSERT INTO instance_state (instance_id, key, value) VALUES (?,?,?)"
    " ON CONFLICT (instance_id, key) DO UPDATE SET value = excluded.value"
)
SQL_DELETE_STATE = "DELETE FROM instance_state WHERE instance_id = ? AND key = ?"
SQL_OUTBOX = "INSERT INTO outbox (instance_id, kind, payload, created_at_us) VALUES (?,?,?,?)"
PRIORITIES = (3, 2, 1, 0)


@dataclass(frozen=True, slots=True)
class NewInstance:
    """A run to be."""

    id: str
    sequence_sha256: str
    sequence_name: str
    sequence_version: int
    tenant_id: str
    namespace: str
    priority: int
    due_at_us: int
    data: Json
    config: Json
    run_id: str
    start_key: str | None
    input_sha256: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """One claimed run with all that its executor needs."""

    instance: Instance
    nodes: Sequence[Node]
    outputs: Sequence[Output]
    state: dict[str, Json]


def insert(tx: Tx, new: NewInstance, *, now_us: int, actor: str) -> None:
    """Create a run, due at `due_at_us`."""
    tx.execute(
        SQL_INSERT,
        (
            new.id,
            new.sequence_sha256,
            new.sequence_name,
            new.sequence_version,
            new.tenant_id,
            new.namespace,
            new.priority,
            new.due_at_us,
            canonical_json(new.data),
            canonical_json(new.config),
            new.run_id,
            new.start_key,
            new.input_sha256,
            now_us,
            now_us,
        ),
    )
    events.append(tx, new.id, "instance.started", at_us=now_us, actor=actor, to_state=InstanceState.SCHEDULED)


def get(tx: Tx, instance_id: str) -> Instance:
    """One run; NotFound if there is none."""
    row = tx.one(SQL_GET, (instance_id,))
    if row is None:
        raise NotFound(f"there is no run {instance_id}", hint="`orch8-local instances list` shows all")
    return instance_from_row(row)


def by_start_key(tx: Tx, tenant_id: str, start_key: str) -> tuple[str, str, str] | None:
    """(instance id, sequence hash, input hash) of the run that a start key belongs to."""
    row = tx.one(SQL_BY_KEY, (tenant_id, start_key))
    return (row[0], row[1], row[2]) if row else None


def claim(tx: Tx, *, boot_id: str, now_us: int, limit: int) -> list[Loaded]:
    """Take what is due, highest priority and longest due first, and load it."""
    ids: list[str] = []
    for priority in PRIORITIES:
        if len(ids) < limit:
            ids.extend(row[0] for row in tx.all(SQL_DUE, (priority, now_us, limit - len(ids))))
    for instance_id in ids:
        tx.execute(SQL_CLAIM, (boot_id, now_us, now_us, instance_id))
    return [load(tx, instance_id) for instance_id in ids]


def load(tx: Tx, instance_id: str) -> Loaded:
    """A run with its nodes, outputs and state."""
    instance = get(tx, instance_id)
    if instance.n_steps == 0 and instance.claim_epoch <= 1:
        nodes: list[Node] = []
        outputs: list[Output] = []
    else:
        nodes = nodes_of(tx, instance_id)
        outputs = [output_from_row(row) for row in tx.all(SQL_OUTPUTS, (instance_id,))]
    state = {key: json.loads(value) for key, value in tx.all(SQL_STATE, (instance_id,))}
    return Loaded(instance, nodes, outputs, state)


def next_due_us(tx: Tx, *, now_us: int) -> int | None:
    """When the next run that is not due yet will be."""
    found = [tx.one(SQL_NEXT_DUE, (priority, now_us)) for priority in PRIORITIES]
    return min((row[0] for row in found if row), default=None)


def in_state(tx: Tx, state: InstanceState) -> list[Instance]:
    """All runs in one state, oldest first."""
    return [instance_from_row(row) for row in tx.all(SQL_IN_STATE, (state,))]


def nodes_of(tx: Tx, instance_id: str) -> list[Node]:
    """All nodes of one run."""
    return [node_from_row(row) for row in tx.all(SQL_NODES, (instance_id,))]


def node(tx: Tx, instance_id: str, scope: str, block_id: str) -> Node | None:
    """One node, if the run has reached it."""
    row = tx.one(SQL_NODE, (instance_id, scope, block_id))
    return node_from_row(row) if row else None


def fence(tx: Tx, instance: Instance) -> None:
    """StaleVersion unless the run is still executed under the claim of `instance`."""
    if tx.one(SQL_FENCE, (instance.id, instance.claim_epoch)) is None:
        raise StaleVersion(f"run {instance.id} is no longer executed under this claim")


def progress(tx: Tx, instance: Instance, *, n_steps: int, now_us: int) -> None:
    """Note that steps ended, under the claim of `instance`; StaleVersion if the claim is lost.

    A finished step ends the count of fruitless recoveries.
    """
    cursor = tx.execute(SQL_PROGRESS, (n_steps, n_steps, now_us, instance.id, instance.claim_epoch))
    if cursor.rowcount != 1:
        raise StaleVersion(f"run {instance.id} is no longer executed under this claim")


def move_instance(
    tx: Tx,
    instance: Instance,
    old: InstanceState,
    new: InstanceState,
    *,
    now_us: int,
    actor: str = "engine",
    due_at_us: int | None = None,
    failure: Failure | None = None,
    paused_reason: str | None = None,
    reason: str | None = None,
) -> None:
    """Move a run from a state that it must be in, with its event and, at an end, its outbox row.

    Raises IllegalMove, or StaleVersion if the run is elsewhere.
    """
    move(INSTANCE, old, new)
    is_end = new in (InstanceState.COMPLETED, InstanceState.FAILED, InstanceState.CANCELLED)
    failure_text = canonical_json(failure.as_dict()) if failure else None
    cursor = tx.execute(
        SQL_MOVE,
        (
            new,
            due_at_us,
            failure_text,
            1 if failure is not None and failure.is_blocked else 0,
            paused_reason,
            now_us if is_end else None,
            now_us,
            instance.id,
            old,
        ),
    )
    if cursor.rowcount != 1:
        raise StaleVersion(f"run {instance.id} is no longer {old}", details={"instance_id": instance.id})
    events.append(
        tx,
        instance.id,
        f"instance.{new}",
        at_us=now_us,
        actor=actor,
        block_id=failure.block_id if failure else None,
        from_state=old,
        to_state=new,
        reason=reason or (failure.kind if failure else paused_reason),
        detail=failure.as_dict() if failure else None,
    )
    if is_end:
        tx.execute(SQL_OUTBOX, (instance.id, f"instance.{new}", failure_text or "{}", now_us))
    if failure is not None and failure.is_blocked:
        tx.execute(SQL_OUTBOX, (instance.id, "instance.effect_unresolved", failure_text, now_us))


def set_failure(tx: Tx, instance_id: str, failure: Failure, *, now_us: int) -> None:
    """Replace the reason of a failed run, without moving it."""
    is_blocked = 1 if failure.is_blocked else 0
    tx.execute(SQL_FAILURE, (canonical_json(failure.as_dict()), is_blocked, now_us, instance_id))


def set_recoveries(tx: Tx, instance_id: str, n_recoveries: int) -> None:
    """How often this run was found running after a crash, without a finished step in between."""
    tx.execute(SQL_RECOVERIES, (n_recoveries, instance_id))


def request_cancel(tx: Tx, instance_id: str, *, now_us: int) -> None:
    """Remember that a cancel was asked for: no further step starts."""
    tx.execute(SQL_CANCEL, (now_us, now_us, instance_id))


def new_run(tx: Tx, instance_id: str, run_id: str) -> None:
    """Begin a fresh run id: full retry budgets, no recoveries counted, no cancel pending."""
    tx.execute(SQL_NEW_RUN, (run_id, instance_id))


def put_node(tx: Tx, instance_id: str, node: Node) -> None:
    """Write a node as it is now; its state moves only as the table allows."""
    tx.execute(
        SQL_PUT_NODE,
        (
            instance_id,
            node.scope,
            node.block_id,
            node.state,
            node.attempt,
            node.wake_at_us,
            node.waiting_for,
            canonical_json(node.memo) if node.memo is not None else None,
            canonical_json(node.error) if node.error is not None else None,
            node.started_at_us,
            node.ended_at_us,
        ),
    )


def has_result(tx: Tx, instance_id: str, scope: str, block_id: str) -> bool:
    """True if the step is complete: a step is complete if and only if its intent has a result row."""
    return tx.one(SQL_RESULT, (instance_id, scope, block_id)) is not None


def put_output(
    tx: Tx,
    instance_id: str,
    scope: str,
    block_id: str,
    *,
    kind: str,
    attempt: int,
    output: Json,
    now_us: int,
    effect_id: str | None = None,
) -> None:
    """Append one row; the database refuses a second result of one intent."""
    text = canonical_json(output)
    tx.execute(SQL_PUT_OUTPUT, (instance_id, scope, block_id, kind, attempt, text, effect_id, now_us))


def apply_changes(tx: Tx, instance_id: str, changes: Iterable[Change]) -> None:
    """What a handler asked for, in its order."""
    for change in changes:
        if isinstance(change, SetState):
            tx.execute(SQL_SET_STATE, (instance_id, change.key, canonical_json(change.value)))
        else:
            tx.execute(SQL_DELETE_STATE, (instance_id, change.key))
