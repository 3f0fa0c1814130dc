"""The proofs prove something: each fault that is built in on purpose is noticed (reliability 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orch8_local.testing.provider import Provider, Reply
from tests.conftest import FIGURE, RecordProperty
from tests.crash.lives import Crash, Life
from tests.crash.zygote import Zygote
from tests.sabotage.mutants import MUTANTS

LOST, BUSY = Reply("apply_then_drop"), Reply("5xx_before_apply", status=503)
DROPPED = Reply("drop_before_apply")
LIVES: Sequence[tuple[Sequence[Reply], Sequence[Crash]]] = (
    ((), ()),
    ((LOST,), ()),
    ((DROPPED,), ()),
    ((BUSY,), ()),
    ((), [("c4_after_first_byte", 1)]),
    ((), [("c5_answer_read", 1)]),
    ((), [("t3_commit.after", 1)]),
    ((LOST,), [("c8_after_t3u", 1)]),
    ((LOST,), [("resolve.after", 1)]),
)
"""Lives that a sound product survives; a mutant must stumble in one of them."""


async def problems_of(folder: Path, mutant: str | None) -> list[str]:
    """What the first life that goes wrong complains of; empty if all went well."""
    async with Zygote() as zygote:
        for n, (script, crashes) in enumerate(LIVES):
            async with Provider(list(script)) as provider:
                life = Life(zygote, provider, folder / f"{n}.db", 1, mutant=mutant)
                await life.to_its_end(crashes)
            if life.problems:
                return life.problems
    return []


async def test_the_lives_are_survived_without_sabotage(tmp_path: Path) -> None:
    """The same lives find nothing wrong with the product as it is."""
    assert not await problems_of(tmp_path, None)


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_fault_that_is_built_in_is_noticed(
    tmp_path: Path, mutant: str, record_property: RecordProperty
) -> None:
    """No mutant gets through all lives."""
    problems = await problems_of(tmp_path, mutant)
    assert problems, f"{mutant} was not noticed"
    record_property(FIGURE, f"{mutant}: {problems[0]}")
