"""A step: its shape in a document, its guard, and whether a failure is retried and when. Pure.

The handler itself is called by the engine. The easy mistake: letting an unknown outcome reach
`retry_wait_ms`. Only what is proved not to have happened, or was declared repeatable, is retried;
the engine asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orch8_local.blocks.base import Action, BlockContext, End, RunHandler, register
from orch8_local.blocks.block import Block, block_shape
from orch8_local.blocks.kinds import AnyJson, Condition, Duration, Flag, JsonObject, Shape, TemplateText, Text
from orch8_local.blocks.parts import (
    Compensation,
    ContextAccess,
    DeadlineBreach,
    Delay,
    Effect,
    Retry,
    SendWindow,
    WaitForInput,
)
from orch8_local.blocks.shape import Place, part
from orch8_local.errors import ExpressionError
from orch8_local.lang import expression
from orch8_local.lang.jsontext import text_of
from orch8_local.lang.scope import Scope
from orch8_local.model.outcome import Outcome
from orch8_local.model.records import Failure, Node
from orch8_local.model.states import NodeState

Json = Any


@block_shape
@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Block):
    """Calls one handler (sequence-format 4.1). Times in milliseconds."""

    type = "step"
    WRITTEN_AS_NULL = frozenset({"params", "delay", "retry"})

    handler: str = part(Text(empty="step.handler_empty", blank="step.handler_empty"))
    params: Json = part(AnyJson(has_templates=True), default=None)
    when: str | None = part(Condition(), default=None)
    delay: Delay | None = part(Shape(Delay), default=None)
    send_window: SendWindow | None = part(Shape(SendWindow), default=None)
    rate_limit_key: str | None = part(Text(), default=None)
    wait_for_input: WaitForInput | None = part(Shape(WaitForInput), default=None)
    retry: Retry | None = part(Shape(Retry), default=None)
    timeout: int | None = part(Duration(small=True), default=None)
    deadline: int | None = part(Duration(small=True), default=None)
    on_deadline_breach: DeadlineBreach | None = part(Shape(DeadlineBreach), default=None)
    fallback_handler: str | None = part(Text(), default=None)
    cache_key: str | None = part(TemplateText(), default=None)
    context_access: ContextAccess | None = part(Shape(ContextAccess), default=None)
    output_schema: dict[str, Json] | None = part(JsonObject(is_schema=True), default=None)
    cancellable: bool = part(Flag(), default=True)
    queue_name: str | None = part(Text(), default=None)
    compensation: Compensation | None = part(Shape(Compensation), default=None)
    effect: Effect | None = part(Shape(Effect), default=None)

    def check(self, place: Place) -> None:
        """What does not fit together within one step."""
        if self.compensation is not None and self.id in self.compensation.depends_on:
            place.at("compensation").at("depends_on").fault("compensation.itself", f"{self.id!r} names itself")
        if self.effect is not None and self.effect.mode == "idempotent" and self.effect.key is None:
            message = f"step {self.id!r} is declared idempotent, but no 'key' is sent with it"
            hint = 'add "key" to "effect", or take "mode" out'
            place.at("effect").fault("effect.key_missing", message, suggestion=hint)
        self._doubts(place)

    def _doubts(self, place: Place) -> None:
        if self.timeout is not None and self.deadline is not None and self.timeout > self.deadline:
            message = "'timeout' is longer than 'deadline'"
            place.at("timeout").fault("step.timeout", message, is_warning=True)
        if self.on_deadline_breach is not None and self.deadline is None:
            message = "'on_deadline_breach' without a 'deadline' is never called"
            place.at("on_deadline_breach").fault("step.deadline", message, is_warning=True)
        if self.fallback_handler == self.handler:
            message = "'fallback_handler' is the handler itself"
            place.at("fallback_handler").fault("step.fallback", message, is_warning=True)


LONGEST_WAIT_MS = 10 * 365 * 86_400_000
"""A back-off beyond ten years is cut to it: the sum must stay a date that people can read."""


class StepBehaviour:
    """A leaf: nothing below it; started once, then executed until its handler's end is settled."""

    def children(self, block: Any) -> Sequence[Any]:
        """None."""
        return ()

    def start(self, block: Any, context: BlockContext) -> Sequence[Action]:
        """Skip if the guard is false, fail if it does not evaluate, else run the handler."""
        if block.when is not None:
            try:
                wanted = expression.truthy(expression.evaluate(block.when, context.language))
            except ExpressionError as error:
                message = f"`when` of {block.id!r} cannot be evaluated: {error.message}"
                return (End(NodeState.FAILED, failure=Failure("step_failed", message, block.id)),)
            if not wanted:
                return (End(NodeState.SKIPPED),)
        return (RunHandler(),)

    def child_done(self, block: Any, child: Node | None, context: BlockContext) -> Sequence[Action]:
        """A step has no children."""
        raise AssertionError("a step has no children")

    def cancel(self, block: Any, context: BlockContext) -> Sequence[Action]:
        """End as cancelled; a request that is out is the ledger's business, not the step's."""
        return (End(NodeState.CANCELLED),)


register("step", StepBehaviour())


def max_attempts(block: Any) -> int:
    """How often a step may be executed in all (product D15)."""
    return int(block.retry.max_attempts) if block.retry is not None else 1


def retry_wait_ms(block: Any, outcome: Outcome, *, attempt: int, language: Scope, random: float) -> int | None:
    """Milliseconds until the next execution, or None if this failure is final.

    attempt: executions so far, this one included. random: in [0, 1), for `retry.jitter`.
    Source: sequence-format 5.1; an answer's Retry-After is honoured as a minimum.
    """
    retry = block.retry
    if retry is None or not outcome.retryable or attempt >= retry.max_attempts:
        return None
    if not _wants_retry(retry, outcome, language):
        return None
    wait_ms = backoff_ms(retry.initial_backoff, retry.max_backoff, retry.backoff_multiplier, attempt - 1)
    if retry.jitter:
        wait_ms = int(wait_ms * (1 - retry.jitter + 2 * retry.jitter * random))
    if outcome.retry_after_s is not None:
        wait_ms = max(wait_ms, int(outcome.retry_after_s * 1000))
    return min(wait_ms, LONGEST_WAIT_MS)


def backoff_ms(initial_ms: int, max_ms: int, multiplier: float, attempt: int) -> int:
    """The wait after failed execution number `attempt`, the first being 0 (sequence-format 5.1)."""
    if attempt <= 0:
        return initial_ms
    try:
        grown = initial_ms * multiplier ** min(attempt, 63)
    except OverflowError:
        return max_ms
    return int(min(grown, max_ms))


def _wants_retry(retry: Any, outcome: Outcome, language: Scope) -> bool:
    details = outcome.details
    codes = retry.non_retryable_codes or ()
    if details is not None and codes:
        for name in ("error_code", "code", "status"):
            if name in details and text_of(details[name]) in codes:
                return False
    if retry.retry_if is None:
        return True
    error: dict[str, Json] = {"message": outcome.message}
    if details is not None:
        error["details"] = dict(details)
    data: Mapping[str, Json] = language.data if isinstance(language.data, dict) else {}
    scope = replace(language, data={**data, "_error": error}, outputs={})
    return expression.truthy(expression.evaluate_lenient(retry.retry_if, scope))
