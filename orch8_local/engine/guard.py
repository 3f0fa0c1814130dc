"""The guard: nothing is sent before its receipt is on disk, and no answer is lost or misread.

Owns the transactions T0 (prepare), T1 (dispatch) and T3c, T3u, T3a (commit, unknown, abandon), the
registry of live dispatches, and what becomes of a request that nobody waits for any more
(effect-receipts 7). A dispatch runs in a task of its own: a step that times out or a run that is
cancelled stops waiting, but the request is listened to, because its answer is evidence.

The easy mistake: to decide from memory. Every move is conditional on the state that the database
has, and a dispatch that might have been recorded is treated as if it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from orch8_local.engine.api import StepProgress
from orch8_local.engine.shared import Shared
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import EffectError, StaleVersion
from orch8_local.handlers.base import Context, HandlerSpec
from orch8_local.model import ids
from orch8_local.model.outcome import EffectKind, Mode, Outcome, Settlement, settle
from orch8_local.model.receipt import Blocked, Gate, Join, NewAttempt, Replay, Reuse, Undone, gate
from orch8_local.model.records import Evidence, Instance, Node, Receipt
from orch8_local.model.states import ReceiptState as R
from orch8_local.store import instances, receipts
from orch8_local.store.receipts import NewReceipt
from orch8_local.store.writer import Tx
from orch8_local.world import CrashPoint

Json = Any


class Phase(StrEnum):
    """How far a dispatch has come, as this process knows it."""

    PREPARED = "prepared"
    MARKING = "marking"
    DISPATCHED = "dispatched"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class EffectCall:
    """One step that is about to act on the outside."""

    instance: Instance
    node: Node
    spec: HandlerSpec
    params: Json
    raw_params: Json
    request_sha256: str
    mode: Mode
    intent_id: str
    idempotency_key: str | None
    sent_key: str | None
    method: str | None
    destination: str | None
    timeout_s: float | None
    context: Context
    invoke: Callable[[Context], Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """The call ended, or is not waited for any longer; `settlement` says what the ledger does."""

    outcome: Outcome
    settlement: Settlement
    dispatch: Dispatch


@dataclass(frozen=True, slots=True)
class Halted:
    """Nothing was sent: an earlier receipt of this action is not resolved."""

    effect_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing was sent, and the engine is stopping: the prepared receipt waits for the next start."""


Guarded = Answered | Replay | Halted | Undone | Released

_STOP = Outcome.ambiguous("the engine stopped before the answer came", rule="shutdown after the request began")
_EXPIRED = Outcome.not_sent("timed out before anything was sent", rule="the step's time was over before the first byte")


class NeverDispatched(StaleVersion):
    """The dispatch was not recorded after all, so nothing was sent."""

    code = "never_dispatched"


class Dispatch:
    """One receipt in flight in this process.

    verdict: what the step is told: an outcome, or None when the engine stops. settled: done when the
    step's end, and with it the receipt's, is on disk.
    """

    __slots__ = ("_shared", "call", "error", "is_expired", "phase", "receipt", "settled", "task", "verdict")

    def __init__(self, shared: Shared, call: EffectCall, receipt: NewReceipt | Receipt) -> None:
        self._shared = shared
        self.call = call
        self.receipt = receipt
        self.phase = Phase.PREPARED
        self.error: BaseException | None = None
        self.is_expired = False
        self.task: asyncio.Task[Outcome] | None = None
        loop = asyncio.get_running_loop()
        self.verdict: asyncio.Future[Outcome | None] = loop.create_future()
        self.settled: asyncio.Future[None] = loop.create_future()

    async def mark(self) -> None:
        """T1: returns when `dispatched` is on disk; raises if nothing may be sent."""
        if self.phase is Phase.DISPATCHED:
            return
        if self.phase is not Phase.PREPARED:
            raise EffectError(f"effect {self.receipt.id} is closed; nothing may be sent")
        self.phase = Phase.MARKING
        try:
            await self._shared.transact(
                partial(t1_dispatch, self.receipt, self._shared.boot_id, self._shared.now_us),
                Transaction.T1_DISPATCH,
            )
        except BaseException as error:
            self.error = error
            if isinstance(error, StaleVersion):
                self.phase = Phase.CLOSED
            raise
        self.phase = Phase.DISPATCHED
        self._tell()
        if self.is_expired:
            raise EffectError(f"effect {self.receipt.id} timed out before its first byte; send nothing")

    def _tell(self) -> None:
        """Whoever watches sees that the request goes out."""
        node, spec = self.call.node, self.call.spec
        self._shared.progress(
            StepProgress(
                self.receipt.instance_id,
                node.scope,
                node.block_id,
                "dispatched",
                node.attempt,
                spec.name,
                str(self.call.mode),
                extra={"effect_id": self.receipt.id},
            )
        )

    async def run(self) -> Outcome:
        """Call the handler; whatever it does ends as an outcome, except an error of the store."""
        outcome = _EXPIRED
        try:
            if not self.call.spec.marks_dispatch:
                await self.mark()
            if not self.is_expired:
                outcome = await self.call.invoke(self.call.context)
        except EffectError:
            if not self.is_expired:
                raise
        if self.error is not None:
            raise self.error
        if self.is_expired and not outcome.is_success:
            return _EXPIRED
        self._shared.world.crash.reach(CrashPoint.ANSWER_READ)
        return outcome

    def may_be_sent(self) -> bool:
        """True unless it is certain that nothing was sent."""
        return self.phase in (Phase.MARKING, Phase.DISPATCHED)


class Guard:
    """Performs effects, one intent at a time."""

    def __init__(self, shared: Shared, *, on_late_answer: Callable[[Dispatch, Outcome], Any]) -> None:
        self._shared = shared
        self._on_late_answer = on_late_answer
        self._listening: set[str] = set()
        self._is_stopping = False

    def settled(self, dispatch: Dispatch) -> None:
        """The end of the step is on disk (or nothing was sent): the dispatch is no longer live."""
        if not dispatch.settled.done():
            dispatch.settled.set_result(None)
        if dispatch.receipt.instance_id not in self._listening:
            self._shared.live.pop(dispatch.receipt.id, None)

    def is_listening(self, instance_id: str) -> bool:
        """True while an answer for this run may still come in."""
        return instance_id in self._listening

    async def perform(self, call: EffectCall) -> Guarded:
        """Send at most once per intent; the caller writes the settlement with the end of its step."""
        shared = self._shared
        shared.world.crash.reach(CrashPoint.BEFORE_PREPARE)
        while True:
            decision = await shared.transact(partial(t0_prepare, call, shared), Transaction.T0_PREPARE)
            if not isinstance(decision, Join):
                break
            await asyncio.shield(shared.live[decision.receipt.id].settled)
        shared.world.crash.reach(CrashPoint.AFTER_PREPARE)
        if isinstance(decision, Blocked):
            return Halted(tuple(receipt.id for receipt in decision.receipts))
        if isinstance(decision, (Replay, Undone)):
            return decision
        assert isinstance(decision, (NewReceipt, Reuse))
        if self._is_stopping:  # the stop came while T0 was written: nothing has been sent, nothing will be
            return Released()
        receipt = decision.receipt if isinstance(decision, Reuse) else decision
        return await self._dispatch(call, receipt)

    async def _dispatch(self, call: EffectCall, receipt: NewReceipt | Receipt) -> Guarded:
        shared = self._shared
        dispatch = Dispatch(shared, call, receipt)
        call.context.dispatching = dispatch.mark
        call.context.attempt = receipt.attempt
        shared.live[receipt.id] = dispatch
        task = shared.world.nursery.start(dispatch.run(), name=f"dispatch {receipt.block_id}")
        dispatch.task = task
        task.add_done_callback(partial(_deliver, dispatch))
        timer = None
        if call.timeout_s is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(call.timeout_s, _give_up, dispatch)
        try:
            outcome = await dispatch.verdict
        except BaseException:
            shared.live.pop(receipt.id, None)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return await self._concluded(dispatch, outcome)

    async def _concluded(self, dispatch: Dispatch, outcome: Outcome | None) -> Guarded:
        task = dispatch.task
        assert task is not None
        if outcome is not None and task.done():
            return Answered(outcome, settle(outcome, is_dispatched=dispatch.may_be_sent()), dispatch)
        if dispatch.phase is Phase.MARKING:
            return await self._cut_short(dispatch, is_stop=outcome is None)
        if not dispatch.may_be_sent():
            dispatch.phase = Phase.CLOSED
            await _cancelled(task)
            if outcome is None:
                self.settled(dispatch)
                return Released()
            return Answered(_EXPIRED, Settlement.ABANDON, dispatch)
        if outcome is None:
            return Answered(_STOP, Settlement.UNKNOWN, dispatch)
        self._shared.world.nursery.start(self._listen(dispatch), name=f"listen {dispatch.receipt.block_id}")
        self._listening.add(dispatch.receipt.instance_id)
        return Answered(outcome, settle(outcome, is_dispatched=True), dispatch)

    async def _cut_short(self, dispatch: Dispatch, *, is_stop: bool) -> Guarded:
        """The time is up, or the engine stops, while the mark is on its way to the disk.

        Nothing may follow it, and only when it is known whether it is there can the end be written.
        """
        task = dispatch.task
        assert task is not None
        dispatch.is_expired = True
        await asyncio.wait({task})
        outcome = task.result()
        if not is_stop or outcome.is_success:
            return Answered(outcome, settle(outcome, is_dispatched=dispatch.may_be_sent()), dispatch)
        body = partial(t3_abandon, dispatch=dispatch, outcome=_EXPIRED, now_us=self._shared.now_us())
        await self._shared.transact(body, Transaction.T3_ABANDON)
        self.settled(dispatch)
        return Released()

    async def _listen(self, dispatch: Dispatch) -> None:
        """A request nobody waits for: hear its answer out, up to the limit, and hand it in as evidence."""
        task = dispatch.task
        assert task is not None
        try:
            await asyncio.wait({task}, timeout=self._shared.limits.settle_s)
            if not task.done():
                await _cancelled(task)
                return
            await dispatch.settled  # the late answer is evidence about a receipt that is on disk as unknown
            if not task.cancelled() and task.exception() is None:
                await self._on_late_answer(dispatch, task.result())
        finally:
            self._shared.live.pop(dispatch.receipt.id, None)
            self._listening.discard(dispatch.receipt.instance_id)

    def stop_waiting(self) -> None:
        """The engine stops: every step in flight is to be settled now, as what is known of it.

        From here on nothing more is sent, also by a step that is just being prepared.
        """
        self._is_stopping = True
        for dispatch in list(self._shared.live.values()):
            if not dispatch.verdict.done():
                dispatch.verdict.set_result(None)


def _deliver(dispatch: Dispatch, task: asyncio.Task[Outcome]) -> None:
    if dispatch.verdict.done():
        if not task.cancelled():
            task.exception()  # looked at, so that nobody is told it was not: the listener has it
        return
    if task.cancelled():
        dispatch.verdict.set_result(None)
    elif (error := task.exception()) is not None:
        dispatch.verdict.set_exception(error)
    else:
        dispatch.verdict.set_result(task.result())


def _give_up(dispatch: Dispatch) -> None:
    if dispatch.phase is Phase.MARKING:
        dispatch.is_expired = True  # mark() sends nothing then, and the outcome is known: not sent
    elif not dispatch.verdict.done():
        seconds = dispatch.call.timeout_s
        dispatch.verdict.set_result(
            Outcome.ambiguous(
                f"no answer within {seconds:g} s",
                details={"timeout_s": seconds},
                rule="a time-out after the request began does not say whether it was carried out",
            )
        )


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


# --- the transactions ----------------------------------------------------------------------------


def t0_prepare(call: EffectCall, shared: Shared, tx: Tx) -> Gate | NewReceipt:
    """T0: ask the gate over all receipts of the intent and act on its answer; nothing is sent yet."""
    now_us = shared.now_us()
    instances.fence(tx, call.instance)
    decision = gate(
        receipts.of_intent(tx, call.intent_id),
        mode=call.mode,
        request_sha256=call.request_sha256,
        boot_id=shared.boot_id,
        live_effect_ids=shared.live.keys(),
    )
    if isinstance(decision, Blocked):
        for lost in decision.lost:
            owner_gone(tx, lost, now_us=now_us)
        return decision
    if isinstance(decision, Reuse):
        instances.put_node(tx, call.instance.id, call.node)
        return decision
    if not isinstance(decision, NewAttempt):
        return decision
    for old in decision.superseded:
        evidence = Evidence("superseded_before_send").as_dict()
        receipts.shift(
            tx, old, old.state, R.ABANDONED, now_us=now_us, reason="superseded_before_send", evidence=evidence
        )
    for old in decision.repeatable:
        close_repeatable(tx, old, now_us=now_us)
    new = new_receipt(call, shared.epoch, decision.attempt)
    receipts.insert_prepared(tx, new, now_us=now_us)
    instances.put_node(tx, call.instance.id, call.node)
    return new


def new_receipt(call: EffectCall, epoch: int, attempt: int) -> NewReceipt:
    """The receipt of one attempt; every id is a function of the run, the place and the attempt."""
    instance, node, spec = call.instance, call.node, call.spec
    continuity = ids.continuity_id(instance.id)
    scope = ids.parse_scope(node.scope)
    return NewReceipt(
        id=ids.effect_id(continuity, epoch, instance.id, node.block_id, attempt, scope=scope),
        intent_id=call.intent_id,
        tenant_id=instance.tenant_id,
        continuity_id=continuity,
        epoch=epoch,
        instance_id=instance.id,
        block_id=node.block_id,
        scope=node.scope,
        rerun=0,
        attempt=attempt,
        kind=spec.kind or EffectKind.CUSTOM,
        mode=call.mode,
        handler=spec.name,
        destination_fingerprint=ids.destination_fingerprint(spec.name, call.params),
        request_sha256=call.request_sha256,
        idempotency_key=call.idempotency_key,
        sent_key=call.sent_key,
        method=call.method,
        destination=call.destination,
    )


def t1_dispatch(receipt: NewReceipt | Receipt, boot_id: str, now_us: Callable[[], int], tx: Tx) -> None:
    """T1: prepared to dispatched. On disk before the first byte, or nothing is sent."""
    receipts.dispatch(tx, receipt, boot_id=boot_id, now_us=now_us())


def t3_commit(tx: Tx, dispatch: Dispatch, outcome: Outcome, *, boot_id: str, now_us: int) -> None:
    """T3c, the ledger's part: the action happened; its output is kept on the receipt."""
    if dispatch.phase is Phase.PREPARED:
        receipts.dispatch(tx, dispatch.receipt, boot_id=boot_id, now_us=now_us)
    receipts.shift(
        tx,
        dispatch.receipt,
        R.DISPATCHED,
        R.COMMITTED,
        now_us=now_us,
        outcome_class=outcome.outcome_class,
        reason=outcome.rule or None,
        provider_receipt_id=outcome.provider_receipt_id,
        output=outcome.output,
        has_output=True,
    )


def t3_abandon(tx: Tx, dispatch: Dispatch, outcome: Outcome, *, now_us: int) -> None:
    """T3a, the ledger's part: it is proved that nothing happened. No state is skipped (product D4)."""
    kind = "not_sent" if not dispatch.may_be_sent() or outcome.outcome_class == "not_sent" else "provider_rejected"
    evidence = Evidence(kind, note=outcome.message, facts=dict(outcome.evidence)).as_dict()
    state = _state_now(tx, dispatch)
    if state is R.DISPATCHED:
        receipts.shift(tx, dispatch.receipt, R.DISPATCHED, R.UNKNOWN, now_us=now_us, reason=kind)
        state = R.UNKNOWN
    receipts.shift(
        tx,
        dispatch.receipt,
        state,
        R.ABANDONED,
        now_us=now_us,
        outcome_class=outcome.outcome_class,
        reason=outcome.rule or kind,
        evidence=evidence,
    )


def t3_unknown(tx: Tx, dispatch: Dispatch, outcome: Outcome, *, now_us: int) -> None:
    """T3u, the ledger's part: it may have happened. Raises NeverDispatched if T1 is not on disk."""
    if _state_now(tx, dispatch) is R.PREPARED:
        raise NeverDispatched(f"effect {dispatch.receipt.id} was never dispatched")
    receipts.shift(
        tx,
        dispatch.receipt,
        R.DISPATCHED,
        R.UNKNOWN,
        now_us=now_us,
        outcome_class=outcome.outcome_class,
        reason=outcome.rule or outcome.message,
        evidence={"message": outcome.message, **dict(outcome.details or {})},
    )


def owner_gone(tx: Tx, receipt: Receipt, *, now_us: int) -> None:
    """A dispatch whose process is gone: nobody here knows what became of it."""
    evidence = Evidence("owner_gone", facts={"boot_id": receipt.boot_id}).as_dict()
    receipts.shift(tx, receipt, R.DISPATCHED, R.UNKNOWN, now_us=now_us, reason="owner_gone", evidence=evidence)


def close_repeatable(tx: Tx, receipt: Receipt, *, now_us: int) -> None:
    """An unclear attempt of an action whose author declared repeating harmless."""
    if receipt.state is R.DISPATCHED:
        owner_gone(tx, receipt, now_us=now_us)
    evidence = Evidence("declared_repeatable").as_dict()
    receipts.shift(tx, receipt, R.UNKNOWN, R.ABANDONED, now_us=now_us, reason="declared_repeatable", evidence=evidence)


def _state_now(tx: Tx, dispatch: Dispatch) -> R:
    if dispatch.phase is Phase.DISPATCHED:
        return R.DISPATCHED
    if dispatch.phase is Phase.PREPARED:
        return R.PREPARED
    return receipts.get(tx, dispatch.receipt.id).state
