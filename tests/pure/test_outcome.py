"""What an answer proves (effect-receipts section 8, product D3), for every status there is."""

from __future__ import annotations

from itertools import product

import pytest

from orch8_local.model.outcome import (
    EffectKind,
    Mode,
    Outcome,
    OutcomeClass,
    SetState,
    Settlement,
    classify_status,
    settle,
)

REFUSALS = {400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 416, 417} | {421, 422, 426, 428, 431} | {451}
ALL = range(100, 600)


def _wanted(status: int, *, has_key: bool, is_complete: bool, has_guard: bool) -> OutcomeClass:
    """The table of section 8, written a second time in another shape."""
    if status // 100 == 2:
        return OutcomeClass.CONFIRMED if is_complete else OutcomeClass.CONFIRMED_PARTIAL
    if status in REFUSALS:
        return OutcomeClass.REJECTED
    if status == 412:
        return OutcomeClass.CONFLICT if has_key else OutcomeClass.REJECTED
    if status in {409, 425}:
        return OutcomeClass.CONFLICT
    if status in {429, 503}:
        return OutcomeClass.AMBIGUOUS if has_guard else OutcomeClass.THROTTLED
    return OutcomeClass.AMBIGUOUS


@pytest.mark.parametrize("status", ALL)
def test_every_status_has_its_class(status: int) -> None:
    """Each status proves exactly what the table says, whatever the key, the body and the guard are."""
    for has_key, is_complete, has_guard in product((True, False), repeat=3):
        got, rule = classify_status(status, has_key=has_key, is_body_complete=is_complete, has_commit_guard=has_guard)
        assert got is _wanted(status, has_key=has_key, is_complete=is_complete, has_guard=has_guard)
        assert str(status) in rule


def test_the_defaults_are_a_key_a_whole_body_and_no_guard() -> None:
    """Without further facts a request carried a key and its body was read."""
    assert classify_status(412)[0] is OutcomeClass.CONFLICT
    assert classify_status(200)[0] is OutcomeClass.CONFIRMED
    assert classify_status(503)[0] is OutcomeClass.THROTTLED


@pytest.mark.parametrize("status", [429, 503])
def test_busy_is_a_refusal_unless_a_guard_watches(status: int) -> None:
    """429 and 503 mean nothing happened, but under a commit guard they prove nothing (product D3)."""
    assert classify_status(status)[0] is OutcomeClass.THROTTLED
    assert classify_status(status, has_commit_guard=True)[0] is OutcomeClass.AMBIGUOUS


@pytest.mark.parametrize("status", [s for s in ALL if s // 100 in (1, 3) or (s // 100 == 5 and s != 503)])
def test_what_says_nothing_is_ambiguous(status: int) -> None:
    """Interim answers, redirects and server errors do not say whether the request was carried out."""
    assert classify_status(status)[0] is OutcomeClass.AMBIGUOUS


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_confirmed_answer_is_never_lost_to_a_short_body(status: int) -> None:
    """A success whose body was cut short is still a success, with a flag, and never a resend."""
    got, _ = classify_status(status, is_body_complete=False)
    assert got is OutcomeClass.CONFIRMED_PARTIAL
    assert settle(Outcome(got), is_dispatched=True) is Settlement.COMMIT


def test_an_unlisted_refusal_stays_ambiguous() -> None:
    """A status that the table does not list is not taken as proof that nothing happened."""
    unlisted = [s for s in range(400, 500) if s not in REFUSALS | {409, 412, 425, 429}]
    assert {classify_status(s)[0] for s in unlisted} == {OutcomeClass.AMBIGUOUS}
    assert {407, 408, 423, 424, 499} <= set(unlisted)


SETTLED = {
    (OutcomeClass.CONFIRMED, True): Settlement.COMMIT,
    (OutcomeClass.CONFIRMED, False): Settlement.COMMIT,
    (OutcomeClass.CONFIRMED_PARTIAL, True): Settlement.COMMIT,
    (OutcomeClass.CONFIRMED_PARTIAL, False): Settlement.COMMIT,
    (OutcomeClass.NOT_SENT, True): Settlement.ABANDON,
    (OutcomeClass.NOT_SENT, False): Settlement.ABANDON,
    (OutcomeClass.REJECTED, True): Settlement.ABANDON,
    (OutcomeClass.REJECTED, False): Settlement.ABANDON,
    (OutcomeClass.THROTTLED, True): Settlement.ABANDON,
    (OutcomeClass.THROTTLED, False): Settlement.ABANDON,
    (OutcomeClass.CONFLICT, True): Settlement.UNKNOWN,
    (OutcomeClass.CONFLICT, False): Settlement.ABANDON,
    (OutcomeClass.AMBIGUOUS, True): Settlement.UNKNOWN,
    (OutcomeClass.AMBIGUOUS, False): Settlement.ABANDON,
}


@pytest.mark.parametrize(("outcome_class", "is_dispatched"), list(product(OutcomeClass, (True, False))))
def test_settlement(outcome_class: OutcomeClass, is_dispatched: bool) -> None:
    """Only a proof abandons a sent effect; an ambiguous or conflicting answer leaves it unknown."""
    wanted = SETTLED[outcome_class, is_dispatched]
    assert settle(Outcome(outcome_class), is_dispatched=is_dispatched) is wanted


@pytest.mark.parametrize("outcome_class", OutcomeClass)
def test_an_outcome_is_a_success_or_a_proof_or_neither(outcome_class: OutcomeClass) -> None:
    """No outcome is both a success and a proof that nothing happened."""
    outcome = Outcome(outcome_class)
    assert not (outcome.is_success and outcome.is_nothing_happened)
    is_open = outcome_class in (OutcomeClass.CONFLICT, OutcomeClass.AMBIGUOUS)
    assert (not outcome.is_success and not outcome.is_nothing_happened) is is_open


def test_the_short_forms() -> None:
    """A handler's short answers mean: done, refused (retry by choice), never sent, not known."""
    done = Outcome.ok({"a": 1}, changes=(SetState("k", 2),))
    assert (done.outcome_class, done.output, done.changes) == (
        OutcomeClass.CONFIRMED,
        {"a": 1},
        (SetState("k", 2),),
    )
    assert not Outcome.failed("no").retryable
    assert Outcome.failed("no", retryable=True).retryable
    assert Outcome.failed("no", details={"code": 1}).details == {"code": 1}
    assert Outcome.not_sent("refused").retryable
    assert Outcome.not_sent("refused").outcome_class is OutcomeClass.NOT_SENT
    assert not Outcome.ambiguous("reset").retryable
    assert Outcome.ambiguous("reset").outcome_class is OutcomeClass.AMBIGUOUS


def test_words_on_the_wire() -> None:
    """Kinds and modes are written as the specification spells them."""
    assert [str(kind) for kind in EffectKind] == [
        "http",
        "worker",
        "webhook",
        "message",
        "storage",
        "model",
        "human_decision",
        "custom",
    ]
    assert {str(mode) for mode in Mode} == {
        "at_most_once",
        "idempotent",
        "repeatable",
        "transactional",
        "none",
    }
