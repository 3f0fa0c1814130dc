"""An engine that runs in another process: reads go to its database, changes through its inbox.

Owns the waiting for a command's result and what happens when the owner goes away meanwhile: the
command is on disk already, so whoever owns the database next applies it, once. The easy mistake:
submitting again under a new id; a command's id is what makes it happen once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orch8_local import errors
from orch8_local.engine.api import Command, Views
from orch8_local.errors import Bug, NoEngine, Orch8Error, OwnedElsewhere, Problem
from orch8_local.inbox import write_command
from orch8_local.world import CrashPoint, World

Json = Any

FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 0.25
TakeOver = Callable[[Command], Awaitable[None]]


class Attached:
    """`EngineApi` for a client of a running owner, or of nobody if it only reads.

    is_alive: asks whether some process owns the database. take_over: works the inbox off when nobody
    does any more (OwnedElsewhere if somebody came); without it the client says so.
    """

    def __init__(
        self,
        views: Views,
        *,
        inbox: Path,
        world: World,
        is_alive: Callable[[], bool],
        take_over: TakeOver | None = None,
    ) -> None:
        self._views = views
        self._inbox = inbox
        self._world = world
        self._is_alive = is_alive
        self._take_over = take_over

    @property
    def is_owner(self) -> bool:
        """Never: another process holds the lease, if any."""
        return False

    @property
    def views(self) -> Views:
        """Reads, on the database file."""
        return self._views

    async def submit(self, command: Command) -> Mapping[str, Json]:
        """Ask the owner for a change and wait for its answer; raises the error that refused it.

        Raises NoEngine if the owner went away and nobody here may take its place; the command then
        stays in the inbox and is applied when an engine runs again.
        """
        write_command(self._inbox, command, at_us=self._world.clock.now_us())
        self._world.crash.reach(CrashPoint.COMMAND_WRITTEN)
        wait_s = FIRST_WAIT_S
        while True:
            found = await self._views.command_result(command.id)
            if found is not None:
                return _answer(*found)
            if not self._is_alive():
                await self._without_owner(command)
                found = await self._views.command_result(command.id)
                if found is not None:
                    return _answer(*found)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)

    async def _without_owner(self, command: Command) -> None:
        if await self._views.command_result(command.id) is not None:
            return
        if self._take_over is None:
            raise NoEngine(
                f"the owner of the database went away before it answered the {command.kind} command",
                hint="the command is kept and applied when an engine runs: orch8-local up",
                details={"command_id": command.id},
            )
        with suppress(OwnedElsewhere):  # then there is an owner to wait for
            await self._take_over(command)

    async def close(self) -> None:
        """Close the reads."""
        await self._views.close()


def _answer(status: str, result: Json) -> Mapping[str, Json]:
    if status == "refused":
        raise error_from_dict(result.get("error", result))
    assert isinstance(result, Mapping), "a done command has an object as its result"
    return result


def error_from_dict(fields: Mapping[str, Json]) -> Orch8Error:
    """The error that another process stored as {"code", "message", "hint", "details"}, as its own class.

    An unknown code becomes a Bug that carries the message.
    """
    kind = _classes().get(str(fields.get("code")), Bug)
    details = fields.get("details") or {}
    error = kind.__new__(kind)
    Orch8Error.__init__(error, fields.get("message"), hint=fields.get("hint"), details=details)
    if isinstance(error, errors.EffectBlocked):
        error.effect_ids = tuple(details.get("effect_ids") or ())
    if isinstance(error, errors.SequenceInvalid):
        error.problems = tuple(Problem(**problem) for problem in details.get("problems") or ())
    if isinstance(error, errors.ExpressionError):
        error.column, error.suggestion = details.get("column", 0), fields.get("hint")
    return error


def _classes() -> dict[str, type[Orch8Error]]:
    found: dict[str, type[Orch8Error]] = {}
    waiting: list[type[Orch8Error]] = [Orch8Error]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        found[kind.code] = kind
    return found
