"""What a child of the zygote does: one session of the real engine on a real file, killed or not.

A session opens the database (and settles what it finds), applies the resolutions it was given, starts
the run by its key or finds it, and works until the run stops. It says what was acknowledged, at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.handlers import builtins, http, wire  # noqa: F401 - imported once, before the fork
from orch8_local.inbox import inbox_folder, write_command
from orch8_local.sequence import document  # noqa: F401
from orch8_local.world import CrashPoint, KillAt, NoCrash, World, real_world
from tests.crash.zygote import say

Json = Any
KEY = "the-run"


class Counting:
    """A crash hook that kills nobody and remembers how often each point was passed."""

    def __init__(self) -> None:
        self.passed: dict[str, int] = {}

    def reach(self, point: str) -> None:
        """Count the passage."""
        self.passed[point] = self.passed.get(point, 0) + 1


def perform(job: Mapping[str, Json]) -> None:
    """One session.

    job: database, document, data, crash (`[point, passage]`, `count` or null), resolutions; is_by_inbox:
    another process asks for them, and first for a cancel that must be refused.
    """
    crash = job["crash"]
    hook = Counting() if crash == "count" else KillAt(*crash) if crash else NoCrash()
    if job.get("mutant"):
        from tests.sabotage.mutants import apply

        apply(job["mutant"])
    asyncio.run(_session(job, hook))
    if isinstance(hook, Counting):
        say(passed=hook.passed)
    sys.stdout.flush()


def _asked(job: Mapping[str, Json], world: World) -> list[Command]:
    """Write command files as another process does, the harness striking after each."""
    folder, asked = inbox_folder(Path(job["database"])), []
    for resolution in job["resolutions"]:
        asked += [
            Command(world.ids.token(), "cancel", {"instance_id": job["instance_id"]}, actor="operator:test"),
            Command(world.ids.token(), "resolve", resolution, actor="operator:test"),
        ]
    for command in asked:
        write_command(folder, command, at_us=world.clock.now_us())
        world.crash.reach(CrashPoint.COMMAND_WRITTEN)
    return asked


async def _take(engine: Engine, asked: list[Command]) -> None:
    """Work the inbox off, and say what the askers are told."""
    await engine.take_commands()
    for command in asked:
        found = await engine.views.command_result(command.id)
        assert found is not None, f"{command.kind} was not answered"
        status, result = found
        if command.kind == "cancel":
            assert status == "refused", found
        elif status == "done":
            say(resolved=[result["effect_id"], result["state"]])


async def _session(job: Mapping[str, Json], hook: Any) -> None:
    world = replace(real_world(), crash=hook)
    asked = _asked(job, world) if job["is_by_inbox"] else []
    engine = await Engine.open(
        job["database"], world=world, limits=EngineLimits(grace_s=5, settle_s=0.0, max_recoveries=50)
    )
    try:
        if job["is_by_inbox"]:
            await _take(engine, asked)
        for n, resolution in enumerate(() if job["is_by_inbox"] else job["resolutions"]):
            result = await engine.submit(Command(f"resolve-{n}", "resolve", resolution, actor="operator:test"))
            say(resolved=[result["effect_id"], result["state"]])
        arguments = {"document": job["document"], "data": job["data"], "config": None, "key": KEY, "source": "test"}
        started = await engine.submit(Command("start", "start", arguments))
        say(started=started["instance_id"])
        await engine.start()
        ended = await engine.wait_until_stopped(started["instance_id"])
        found = await engine.views.instance(ended.id)
        unknown = [[r.id, r.sent_key or r.intent_id] for r in found.receipts if str(r.state) == "unknown"]
        say(ended={"state": str(ended.state), "is_blocked": ended.is_blocked, "unknown": unknown})
    finally:
        await engine.close()
