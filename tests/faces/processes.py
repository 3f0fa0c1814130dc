"""The program as a person's shell runs it: a process of its own on a database of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def value(self) -> Json:
        """Standard output as JSON."""
        return json.loads(self.out)


class Shell:
    """A folder with a database, and commands run in it."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.database = folder / "orch8.db"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ORCH8_LOCAL_")}
        self.environment = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "ORCH8_LOCAL_DB": str(self.database),
            **environment,
        }

    async def run(self, *words: str, stdin: str | None = None) -> Done:
        """Run a command to its end."""
        async with self.start(*words) as process:
            out, err = await process.communicate(None if stdin is None else stdin.encode())
            assert process.returncode is not None
            return Done(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def start(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command that is under way; it never outlives the block."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orch8_local", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
            preexec_fn=_hear_signals,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def _hear_signals() -> None:
    """A shell that started these tests in the background has made SIGINT deaf for all below it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def line_with(stream: asyncio.StreamReader | None, text: str) -> str:
    """The next line that holds a text; fails at the end of the stream."""
    assert stream is not None
    seen = []
    while line := (await stream.readline()).decode():
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} was never said: {seen}")
