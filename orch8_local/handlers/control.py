"""The handlers that touch nothing outside: noop, log, sleep, fail, assert, transform.

All are pure: no receipt, the same on every attempt. The easy mistake: evaluating the condition of
`assert` after its templates were filled in, when a value can rewrite it (sequence-format S25b). It
is read as the author wrote it, and sees outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from orch8_local.errors import ExpressionError, TemplateError
from orch8_local.handlers.base import Context, HandlerSpec
from orch8_local.handlers.params import Params
from orch8_local.lang import expression
from orch8_local.lang.jsontext import text_of
from orch8_local.lang.scope import Scope
from orch8_local.model.outcome import Mode, Outcome, OutcomeClass

Json = Any

logger = logging.getLogger("orch8_local")

MAX_SLEEP_MS = 10 * 365 * 86_400_000
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class NoopParams(Params):
    """noop takes no params."""


class LogParams(Params):
    """The params of `log`."""

    message: Json = Field("no message", description="What to say; any value, kept as the output.")
    level: Literal["debug", "info", "warn", "error"] = Field("info", description="How loud.")


class SleepParams(Params):
    """The params of `sleep`."""

    duration_ms: int = Field(
        100, ge=0, le=MAX_SLEEP_MS, description="Milliseconds to wait, by the wall clock; survives a restart."
    )


class FailParams(Params):
    """The params of `fail`."""

    message: Json = Field("forced failure", description="The reason.")
    retryable: bool = Field(False, description="True leaves it to the step's retry policy.")


class AssertParams(Params):
    """The params of `assert`."""

    condition: Json = Field(
        description="An expression over data, config, outputs and state, read as it stands in the document."
    )
    message: Json = Field("assertion failed", description="The reason if it is false.")


async def noop(_ctx: Context, _params: NoopParams) -> Outcome:
    """Do nothing; the output is an empty object."""
    return Outcome.ok({})


async def log(ctx: Context, params: LogParams) -> Outcome:
    """Write a line to the program's log; the output is the message."""
    logger.log(
        LEVELS[params.level],
        "%s: %s",
        ctx.block_id,
        text_of(params.message),
        extra={"action": "step_log", "instance_id": ctx.instance_id, "block_id": ctx.block_id},
    )
    return Outcome.ok({"message": params.message})


async def sleep(_ctx: Context, params: SleepParams) -> Outcome:
    """Wait by a durable timer; nothing sleeps here, and no place is held meanwhile."""
    output = {"slept_ms": params.duration_ms}
    if params.duration_ms == 0:
        return Outcome.ok(output)
    return Outcome(OutcomeClass.CONFIRMED, output=output, wait_s=params.duration_ms / 1000)


async def fail(_ctx: Context, params: FailParams) -> Outcome:
    """Fail with a reason."""
    return Outcome.failed(text_of(params.message), retryable=params.retryable)


async def assert_(ctx: Context, params: AssertParams) -> Outcome:
    """Fail unless a condition holds."""
    written = ctx.document_params.get("condition") if isinstance(ctx.document_params, Mapping) else None
    condition = written if isinstance(written, str) else params.condition
    if not isinstance(condition, str):
        is_true = expression.truthy(condition)
    else:
        scope = Scope(
            data=ctx.data,
            config=ctx.config,
            outputs=ctx.outputs,
            state=ctx.state,
            runtime=ctx.runtime,
            instance_id=ctx.instance_id,
            now_us=ctx.now_us,
            random=ctx.random,
        )
        try:
            is_true = expression.truthy(expression.evaluate(condition, scope))
        except (ExpressionError, TemplateError) as error:
            return Outcome.failed(
                f"the condition {condition!r} cannot be evaluated: {error.message}",
                details={"condition": condition, "passed": False},
            )
    if is_true:
        return Outcome.ok({"condition": condition, "passed": True})
    return Outcome.failed(text_of(params.message), details={"condition": condition, "passed": False})


async def transform(_ctx: Context, params: Json) -> Outcome:
    """Give back the params, with their templates filled in."""
    return Outcome.ok({} if params is None else params)


def _pure(name: str, call: Any, params: type[Params] | None, raw: frozenset[str] = frozenset()) -> HandlerSpec:
    return HandlerSpec(
        name,
        call,
        kind=None,
        mode=Mode.NONE,
        params=params,
        is_builtin=True,
        raw_params=raw,
        summary=(call.__doc__ or "").split("\n", 1)[0],
    )


CONTROL = (
    _pure("noop", noop, NoopParams),
    _pure("log", log, LogParams),
    _pure("sleep", sleep, SleepParams),
    _pure("fail", fail, FailParams),
    _pure("assert", assert_, AssertParams, frozenset({"condition"})),
    _pure("transform", transform, None),
)
