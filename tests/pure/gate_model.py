"""A small world around the real gate: one intent, a provider, crashes, an operator; searched whole.

The decisions are those of the program (`gate`, `settle`, the transition table); only the acting is
modelled here. The easy mistake: letting the model know more than the program; the provider's truth
is used by the provider, the truthful operator and the checks, and by nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from orch8_local.model import receipt as receipts_model
from orch8_local.model.outcome import EffectKind, Mode, Outcome, OutcomeClass, Settlement
from orch8_local.model.outcome import settle as real_settle
from orch8_local.model.receipt import Blocked, Join, NewAttempt, Replay, Reuse, Undone
from orch8_local.model.records import Receipt
from orch8_local.model.states import RECEIPT, RESOLVED, UNRESOLVED, move
from orch8_local.model.states import ReceiptState as R

MAX_ATTEMPTS = 3
MAX_CRASHES = 2
REQUESTS = ("same", "other")

# What the provider knows of one request.
UNSENT, PENDING, APPLIED, LOST = "unsent", "pending", "applied", "lost"


@cache
def receipt(attempt: int, state: R, sha: str = "same", boot_id: str | None = "boot-0") -> Receipt:
    """One real receipt record with the given facts."""
    return Receipt(
        seq=attempt + 1,
        id=f"effect-{attempt}",
        intent_id="intent",
        tenant_id="local",
        continuity_id="continuity",
        epoch=0,
        instance_id="instance",
        block_id="charge",
        scope="",
        rerun=0,
        attempt=attempt,
        kind=EffectKind.WORKER,
        mode=Mode.AT_MOST_ONCE,
        handler="charge",
        state=state,
        destination_fingerprint="",
        request_sha256=sha,
        idempotency_key=None,
        sent_key=None,
        provider_receipt_id=None,
        method=None,
        destination=None,
        boot_id=boot_id,
        has_request_started=False,
        output=None,
        has_output=False,
        outcome_class=None,
        reason=None,
        version=0,
        created_at_us=0,
        updated_at_us=0,
        dispatched_at_us=None,
    )


class Row(NamedTuple):
    """One receipt with what the provider knows of its request. Its attempt is its position."""

    state: R
    sha: str
    boot: int | None
    truth: str


class State(NamedTuple):
    """The whole world. run: ready, holding, waiting, blocked, completed, failed.

    held: the receipt the step works on. live: dispatches this process still listens to.
    """

    rows: tuple[Row, ...] = ()
    run: str = "ready"
    held: int = -1
    live: frozenset[int] = frozenset()
    n_crashes: int = 0
    has_output: bool = False

    def with_row(self, n: int, **changes: Any) -> State:
        """This state with one receipt changed."""
        return self._replace(rows=(*self.rows[:n], self.rows[n]._replace(**changes), *self.rows[n + 1 :]))

    def is_end(self) -> bool:
        """True if the run has ended and nothing is open."""
        return self.run in ("completed", "failed") and all(row.state not in UNRESOLVED for row in self.rows)


class Explorer:
    """Breadth-first search over everything that can happen to one intent."""

    def __init__(
        self,
        mode: Mode,
        *,
        gate: Callable[..., Any] = receipts_model.gate,
        settle: Callable[..., Settlement] = real_settle,
        has_operator: bool = True,
    ) -> None:
        self.mode = mode
        self.gate = gate
        self.settle = settle
        self.has_operator = has_operator
        self.states: dict[State, list[State]] = {}
        self.n_moves = 0
        self.violations: list[str] = []
        self.receipt_moves: set[tuple[str, str]] = set()
        self.answers: set[type] = set()

    def explore(self) -> None:
        """Visit every reachable state and check each; stops early after 20 violations."""
        queue = deque([State()])
        self.states[State()] = []
        while queue and len(self.violations) < 20:
            state = queue.popleft()
            self._check(state)
            for after in self._moves(state):
                self.n_moves += 1
                if after not in self.states:
                    self.states[after] = []
                    queue.append(after)
                self.states[after].append(state)

    def stuck(self) -> list[State]:
        """The states from which no end can be reached."""
        good = {state for state in self.states if state.is_end()}
        queue = deque(good)
        while queue:
            for before in self.states[queue.popleft()]:
                if before not in good:
                    good.add(before)
                    queue.append(before)
        return [state for state in self.states if state not in good]

    def expected_moves(self) -> set[tuple[str, str]]:
        """The legal moves that the search must have made: all but that of a receipt found planned,
        since planning and preparing are one transaction and nobody ever sees it between."""
        return RECEIPT.pairs() - {(str(R.PLANNED), str(R.ABANDONED))}

    def _check(self, state: State) -> None:
        n_applied = sum(row.truth == APPLIED for row in state.rows)
        n_sent = sum(row.truth != UNSENT for row in state.rows)
        n_abandoned = sum(row.state is R.ABANDONED for row in state.rows)
        if self.mode is not Mode.REPEATABLE:
            if n_applied > 1:
                self.violations.append(f"applied twice: {state}")
            if n_sent > 1 + n_abandoned:
                self.violations.append(f"sent more often than abandoned allows: {state}")
        if state.run == "completed":
            if not state.has_output:
                self.violations.append(f"done without output: {state}")
            if not n_applied:
                self.violations.append(f"done though not applied: {state}")
        for row in state.rows:
            if row.truth != UNSENT and row.state in (R.PLANNED, R.PREPARED):
                self.violations.append(f"sent while {row.state}: {state}")

    # --- what can happen ---------------------------------------------------------------------

    def _moves(self, state: State) -> Iterator[State]:
        yield from self._run(state)
        yield from self._provider(state)
        if self.has_operator:
            yield from self._operator(state)
        if state.n_crashes < MAX_CRASHES:
            yield self._crash(state)

    def _run(self, state: State) -> Iterator[State]:
        if state.run == "ready":
            for sha in REQUESTS:
                yield self._t0(state, sha)
        elif state.run == "holding":
            yield from self._t1(state)
            if state.rows[state.held].state is R.PREPARED:
                for outcome_class in OutcomeClass:
                    yield from self._settled(state, state.held, outcome_class)
        for n in state.live:
            for outcome_class in _possible_answers(state.rows[n].truth):
                yield from self._settled(state, n, outcome_class)
            if state.run == "waiting" and state.held == n and state.rows[n].state is R.DISPATCHED:
                yield state._replace(run="ready", held=-1)  # the waiter is detached, the dispatch goes on
                late = self._to(state, n, R.UNKNOWN)  # a step time-out: unknown, but still listening
                yield late._replace(run="blocked", held=-1)

    def _t0(self, state: State, sha: str) -> State:
        """The gate and what it says, as one transaction."""
        rows = [
            receipt(n, row.state, row.sha, None if row.boot is None else f"boot-{row.boot}")
            for n, row in enumerate(state.rows)
        ]
        answer = self.gate(
            rows,
            mode=self.mode,
            request_sha256=sha,
            boot_id=f"boot-{state.n_crashes}",
            live_effect_ids={f"effect-{n}" for n in state.live},
        )
        self.answers.add(type(answer))
        if isinstance(answer, Replay):
            return state._replace(run="completed", has_output=True, held=-1)
        if isinstance(answer, Join):
            return state._replace(run="waiting", held=answer.receipt.attempt)
        if isinstance(answer, Blocked):
            for lost in answer.lost:
                state = self._to(state, lost.attempt, R.UNKNOWN)
            return state._replace(run="blocked", held=-1)
        if isinstance(answer, Undone):
            return state._replace(run="failed", held=-1)
        if isinstance(answer, Reuse):
            return state._replace(run="holding", held=answer.receipt.attempt)
        return self._new_attempt(state, answer, sha)

    def _new_attempt(self, state: State, answer: NewAttempt, sha: str) -> State:
        for old in answer.superseded:
            state = self._to(state, old.attempt, R.ABANDONED)
        for old in answer.repeatable:
            if state.rows[old.attempt].state is R.DISPATCHED:
                state = self._to(state, old.attempt, R.UNKNOWN)
            state = self._to(state, old.attempt, R.ABANDONED)
        if len(state.rows) >= MAX_ATTEMPTS:
            return state._replace(run="failed", held=-1)
        state = state._replace(rows=(*state.rows, Row(R.PLANNED, sha, None, UNSENT)))
        state = self._to(state, len(state.rows) - 1, R.PREPARED)
        return state._replace(run="holding", held=len(state.rows) - 1)

    def _t1(self, state: State) -> Iterator[State]:
        """The dispatch: a lost swap sends nothing; else the bytes may leave, or a crash come first."""
        n = state.held
        if state.rows[n].state is not R.PREPARED:
            yield state._replace(run="ready", held=-1)
            return
        sent = self._to(state, n, R.DISPATCHED).with_row(n, boot=state.n_crashes)
        sent = sent._replace(run="waiting", live=state.live | {n})
        yield sent
        yield sent.with_row(n, truth=PENDING)

    def _settled(self, state: State, n: int, outcome_class: OutcomeClass) -> Iterator[State]:
        """An answer reaches the ledger: T3c, T3a or T3u, or late evidence for an unknown one."""
        row = state.rows[n]
        outcome = Outcome(outcome_class)
        found = self.settle(outcome, is_dispatched=row.state is not R.PREPARED)
        is_mine = state.held == n
        after = state._replace(live=state.live - {n}, held=-1 if is_mine else state.held)
        if row.state in RESOLVED:
            yield after  # somebody was faster; kept as an event, changes nothing
        elif found is Settlement.COMMIT:
            if row.state is R.PREPARED:
                after = self._to(after, n, R.DISPATCHED).with_row(n, boot=state.n_crashes, truth=APPLIED)
            after = self._to(after, n, R.COMMITTED)._replace(has_output=True)
            yield after._replace(run="completed" if is_mine else _woken(after.run))
        elif found is Settlement.ABANDON:
            if row.state is R.DISPATCHED:
                after = self._to(after, n, R.UNKNOWN)
            after = self._to(after, n, R.ABANDONED)
            if is_mine:
                yield after._replace(run="ready")
                yield after._replace(run="failed")
            else:
                yield after._replace(run=_woken(after.run))
        else:
            if row.state is R.DISPATCHED:
                after = self._to(after, n, R.UNKNOWN)
            if is_mine:
                yield after._replace(run="blocked")
                if self.mode is Mode.REPEATABLE:
                    yield after._replace(run="ready")
            else:
                yield after

    def _provider(self, state: State) -> Iterator[State]:
        """Whether a request is applied is decided by the provider, perhaps long afterwards."""
        for n, row in enumerate(state.rows):
            if row.truth == PENDING:
                yield state.with_row(n, truth=APPLIED)
                yield state.with_row(n, truth=LOST)

    def _operator(self, state: State) -> Iterator[State]:
        """A truthful person: looks at the provider once it has settled, and only then decides."""
        for n, row in enumerate(state.rows):
            if row.state in (R.PLANNED, R.PREPARED):
                yield self._to(state, n, R.ABANDONED)
            elif row.state is R.UNKNOWN:
                targets = {APPLIED: (R.COMMITTED, R.VERIFIED, R.COMPENSATED), LOST: (R.ABANDONED,)}
                targets[UNSENT] = targets[LOST]
                for target in targets.get(row.truth, ()):
                    after = self._to(state, n, target)
                    has_output = target in (R.COMMITTED, R.VERIFIED) or state.has_output
                    yield after._replace(run=_woken(state.run), has_output=has_output)
            elif row.state in (R.COMMITTED, R.VERIFIED):
                yield self._to(state, n, R.COMPENSATED)
        if state.run == "failed" and not any(row.state in UNRESOLVED for row in state.rows):
            yield state._replace(run="ready")

    def _crash(self, state: State) -> State:
        """The process dies; the next one sweeps before it does anything else."""
        after = state._replace(n_crashes=state.n_crashes + 1, live=frozenset(), held=-1)
        lost = [n for n, row in enumerate(state.rows) if row.state is R.DISPATCHED]
        for n in lost:
            after = self._to(after, n, R.UNKNOWN)
        if state.run in ("completed", "failed", "blocked"):
            return after
        return after._replace(run="blocked" if lost else "ready")

    def _to(self, state: State, n: int, new: R) -> State:
        old = state.rows[n].state
        move(RECEIPT, old, new)
        self.receipt_moves.add((str(old), str(new)))
        return state.with_row(n, state=new)


def _possible_answers(truth: str) -> tuple[OutcomeClass, ...]:
    """What the caller may hear, given what the provider did. A refusal is never a lie."""
    unclear = (OutcomeClass.AMBIGUOUS, OutcomeClass.CONFLICT)
    if truth == APPLIED:
        return (OutcomeClass.CONFIRMED, OutcomeClass.CONFIRMED_PARTIAL, *unclear)
    if truth == LOST:
        return (OutcomeClass.REJECTED, OutcomeClass.THROTTLED, *unclear)
    if truth == UNSENT:
        return (OutcomeClass.NOT_SENT, OutcomeClass.AMBIGUOUS)
    return unclear


def _woken(run: str) -> str:
    """A blocked run goes on when what blocked it is settled; any other stays as it is."""
    return "ready" if run == "blocked" else run
