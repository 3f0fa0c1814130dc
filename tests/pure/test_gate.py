"""The intent gate (effect-receipts 7.1): every row of its table, then every reachable situation."""

from __future__ import annotations

from itertools import product

import pytest

from orch8_local.model.outcome import EffectKind, Mode, Settlement, settle
from orch8_local.model.receipt import Blocked, Join, NewAttempt, Replay, Reuse, Undone, gate
from orch8_local.model.records import Receipt
from orch8_local.model.states import RESOLVED, UNRESOLVED
from orch8_local.model.states import ReceiptState as R
from tests.pure.gate_model import Explorer, receipt

GUARDED = (Mode.AT_MOST_ONCE, Mode.IDEMPOTENT)
MODES = (*GUARDED, Mode.REPEATABLE)


def _ask(*receipts: Receipt, mode: Mode = Mode.AT_MOST_ONCE, live: tuple[str, ...] = ()) -> object:
    return gate(receipts, mode=mode, request_sha256="same", boot_id="boot-0", live_effect_ids=live)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("state", [R.COMMITTED, R.VERIFIED])
def test_what_happened_is_replayed(state: R, mode: Mode) -> None:
    """A confirmed effect is never sent again: its stored output is used, whatever else is there."""
    done = receipt(1, state)
    for other in R:
        assert _ask(receipt(0, other), done, mode=mode) == Replay(done) or other in (R.COMMITTED, R.VERIFIED)
    assert _ask(done, mode=mode) == Replay(done)


@pytest.mark.parametrize("mode", MODES)
def test_a_dispatch_of_this_process_is_joined(mode: Mode) -> None:
    """An action that this process is sending right now is waited for, not repeated."""
    sent = receipt(0, R.DISPATCHED)
    assert _ask(sent, mode=mode, live=(sent.id,)) == Join(sent)


@pytest.mark.parametrize("mode", GUARDED)
@pytest.mark.parametrize("live", [(), ("effect-0",)], ids=["not registered", "of another process"])
def test_a_dispatch_without_owner_blocks(mode: Mode, live: tuple[str, ...]) -> None:
    """A dispatch whose process is gone has an unknown outcome, and nothing more is sent."""
    sent = receipt(0, R.DISPATCHED, boot_id="boot-0" if not live else "boot-9")
    assert _ask(sent, mode=mode, live=live) == Blocked((sent,), lost=(sent,))


def test_a_lost_repeatable_dispatch_is_closed_and_repeated() -> None:
    """Where repeating was declared harmless, a lost dispatch is closed and a new attempt made."""
    sent = receipt(0, R.DISPATCHED, boot_id="boot-9")
    assert _ask(sent, mode=Mode.REPEATABLE) == NewAttempt(1, repeatable=(sent,))


def test_an_unknown_repeatable_effect_is_closed_and_repeated() -> None:
    """Where repeating was declared harmless, an unknown outcome does not stop the run."""
    lost = receipt(2, R.UNKNOWN)
    assert _ask(lost, mode=Mode.REPEATABLE) == NewAttempt(3, repeatable=(lost,))


@pytest.mark.parametrize("mode", GUARDED)
@pytest.mark.parametrize("other", [state for state in R if state not in (R.COMMITTED, R.VERIFIED)])
def test_an_unknown_outcome_of_any_attempt_blocks(mode: Mode, other: R) -> None:
    """One unknown attempt stops the whole action, also if a later attempt looks harmless."""
    lost = receipt(0, R.UNKNOWN)
    answer = _ask(lost, receipt(1, other), mode=mode)
    assert isinstance(answer, Blocked)
    assert lost in answer.receipts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("other", [R.COMPENSATED, R.ABANDONED, R.PREPARED, R.PLANNED])
def test_an_undone_effect_is_not_done_again(mode: Mode, other: R) -> None:
    """After a compensation, doing it again is a new action and never an automatic retry."""
    undone = receipt(0, R.COMPENSATED)
    answer = _ask(undone, receipt(1, other), mode=mode)
    assert isinstance(answer, Undone)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_there_is_the_first_attempt(mode: Mode) -> None:
    """An action that was never begun may be tried."""
    assert _ask(mode=mode) == NewAttempt(0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_abandoned", [1, 2, 5])
def test_abandoned_attempts_allow_the_next(mode: Mode, n_abandoned: int) -> None:
    """What is proved not to have happened may be tried again, under the next attempt number."""
    answer = _ask(*(receipt(n, R.ABANDONED) for n in range(n_abandoned)), mode=mode)
    assert answer == NewAttempt(n_abandoned)


@pytest.mark.parametrize("mode", MODES)
def test_a_prepared_receipt_of_the_same_request_is_used(mode: Mode) -> None:
    """After a crash before the dispatch the same attempt goes on: nothing was sent."""
    ready = receipt(1, R.PREPARED)
    assert _ask(receipt(0, R.ABANDONED), ready, mode=mode) == Reuse(ready)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("old", [receipt(0, R.PREPARED, sha="other"), receipt(0, R.PLANNED)], ids=lambda r: r.state)
def test_a_prepared_receipt_of_another_request_is_superseded(mode: Mode, old: Receipt) -> None:
    """If the request has changed before it was sent, the old receipt is abandoned; never an error."""
    assert _ask(old, mode=mode) == NewAttempt(1, superseded=(old,))


def test_attempts_are_never_numbered_twice() -> None:
    """A new attempt is one above the highest there is, also when numbers are missing."""
    assert _ask(receipt(4, R.ABANDONED), receipt(7, R.ABANDONED)) == NewAttempt(8)


@pytest.mark.parametrize("mode", GUARDED)
def test_every_pair_of_receipts_is_safe(mode: Mode) -> None:
    """In no combination of states does the gate permit a send while an outcome is open."""
    for first, second in product(R, repeat=2):
        answer = _ask(receipt(0, first, boot_id="boot-9"), receipt(1, second, boot_id="boot-9"), mode=mode)
        if {first, second} & UNRESOLVED:
            assert isinstance(answer, (Blocked, Replay))
        if isinstance(answer, NewAttempt):
            assert {first, second} <= {R.ABANDONED, R.PREPARED, R.PLANNED}
            assert {r.attempt for r in answer.superseded} == {
                n for n, state in enumerate((first, second)) if state not in RESOLVED
            }


# --- every reachable situation -----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_every_reachable_situation(mode: Mode) -> None:
    """Over 3 attempts, 2 crashes and any operator: never applied twice, never done without output,
    never done though not applied, and the end can be reached from everywhere."""
    explorer = Explorer(mode)
    explorer.explore()
    print(f"\ngate model, {mode}: {len(explorer.states)} states, {explorer.n_moves} moves")
    assert explorer.violations == []
    assert explorer.stuck() == []
    assert len(explorer.states) > 1000
    assert explorer.receipt_moves >= explorer.expected_moves()
    assert explorer.answers == {Replay, Join, Blocked, Undone, Reuse, NewAttempt} - (
        {Blocked} if mode is Mode.REPEATABLE else set()
    )


def test_the_model_finds_a_gate_that_retries_the_unknown() -> None:
    """The search is able to fail: a gate that takes unknown for not sent is caught applying twice."""

    def careless(receipts: list[Receipt], **facts: object) -> object:
        return gate([r for r in receipts if r.state is not R.UNKNOWN], **facts)  # type: ignore[arg-type]

    explorer = Explorer(Mode.AT_MOST_ONCE, gate=careless)
    explorer.explore()
    assert any("applied twice" in text for text in explorer.violations)


def test_the_model_finds_an_ambiguous_answer_taken_as_proof() -> None:
    """The search is able to fail: recording an ambiguous answer as nothing happened is caught."""

    def careless(outcome: object, *, is_dispatched: bool) -> Settlement:
        found = settle(outcome, is_dispatched=is_dispatched)  # type: ignore[arg-type]
        return Settlement.ABANDON if found is Settlement.UNKNOWN else found

    explorer = Explorer(Mode.AT_MOST_ONCE, settle=careless)
    explorer.explore()
    assert any("applied twice" in text for text in explorer.violations)


def test_the_model_finds_a_missing_end() -> None:
    """The search is able to fail: without an operator a blocked run can never end, and that is found."""
    explorer = Explorer(Mode.AT_MOST_ONCE, has_operator=False)
    explorer.explore()
    assert explorer.stuck()


def test_model_receipts_are_real_receipts() -> None:
    """The searched situations are made of the very records the program uses."""
    made = receipt(2, R.UNKNOWN, sha="x", boot_id="b")
    assert (made.attempt, made.state, made.request_sha256, made.boot_id) == (2, R.UNKNOWN, "x", "b")
    assert made.kind is EffectKind.WORKER
