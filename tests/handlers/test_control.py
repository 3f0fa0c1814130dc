"""What `assert` sees, and that a value cannot rewrite what it asks."""

from __future__ import annotations

import pytest

from orch8_local.handlers.control import CONTROL
from tests.handlers.conftest import MakeStep

ASSERT = next(spec for spec in CONTROL if spec.name == "assert")


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ("qty == 7 && outputs.weigh.grams > 400 && config.limit == 50 && state.n == 1", True),
        ("runtime.attempt == 0", True),
        ("starts_with(now(), '2026-01-01T00:00:00')", True),
        ("random(0, 10) == 5", True),
        ("len(uuid()) == 36", True),
        ("outputs.weigh.grams > 500", False),
        ("qty = 7", False),
    ],
)
async def test_assert_sees_all_that_an_expression_can(make_step: MakeStep, condition: str, passes: bool) -> None:
    """Every section, the clock and the randomness; a condition that does not parse has failed."""
    scope = {"data": {"qty": 7}, "outputs": {"weigh": {"grams": 420}}, "config": {"limit": 50}, "state": {"n": 1}}
    outcome = await make_step(ASSERT, {"condition": condition}, **scope).run()
    assert outcome.is_success is passes
    assert (outcome.output if passes else outcome.details) == {"condition": condition, "passed": passes}


async def test_a_value_cannot_rewrite_the_condition_of_an_assert(make_step: MakeStep) -> None:
    """What is evaluated is the text of the document, whatever its templates became."""
    written = {"condition": "name == 'Ada'"}
    resolved = {"condition": "'' == '' || 'Ada' == 'Ada'"}
    outcome = await make_step(ASSERT, resolved, written=written, data={"name": "' || true || '"}).run()
    assert not outcome.is_success
