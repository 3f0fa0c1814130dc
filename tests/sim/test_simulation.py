"""Seeded simulation: the real engine and its real SQL in virtual time, with crashes, disorder and an operator.

Source: reliability 4b. ORCH8_SIM_SCHEDULES raises the number of schedules. A seed that fails is played
again by `python -m tests.sim.test_simulation SEED`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

import pytest

from orch8_local.engine import guard, recovery
from orch8_local.model.states import ReceiptState
from orch8_local.store import receipts
from tests.conftest import FIGURE, RecordProperty
from tests.sim.schedule import Schedule

N_SCHEDULES = int(os.environ.get("ORCH8_SIM_SCHEDULES", "20000"))
N_PARTS = 40


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of recoveries are not worth a line each."""
    logger = logging.getLogger("orch8_local")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(N_PARTS))
def test_no_schedule_breaks_an_invariant(part: int, record_property: RecordProperty) -> None:
    """Whatever the order, the crashes, the provider and the operator: I1 to I9 hold, and every run comes to an end."""
    n_crashes = n_lives = 0
    seeds = range(part, N_SCHEDULES, N_PARTS)
    for seed in seeds:
        schedule = Schedule(seed)
        problems = schedule.play()
        assert not problems, f"python -m tests.sim.test_simulation {seed}: {problems[:3]}"
        n_crashes += schedule.n_crashes
        n_lives += schedule.n_lives
    record_property(FIGURE, f"{len(seeds)} schedules, {n_lives} lives, {n_crashes} crashes, 0 violations")


def _believing_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def owner_gone(tx: object, receipt: object, *, now_us: int) -> None:
        for old, new in (
            (ReceiptState.DISPATCHED, ReceiptState.UNKNOWN),
            (ReceiptState.UNKNOWN, ReceiptState.ABANDONED),
        ):
            receipts.shift(tx, receipt, old, new, now_us=now_us)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "owner_gone", owner_gone)


def _late_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mark(_: guard.Dispatch) -> None:
        """The request goes out, and nothing is written before it."""

    monkeypatch.setattr(guard.Dispatch, "mark", mark)


@pytest.mark.parametrize("sabotage", [_believing_sweep, _late_mark])
def test_the_simulation_finds_a_fault_that_is_built_in(monkeypatch: pytest.MonkeyPatch, sabotage: object) -> None:
    """A known fault is found within far fewer schedules than are played."""
    assert callable(sabotage)
    sabotage(monkeypatch)
    assert any(Schedule(seed).play() for seed in range(200))


if __name__ == "__main__":
    print("\n".join(Schedule(int(sys.argv[1])).play()) or "no violation")
