"""The simulated loop: virtual time, seeded order, death without a last word."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch8_local.testing.world import (
    START_US,
    Idle,
    SimLoop,
    SimulatedCrash,
    SimWorld,
    strike_at,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sim() -> Iterator[SimWorld]:
    """One life of a simulated process."""
    world = SimWorld(1)
    yield world
    world.close()


def test_private_names_of_this_python() -> None:
    """The five private names of asyncio that virtual time leans on exist in this version of Python."""
    loop = SimLoop()
    assert hasattr(loop, "_ready")
    assert hasattr(loop, "_scheduled")
    assert hasattr(asyncio.BaseEventLoop, "_run_once")
    assert hasattr(asyncio.BaseEventLoop, "_process_events")
    calls = asyncio.BaseEventLoop._run_once.__code__.co_names
    assert {"_selector", "select", "_process_events", "_ready", "_scheduled", "time"} <= set(calls)
    loop.call_soon(print)
    assert len(loop._ready) == 1
    loop.dispose()


def test_a_month_takes_no_time(sim: SimWorld) -> None:
    """Waiting passes virtual time only, and the wall clock follows it."""

    async def main() -> tuple[float, int]:
        await asyncio.sleep(20 * 86_400)
        return sim.loop.time(), sim.clock.now_us()

    seconds, now_us = sim.run(main())
    assert seconds == pytest.approx(20 * 86_400)
    assert now_us == pytest.approx(START_US + 20 * 86_400 * 1_000_000, abs=2)


def test_timers_fire_in_order(sim: SimWorld) -> None:
    """What is due earlier happens earlier, however it was ordered."""
    seen: list[int] = []

    async def one(delay_s: int) -> None:
        await asyncio.sleep(delay_s)
        seen.append(delay_s)

    async def main() -> None:
        tasks = [sim.world.nursery.start(one(delay_s), name=str(delay_s)) for delay_s in (5, 1, 3)]
        await asyncio.wait(tasks)

    sim.run(main())
    assert seen == [1, 3, 5]


def test_timeouts_are_virtual(sim: SimWorld) -> None:
    """A time-out strikes at its virtual moment."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.sleep(100)
        return sim.loop.time()

    assert sim.run(main()) == pytest.approx(7)


def test_waiting_for_ever_is_an_error(sim: SimWorld) -> None:
    """A schedule in which nothing can happen any more ends with an error instead of hanging."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Idle):
        sim.run(main())


def test_endless_activity_is_an_error() -> None:
    """A schedule that never ends is cut off at its virtual limit."""
    sim = SimWorld(1, limit_s=100)

    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(Idle):
        sim.run(main())
    sim.close()


def test_no_thread_can_slip_in(sim: SimWorld) -> None:
    """The simulated loop refuses threads, since a thread would decide what the seed should."""

    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(AssertionError, match="thread"):
        sim.run(main())


def _order(seed: int, disorder: float) -> list[int]:
    sim = SimWorld(seed, disorder=disorder)
    seen: list[int] = []

    async def one(n: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(n)

    async def main() -> None:
        await asyncio.wait([sim.world.nursery.start(one(n), name=str(n)) for n in range(5)])

    sim.run(main())
    sim.close()
    return seen


def test_the_seed_decides_the_order() -> None:
    """One seed is one order of events, another seed another, and without disorder it is asyncio's."""
    assert _order(1, 1.0) == _order(1, 1.0)
    assert len({tuple(_order(seed, 1.0)) for seed in range(10)}) > 5
    assert _order(1, 0.0) == _order(2, 0.0) == [0, 1, 2, 3, 4] * 3


def test_a_crash_lets_nobody_speak() -> None:
    """At a crash no task runs any further, not even to clean up, and the program cannot swallow it."""
    sim = SimWorld(1, should_strike=strike_at("here", 2))
    said: list[str] = []

    async def bystander() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            sim.world.crash.reach("cleanup")  # what every write of the program passes
            said.append("cleaned up")

    async def main() -> None:
        tasks = [sim.world.nursery.start(bystander(), name=str(n)) for n in range(3)]
        await asyncio.sleep(0)
        for _ in range(5):
            try:
                sim.world.crash.reach("here")
            except Exception:
                said.append("swallowed")
            said.append("passed")
            await asyncio.sleep(0)
        await asyncio.wait(tasks)

    with pytest.raises(SimulatedCrash):
        sim.run(main())
    sim.close()
    assert said == ["passed"]
    assert sim.crash.struck_at == "here"
    assert sim.crash.passages == {"here": 2}


def test_a_crash_in_any_task_ends_the_process() -> None:
    """A crash point reached in a background task ends everything, not only that task."""
    sim = SimWorld(1, should_strike=strike_at("there"))
    said: list[str] = []

    async def background() -> None:
        await asyncio.sleep(5)
        sim.world.crash.reach("there")

    async def main() -> None:
        sim.world.nursery.start(background(), name="background")
        await asyncio.sleep(10)
        said.append("survived")

    with pytest.raises(SimulatedCrash):
        sim.run(main())
    sim.close()
    assert said == []


def test_a_stubborn_cleanup_is_ended_too() -> None:
    """A task that awaits while it is being discarded does not outlive the crash."""
    sim = SimWorld(1, should_strike=strike_at("here"))
    said: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)
            said.append("survived")

    async def main() -> None:
        sim.world.nursery.start(stubborn(), name="stubborn")
        await asyncio.sleep(1)
        sim.world.crash.reach("here")

    with pytest.raises(SimulatedCrash):
        sim.run(main())
    sim.close()
    assert said == []


def test_the_clock_can_be_set(sim: SimWorld) -> None:
    """Wall time can jump back; monotonic time cannot."""

    async def main() -> None:
        before_us, before_s = sim.clock.now_us(), sim.clock.monotonic_s()
        sim.clock.step(-3_600_000_000)
        assert sim.clock.now_us() == before_us - 3_600_000_000
        assert sim.clock.monotonic_s() == before_s

    sim.run(main())


def test_ids_are_well_formed_and_repeat() -> None:
    """Simulated ids look like real ones, are all different, and follow from the seed."""
    from uuid import UUID

    one, other = SimWorld(7), SimWorld(7)
    made = [one.world.ids.uuid7() for _ in range(100)]
    assert made == [other.world.ids.uuid7() for _ in range(100)]
    assert len(set(made)) == 100
    assert {UUID(text).version for text in made} == {7}
    assert one.world.ids.token() == other.world.ids.token()
    assert len(one.world.ids.token()) == 32
    one.close()
    other.close()


def test_unhandled_errors_are_remembered(sim: SimWorld) -> None:
    """An error of a task that nobody looked at is not lost."""

    async def bad() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        task = sim.loop.create_task(bad())
        await asyncio.sleep(1)
        sim.loop._tasks.remove(task)
        del task

    sim.run(main())
    assert any("nobody looks" in text for text in sim.loop.unhandled)


def test_order_does_not_depend_on_hashes() -> None:
    """A seed is the same schedule in every process, whatever PYTHONHASHSEED is."""
    code = "from tests.sim.test_loop import _order; print([_order(s, 1.0) for s in range(20)])"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4711")
    }
    assert len(answers) == 1
