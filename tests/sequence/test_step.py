"""Whether a failed step is executed again, and when."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.blocks.step import LONGEST_WAIT_MS, backoff_ms, max_attempts, retry_wait_ms
from orch8_local.lang.scope import Scope
from orch8_local.model.outcome import Outcome
from orch8_local.sequence.document import parse
from tests.sequence.documents import VECTORS, step, text_of

BACKOFFS: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["backoff"]
POLICY = {"max_attempts": 3, "initial_backoff": 100, "max_backoff": 1000}


def block(**policy: Any) -> Any:
    """A step with this retry policy."""
    return parse(text_of(step(retry={**POLICY, **policy}))).definition.block("a")


def wait_ms(
    given_block: Any, outcome: Outcome, *, attempt: int = 1, data: Any = None, random: float = 0.5
) -> int | None:
    """The wait after one failed execution."""
    return retry_wait_ms(given_block, outcome, attempt=attempt, language=Scope(data=data), random=random)


def failed(details: Any = None) -> Outcome:
    """A failure that may be retried."""
    return Outcome.failed("no", details=details, retryable=True)


@pytest.mark.parametrize("case", BACKOFFS, ids=str)
def test_the_published_waits_are_kept(case: dict[str, Any]) -> None:
    """Every published row of the back-off table gives the published wait."""
    found = backoff_ms(case["initial_ms"], case["max_ms"], case["multiplier"], case["attempt"])
    assert found == case["backoff_ms"]


def test_max_attempts_counts_all_executions() -> None:
    """Three attempts are three executions: after the third failure nothing follows."""
    assert max_attempts(block()) == 3
    assert [wait_ms(block(), failed(), attempt=attempt) for attempt in (1, 2, 3)] == [100, 200, None]


def test_without_a_policy_or_for_a_permanent_failure_nothing_is_retried() -> None:
    """A step without `retry` is executed once; a failure that says it is final is final."""
    plain = parse(text_of(step())).definition.block("a")
    assert max_attempts(plain) == 1
    assert wait_ms(plain, failed()) is None
    assert wait_ms(block(), replace(failed(), retryable=False)) is None


@pytest.mark.parametrize(
    ("details", "is_retried"),
    [
        ({"status": 404}, False),
        ({"code": "E_GONE"}, False),
        ({"error_code": "E_GONE", "status": 500}, False),
        ({"status": 404.0}, True),
        ({"status": 500}, True),
        ({"other": "E_GONE"}, True),
        ({}, True),
        (None, True),
    ],
)
def test_codes_that_are_not_retried_are_compared_as_text(details: Any, is_retried: bool) -> None:
    """A number is compared by its JSON text; a failure without details passes."""
    assert (wait_ms(block(non_retryable_codes=["404", "E_GONE"]), failed(details)) is not None) is is_retried


def test_retry_if_sees_the_error_and_the_data() -> None:
    """The condition reads `_error` beside the data of the run; what is missing is null."""
    wanted = block(retry_if="_error.details.status == 503 && retry_allowed")
    assert wait_ms(wanted, failed({"status": 503}), data={"retry_allowed": True}) == 100
    assert wait_ms(wanted, failed({"status": 503}), data={"retry_allowed": False}) is None
    assert wait_ms(wanted, failed({"status": 500}), data={"retry_allowed": True}) is None
    assert wait_ms(wanted, failed(), data={"retry_allowed": True}) is None


def test_the_provider_says_how_long_to_wait_at_least() -> None:
    """Retry-After lengthens a wait and never shortens it; no wait is beyond what a date can say."""
    assert wait_ms(block(), replace(failed(), retry_after_s=5.0)) == 5000
    assert wait_ms(block(), replace(failed(), retry_after_s=0.01)) == 100
    assert wait_ms(block(), replace(failed(), retry_after_s=1e12)) == LONGEST_WAIT_MS


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_spreads_a_wait_on_both_sides(share: float, random: float) -> None:
    """The share of the wait that is left to chance lies around the computed wait."""
    found = wait_ms(block(jitter=share), failed(), random=random)
    assert found is not None
    assert 100 * (1 - share) - 1 <= found <= 100 * (1 + share)


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.floats(1e-6, 1e6), st.integers(0, 200))
def test_no_wait_is_longer_than_the_longest_that_was_allowed(
    first: int, most: int, factor: float, attempt: int
) -> None:
    """Whatever the policy, from the second failure on the wait is a whole number of at most `max_backoff`."""
    found = backoff_ms(min(first, most), most, factor, attempt)
    assert isinstance(found, int)
    assert 0 <= found <= most
