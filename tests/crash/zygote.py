"""A process that has imported the product and forks a real runner for each job.

Owns the speed of the kill tests: importing takes longer than a run, so it is done once. The zygote
is a single thread that has opened nothing; each child opens the database itself, is a process of its
own and dies for real. The easy mistake: killing the zygote instead of the child.

Parent side: `Zygote`. Child side: `python -m tests.crash.zygote`, one JSON job per line on standard
input; on standard output `{"pid": n}`, then whatever the job says, then `{"exit": status}`, where a
negative status is the signal that ended it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

Json = Any
ROOT = Path(__file__).resolve().parents[2]
LINE_LIMIT = 1 << 24


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended. status: the exit status, or minus the signal. said: its lines, in order."""

    status: int
    said: Sequence[Json]
    errors: str = ""

    @property
    def was_killed(self) -> bool:
        """True if SIGKILL ended it."""
        return self.status == -signal.SIGKILL

    def facts(self, name: str) -> list[Json]:
        """The values of all lines that hold `name`."""
        return [line[name] for line in self.said if name in line]


class Running:
    """A job that has begun: its pid, its lines as they come, its end."""

    def __init__(self, process: asyncio.subprocess.Process, pid: int) -> None:
        self._process = process
        self.pid = pid
        self._said: list[Json] = []

    async def until(self, name: str) -> Json:
        """Wait until the job says `name`; AssertionError if it ends before."""
        while True:
            line = await self._line()
            assert "exit" not in line, f"the job ended {line} and never said {name}: {self._said}"
            self._said.append(line)
            if name in line:
                return line[name]

    async def ended(self) -> Ended:
        """Wait for the end."""
        while True:
            line = await self._line()
            if "exit" in line:
                return Ended(line["exit"], self._said)
            self._said.append(line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the job a signal."""
        os.kill(self.pid, number)

    async def _line(self) -> Json:
        assert self._process.stdout is not None
        raw = await self._process.stdout.readline()
        assert raw, "the zygote is gone"
        return json.loads(raw)


class Zygote:
    """The parent's handle; an async context manager."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Zygote:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.zygote",
            cwd=ROOT,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self, job: Mapping[str, Json], *, kill_after_s: float | None = None) -> Running:
        """Begin a job; `kill_after_s` sends it SIGKILL then, if it has not ended. One job at a time."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": dict(job), "kill_after_s": kill_after_s}).encode() + b"\n")
        running = Running(self._process, 0)
        running.pid = await running.until("pid")
        return running

    async def run(self, job: Mapping[str, Json], *, kill_after_s: float | None = None) -> Ended:
        """Do a job to its end."""
        return await (await self.start(job, kill_after_s=kill_after_s)).ended()


def say(**facts: Json) -> None:
    """One line to the parent, whole, at once: what was said before a kill stays said."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def serve() -> None:
    """The loop of the zygote: fork, wait, report."""
    from tests.crash.jobs import perform

    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os._exit(_performed(perform, order["job"]))
        say(pid=pid)
        if order["kill_after_s"] is not None and not signal.sigtimedwait({signal.SIGCHLD}, order["kill_after_s"]):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        signal.sigtimedwait({signal.SIGCHLD}, 0)
        say(exit=os.waitstatus_to_exitcode(status))


def _performed(perform: Any, job: Mapping[str, Json]) -> int:
    try:
        perform(job)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        return 70
    return 0


if __name__ == "__main__":
    serve()
