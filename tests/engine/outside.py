"""The outside of an engine test: one system that counts what it was asked to do, by script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.handlers.base import Context, Refused, Rejected, handler
from orch8_local.model.records import Instance

Json = Any
Act = Callable[[Context, Json], Any]


class Outside:
    """Another system behind the handler `act`. Its script is a list of words, one per call.

    ok: done, answered. lost: done, the answer is an exception. refused, rejected: nothing done.
    early: an exception before anything is sent. hang: done, answers when `answer` is set.
    """

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.done: list[Json] = []
        self.keys: list[str] = []
        self.n_calls = 0
        self.is_hanging = asyncio.Event()
        self.answer = asyncio.Event()

    @property
    def handler(self) -> Act:
        """The handler to register."""

        @handler("act", marks_dispatch=True)
        async def act(ctx: Context, params: Json) -> Json:
            return await self._act(ctx, params)

        return act

    async def _act(self, ctx: Context, params: Json) -> Json:
        self.n_calls += 1
        word = self.script.pop(0) if self.script else "ok"
        if word == "early":
            raise ConnectionRefusedError("nobody is listening")
        await ctx.dispatching()
        self.keys.append(ctx.idempotency_key)
        if word == "refused":
            raise Refused("come back later", details={"status": 503})
        if word == "rejected":
            raise Rejected("no", details={"status": 402})
        self.done.append(params)
        if word == "lost":
            raise ConnectionResetError("the line was cut")
        if word == "hang":
            self.is_hanging.set()
            await self.answer.wait()
        return {"receipt_id": f"r-{len(self.done)}", "params": params}


def step(block_id: str, handler_name: str = "act", **fields: Json) -> dict[str, Json]:
    """A step block."""
    return {"type": "step", "id": block_id, "handler": handler_name, **fields}


RETRY = {"max_attempts": 3, "initial_backoff": 1, "max_backoff": 5}


def document(*blocks: dict[str, Json], **fields: Json) -> str:
    """A document of these blocks."""
    return json.dumps({"name": "test", "blocks": list(blocks), **fields})


@asynccontextmanager
async def engine_on(path: Path, *outsides: Outside, **options: Any) -> AsyncIterator[Engine]:
    """A running engine on a database file; drained and closed at the end."""
    options.setdefault("limits", EngineLimits(grace_s=5))
    engine = await Engine.open(path, handlers=[o.handler for o in outsides], **options)
    async with engine:
        yield engine


async def start(engine: Engine, text: str, data: Json = None, key: str | None = None) -> str:
    """Start a run and return its id."""
    arguments = {"document": text, "data": data, "config": None, "key": key, "source": "test"}
    result = await engine.submit(Command("start", "start", arguments))
    return str(result["instance_id"])


async def run(engine: Engine, text: str, data: Json = None) -> Instance:
    """Start a run and wait until it stops."""
    return await engine.wait_until_stopped(await start(engine, text, data))


async def resolve(engine: Engine, effect_id: str, target: str, **arguments: Json) -> dict[str, Json]:
    """Settle an unknown effect as an operator with good evidence."""
    evidence = {"note": "looked into the provider's log by hand", "searched_for": ["key", "window"]}
    given = {"effect_id": effect_id, "target": target, "evidence": evidence, **arguments}
    return dict(await engine.submit(Command("resolve", "resolve", given, actor="ada")))


async def results(engine: Engine, instance_id: str) -> dict[str, Json]:
    """The result rows of a run by block."""
    view = await engine.views.instance(instance_id)
    return {row.block_id: row.output for row in view.outputs if row.kind == "result"}


async def states(engine: Engine, instance_id: str) -> list[str]:
    """The states of a run's receipts, oldest first."""
    view = await engine.views.instance(instance_id)
    return [str(r.state) for r in sorted(view.receipts, key=lambda r: r.seq)]
