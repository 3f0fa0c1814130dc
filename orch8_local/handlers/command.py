"""`command`: run a program on this machine, under a receipt like any other action.

Owns what an exit proves: 0 (or a code listed as fine) that it was done, another code that the
program itself says it was not, a signal or a time-out nothing. The easy mistake: putting a value
into a shell line, where it becomes part of the program; a line is never filled in here, values go
through `env`. What is wrong with the program's name, its rights or the folder is found before the
dispatch, so it never leaves an unknown effect behind.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from orch8_local.handlers.base import Context, HandlerSpec, RequestFacts
from orch8_local.handlers.params import Params, ScalarText
from orch8_local.handlers.processes import INTERRUPT, TERMINATE, Child
from orch8_local.model.outcome import EffectKind, Mode, Outcome, OutcomeClass
from orch8_local.world import CrashPoint

Json = Any

SHELL = "/bin/sh"
EXCERPT_CHARACTERS = 2048
DRAIN_S = 1.0
"""How long to listen, after the exit, to a pipe that some process left behind holds open."""
# Not handed on: secrets are passed by name, and the crash point is this process's own.
WITHHELD = re.compile(r"ORCH8_LOCAL_(SECRET_\w+|CRASH)")
KEY_VARIABLE = "ORCH8_LOCAL_IDEMPOTENCY_KEY"
MARK_VARIABLE = "ORCH8_LOCAL_CALL"
TEMPLATE = re.compile(
    r"\{\{\s*((context|outputs|steps|input|instance_id|config|data|runtime|state|secrets)\b|(json|len)\()"
)


class CommandParams(Params):
    """The params of `command`."""

    argv: list[ScalarText] | None = Field(
        None, min_length=1, description="The program and its arguments. No shell: each is passed on as it is."
    )
    shell: bool = Field(False, description=f"True runs `line` by {SHELL} -c instead of `argv`.")
    line: str | None = Field(
        None, description="The shell line, read as it stands in the document; values reach it through `env`."
    )
    env: dict[str, ScalarText] = Field(default_factory=dict, description="Environment variables to add.")
    inherit_env: bool = Field(True, description="False gives the program PATH and `env` only.")
    cwd: str | None = Field(
        None, min_length=1, description="The folder to run in; by default the runner's own."
    )
    stdin: str | None = Field(None, description="Text for the standard input, which is empty by default.")
    timeout_ms: int | None = Field(
        None,
        gt=0,
        description="Milliseconds before it is ended with all it started; by default the step's timeout.",
    )
    output_limit_bytes: int = Field(
        1_048_576,
        ge=0,
        le=67_108_864,
        description="How much of stdout and of stderr to keep; the rest is counted.",
    )
    ok_exit_codes: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="Exit codes that mean it was done."
    )

    @field_validator("line")
    @classmethod
    def _unfilled(cls, value: str | None) -> str | None:
        if value is not None and TEMPLATE.search(value):
            raise ValueError(
                "a shell line is not filled in, since a value could become part of the program; "
                'pass it on instead: "env": {"NAME": "{{ … }}"} and "$NAME" in the line'
            )
        return value

    @field_validator("env")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} is not the name of a variable")
        return value

    @model_validator(mode="after")
    def _one_form(self) -> CommandParams:
        if self.shell and (self.line is None or self.argv is not None):
            raise ValueError("with `shell: true` give the text to run as `line`, and no `argv`")
        if not self.shell and (self.argv is None or self.line is not None):
            raise ValueError("give the program and its arguments as `argv`, or `shell: true` and a `line`")
        texts = [*(self.argv or ()), self.line or "", self.cwd or "", *self.env.values()]
        if any("\0" in text for text in texts):
            raise ValueError("no program can be given text that holds a NUL character")
        return self


def command_facts(params: Json) -> RequestFacts:
    """What the receipt shows: the program's name, never its arguments."""
    fields = params.model_dump() if isinstance(params, CommandParams) else dict(params or {})
    argv = fields.get("argv")
    program = str(argv[0]) if isinstance(argv, list) and argv and not fields.get("shell") else SHELL
    return RequestFacts(method="EXEC", destination=program)


# --- before it is started -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be started: checked, but not yet done."""

    argv: tuple[str, ...]
    executable: str
    env: Mapping[str, str]
    cwd: str | None


class CannotStart(Exception):
    """The program cannot be started as asked; found before anything was done."""


def environment(ctx: Context, params: CommandParams) -> dict[str, str]:
    """The program's environment: inherited, plus the action's key, plus the step's own variables."""
    if params.inherit_env:
        inherited = {name: value for name, value in os.environ.items() if not WITHHELD.fullmatch(name)}
    else:
        inherited = {"PATH": os.environ.get("PATH", os.defpath)}
    return {**inherited, KEY_VARIABLE: ctx.idempotency_key, **params.env}


def plan(ctx: Context, params: CommandParams) -> Plan:
    """Find the program and the folder. Raises CannotStart with the reason."""
    env = environment(ctx, params)
    cwd = params.cwd
    if cwd is not None and not Path(cwd).is_dir():
        raise CannotStart(f"the folder {cwd!r} does not exist or is not a folder")
    if cwd is not None and not os.access(cwd, os.X_OK):
        raise CannotStart(f"the folder {cwd!r} may not be entered")
    argv = (SHELL, "-c", params.line or "") if params.shell else tuple(params.argv or ())
    program = argv[0]
    if not program:
        raise CannotStart("the program's name is empty")
    if os.sep in program:
        place = Path(cwd or ".") / program
        if not place.is_file():
            raise CannotStart(f"the program {program!r} does not exist" + (f" in {cwd!r}" if cwd else ""))
        if not os.access(place, os.X_OK):
            raise CannotStart(f"the file {program!r} is not executable")
        return Plan(argv, str(place.absolute()), env, cwd)
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        raise CannotStart(f"the program {program!r} is not found in PATH")
    return Plan(argv, str(Path(found).absolute()), env, cwd)


# --- the call -------------------------------------------------------------------------------------


async def command(ctx: Context, params: CommandParams) -> Outcome:
    """Run a program on this machine and wait for its end."""
    try:
        planned = plan(ctx, params)
        data = None if params.stdin is None else params.stdin.encode("utf-8")
    except (CannotStart, UnicodeEncodeError) as error:
        rule = "refused here, before anything was started"
        return Outcome(OutcomeClass.NOT_SENT, message=str(error), rule=rule)
    ctx.reach(CrashPoint.CONNECTED)
    await ctx.dispatching()
    ctx.reach(CrashPoint.BEFORE_FIRST_BYTE)
    mark = (MARK_VARIABLE, f"{ctx.intent_id}.{ctx.attempt}")
    try:
        child = await Child.start(
            planned.argv,
            executable=planned.executable,
            env=planned.env,
            cwd=planned.cwd,
            has_stdin=data is not None,
            limit_bytes=params.output_limit_bytes,
            mark=mark,
        )
    except (OSError, ValueError) as error:
        return _not_started(planned, error)
    ctx.reach(CrashPoint.AFTER_FIRST_BYTE)
    try:
        if data is not None:
            child.send(data)
        return await _ended(ctx, params, child)
    finally:
        child.close()


async def _ended(ctx: Context, params: CommandParams, child: Child) -> Outcome:
    limits_s = [params.timeout_ms / 1000 if params.timeout_ms else None, ctx.step_timeout_s]
    limit_s = min((limit for limit in limits_s if limit is not None), default=None)
    try:
        await asyncio.wait([child.exited], timeout=limit_s)
        if child.exited.done():
            await _drained(ctx, child)
            return exit_outcome(params, child)
        ctx.log(f"{ctx.block_id}: no end within {limit_s:g} s")
        killed = await child.end(TERMINATE, ctx.log)
    except asyncio.CancelledError:
        await child.end(INTERRUPT, ctx.log)
        raise
    if child.exited.done():
        await _drained(ctx, child)
    return _timed_out(child, limit_s, killed)


async def _drained(ctx: Context, child: Child) -> None:
    """Read what is left in the pipes, but do not wait for a process that keeps them open."""
    await asyncio.wait([child.drained], timeout=DRAIN_S)
    if not child.drained.done():
        ctx.log(f"{ctx.block_id}: a process it left behind keeps the output open; not waiting for it")


# --- what it proves -------------------------------------------------------------------------------


def _not_started(planned: Plan, error: OSError | ValueError) -> Outcome:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    code = error.errno if isinstance(error, OSError) else None
    return Outcome(
        OutcomeClass.NOT_SENT,
        message=f"the program {planned.argv[0]!r} was not started: {reason}",
        details={"error": errno.errorcode.get(code or 0, "EINVAL")},
        retryable=code in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY),
        rule="the system refused to start the program, so it did nothing",
        evidence={"exec_errno": code, "reason": reason},
    )


def _output(child: Child, exit_code: int | None) -> dict[str, Json]:
    return {
        "exit_code": exit_code,
        "stdout": child.stdout.text(),
        "stderr": child.stderr.text(),
        "stdout_truncated": child.stdout.is_truncated,
        "stderr_truncated": child.stderr.is_truncated,
        "stdout_bytes": child.stdout.size_bytes,
        "stderr_bytes": child.stderr.size_bytes,
    }


def _details(child: Child, exit_code: int | None) -> dict[str, Json]:
    return {
        "exit_code": exit_code,
        "stdout": child.stdout.text()[:EXCERPT_CHARACTERS],
        "stderr": child.stderr.text()[-EXCERPT_CHARACTERS:],
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_outcome(params: CommandParams, child: Child) -> Outcome:
    """What the end of a program that was left alone proves."""
    code = child.exit_code
    assert code is not None
    if code in params.ok_exit_codes:
        return Outcome(
            OutcomeClass.CONFIRMED,
            output=_output(child, code),
            rule=f"exit code {code} says it was done",
            evidence={"exit_code": code},
        )
    # A shell reports the signal that ended its program as 128 and its number.
    number = -code if code < 0 else code - 128 if params.shell and 128 < code <= 128 + signal.NSIG else 0
    if number:
        return Outcome(
            OutcomeClass.AMBIGUOUS,
            message=f"the program was ended by {_signal_name(number)}",
            details={**_details(child, code), "signal": _signal_name(number)},
            rule="a program that was ended by a signal may have done its work or a part of it",
        )
    details = _details(child, code)
    last = child.stderr.text().strip().rpartition("\n")[2][:200]
    return Outcome(
        OutcomeClass.REJECTED,
        message=f"the program ended with exit code {code}" + (f": {last}" if last else ""),
        details=details,
        retryable=True,
        rule=f"exit code {code} says it was not done",
        evidence=details,
    )


def _timed_out(child: Child, limit_s: float | None, killed: Sequence[Mapping[str, Json]]) -> Outcome:
    facts = {"timeout_s": limit_s, "killed": list(killed)}
    return Outcome(
        OutcomeClass.AMBIGUOUS,
        message=f"the program had not ended after {limit_s:g} s and was stopped",
        details={**_details(child, child.exit_code), **facts},
        rule="a program that was stopped may have done its work or a part of it",
        evidence=facts,
    )


COMMAND = HandlerSpec(
    "command",
    command,
    kind=EffectKind.WORKER,
    mode=Mode.AT_MOST_ONCE,
    params=CommandParams,
    marks_dispatch=True,
    is_builtin=True,
    facts=command_facts,
    raw_params=frozenset({"line"}),
    summary="Run a program on this machine.",
)
