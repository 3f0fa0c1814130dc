"""Recording what really happened to an effect, and carrying its run on (effect-receipts 11.1 to 11.4).

One transaction: the receipt's move with its evidence, the step's row and node, the run. An operator
and the engine (a late answer) go through the same function; only what they must bring differs. The
easy mistake: resolving the receipt and leaving the run behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orch8_local.errors import InputError, NotAllowed, StaleVersion
from orch8_local.model.ids import json_fault
from orch8_local.model.outcome import Mode, Outcome
from orch8_local.model.records import Evidence, Failure, Instance, Node, Receipt
from orch8_local.model.states import RECEIPT, RECEIPT_ACTORS, Actor, InstanceState, NodeState, move
from orch8_local.model.states import ReceiptState as R
from orch8_local.store import events, instances, receipts
from orch8_local.store.writer import Tx

Json = Any

TARGETS = {
    "committed": R.COMMITTED,
    "verified": R.VERIFIED,
    "abandoned": R.ABANDONED,
    "compensated": R.COMPENSATED,
}
NEXT = ("resume", "retry", "stay")
SHORTEST_NOTE = 20
HAPPENED = (R.COMMITTED, R.VERIFIED)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What somebody found out about one effect, and what the run shall do.

    actor: `engine`, `probe` or `operator:<name>`. then: `resume` lets the retry budget decide after
    an abandonment, `retry` grants one more attempt, `stay` leaves the run stopped.
    expected_version: refuse if the receipt was changed since it was looked at; None does not ask.
    """

    effect_id: str
    target: R
    actor: str
    evidence: Evidence
    provider_receipt_id: str | None = None
    output: Json = None
    has_output: bool = False
    then: str = "resume"
    expected_version: int | None = None


def parse(arguments: Mapping[str, Json], actor: str) -> Resolution:
    """A resolution from a command's arguments; InputError names the field."""
    target = TARGETS.get(str(arguments.get("target")))
    if target is None:
        raise InputError(
            f"target {arguments.get('target')!r} is none of {', '.join(TARGETS)}",
            hint="choose what really happened",
        )
    then = arguments.get("then") or "resume"
    if then not in NEXT:
        raise InputError(f"then {then!r} is none of {', '.join(NEXT)}")
    given = arguments.get("evidence") or {}
    evidence = Evidence(
        kind=str(given.get("kind") or "operator_attestation"),
        note=str(given.get("note") or ""),
        reference=given.get("reference"),
        looked_at=given.get("looked_at"),
        searched_for=tuple(str(item) for item in given.get("searched_for") or ()),
    )
    fault = json_fault(arguments.get("output"))
    if fault is not None:
        raise InputError(f"output: {fault}")
    provider = arguments.get("provider_receipt_id")
    if provider is not None and len(str(provider).encode()) > 256:
        raise InputError("provider_receipt_id is longer than 256 bytes")
    return Resolution(
        effect_id=str(arguments["effect_id"]),
        target=target,
        actor=actor,
        evidence=evidence,
        provider_receipt_id=provider,
        output=arguments.get("output"),
        has_output=bool(arguments.get("has_output")),
        then=then,
        expected_version=arguments.get("version"),
    )


def check_evidence(resolution: Resolution) -> None:
    """What a person must bring for each answer (11.2); raises InputError naming what is missing."""
    evidence, target = resolution.evidence, resolution.target
    has_note = len(evidence.note.strip()) >= SHORTEST_NOTE
    if target in HAPPENED:
        if not (has_note or resolution.provider_receipt_id or evidence.reference):
            raise InputError(
                "the evidence is too thin: give the provider's receipt id, or 20 characters of a note",
                hint="--provider-receipt ID, or --evidence 'what was seen, where, and when'",
            )
        if not resolution.has_output:
            raise InputError(
                "the step's output is missing: the run goes on with it",
                hint="--output JSON with what the provider answered; --output null goes on without",
            )
    elif target is R.ABANDONED:
        if not has_note or not evidence.searched_for:
            raise InputError(
                "the evidence is too thin: say where you looked, and what you searched for",
                hint="--evidence 'where, when, by what' (20 characters) --searched key,effect-id,hash,window",
            )
    elif not (evidence.reference or has_note or resolution.provider_receipt_id):
        raise InputError(
            "the evidence is too thin: name the action that undid it",
            hint="--provider-receipt ID of the refund or the like, or --evidence with 20 characters",
        )


def resolve(tx: Tx, resolution: Resolution, *, max_attempts: int, now_us: int) -> dict[str, Json]:
    """Apply one resolution whole: receipt, event, step and run. Returns what a face shows."""
    receipt = receipts.get(tx, resolution.effect_id)
    _check_move(receipt, resolution)
    receipts.shift(
        tx,
        receipt,
        receipt.state,
        resolution.target,
        now_us=now_us,
        actor=resolution.actor,
        reason=resolution.evidence.kind,
        provider_receipt_id=resolution.provider_receipt_id,
        output=resolution.output,
        has_output=resolution.has_output and resolution.target in HAPPENED,
        evidence=resolution.evidence.as_dict(),
    )
    instance = instances.get(tx, receipt.instance_id)
    if receipt.state is R.UNKNOWN:
        _settle_step(tx, receipt, resolution, instance, max_attempts, now_us)
        instance = _carry_on(tx, receipt, resolution, instance, now_us)
    return {
        "effect_id": receipt.id,
        "state": str(resolution.target),
        "instance_id": instance.id,
        "instance_state": str(instance.state),
        "is_blocked": instance.is_blocked,
    }


def late_answer(tx: Tx, effect_id: str, outcome: Outcome, *, max_attempts: int, now_us: int) -> InstanceState | None:
    """An answer that nobody waited for any more is evidence (11.4). Returns the run's new state, if any."""
    receipt = receipts.get(tx, effect_id)
    settles = outcome.is_success or outcome.is_nothing_happened
    if receipt.state is R.UNKNOWN and settles:
        target = R.COMMITTED if outcome.is_success else R.ABANDONED
        said = outcome.rule or outcome.message or "success"
        note = f"the answer came after the step had stopped waiting: {said}"
        found = Resolution(
            effect_id=effect_id,
            target=target,
            actor="engine",
            evidence=Evidence("late_response" if outcome.is_success else "provider_rejected", note=note),
            provider_receipt_id=outcome.provider_receipt_id,
            output=outcome.output,
            has_output=outcome.is_success,
        )
        result = resolve(tx, found, max_attempts=max_attempts, now_us=now_us)
        return InstanceState(result["instance_state"])
    is_contradiction = receipt.state is R.ABANDONED and outcome.is_success and receipt.mode is not Mode.REPEATABLE
    events.append(
        tx,
        receipt.instance_id,
        "effect.contradiction" if is_contradiction else "effect.late_answer",
        at_us=now_us,
        scope=receipt.scope,
        block_id=receipt.block_id,
        effect_id=receipt.id,
        reason=outcome.rule or None,
        detail={"outcome": str(outcome.outcome_class), "message": outcome.message},
    )
    return None


def _check_move(receipt: Receipt, resolution: Resolution) -> None:
    move(RECEIPT, receipt.state, resolution.target)
    actor = Actor(resolution.actor.partition(":")[0])
    if actor not in RECEIPT_ACTORS[(receipt.state, resolution.target)]:
        raise NotAllowed(
            f"{actor} may not move an effect from {receipt.state} to {resolution.target}",
            hint="a running dispatch settles itself; wait for it",
        )
    if resolution.expected_version is not None and resolution.expected_version != receipt.version:
        raise StaleVersion(
            f"effect {receipt.id} was changed since you looked at it",
            hint=f"look again: orch8-local effects show {receipt.id}",
        )


def _settle_step(
    tx: Tx, receipt: Receipt, resolution: Resolution, instance: Instance, max_attempts: int, now_us: int
) -> None:
    node = instances.node(tx, instance.id, receipt.scope, receipt.block_id)
    if node is None or node.state is not NodeState.WAITING or node.waiting_for != "effect":
        return
    if resolution.target in HAPPENED:
        if not instances.has_result(tx, instance.id, receipt.scope, receipt.block_id):
            instances.put_output(
                tx,
                instance.id,
                receipt.scope,
                receipt.block_id,
                kind="result",
                attempt=node.attempt,
                output=resolution.output,
                now_us=now_us,
                effect_id=receipt.id,
            )
        _end(tx, instance, node, NodeState.COMPLETED, None, now_us)
    elif resolution.target is R.COMPENSATED:
        message = "the action was carried out and undone"
        _fail(tx, instance, node, Failure("effect_compensated", message, node.block_id, (receipt.id,)), now_us)
    elif resolution.then == "resume" and node.attempt >= max_attempts:
        message = f"it did not happen (effect {receipt.id}); at most {max_attempts} execution(s)"
        _fail(tx, instance, node, Failure("step_failed", message, node.block_id, (receipt.id,)), now_us)


def _fail(tx: Tx, instance: Instance, node: Node, failure: Failure, now_us: int) -> None:
    row = {"__error__": True, "retryable": False, "message": failure.message}
    instances.put_output(
        tx,
        instance.id,
        node.scope,
        node.block_id,
        kind="error",
        attempt=node.attempt,
        output=row,
        now_us=now_us,
        effect_id=failure.effect_ids[0],
    )
    _end(tx, instance, node, NodeState.FAILED, failure, now_us)


def _end(tx: Tx, instance: Instance, node: Node, state: NodeState, failure: Failure | None, now_us: int) -> None:
    error = failure.as_dict() if failure else None
    ended = replace(node, state=state, waiting_for=None, wake_at_us=None, error=error, ended_at_us=now_us)
    instances.put_node(tx, instance.id, ended)


def _carry_on(tx: Tx, receipt: Receipt, resolution: Resolution, instance: Instance, now_us: int) -> Instance:
    if not instance.is_blocked:
        return instance
    assert instance.failure is not None
    open_ids = receipts.unresolved_ids(tx, instance.id)
    if open_ids:
        still = replace(instance.failure, effect_ids=tuple(open_ids))
        instances.set_failure(tx, instance.id, still, now_us=now_us)
    elif resolution.then == "stay":
        message = f"effect {receipt.id} was resolved as {resolution.target}; the run was left stopped"
        failure = Failure("stopped", message, receipt.block_id, (receipt.id,))
        instances.set_failure(tx, instance.id, failure, now_us=now_us)
    else:
        instances.move_instance(
            tx,
            instance,
            InstanceState.FAILED,
            InstanceState.SCHEDULED,
            now_us=now_us,
            actor=resolution.actor,
            due_at_us=now_us,
            reason=f"effect resolved as {resolution.target}",
        )
    return instances.get(tx, instance.id)
