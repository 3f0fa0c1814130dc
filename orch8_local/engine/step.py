"""One step: resolve its params, call its handler (under the guard if it acts on the outside), decide.

The result says what the runner writes in the one transaction that ends the step: the receipt's
move, rows, the node, changes. The easy mistake: treating an unknown outcome as a failure. It stops
the run instead, and no retry policy, hook or parent is told that something failed (product D2).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from orch8_local.blocks.step import retry_wait_ms
from orch8_local.engine.api import StepProgress
from orch8_local.engine.guard import (
    Answered,
    Dispatch,
    EffectCall,
    Guard,
    Halted,
    Released,
    close_repeatable,
    t3_abandon,
    t3_commit,
    t3_unknown,
)
from orch8_local.engine.shared import Shared
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import Bug, CommitUnknown, EffectError, InputError, StoreError
from orch8_local.handlers.base import Context, HandlerSpec, Refused, Rejected, RequestFacts
from orch8_local.lang import template
from orch8_local.lang.scope import Scope
from orch8_local.model import ids
from orch8_local.model.outcome import Change, EffectKind, Mode, Outcome, OutcomeClass, Settlement
from orch8_local.model.receipt import Replay, Undone
from orch8_local.model.records import Failure, Instance, Node, Receipt
from orch8_local.model.states import NodeState
from orch8_local.store import receipts
from orch8_local.store.writer import Tx

Json = Any
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Run(Protocol):
    """What a step sees of the run that it belongs to."""

    instance: Instance

    def language(self) -> Scope: ...


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step's execution ended, for the transaction that writes it.

    settle: the ledger's part of that transaction. row: an `error` or `retry` row. blocked: the run
    stops until a resolution. is_released: nothing happened; the step is taken up at the next start.
    """

    node: Node
    transaction: Transaction = Transaction.STEP_END
    output: Json = None
    has_output: bool = False
    is_replay: bool = False
    effect_id: str | None = None
    changes: tuple[Change, ...] = ()
    settle: Callable[[Tx], None] | None = None
    row: tuple[str, Json] | None = None
    failure: Failure | None = None
    dispatch: Dispatch | None = None
    is_released: bool = False


class StepExecutor:
    """Executes steps of all runs of one engine."""

    def __init__(self, shared: Shared, guard: Guard) -> None:
        self._shared = shared
        self._guard = guard

    async def execute(self, run: Run, block: Any, node: Node) -> StepResult:
        """One execution of one step, up to the point where its end can be written."""
        now_us = self._shared.now_us()
        if node.state is NodeState.WAITING and node.waiting_for == "timer":
            output = (node.memo or {}).get("output")
            return StepResult(_ended(node, NodeState.COMPLETED, now_us), output=output, has_output=True)
        spec = self._shared.registry.get(block.handler)
        begun = replace(
            node,
            state=NodeState.RUNNING,
            attempt=node.attempt + (node.state is not NodeState.RUNNING),
            started_at_us=node.started_at_us or now_us,
            wake_at_us=None,
            waiting_for=None,
        )
        self._tell(run, begun, "started", spec)
        language = run.language()
        try:
            params = _resolved(spec, block.params, language)
            valid = spec.validated(params)
            facts = _request_facts(spec, params, block, language)
        except InputError as error:
            return self._failed(block, begun, Outcome.failed(error.message), language, retry=False)
        context = self._context(run, block, begun, spec, language)
        if facts.key is not None:
            context.idempotency_key = facts.key
        if not spec.is_effect:
            outcome = await self._call_pure(block, spec, context, valid)
            return self._pure_end(block, begun, outcome, language)
        return await self._call_guarded(run, block, begun, spec, context, params, valid, facts, language)

    # --- pure handlers -------------------------------------------------------------------------

    async def _call_pure(self, block: Any, spec: HandlerSpec, context: Context, params: Any) -> Outcome:
        invoke = partial(_invoke, spec, params)
        if block.timeout is None:
            return await invoke(context)
        try:
            async with asyncio.timeout(block.timeout / 1000):
                return await invoke(context)
        except TimeoutError:
            return Outcome.failed(f"not done within {block.timeout} ms", retryable=True)

    def _pure_end(self, block: Any, node: Node, outcome: Outcome, language: Scope) -> StepResult:
        if outcome.wait_s is not None:
            return self._timer(node, outcome)
        if outcome.is_success:
            fault = ids.json_fault(outcome.output)
            if fault is None:
                done = _ended(node, NodeState.COMPLETED, self._shared.now_us())
                return StepResult(done, output=outcome.output, has_output=True, changes=outcome.changes)
            outcome = Outcome.failed(f"output_invalid: {fault}")
        return self._failed(block, node, outcome, language)

    def _timer(self, node: Node, outcome: Outcome) -> StepResult:
        assert outcome.wait_s is not None
        wake_at_us = self._shared.now_us() + int(outcome.wait_s * 1_000_000)
        memo = {"output": outcome.output}
        return StepResult(replace(node, state=NodeState.WAITING, waiting_for="timer", wake_at_us=wake_at_us, memo=memo))

    # --- effects -------------------------------------------------------------------------------

    async def _call_guarded(
        self,
        run: Run,
        block: Any,
        node: Node,
        spec: HandlerSpec,
        context: Context,
        params: Json,
        valid: Any,
        facts: RequestFacts,
        language: Scope,
    ) -> StepResult:
        call = _effect_call(run, block, node, spec, context, params, facts, partial(_invoke, spec, valid))
        guarded = await self._guard.perform(call)
        if isinstance(guarded, Halted):
            return self._blocked(node, guarded.effect_ids, "an earlier attempt may have been carried out")
        if isinstance(guarded, Released):
            return StepResult(node, is_released=True)
        if isinstance(guarded, Replay):
            return self._replayed(node, guarded.receipt)
        if isinstance(guarded, Undone):
            return self._undone(node, guarded.receipt)
        return self._answered(block, node, guarded, language, call.mode)

    def _answered(self, block: Any, node: Node, answer: Answered, language: Scope, mode: Mode) -> StepResult:
        outcome, dispatch, now_us = answer.outcome, answer.dispatch, self._shared.now_us()
        if answer.settlement is Settlement.COMMIT:
            return self._committed(node, outcome, dispatch)
        if answer.settlement is Settlement.ABANDON:
            if not dispatch.may_be_sent():
                outcome = replace(outcome, outcome_class=OutcomeClass.NOT_SENT, rule=outcome.rule or "nothing was sent")
            settle = partial(t3_abandon, dispatch=dispatch, outcome=outcome, now_us=now_us)
            failed = self._failed(block, node, outcome, language)
            return replace(
                failed,
                transaction=Transaction.T3_ABANDON,
                settle=settle,
                dispatch=dispatch,
                effect_id=dispatch.receipt.id,
            )
        settle = partial(t3_unknown, dispatch=dispatch, outcome=outcome, now_us=now_us)
        if mode is Mode.REPEATABLE:
            repeat = partial(_unknown_then_repeatable, dispatch=dispatch, outcome=outcome, now_us=now_us)
            failed = self._failed(block, node, replace(outcome, retryable=True), language)
            return replace(failed, transaction=Transaction.T3_ABANDON, settle=repeat, dispatch=dispatch)
        blocked = self._blocked(node, (dispatch.receipt.id,), outcome.message)
        return replace(blocked, transaction=Transaction.T3_UNKNOWN, settle=settle, dispatch=dispatch)

    def _committed(self, node: Node, outcome: Outcome, dispatch: Dispatch) -> StepResult:
        """The action happened, whatever its output looks like: the receipt commits in any case."""
        now_us = self._shared.now_us()
        fault = ids.json_fault(outcome.output)
        kept = replace(outcome, output=_storable(outcome.output, fault, self._shared.limits.max_output_bytes))
        settle = partial(t3_commit, dispatch=dispatch, outcome=kept, boot_id=self._shared.boot_id, now_us=now_us)
        if fault is None:
            done = _ended(node, NodeState.COMPLETED, now_us)
            result = StepResult(done, output=kept.output, has_output=True, changes=outcome.changes)
        else:
            message = f"output_invalid: {fault}; the action itself was carried out"
            failure = Failure("step_failed", message, node.block_id, (dispatch.receipt.id,), attempt=node.attempt)
            result = self._failed_for_good(node, failure)
        return replace(
            result,
            transaction=Transaction.T3_COMMIT,
            settle=settle,
            dispatch=dispatch,
            effect_id=dispatch.receipt.id,
        )

    def _replayed(self, node: Node, receipt: Receipt) -> StepResult:
        done = _ended(node, NodeState.COMPLETED, self._shared.now_us())
        return StepResult(done, output=receipt.output, has_output=True, is_replay=True, effect_id=receipt.id)

    def _undone(self, node: Node, receipt: Receipt) -> StepResult:
        message = "the action was carried out and undone; doing it again is a new action"
        return self._failed_for_good(node, Failure("effect_compensated", message, node.block_id, (receipt.id,)))

    def _blocked(self, node: Node, effect_ids: tuple[str, ...], why: str) -> StepResult:
        failure = Failure("effect_blocked", why, node.block_id, effect_ids, attempt=node.attempt)
        waiting = replace(node, state=NodeState.WAITING, waiting_for="effect", error=failure.as_dict())
        return StepResult(waiting, transaction=Transaction.T3_UNKNOWN, failure=failure)

    # --- failures ------------------------------------------------------------------------------

    def _failed(self, block: Any, node: Node, outcome: Outcome, language: Scope, *, retry: bool = True) -> StepResult:
        wait_ms = None
        if retry:
            random = self._shared.world.rng.random() if block.retry is not None and block.retry.jitter else 0.5
            wait_ms = retry_wait_ms(block, outcome, attempt=node.attempt, language=language, random=random)
        if wait_ms is not None:
            wake_at_us = self._shared.now_us() + wait_ms * 1000
            row = ("retry", {"_retry_marker": True, "error": outcome.message})
            waiting = replace(node, state=NodeState.WAITING, waiting_for="retry", wake_at_us=wake_at_us)
            return StepResult(waiting, row=row)
        details = dict(outcome.details) if outcome.details is not None else None
        return self._failed_for_good(
            node,
            Failure("step_failed", outcome.message, node.block_id, details=details, attempt=node.attempt),
        )

    def _failed_for_good(self, node: Node, failure: Failure) -> StepResult:
        ended = replace(_ended(node, NodeState.FAILED, self._shared.now_us()), error=failure.as_dict())
        row = {"__error__": True, "retryable": False, "message": failure.message}
        if failure.details is not None:
            row["details"] = dict(failure.details)
        return StepResult(ended, row=("error", row))

    # --- what the handler is given -------------------------------------------------------------

    def _context(self, run: Run, block: Any, node: Node, spec: HandlerSpec, language: Scope) -> Context:
        shared, instance = self._shared, run.instance
        intent = ids.intent_id(instance.id, node.scope_path, node.block_id) if spec.is_effect else ""
        tell = partial(self._tell, run, node, "log", spec)
        effect = block.effect
        context = Context(
            instance_id=instance.id,
            block_id=node.block_id,
            scope=node.scope,
            attempt=node.attempt - 1,
            handler=spec.name,
            intent_id=intent,
            idempotency_key=intent,
            data=language.data,
            config=language.config,
            outputs=language.outputs,
            state=language.state,
            runtime=language.runtime,
            now_us=shared.now_us,
            random=language.random,
            dispatching=_no_dispatch,
            log=lambda message: tell(message=message),
            reach=shared.world.crash.reach,
            open_http=shared.open_http,
            step_timeout_s=block.timeout / 1000 if block.timeout is not None else None,
            document_params=block.params,
        )
        if effect is not None and effect.key_header:
            context.key_header = effect.key_header
        return context

    def _tell(self, run: Run, node: Node, phase: str, spec: HandlerSpec, *, message: str = "") -> None:
        self._shared.progress(
            StepProgress(
                run.instance.id,
                node.scope,
                node.block_id,
                phase,
                node.attempt,
                spec.name,
                str(spec.mode),
                message,
            )
        )


async def _no_dispatch() -> None:
    """A pure handler sends nothing, so there is nothing to mark."""


async def _invoke(spec: HandlerSpec, params: Any, context: Context) -> Outcome:
    """Call a handler; whatever it returns or raises becomes an outcome.

    Only the errors of the store and the ledger pass: they are not failures of the step.
    """
    try:
        if inspect.iscoroutinefunction(spec.call):
            value = await spec.call(context, params)
        else:
            value = await asyncio.to_thread(spec.call, context, params)
            if inspect.isawaitable(value):
                value = await value
    except (StoreError, EffectError, CommitUnknown, Bug):
        raise
    except Refused as error:
        return Outcome(
            OutcomeClass.THROTTLED,
            message=error.message,
            details=error.details,
            retryable=True,
            retry_after_s=error.retry_after_s,
            rule="the handler says that it was refused and nothing happened",
        )
    except Rejected as error:
        rule = "the handler says that it was rejected and nothing happened"
        return Outcome(OutcomeClass.REJECTED, message=error.message, details=error.details, rule=rule)
    except InputError as error:
        return Outcome.failed(error.message) if not spec.is_effect else _ambiguous(error)
    except Exception as error:
        return _ambiguous(error) if spec.is_effect else Outcome.failed(_one_line(error), retryable=False)
    return value if isinstance(value, Outcome) else _from_output(value)


def _from_output(value: Json) -> Outcome:
    provider_receipt_id = None
    if isinstance(value, dict):
        found = (value[name] for name in ("provider_receipt_id", "receipt_id", "request_id") if name in value)
        first = next((item for item in found if isinstance(item, str)), None)
        provider_receipt_id = first if first is not None and len(first.encode()) <= 256 else None
    outcome = Outcome.ok(value)
    return replace(outcome, provider_receipt_id=provider_receipt_id) if provider_receipt_id else outcome


def _ambiguous(error: Exception) -> Outcome:
    """Settled as not sent if the handler had not begun to send (`model.outcome.settle`)."""
    rule = "an exception after the dispatch does not say whether the action was carried out"
    return replace(Outcome.ambiguous(_one_line(error), rule=rule), retryable=True)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _resolved(spec: HandlerSpec, params: Json, language: Scope) -> Json:
    if not spec.raw_params or not isinstance(params, dict):
        return template.resolve(params, language)
    raw = {key: value for key, value in params.items() if key in spec.raw_params}
    rest = {key: value for key, value in params.items() if key not in spec.raw_params}
    resolved = template.resolve(rest, language)
    assert isinstance(resolved, dict)
    return {**resolved, **raw}


def _request_facts(spec: HandlerSpec, params: Json, block: Any, language: Scope) -> RequestFacts:
    facts = spec.facts(params) if spec.facts is not None else RequestFacts(destination=spec.name)
    effect = block.effect
    if effect is not None and effect.key is not None:
        key = template.resolve(effect.key, language)
        if not isinstance(key, str) or not key:
            raise InputError(f"effect.key of {block.id!r} gives {key!r}; an idempotency key is a non-empty text")
        facts = replace(facts, key=key)
    return facts


def _effect_call(
    run: Run,
    block: Any,
    node: Node,
    spec: HandlerSpec,
    context: Context,
    params: Json,
    facts: RequestFacts,
    invoke: Callable[[Context], Any],
) -> EffectCall:
    declared = block.effect.mode if block.effect is not None else None
    mode = Mode(declared) if declared else facts.mode or spec.mode
    is_read = facts.method in READ_METHODS
    sends_key = spec.kind in (EffectKind.HTTP, EffectKind.WORKER) and not is_read
    given = params.get("idempotency_key") if isinstance(params, Mapping) else None
    return EffectCall(
        instance=run.instance,
        node=node,
        spec=spec,
        params=params,
        raw_params=block.params,
        request_sha256=ids.request_sha256(spec.name, params),
        mode=mode,
        intent_id=context.intent_id,
        idempotency_key=given if isinstance(given, str) and len(given.encode()) <= 256 else None,
        sent_key=context.idempotency_key if sends_key else None,
        method=facts.method,
        destination=facts.destination,
        timeout_s=context.step_timeout_s,
        context=context,
        invoke=invoke,
    )


def _unknown_then_repeatable(tx: Tx, *, dispatch: Dispatch, outcome: Outcome, now_us: int) -> None:
    """Unclear, but the author declared repeating harmless: no state is skipped, nobody is asked."""
    t3_unknown(tx, dispatch, outcome, now_us=now_us)
    close_repeatable(tx, receipts.get(tx, dispatch.receipt.id), now_us=now_us)


def _storable(output: Json, fault: str | None, limit_bytes: int) -> Json:
    """What of an output the ledger keeps: all of it, or its hash and beginning with the reason."""
    if fault is not None:
        return {"_not_json": fault, "_text": repr(output)[:2000].encode("utf-8", "backslashreplace").decode()}
    text = ids.canonical_json(output)
    size_bytes = len(text.encode())
    if size_bytes <= limit_bytes:
        return output
    return {
        "_truncated": True,
        "sha256": ids.sha256_hex(text),
        "size_bytes": size_bytes,
        "beginning": text[:4096],
    }


def _ended(node: Node, state: NodeState, now_us: int) -> Node:
    return replace(node, state=state, ended_at_us=now_us, wake_at_us=None, waiting_for=None, memo=None, error=None)
