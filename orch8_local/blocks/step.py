"""A step: its shape in a document, its guard, and whether a failure is retried and when. Pure.

The handler itself is called by the engine. The easy mistake: letting an unknown outcome reach
`retry_wait_ms`. Only what is proved not to have happened, or was declared repeatable, is retried;
the engine asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orch8_local.blocks.base import Action, BlockContext, End, RunHandler, register
from orch8_local.blocks.block import Block, block_shape
from orch8_local.blocks.kinds import (
    AnyJson,
    Condition,
    Duration,
    Flag,
    HandlerName,
    Shape,
    TemplateText,
    Text,
    check_expression,
)
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
from orch8_local.blocks.schemas import JsonSchema
from orch8_local.blocks.shape import Place, part
from orch8_local.errors import ExpressionError
from orch8_local.lang import expression, template
from orch8_local.lang.jsontext import text_of
from orch8_local.lang.scope import Scope
from orch8_local.model.outcome import Outcome
from orch8_local.model.records import Failure, Node
from orch8_local.model.states import NodeState

Json = Any


@block_shape
class Step(Block):
    """Calls one handler (sequence-format 4.1). Times in milliseconds."""

    type = "step"
    WRITTEN_AS_NULL = frozenset({"params", "delay", "retry"})

    handler: str = part(HandlerName(empty="step.handler_empty", blank="step.handler_blank"))
    params: Json = part(AnyJson(has_templates=True), default=None)
    when: str | None = part(Condition(), default=None)
    delay: Delay | None = part(Shape(Delay), default=None)
    send_window: SendWindow | None = part(Shape(SendWindow), default=None)
    rate_limit_key: str | None = part(Text(), default=None)
    wait_for_input: WaitForInput | None = part(Shape(WaitForInput), default=None)
    retry: Retry | None = part(Shape(Retry), default=None)
    timeout: int | None = part(Duration(is_long=True), default=None)
    deadline: int | None = part(Duration(is_long=True), default=None)
    on_deadline_breach: DeadlineBreach | None = part(Shape(DeadlineBreach), default=None)
    fallback_handler: str | None = part(HandlerName(), default=None)
    cache_key: str | None = part(TemplateText(), default=None)
    context_access: ContextAccess | None = part(Shape(ContextAccess), default=None)
    output_schema: dict[str, Json] | None = part(JsonSchema(), default=None)
    cancellable: bool = part(Flag(), default=True)
    queue_name: str | None = part(Text(), default=None)
    compensation: Compensation | None = part(Shape(Compensation), default=None)
    effect: Effect | None = part(Shape(Effect), default=None)

    @classmethod
    def look(cls, raw: dict[str, Json], place: Place) -> None:
        """Its params are for the handler to judge; the condition of an `assert` is an expression (10)."""
        place.reading.steps.append((place.pointer, raw))
        params = raw.get("params")
        if raw.get("handler") == "assert" and isinstance(params, dict):
            condition = params.get("condition")
            if isinstance(condition, str) and condition.strip():
                check_expression(condition, place.at("params").at("condition"))

    def check(self, place: Place) -> None:
        """What does not fit together within one step."""
        if self.timeout is not None and self.deadline is not None and self.timeout > self.deadline:
            message = f"{self.timeout} is longer than 'deadline' ({self.deadline})"
            place.at("timeout").doubt("step.timeout", message)
        if self.on_deadline_breach is not None and self.deadline is None:
            place.at("on_deadline_breach").doubt("step.deadline", "without a 'deadline' it is never called")
        if self.fallback_handler == self.handler:
            place.at("fallback_handler").doubt("step.fallback", "this is the handler itself")
        if self.handler == "wait_for_event" and self.wait_for_input is None:
            place.doubt("step.event", "'wait_for_event' without 'wait_for_input' waits for nothing")
        elif self.handler == "wait_for_event" and self.wait_for_input and self.wait_for_input.choices:
            at = place.at("wait_for_input").at("choices")
            at.doubt("step.event_choices", "an event is no choice: nothing can answer this", "take them out")
        if self.context_access is not None:
            self._hidden(place)

    def _hidden(self, place: Place) -> None:
        """Params that read a section which the step hides from itself (5.6)."""
        assert self.context_access is not None
        hidden = {name for name in ("config", "runtime") if not getattr(self.context_access, name)}
        if self.context_access.data in (False, "none"):
            hidden |= {"data", "input"}
        for keys in template.references([self.params, self.cache_key]):
            section = keys[1] if keys[0] == "context" and len(keys) > 1 else keys[0]
            if section in hidden:
                message = f"'{'.'.join(keys[:3])}' reads nothing: 'context_access' hides it"
                place.at("context_access").doubt("step.access", message)
                return


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
