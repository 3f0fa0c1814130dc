"""A World that a seed decides: virtual time, seeded ids and order, and crashes at named points.

For tests of the engine, of handlers and of whole schedules. One `SimWorld` is one run of a process:
after its crash, make another over the same database. The easy mistake: a real thread, socket or
clock below it; the loop has none, and a seed replays only as long as nothing else does.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, and the point of this module
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from orch8_local.world import Nursery, World

T = TypeVar("T")

START_US = 1_767_225_600_000_000
"""Where virtual wall time begins: 2026-01-01T00:00:00Z."""


class SimulatedCrash(BaseException):
    """The process died at a crash point. Not an Exception: nothing in the program may survive it."""


class Idle(RuntimeError):
    """Nothing is ready, no timer is set and the main task is not done: it would wait for ever."""


class _Selector:
    """What the loop asks when nothing is ready: instead of waiting, time goes on."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[Any]:
        """Pass the time that a real loop would wait; raises Idle where it would wait for ever."""
        if timeout_s is None:
            raise Idle("nothing is ready and nothing is due: the schedule has come to a standstill")
        if timeout_s > 0:
            self._loop.pass_time(timeout_s)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """An event loop without clock, threads and sockets, whose order of ready callbacks is seeded.

    disorder: how often, from 0 to 1, the ready queue is shuffled before it is run. limit_s: virtual
    seconds after which the loop gives up. It leans on five private names of asyncio (`_ready`,
    `_scheduled`, `_run_once`, `_selector`, `_process_events`), which a test pins for each version.
    """

    def __init__(self, seed: int = 0, *, disorder: float = 0.0, limit_s: float = 30 * 86_400.0) -> None:
        super().__init__()
        self._selector = _Selector(self)
        self._clock_resolution = 1e-6
        self._now_s = 0.0
        self._order = random.Random(f"order {seed}")  # noqa: S311 - order of callbacks, not a secret
        self._disorder = disorder
        self._limit_s = limit_s
        self._tasks: list[asyncio.Task[Any]] = []
        self.is_dead = False
        self.unhandled: list[str] = []
        """Errors that nobody has looked at, as asyncio would have logged them."""
        self.set_exception_handler(_remember)
        self.set_task_factory(self._remembered)

    def time(self) -> float:
        """Virtual seconds since this loop was made."""
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        """Let virtual time go on; raises Idle beyond the limit."""
        self._now_s += seconds
        if self._now_s > self._limit_s:
            raise Idle(f"not at an end after {self._limit_s:g} virtual seconds")

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1 and self._order.random() < self._disorder:
            shuffled = list(ready)
            self._order.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Nobody has to be woken: there is one thread."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Refused: a thread would decide what the seed should."""
        raise AssertionError(f"{func!r} wants a thread, which a simulated loop does not have")

    def _remembered(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        """Make a task and remember it, so that a crash can discard it."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """The process dies: nothing that is ready, due or suspended runs any further."""
        self.is_dead = True
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            handle.cancel()
        self.stop()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in virtual time; raises SimulatedCrash if the process died."""
        task = self.create_task(main, name="main")
        task.add_done_callback(_stop_loop)
        try:
            self.run_forever()
        except BaseException:
            self.kill()
            self._discard()
            raise
        if self.is_dead:
            self._discard()
            raise SimulatedCrash
        return task.result()

    def dispose(self) -> None:
        """Discard what is left and close the loop."""
        if not self.is_dead:
            self.kill()
        self._discard()
        self.close()

    def _discard(self) -> None:
        """End every coroutine where it stands, oldest first, without letting it do anything more."""
        for task in self._tasks:
            if task.done():
                if not task.cancelled():
                    task.exception()
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _end(task.get_coro())
        self._tasks.clear()


def _end(coroutine: Any) -> None:
    for _ in range(10):  # a `finally` that awaits must be closed once more
        try:
            coroutine.close()
        except BaseException:  # noqa: S112 - what a dead process raises is heard by nobody
            continue
        return


def _stop_loop(task: asyncio.Task[Any]) -> None:
    task.get_loop().stop()


def _remember(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(loop, SimLoop) and not loop.is_dead:
        loop.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")


class SimClock:
    """Wall time that follows the loop and can be set; monotonic time that cannot."""

    def __init__(self, loop: SimLoop, start_us: int = START_US) -> None:
        self._loop = loop
        self.offset_us = start_us

    def now_us(self) -> int:
        """Virtual UTC in microseconds."""
        return self.offset_us + int(self._loop.time() * 1_000_000)

    def monotonic_s(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def step(self, delta_us: int) -> None:
        """Set the wall clock forward or back, as a time server or a person would."""
        self.offset_us += delta_us


class SimIds:
    """Ids that follow from the seed and the order in which they are asked for."""

    def __init__(self, seed: int, clock: SimClock) -> None:
        self._random = random.Random(f"ids {seed}")  # noqa: S311 - must repeat
        self._clock = clock

    def uuid7(self) -> str:
        """A version 7 UUID of virtual time."""
        raw = f"{self._clock.now_us() // 1000:012x}7{self._random.getrandbits(12):03x}"
        tail = f"{0b10 << 62 | self._random.getrandbits(62):016x}"
        return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{tail[:4]}-{tail[4:]}"

    def token(self) -> str:
        """32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"


class SimCrashPoints:
    """Counts every passage and strikes where `should_strike(point, passage)` says so.

    A dead process stays dead: whoever reaches a point after the crash is told so again.
    """

    def __init__(self, loop: SimLoop, should_strike: Callable[[str, int], bool] | None = None) -> None:
        self._loop = loop
        self._should_strike = should_strike
        self.passages: Counter[str] = Counter()
        self.struck_at: str | None = None

    def reach(self, point: str) -> None:
        """Count the passage; raises SimulatedCrash at the chosen one and ever after."""
        if self._loop.is_dead:
            raise SimulatedCrash(self.struck_at or point)
        self.passages[point] += 1
        if self._should_strike is not None and self._should_strike(point, self.passages[point]):
            self.strike(point)

    def strike(self, point: str) -> None:
        """Die here and now; always raises SimulatedCrash."""
        self.struck_at = point
        self._loop.kill()
        raise SimulatedCrash(point)


def strike_at(point: str, passage: int = 1) -> Callable[[str, int], bool]:
    """Die at the n-th passage of one point."""
    return lambda reached, n: reached == point and n == passage


class SimWorld:
    """One life of a simulated process: its loop, and the World to hand to the program.

    seed: decides ids, jitter and order. start_us: wall time at the beginning; hand on the end of the
    last life so that time does not begin again.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        disorder: float = 0.0,
        start_us: int = START_US,
        limit_s: float = 30 * 86_400.0,
        should_strike: Callable[[str, int], bool] | None = None,
    ) -> None:
        self.loop = SimLoop(seed, disorder=disorder, limit_s=limit_s)
        self.clock = SimClock(self.loop, start_us)
        self.crash = SimCrashPoints(self.loop, should_strike)
        self.rng = random.Random(f"rng {seed}")  # noqa: S311 - must repeat
        self.world = World(
            clock=self.clock,
            ids=SimIds(seed, self.clock),
            rng=self.rng,
            crash=self.crash,
            nursery=Nursery(),
        )

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end in virtual time; raises SimulatedCrash if a crash point struck."""
        return self.loop.run(main)

    def close(self) -> None:
        """Discard whatever still runs."""
        self.loop.dispose()
