"""Commands: what faces ask for, checked, and applied each in one transaction.

The same code serves a face in this process and a file in the inbox. Everything that can be refused
without the database is refused before the transaction. The easy mistake: acknowledging a command
before its transaction is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from orch8_local.blocks.step import max_attempts
from orch8_local.engine import resolution
from orch8_local.engine.api import Command
from orch8_local.engine.built import check_built
from orch8_local.engine.shared import Shared
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import Conflict, ContentConflict, InputError, NotFound
from orch8_local.model.ids import canonical_json, json_fault, sha256_hex
from orch8_local.model.records import Instance, Node
from orch8_local.model.states import InstanceState, NodeState, ReceiptState
from orch8_local.sequence.document import SequenceDefinition, from_stored, parse
from orch8_local.store import events, instances, receipts, sequences
from orch8_local.store.instances import NewInstance
from orch8_local.store.writer import Tx

Json = Any
Result = dict[str, Json]
Apply = Callable[[Tx], Result]

MAX_CONTEXT_BYTES = 262_144
"""The compact JSON of data and config together (sequence-format 6)."""
PRIORITY_NORMAL = 1


def prepare(command: Command, shared: Shared) -> tuple[Apply, Transaction]:
    """Check a command and return what applies it. Raises InputError, NotBuilt, NotFound."""
    arguments = command.arguments
    actor = command.actor if command.actor.startswith(("operator", "engine")) else f"operator:{command.actor}"
    match command.kind:
        case "start":
            return _start(arguments, actor, shared), Transaction.START
        case "add_sequence":
            return _add_sequence(arguments, shared), Transaction.ADD_SEQUENCE
        case "cancel":
            return _cancel(str(arguments["instance_id"]), actor, shared), Transaction.CANCEL
        case "retry":
            return _retry(str(arguments["instance_id"]), actor, shared), Transaction.RETRY
        case "resolve":
            return _resolve(arguments, actor, shared), Transaction.RESOLVE
    raise InputError(f"there is no command {command.kind!r}")


@lru_cache(maxsize=256)
def definition_of(document: str) -> SequenceDefinition:
    """A stored document, read once; a revision never changes."""
    return from_stored(document)


@lru_cache(maxsize=64)
def _given(document: str, source: str) -> SequenceDefinition:
    """A document that comes with a start: the same one often comes many times."""
    return parse(document, source=source).definition


def _start(arguments: Mapping[str, Json], actor: str, shared: Shared) -> Apply:
    data, config = arguments.get("data"), arguments.get("config")
    _check_context(data, config)
    key = arguments.get("key") or None
    priority = arguments.get("priority")
    document = arguments.get("document")
    given = None
    if document is not None:
        given = _given(document, str(arguments.get("source") or "document"))
        _check_start(given, data, shared)

    def apply(tx: Tx) -> Result:
        now_us = shared.now_us()
        definition = given if given is not None else _stored(tx, arguments, data, shared)
        _put(tx, definition, str(arguments.get("source") or "file"), now_us, is_strict=False)
        input_sha256 = sha256_hex(canonical_json({"data": data, "config": config}))
        if key is not None:
            earlier = instances.by_start_key(tx, definition.tenant_id, key)
            if earlier is not None:
                return _replayed(tx, earlier, definition, input_sha256, data, config, key)
        new = NewInstance(
            id=shared.world.ids.uuid7(),
            sequence_sha256=definition.content_sha256,
            sequence_name=definition.name,
            sequence_version=definition.version,
            tenant_id=definition.tenant_id,
            namespace=definition.namespace,
            priority=PRIORITY_NORMAL if priority is None else priority,
            due_at_us=now_us,
            data=data,
            config=config,
            run_id=shared.world.ids.uuid7(),
            start_key=key,
            input_sha256=input_sha256,
        )
        instances.insert(tx, new, now_us=now_us, actor=actor)
        return {"instance_id": new.id, "is_replayed": False}

    return apply


def _check_context(data: Json, config: Json) -> None:
    for name, value in (("data", data), ("config", config)):
        fault = json_fault(value, name)
        if fault is not None:
            raise InputError(f"input: {fault}")
    size_bytes = len(canonical_json({"data": data, "config": config}).encode())
    if size_bytes > MAX_CONTEXT_BYTES:
        raise InputError(
            f"the input has {size_bytes} bytes; the most is {MAX_CONTEXT_BYTES}",
            hint="put large values into a file and pass its path",
        )


def _check_start(definition: SequenceDefinition, data: Json, shared: Shared) -> None:
    if definition.content_sha256 not in shared.checked:
        check_built(definition, shared.registry)
        shared.checked.add(definition.content_sha256)
    if definition.input_schema is not None:
        _check_input_schema(definition, data)


def _check_input_schema(definition: SequenceDefinition, data: Json) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    schema = definition.input_schema
    assert schema is not None
    validator = validator_for(schema, default=Draft202012Validator)(schema)
    found = sorted(validator.iter_errors(data), key=lambda e: [str(part) for part in e.absolute_path])
    if not found:
        return
    faults = [
        {"path": "".join(f"/{part}" for part in error.absolute_path), "message": error.message} for error in found
    ]
    listed = "; ".join(f"{'data' + fault['path']}: {fault['message']}" for fault in faults)
    raise InputError(
        f"the input does not fit the input_schema of {definition.name!r}: {listed}",
        hint="pass it with --input '{…}' or --set NAME=VALUE",
        details={"faults": faults},
    )


def _stored(tx: Tx, arguments: Mapping[str, Json], data: Json, shared: Shared) -> SequenceDefinition:
    row = sequences.find(tx, str(arguments.get("name")), arguments.get("version"))
    if row is None or row.document is None:
        raise NotFound(f"there is no sequence {arguments.get('name')!r}", hint="`orch8-local sequences list` shows all")
    definition = definition_of(row.document)
    _check_start(definition, data, shared)
    return definition


def _put(tx: Tx, definition: SequenceDefinition, source: str, now_us: int, *, is_strict: bool) -> bool:
    return sequences.put(
        tx,
        definition.stored_text,
        sha256=definition.content_sha256,
        name=definition.name,
        version=definition.version,
        tenant_id=definition.tenant_id,
        namespace=definition.namespace,
        source=source,
        now_us=now_us,
        strict=is_strict,
    )


def _replayed(
    tx: Tx,
    earlier: tuple[str, str, str],
    definition: SequenceDefinition,
    input_sha256: str,
    data: Json,
    config: Json,
    key: str,
) -> Result:
    instance_id, sequence_sha256, earlier_input = earlier
    differs = []
    if sequence_sha256 != definition.content_sha256:
        differs.append("the sequence")
    if earlier_input != input_sha256:
        first = instances.get(tx, instance_id)
        differs += _differing("data", first.data, data) + _differing("config", first.config, config)
    if differs:
        raise ContentConflict(
            f"the key {key!r} belongs to run {instance_id}, and this start differs in {', '.join(differs)}",
            hint="use another key, or start it with the same input",
            details={"instance_id": instance_id, "differs": differs},
        )
    return {"instance_id": instance_id, "is_replayed": True}


def _differing(name: str, first: Json, second: Json) -> list[str]:
    if first == second and canonical_json(first) == canonical_json(second):
        return []
    if isinstance(first, dict) and isinstance(second, dict):
        keys = sorted(k for k in first.keys() | second.keys() if first.get(k) != second.get(k))
        return [f"{name}.{key}" for key in keys] or [name]
    return [name]


def _add_sequence(arguments: Mapping[str, Json], shared: Shared) -> Apply:
    definition = parse(
        str(arguments["document"]),
        source=str(arguments.get("source") or "document"),
        handlers={spec.name: spec.params for spec in shared.registry.specs()},
        external_handlers=arguments.get("external_handlers") or (),
    ).definition

    def apply(tx: Tx) -> Result:
        is_new = _put(
            tx,
            definition,
            str(arguments.get("source") or "file"),
            shared.now_us(),
            is_strict=bool(arguments.get("strict")),
        )
        return {
            "name": definition.name,
            "version": definition.version,
            "sha256": definition.content_sha256,
            "is_new": is_new,
        }

    return apply


def _cancel(instance_id: str, actor: str, shared: Shared) -> Apply:
    def apply(tx: Tx) -> Result:
        now_us = shared.now_us()
        instance = instances.get(tx, instance_id)
        if instance.state in (InstanceState.COMPLETED, InstanceState.FAILED, InstanceState.CANCELLED):
            hint = (
                "resolve its effect instead: `orch8-local effects list --unresolved`" if instance.is_blocked else None
            )
            raise Conflict(f"run {instance_id} has ended already: it is {_shown(instance)}", hint=hint)
        if instance.cancel_requested_at_us is None:
            instances.request_cancel(tx, instance_id, now_us=now_us)
        if instance.state is InstanceState.RUNNING:
            events.append(tx, instance_id, "instance.cancel_requested", at_us=now_us, actor=actor)
            return {"instance_id": instance_id, "state": "running"}
        for node in instances.nodes_of(tx, instance_id):
            if node.state in (NodeState.RUNNING, NodeState.WAITING):
                instances.put_node(tx, instance_id, _cancelled(node, now_us))
        for unsent in receipts.unsent(tx, instance_id):
            evidence = {"kind": "not_sent", "note": "the run was cancelled before anything was sent"}
            receipts.shift(
                tx,
                unsent,
                unsent.state,
                ReceiptState.ABANDONED,
                now_us=now_us,
                reason="instance_ended",
                evidence=evidence,
            )
        instances.move_instance(tx, instance, instance.state, InstanceState.CANCELLED, now_us=now_us, actor=actor)
        return {"instance_id": instance_id, "state": "cancelled"}

    return apply


def _cancelled(node: Node, now_us: int) -> Node:
    return Node(
        node.scope,
        node.block_id,
        NodeState.CANCELLED,
        node.attempt,
        memo=node.memo,
        started_at_us=node.started_at_us,
        ended_at_us=now_us,
    )


def _retry(instance_id: str, actor: str, shared: Shared) -> Apply:
    def apply(tx: Tx) -> Result:
        now_us = shared.now_us()
        instance = instances.get(tx, instance_id)
        open_ids = receipts.unresolved_ids(tx, instance_id)
        if open_ids:
            raise Conflict(
                f"run {instance_id} is blocked by {len(open_ids)} effect(s) whose outcome is unknown",
                hint=f"find out, then: orch8-local effects resolve {open_ids[0]}",
                details={"effect_ids": open_ids},
            )
        if instance.state not in (InstanceState.FAILED, InstanceState.PAUSED):
            raise Conflict(
                f"run {instance_id} is {_shown(instance)}; only a failed or parked run can be retried",
                hint=f"`orch8-local instances show {instance_id}` tells more",
            )
        for node in instances.nodes_of(tx, instance_id):
            if node.state in (NodeState.FAILED, NodeState.CANCELLED):
                instances.put_node(tx, instance_id, Node(node.scope, node.block_id, NodeState.PENDING))
            elif node.state is NodeState.WAITING and node.waiting_for == "effect":
                again = Node(node.scope, node.block_id, NodeState.WAITING, waiting_for="retry", wake_at_us=now_us)
                instances.put_node(tx, instance_id, again)
        instances.new_run(tx, instance_id, shared.world.ids.uuid7())
        instances.move_instance(
            tx,
            instance,
            instance.state,
            InstanceState.SCHEDULED,
            now_us=now_us,
            actor=actor,
            due_at_us=now_us,
        )
        return {"instance_id": instance_id, "state": "scheduled"}

    return apply


def _resolve(arguments: Mapping[str, Json], actor: str, shared: Shared) -> Apply:
    wanted = resolution.parse(arguments, actor)
    resolution.check_evidence(wanted)

    def apply(tx: Tx) -> Result:
        receipt = receipts.get(tx, wanted.effect_id)
        allowed = attempts_allowed(tx, receipt.instance_id, receipt.block_id)
        return resolution.resolve(tx, wanted, max_attempts=allowed, now_us=shared.now_us())

    return apply


def attempts_allowed(tx: Tx, instance_id: str, block_id: str) -> int:
    """How often the step may be executed in all, from the document that the run is pinned to."""
    instance = instances.get(tx, instance_id)
    row = sequences.get(tx, instance.sequence_sha256)
    assert row.document is not None, "a stored revision has its document"
    return max_attempts(definition_of(row.document).block(block_id))


def _shown(instance: Instance) -> str:
    return "blocked" if instance.is_blocked else str(instance.state)
