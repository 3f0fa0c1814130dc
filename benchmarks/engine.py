"""Durable steps per second of the real engine, in a process of its own.

Kinds: `pure` steps have no receipt; `effect` steps go through the whole ledger to a handler in this
process (what the ledger itself costs); `http` steps send a real request to the shipped provider,
which runs in another process on the same machine and takes its share of the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.marks import mark
from orch8_local import Command, Context, Engine, handler
from orch8_local.engine.shared import EngineLimits

KINDS = ("pure", "effect", "http")


@handler("act", marks_dispatch=True)
async def act(ctx: Context, params: Any) -> Any:
    """An effect on nobody: marks its dispatch like a request would, and is confirmed at once."""
    await ctx.dispatching()
    return {"receipt_id": ctx.idempotency_key, "n": params["n"]}


def document(kind: str, n_steps: int, url: str) -> str:
    """A sequence of `n_steps` like steps."""
    blocks = []
    for n in range(n_steps):
        block: dict[str, Any] = {"type": "step", "id": f"s{n}"}
        if kind == "pure":
            block |= {"handler": "noop"}
        elif kind == "effect":
            block |= {"handler": "act", "params": {"n": n}}
        else:
            params = {"method": "POST", "url": f"{url}/charges", "body": {"n": n}}
            block |= {"handler": "http_request", "params": params}
        blocks.append(block)
    return json.dumps({"name": f"bench-{kind}", "blocks": blocks})


async def start(engine: Engine, text: str, n: int) -> str:
    """Start one run and return its id."""
    arguments = {"document": text, "data": None, "config": None, "key": None, "source": "benchmark"}
    return str((await engine.submit(Command(f"start-{n}", "start", arguments)))["instance_id"])


async def measure(folder: Path, kind: str, *, n_runs: int, n_steps: int, url: str) -> dict[str, float]:
    """Run `n_runs` sequences of `n_steps` at once; all must complete."""
    engine = await Engine.open(folder / "bench.db", handlers=[act], limits=EngineLimits(max_concurrent=max(n_runs, 1)))
    async with engine:
        text = document(kind, n_steps, url)
        await engine.wait_until_stopped(await start(engine, document(kind, 3, url), 0))
        mark("begin")
        began_s = time.perf_counter()
        started = [await start(engine, text, n + 1) for n in range(n_runs)]
        ended = await asyncio.gather(*(engine.wait_until_stopped(one) for one in started))
        elapsed_s = time.perf_counter() - began_s
        mark("end")
        assert all(one.state == "completed" for one in ended), {str(one.state) for one in ended}
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "n_steps": n_runs * n_steps,
        "elapsed_s": elapsed_s,
        "steps_per_s": n_runs * n_steps / elapsed_s,
        "memory_mb": memory_mb,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    found = asyncio.run(measure(given.folder, given.kind, n_runs=given.runs, n_steps=given.steps, url=given.url))
    json.dump(found, sys.stdout)
