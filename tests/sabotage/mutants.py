"""Faults that somebody could build in, one at a time, in the process of the product.

Each is a promise broken on purpose; `tests/sabotage/test_mutants.py` demands that the crash lives
notice. The easy mistake: a mutant that nothing reaches; one that is not caught fails the test.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orch8_local.engine import commands, guard, recovery, resolution, runner, step
from orch8_local.model.outcome import OutcomeClass, Settlement
from orch8_local.model.states import ReceiptState
from orch8_local.store import events, instances, receipts

Json = Any


def _swap(owner: Any, name: str, made: Any) -> None:
    setattr(owner, name, made)


def send_before_the_mark() -> None:
    """The request leaves, and its dispatch is written when the answer is there."""

    async def mark(_: Any) -> None:
        await asyncio.sleep(0)

    _swap(guard.Dispatch, "mark", mark)


def unknown_is_failure() -> None:
    """A lost answer counts as "nothing happened", and the retry policy sends again."""
    real: Any = getattr(guard, "settle")  # noqa: B009

    def settle(outcome: Any, **facts: Any) -> Any:
        found = real(outcome, **facts)
        return Settlement.ABANDON if found is Settlement.UNKNOWN else found

    _swap(guard, "settle", settle)
    lost = step._ambiguous

    def failed(error: Exception) -> Any:
        return replace(lost(error), outcome_class=OutcomeClass.NOT_SENT, retryable=True)

    _swap(step, "_ambiguous", failed)
    _swap(step.StepExecutor, "_answered", _retry_everything(step.StepExecutor._answered))


def _retry_everything(real: Callable[..., Any]) -> Callable[..., Any]:
    def answered(self: Any, block: Any, node: Any, answer: Any, language: Any, mode: Any) -> Any:
        if answer.settlement is Settlement.ABANDON:
            outcome = replace(answer.outcome, retryable=True)
            answer = replace(answer, outcome=outcome)
        return real(self, block, node, answer, language, mode)

    return answered


def sweep_believes_nothing_was_sent() -> None:
    """After a crash every dispatch is closed as "not sent", and the run goes on."""

    def owner_gone(tx: Any, receipt: Any, *, now_us: int) -> None:
        receipts.shift(tx, receipt, ReceiptState.DISPATCHED, ReceiptState.UNKNOWN, now_us=now_us)
        receipts.shift(tx, receipt, ReceiptState.UNKNOWN, ReceiptState.ABANDONED, now_us=now_us)

    _swap(recovery, "owner_gone", owner_gone)


def a_new_key_for_every_attempt() -> None:
    """The key that is sent changes with the attempt, so no provider can recognise a repetition."""
    real = step.StepExecutor._context

    def context(self: Any, run: Any, block: Any, node: Any, *more: Any) -> Any:
        made = real(self, run, block, node, *more)
        made.idempotency_key = f"{made.intent_id}-{node.attempt}"
        return made

    _swap(step.StepExecutor, "_context", context)


def the_output_is_not_written() -> None:
    """A step ends without its result row."""
    real = instances.put_output

    def put_output(*arguments: Any, **facts: Any) -> None:
        if facts.get("kind") != "result":
            real(*arguments, **facts)

    _swap(instances, "put_output", put_output)


def a_move_leaves_no_event() -> None:
    """One kind of move does not show on the timeline."""
    real = events.append

    def append(tx: Any, instance_id: str, kind: str, **facts: Any) -> None:
        if kind != "effect.dispatched":
            real(tx, instance_id, kind, **facts)

    _swap(events, "append", append)


def the_step_end_in_two_transactions() -> None:
    """The receipt is committed first, the step and its output in a second transaction."""
    real = runner.Runner._write

    async def write(self: Any, result: Any, decisions: Any, *, is_alone: bool) -> Any:
        if result is not None and result.settle is not None:
            await self._shared.transact(result.settle, result.transaction)
            result = replace(result, settle=None)
        return await real(self, result, decisions, is_alone=is_alone)

    _swap(runner.Runner, "_write", write)


def a_resolution_leaves_the_run_behind() -> None:
    """The receipt is resolved, and its run stays blocked."""
    _swap(resolution, "_carry_on", lambda _tx, _receipt, _resolution, instance, _now_us: instance)


def a_resolution_is_acknowledged_too_early() -> None:
    """The operator is told that it is recorded, and it is not."""
    real = commands._resolve

    def resolve(arguments: Any, actor: str, shared: Any) -> Any:
        apply = real(arguments, actor, shared)

        def forgetful(tx: Any) -> Any:
            tx.execute("SAVEPOINT forget")
            result = apply(tx)
            tx.events.clear()
            tx.chain_head = None
            tx.execute("ROLLBACK TO forget")
            tx.execute("RELEASE forget")
            return result

        return forgetful

    _swap(commands, "_resolve", resolve)


def a_start_forgets_its_key() -> None:
    """A second start with the same key makes a second run."""
    numbers = itertools.count()
    real = commands._start

    def start(arguments: Any, actor: str, shared: Any) -> Any:
        key = f"{arguments['key']}-{shared.world.ids.token()}-{next(numbers)}"
        return real({**arguments, "key": key}, actor, shared)

    _swap(commands, "_start", start)


def a_resolution_loses_the_output() -> None:
    """The answer that the operator gave does not reach the step."""
    real = resolution.parse

    def parse(arguments: Any, actor: str) -> Any:
        return replace(real(arguments, actor), output=None)

    _swap(resolution, "parse", parse)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        send_before_the_mark,
        unknown_is_failure,
        sweep_believes_nothing_was_sent,
        a_new_key_for_every_attempt,
        the_output_is_not_written,
        a_move_leaves_no_event,
        the_step_end_in_two_transactions,
        a_resolution_leaves_the_run_behind,
        a_resolution_is_acknowledged_too_early,
        a_start_forgets_its_key,
        a_resolution_loses_the_output,
    )
}


def apply(name: str) -> None:
    """Build one fault into this process."""
    MUTANTS[name]()
