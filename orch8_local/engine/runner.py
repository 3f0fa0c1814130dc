"""One run, from its claim until it waits or ends.

The runner asks the tree what to do, executes steps, and writes each step's end together with all
that follows from it in one transaction: receipt, output, changes, nodes, the run itself. Then it
starts what comes next. The easy mistake: a second transaction for the rest; a crash between the two
would leave a step that is done and a run that does not know it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from orch8_local.engine.api import StepProgress
from orch8_local.engine.guard import Guard, NeverDispatched
from orch8_local.engine.shared import Shared
from orch8_local.engine.step import StepExecutor, StepResult
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import Bug, Orch8Error, StaleVersion, StoreError
from orch8_local.lang.scope import Scope
from orch8_local.model.outcome import SetState
from orch8_local.model.records import Failure, Instance, Node
from orch8_local.model.states import ENDED_NODES, InstanceState, NodeState, ReceiptState
from orch8_local.sequence.document import SequenceDefinition
from orch8_local.sequence.tree import Changed, Decision, Finished, RunStep, Tree
from orch8_local.store import events, instances, receipts
from orch8_local.store.instances import Loaded
from orch8_local.store.writer import Tx
from orch8_local.world import CrashPoint

Json = Any
log = logging.getLogger("orch8_local")

_END_STATES = {
    NodeState.COMPLETED: InstanceState.COMPLETED,
    NodeState.FAILED: InstanceState.FAILED,
    NodeState.CANCELLED: InstanceState.CANCELLED,
}
_AFTER = {
    Transaction.T3_COMMIT: CrashPoint.AFTER_COMMIT,
    Transaction.T3_UNKNOWN: CrashPoint.AFTER_UNKNOWN,
    Transaction.T3_ABANDON: CrashPoint.AFTER_ABANDON,
}
_PHASES = {NodeState.COMPLETED: "ended", NodeState.FAILED: "failed"}


class Runner:
    """Executes one claimed run."""

    def __init__(
        self,
        shared: Shared,
        guard: Guard,
        steps: StepExecutor,
        definition: SequenceDefinition,
        loaded: Loaded,
    ) -> None:
        self._shared = shared
        self._guard = guard
        self._steps = steps
        self.instance: Instance = loaded.instance
        self.is_cancel_requested = loaded.instance.cancel_requested_at_us is not None
        self.parked_until_us: int | None = None
        self.final_state: InstanceState | None = None
        self._outputs: dict[str, Json] = {
            row.block_id: row.output for row in loaded.outputs if row.kind in ("result", "error", "gate", "marker")
        }
        self._state = loaded.state
        self._runtime: dict[str, Any] = {
            "instance_id": self.instance.id,
            "run_id": self.instance.run_id,
            "attempt": 0,
            "total_steps_executed": self.instance.n_steps,
        }
        self._tree = Tree(definition.blocks, loaded.nodes, language=self.language, now_us=shared.now_us)

    def language(self) -> Scope:
        """What templates and expressions of this run see now."""
        return Scope(
            data=self.instance.data,
            config=self.instance.config,
            runtime=self._runtime,
            outputs=self._outputs,
            state=self._state,
            instance_id=self.instance.id,
            now_us=self._shared.now_us,
            random=self._shared.world.rng.random,
        )

    async def run(self) -> None:
        """Until the run waits, ends, is blocked, or the engine drains."""
        try:
            await self._drive(await self._write(None, self._tree.resume(), is_alone=True))
        except NeverDispatched:
            await self._release()
        except StaleVersion as error:
            log.warning("%s", error, extra={"action": "claim_lost", "instance_id": self.instance.id})
        except (StoreError, Bug):
            raise
        except Orch8Error as error:
            await self._fail_engine(error)

    async def _drive(self, runnable: list[RunStep]) -> None:
        active: set[asyncio.Task[StepResult]] = set()
        while runnable or active:
            if self._shared.is_draining and not active:
                await self._release()
                return
            if self.is_cancel_requested and not active:
                await self._write(None, self._tree.cancel(), is_alone=True)
                return
            if len(runnable) == 1 and not active:
                step = runnable[0]
                result = await self._steps.execute(self, step.block, step.node)
                runnable = await self._end(result, is_alone=True)
                continue
            for step in runnable:
                execution = self._steps.execute(self, step.block, step.node)
                active.add(self._shared.world.nursery.start(execution, name=f"step {step.block.id}"))
            done, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
            runnable = []
            for n_left, task in zip(reversed(range(len(done))), done, strict=True):
                runnable += await self._end(task.result(), is_alone=not active and not n_left and not runnable)

    async def _end(self, result: StepResult, *, is_alone: bool) -> list[RunStep]:
        """Write the end of one step and what follows; return what is to be run next."""
        if result.is_released:
            await self._release()
            return []
        node = result.node
        self._tree.put(node)
        decisions = self._tree.ended(node) if node.state in ENDED_NODES else []
        is_over = any(isinstance(d, Finished) for d in decisions)
        if self.is_cancel_requested and result.failure is None and not is_over:
            decisions = [d for d in decisions if isinstance(d, Changed)] + self._tree.cancel()
        runnable = await self._write(result, decisions, is_alone=is_alone)
        if result.dispatch is not None:
            self._guard.settled(result.dispatch)
        self._tell(result)
        return runnable

    async def _write(
        self, result: StepResult | None, decisions: Sequence[Decision], *, is_alone: bool
    ) -> list[RunStep]:
        """One transaction for a step's end and all that follows from it; then memory follows the disk."""
        runnable = [d for d in decisions if isinstance(d, RunStep)]
        changed = [d for d in decisions if isinstance(d, Changed)]
        finished = next((d for d in decisions if isinstance(d, Finished)), None)
        is_stopping = is_alone and not runnable and finished is None
        if result is None and not changed and finished is None and not is_stopping:
            return runnable
        name = result.transaction if result is not None else Transaction.STEP_END
        body = partial(self._body, result, changed, finished, is_stopping)
        await self._shared.transact(body, name)
        if result is not None:
            self._remember(result)
        for change in changed:
            if change.has_output:
                self._outputs[change.node.block_id] = change.output
        if name in _AFTER:
            self._shared.world.crash.reach(_AFTER[name])
        return [] if finished is not None else runnable

    def _body(
        self,
        result: StepResult | None,
        changed: Sequence[Changed],
        finished: Finished | None,
        is_stopping: bool,
        tx: Tx,
    ) -> None:
        now_us = self._shared.now_us()
        n_ended = len(changed)
        if result is not None:
            n_ended += result.node.state in ENDED_NODES
            if result.settle is not None:
                result.settle(tx)
            self._write_step(tx, result, now_us)
        for change in changed:
            instances.put_node(tx, self.instance.id, change.node)
            if change.has_output:
                self._put_result(tx, change.node, change.output, None, now_us)
            self._step_event(tx, change.node, now_us)
        instances.progress(tx, self.instance, n_steps=n_ended, now_us=now_us)
        if finished is not None:
            self._finish(tx, finished, now_us)
        elif is_stopping:
            self._stop(tx, result, now_us)

    def _write_step(self, tx: Tx, result: StepResult, now_us: int) -> None:
        node = result.node
        instances.put_node(tx, self.instance.id, node)
        if result.has_output:
            is_there = result.is_replay and instances.has_result(tx, self.instance.id, node.scope, node.block_id)
            if not is_there:
                self._put_result(tx, node, result.output, result.effect_id, now_us)
        if result.row is not None:
            kind, output = result.row
            instances.put_output(
                tx,
                self.instance.id,
                node.scope,
                node.block_id,
                kind=kind,
                attempt=node.attempt,
                output=output,
                now_us=now_us,
                effect_id=result.effect_id,
            )
        instances.apply_changes(tx, self.instance.id, result.changes)
        if result.failure is None:
            self._step_event(tx, node, now_us)

    def _put_result(self, tx: Tx, node: Node, output: Json, effect_id: str | None, now_us: int) -> None:
        instances.put_output(
            tx,
            self.instance.id,
            node.scope,
            node.block_id,
            kind="result",
            attempt=node.attempt,
            output=output,
            now_us=now_us,
            effect_id=effect_id,
        )

    def _step_event(self, tx: Tx, node: Node, now_us: int) -> None:
        kind = f"step.{node.waiting_for}" if node.state is NodeState.WAITING else f"step.{node.state}"
        detail: dict[str, Json] = {"attempt": node.attempt}
        if node.wake_at_us is not None:
            detail["wake_at_us"] = node.wake_at_us
        if node.error is not None:
            detail["message"] = node.error["message"]
        events.append(tx, self.instance.id, kind, at_us=now_us, scope=node.scope, block_id=node.block_id, detail=detail)

    def _finish(self, tx: Tx, finished: Finished, now_us: int) -> None:
        state = _END_STATES[finished.state]
        failure = finished.failure
        if state is InstanceState.FAILED and failure is None:
            failure = Failure("step_failed", "a block failed")
        for unsent in receipts.unsent(tx, self.instance.id) if state is InstanceState.CANCELLED else ():
            receipts.shift(
                tx,
                unsent,
                unsent.state,
                ReceiptState.ABANDONED,
                now_us=now_us,
                reason="instance_ended",
                evidence={"kind": "not_sent", "note": "the run was cancelled before anything was sent"},
            )
        instances.move_instance(tx, self.instance, InstanceState.RUNNING, state, now_us=now_us, failure=failure)
        self.final_state = state

    def _stop(self, tx: Tx, result: StepResult | None, now_us: int) -> None:
        """Nothing can run now: wait for the earliest timer, or stop for a resolution."""
        blocked = [n for n in self._tree.nodes() if n.state is NodeState.WAITING and n.waiting_for == "effect"]
        if blocked:
            failure = result.failure if result is not None and result.failure is not None else None
            failure = failure or Failure.from_dict(blocked[0].error)
            all_ids = tuple(i for n in blocked for i in Failure.from_dict(n.error).effect_ids)
            failure = replace(failure, effect_ids=all_ids or failure.effect_ids)
            instances.move_instance(
                tx, self.instance, InstanceState.RUNNING, InstanceState.FAILED, now_us=now_us, failure=failure
            )
            self.final_state = InstanceState.FAILED
            return
        wake_at_us = self._tree.next_wake_us()
        if wake_at_us is None:
            raise Bug(f"run {self.instance.id} has nothing to run and nothing to wait for")
        instances.move_instance(
            tx,
            self.instance,
            InstanceState.RUNNING,
            InstanceState.WAITING,
            now_us=now_us,
            due_at_us=wake_at_us,
        )
        self.parked_until_us = wake_at_us

    def _remember(self, result: StepResult) -> None:
        block_id = result.node.block_id
        if result.has_output:
            self._outputs[block_id] = result.output
        elif result.row is not None and result.row[0] == "error":
            self._outputs[block_id] = result.row[1]
        for change in result.changes:
            if isinstance(change, SetState):
                self._state[change.key] = change.value
            else:
                self._state.pop(change.key, None)
        if result.node.state in ENDED_NODES:
            self._runtime["total_steps_executed"] += 1

    async def _release(self) -> None:
        """Give the run back, due now: the engine stops before its next step."""

        def body(tx: Tx) -> None:
            now_us = self._shared.now_us()
            instances.move_instance(
                tx,
                self.instance,
                InstanceState.RUNNING,
                InstanceState.SCHEDULED,
                now_us=now_us,
                due_at_us=now_us,
                reason="engine_stopped",
            )

        await self._shared.transact(body, Transaction.PARK)

    async def _fail_engine(self, error: Orch8Error) -> None:
        """Something outside the steps went wrong for this run alone: it fails, and says so."""
        failure = Failure("engine_error", error.message, details={"code": error.code, "hint": error.hint})

        def body(tx: Tx) -> None:
            instances.move_instance(
                tx,
                self.instance,
                InstanceState.RUNNING,
                InstanceState.FAILED,
                now_us=self._shared.now_us(),
                failure=failure,
            )

        await self._shared.transact(body, Transaction.PARK)
        self.final_state = InstanceState.FAILED

    def _tell(self, result: StepResult) -> None:
        node = result.node
        phase = "blocked" if result.failure is not None else _PHASES.get(node.state, node.waiting_for or "ended")
        message = str((node.error or {}).get("message", "")) or str((result.row or ("", {}))[1].get("error", ""))
        self._shared.progress(
            StepProgress(
                self.instance.id,
                node.scope,
                node.block_id,
                phase,
                node.attempt,
                message=message,
                until_us=node.wake_at_us,
                extra={"effect_id": result.effect_id, "is_replay": result.is_replay},
            )
        )
