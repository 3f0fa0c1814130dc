"""How a command gets at the engine: to read, or to have one change made.

Owns the life of that link, the asking for consent, and who is said to decide. The easy mistake:
asking a question where nobody can answer; without a terminal the command itself is the consent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.invocation import Invocation
from orch8_local.errors import InputError

if TYPE_CHECKING:
    from orch8_local.engine.api import EngineApi
    from orch8_local.settings import Settings

Json = Any


def reading(invocation: Invocation, look: Callable[[EngineApi, Settings, int], Awaitable[int | None]]) -> int:
    """Open the database for reading, look, and return the exit status. `look` gets the time now."""

    async def main() -> int:
        from orch8_local.app import Need, connect
        from orch8_local.world import real_world

        settings, world = invocation.settings(), real_world()
        async with connect(settings, need=Need.READ, world=world) as api:
            return await look(api, settings, world.clock.now_us()) or 0

    return asyncio.run(main())


def owner_is_alive(settings: Settings) -> bool:
    """True if some process runs the engine of this database."""
    from orch8_local.app import find_owner

    return find_owner(settings) is not None


def actor_name(given: str | None) -> str:
    """`operator:<name>`: the given name, else that of the user."""
    import getpass

    if given is not None and not given.strip():
        raise InputError("--by is empty", hint="give the name of the person who decides")
    try:
        name = given or getpass.getuser()
    except (OSError, KeyError, ImportError):  # no LOGNAME and no passwd entry
        return "operator"
    return f"operator:{name.strip()}"


def ask_yes(invocation: Invocation, question: str) -> bool:
    """Ask on a terminal; elsewhere the answer is yes, as the command said so already."""
    if invocation.is_json or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    return click.confirm(question, default=True, err=True)


async def changing(
    invocation: Invocation, change: Callable[[EngineApi, Settings], Awaitable[int]], *, may_make: bool = False
) -> int:
    """Open the database for one change: by its owner's inbox, or as its owner for that moment.

    may_make: the change may be the first thing that ever happens to this database.
    """
    from orch8_local.app import Need, connect

    settings = invocation.settings()
    invocation.start_logging()
    async with connect(settings, need=Need.START if may_make else Need.CHANGE, say=invocation.note) as api:
        return await change(api, settings)


async def submit(api: EngineApi, kind: str, arguments: dict[str, Json], by: str | None) -> dict[str, Json]:
    """Submit one command and return its result; raises the error that refused it."""
    from orch8_local.engine.api import Command
    from orch8_local.world import real_world

    return dict(await api.submit(Command(real_world().ids.token(), kind, arguments, actor=actor_name(by))))
