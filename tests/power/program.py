"""What is recorded: the real engine, a real file, real requests; run as a program under `strace`.

`python -m tests.power.program DATABASE URL [SYNCHRONOUS]`. Every acknowledgement is one line on
standard output, written at once: what was said before the power went must be on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.store import database, writer
from tests.crash.lives import EVIDENCE, document

Json = Any


def say(line: str) -> None:
    """One acknowledgement."""
    os.write(1, line.encode() + b"\n")


async def main(path: str, url: str) -> None:
    """A run of three charges, the second of which is lost and then settled; a second, shorter run."""
    engine = await Engine.open(path, limits=EngineLimits(settle_s=0.0))
    await engine.start()
    first = await _start(engine, document(3).replace("{{ config.url }}", url), "first")
    stopped = await engine.wait_until_stopped(first)
    assert stopped.is_blocked, stopped
    for receipt in (await engine.views.instance(first)).receipts:
        if str(receipt.state) == "unknown":
            answer = {"effect_id": receipt.id, "target": "committed", "evidence": EVIDENCE}
            arguments = {**answer, "output": {"status": 200}, "has_output": True}
            await engine.submit(Command("resolve", "resolve", arguments, actor="operator:test"))
            say(f"resolve {receipt.id} committed")
    stopped = await engine.wait_until_stopped(first)
    assert stopped.state == "completed", stopped
    say(f"completed {first}")
    second = await _start(engine, document(1).replace("{{ config.url }}", url), "second")
    stopped = await engine.wait_until_stopped(second)
    assert stopped.state == "completed", stopped
    say(f"completed {second}")
    await engine.close()


async def _start(engine: Engine, text: str, key: str) -> str:
    arguments = {"document": text, "data": None, "config": None, "key": key, "source": "test"}
    result = await engine.submit(Command(f"start-{key}", "start", arguments))
    say(f"start {result['instance_id']}")
    return str(result["instance_id"])


def weaken(synchronous: str) -> None:
    """Another setting of SQLite than the product's: for the proof that the harness notices."""
    number = {"OFF": 0, "NORMAL": 1}[synchronous]
    kept = [setting for setting in database.SETTINGS if setting[0] != "synchronous"]
    database.SETTINGS = [*kept, ("synchronous", synchronous, number)]


if __name__ == "__main__":
    writer.CHECKPOINT_PAGES = 20
    writer.BATCHES_BETWEEN_LOOKS = 4
    if len(sys.argv) > 3:
        weaken(sys.argv[3])
    asyncio.run(main(sys.argv[1], sys.argv[2]))
