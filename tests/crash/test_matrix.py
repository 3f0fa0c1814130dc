"""The crash matrix: a real process, a real file, a real socket, and SIGKILL at every point there is.

First a session is only counted: it tells which points are passed, and how often. Then, for each point
and each passage, a fresh run dies exactly there; what is left is checked, started again, settled by
the provider's own truth, and must complete with every charge made once. Source: reliability 4a.
ORCH8_CRASH_KILLS raises the number of second deaths that are drawn beside the whole first round.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from orch8_local.engine.transactions import TRANSACTIONS
from orch8_local.testing.provider import Provider, Reply
from orch8_local.world import CrashPoint
from tests.conftest import FIGURE, RecordProperty
from tests.crash.lives import Crash, Life
from tests.crash.zygote import Zygote

SECOND_DEATHS = int(os.environ.get("ORCH8_CRASH_KILLS", "40"))
"""Per case: how many runs die twice or more, at places drawn with a fixed seed."""

RANDOM_MOMENTS = SECOND_DEATHS
"""How many runs are killed by the clock."""

CASES: dict[str, tuple[int, Sequence[Reply]]] = {
    "one step, answered": (1, ()),
    "one step, answer lost": (1, (Reply("apply_then_drop"),)),
    "one step, dropped before it was done": (1, (Reply("drop_before_apply"),)),
    "one step, busy at first": (1, (Reply("5xx_before_apply", status=503), Reply("answer"))),
    "three steps, answered": (3, ()),
    "three steps, each in its own trouble": (
        3,
        (Reply("5xx_after_apply"), Reply("5xx_before_apply", status=503), Reply("answer"), Reply("reset")),
    ),
}
BY_INBOX = ("one step, answer lost", "one step, dropped before it was done")
"""Cases in which the operator is another process, which also asks for something that must be refused."""

NOT_ON_THESE_WAYS = {
    "add_sequence": "a run stores its own document",
    "late_answer": "settle_s is 0 here (tests of the engine, simulation)",
    "retry": "simulation",
    "park": "only a run that waits long or is given back is parked",
}


@pytest.fixture
async def zygote() -> AsyncIterator[Zygote]:
    async with Zygote() as process:
        yield process


async def points_of(zygote: Zygote, folder: Path, name: str) -> dict[str, int]:
    """Every point that a whole life passes, without a kill, with how often."""
    n_steps, script = CASES[name]
    passed: dict[str, int] = {}
    async with Provider(list(script)) as provider:
        life = Life(zygote, provider, folder / "counted.db", n_steps, is_by_inbox=name in BY_INBOX)
        resolutions: list[object] = []
        for _ in range(8):
            ended = await life.session("count", resolutions)
            for found in ended.facts("passed"):
                for point, n in found.items():
                    passed[point] = max(passed.get(point, 0), n)
            stopped = ended.facts("ended")[-1]
            if stopped["state"] == "completed":
                break
            resolutions = [life._truth(effect_id, key) for effect_id, key in stopped["unknown"]]
        assert stopped["state"] == "completed", life.problems
        assert not life.problems, life.problems
    return passed


async def lived(zygote: Zygote, folder: Path, name: str, crashes: Sequence[Crash]) -> Life:
    """A fresh run that dies at these places, one after the other."""
    n_steps, script = CASES[name]
    async with Provider(list(script)) as provider:
        life = Life(zygote, provider, folder / "run.db", n_steps, is_by_inbox=name in BY_INBOX)
        await life.to_its_end(crashes)
    _clear(folder)
    return life


def _clear(folder: Path) -> None:
    """Nothing of one run is there for the next: neither its database nor its inbox."""
    for path in folder.glob("run.db*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
async def test_a_process_may_be_killed_anywhere(
    zygote: Zygote, tmp_path: Path, name: str, record_property: RecordProperty
) -> None:
    """Whatever the moment of SIGKILL: nothing is sent twice, nothing is lost, and the run completes."""
    passed = await points_of(zygote, tmp_path, name)
    first = [[(point, n)] for point, most in sorted(passed.items()) for n in range(1, most + 1)]
    chance = random.Random(name)
    more = [
        [
            (point := chance.choice(sorted(passed)), chance.randint(1, passed[point]))
            for _ in range(chance.randint(2, 4))
        ]
        for _ in range(SECOND_DEATHS)
    ]
    n_kills = n_runs = 0
    for crashes in [*first, *more]:
        life = await lived(zygote, tmp_path, name, crashes)
        assert not life.problems, f"killed at {crashes}: {life.problems}"
        if crashes in first:
            assert life.n_kills >= 1, f"{crashes} was passed when counted, and then not"
        n_kills += life.n_kills
        n_runs += 1
    record_property(FIGURE, f"{name}: {n_runs} runs, {n_kills} kills, {len(passed)} points, 0 violations")


@pytest.mark.timeout(600)
async def test_a_process_may_be_killed_at_any_moment(
    zygote: Zygote, tmp_path: Path, record_property: RecordProperty
) -> None:
    """Killed by the clock and not by a point of ours, between two instructions that nobody has named."""
    chance = random.Random("moments")
    n_kills = 0
    for _ in range(RANDOM_MOMENTS):
        script = chance.choice([script for _, script in CASES.values()])
        async with Provider(list(script)) as provider:
            life = Life(zygote, provider, tmp_path / "run.db", 3)
            await life.to_its_end([chance.uniform(0.005, 0.2) for _ in range(chance.randint(1, 3))])
        assert not life.problems, life.problems
        n_kills += life.n_kills
        _clear(tmp_path)
    record_property(FIGURE, f"{RANDOM_MOMENTS} runs, {n_kills} kills at random moments, 0 violations")


@pytest.mark.timeout(300)
async def test_every_point_is_in_the_matrix_or_has_a_reason(zygote: Zygote, tmp_path: Path) -> None:
    """A point or a transaction that nobody dies at is listed with why, and what is listed is nowhere passed."""
    passed: set[str] = set()
    for index, name in enumerate(CASES):
        folder = tmp_path / str(index)
        folder.mkdir()
        passed |= {point.rpartition(".")[0] or point for point in await points_of(zygote, folder, name)}
    known = {str(point) for point in CrashPoint} | {str(transaction) for transaction in TRANSACTIONS}
    assert known - passed == set(NOT_ON_THESE_WAYS)
