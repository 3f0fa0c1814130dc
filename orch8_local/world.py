"""Clock, ids, randomness, crash points and tasks: everything that is not a function of its input.

One `World` is made by the composition root and passed down. Nothing else in the package reads a
clock, makes an id, draws a number or starts a task, so a simulation that supplies its own World
decides all of it. The easy mistake: `asyncio.create_task` somewhere; the order of cancellation
is then the order of memory addresses, and a seed no longer replays.
"""

from __future__ import annotations

import asyncio
import os
import random  # noqa: TID251 - the one place
import signal
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Clock(Protocol):
    """Wall time for people and due times; monotonic time for elapsed times."""

    def now_us(self) -> int:
        """UTC, microseconds since 1970. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment. Never goes back; may stand still while the machine sleeps."""
        ...


class Ids(Protocol):
    """New identifiers."""

    def uuid7(self) -> str:
        """A time-ordered UUID as lower-case text."""
        ...

    def token(self) -> str:
        """32 random hex digits: boot ids, command ids."""
        ...


class Rng(Protocol):
    """Randomness for jitter and for the expression language. Never for safety."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class CrashPoint(StrEnum):
    """Named places where a test may kill the process (effect-receipts 7.6).

    Beside these, every transaction has three of its own: `<name>.begin`, `<name>.commit` (all its
    statements done, COMMIT not called) and `<name>.after` (on disk, nobody told yet).
    """

    BEFORE_PREPARE = "c0_before_t0"
    AFTER_PREPARE = "c1_after_t0"
    CONNECTED = "c2_connected"
    BEFORE_FIRST_BYTE = "c3_after_t1"
    AFTER_FIRST_BYTE = "c4_after_first_byte"
    ANSWER_READ = "c5_answer_read"
    AFTER_COMMIT = "c7_after_t3c"
    AFTER_UNKNOWN = "c8_after_t3u"
    AFTER_ABANDON = "c8_after_t3a"
    AFTER_RESOLUTION = "c9_after_resolution"
    AFTER_SWEEP = "sweep_done"
    COMMAND_WRITTEN = "inbox_written"
    COMMAND_APPLIED = "inbox_applied"


class CrashPoints(Protocol):
    """Where the harness may strike."""

    def reach(self, point: str) -> None:
        """Called each time the program passes the point. A no-op outside tests."""
        ...


class NoCrash:
    """Outside tests nothing happens at a crash point."""

    def reach(self, point: str) -> None:
        """Do nothing."""


@dataclass(slots=True)
class KillAt:
    """Kill this process with SIGKILL at the n-th passage of one point: no handlers, no flush."""

    point: str
    passage: int
    n_seen: int = 0

    def reach(self, point: str) -> None:
        """Count the passage; die at the chosen one."""
        if point != self.point:
            return
        self.n_seen += 1
        if self.n_seen == self.passage:
            os.kill(os.getpid(), signal.SIGKILL)


def crash_points_from_env(text: str | None) -> CrashPoints:
    """`<point>:<n>` of ORCH8_LOCAL_CRASH; anything else is no crash point at all."""
    if not text:
        return NoCrash()
    point, _, passage = text.partition(":")
    return KillAt(point, int(passage) if passage.isdigit() else 1)


class Nursery:
    """Owns tasks in order of creation and cancels them in that order."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a task that this nursery keeps alive until it ends."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The living tasks, oldest first."""
        return list(self._tasks)

    async def cancel_all(self) -> None:
        """Cancel every task, oldest first, and wait until all have ended."""
        tasks = self.tasks()
        for task in tasks:
            task.cancel()
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
            except Exception:  # noqa: S112 - whoever waits for the task is told
                continue


class RealClock:
    """The machine's clocks."""

    def now_us(self) -> int:
        """UTC in microseconds."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """The monotonic clock in seconds."""
        return time.monotonic()


class RealIds:
    """UUIDv7 from the wall clock with a counter, so that ids of one process sort by creation."""

    def __init__(self) -> None:
        self._last = 0

    def uuid7(self) -> str:
        """48 bits of milliseconds, then a 74-bit number that only grows within a millisecond."""
        milliseconds = time.time_ns() // 1_000_000
        value = (milliseconds << 74) | int.from_bytes(os.urandom(10), "big") >> 7  # noqa: TID251
        if value <= self._last:
            value = self._last + 1
        self._last = value
        tail = value & ((1 << 74) - 1)
        bits = (value >> 74) << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | (tail & ((1 << 62) - 1))
        return str(uuid.UUID(int=bits))

    def token(self) -> str:
        """32 hex digits from the system's randomness."""
        return os.urandom(16).hex()  # noqa: TID251


class RealRng:
    """Python's own generator, seeded by the system."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - jitter only

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._random.random()


@dataclass(frozen=True, slots=True)
class World:
    """The outside, as one parameter."""

    clock: Clock = field(default_factory=RealClock)
    ids: Ids = field(default_factory=RealIds)
    rng: Rng = field(default_factory=RealRng)
    crash: CrashPoints = field(default_factory=NoCrash)
    nursery: Nursery = field(default_factory=Nursery)


def real_world() -> World:
    """The World of a real process, with the crash point that the environment names, if any."""
    return World(crash=crash_points_from_env(os.environ.get("ORCH8_LOCAL_CRASH")))
