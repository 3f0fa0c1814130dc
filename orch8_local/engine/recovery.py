"""The boot sweep: what a start must settle before anything runs (effect-receipts 12.3).

One process owns the file, so at its start nothing is legitimately running. One transaction makes
every dispatch of an earlier process unknown, blocks its run, and gives every other interrupted run
back. The easy mistake: waiting for a step to run again before its receipt is settled; a run that
never comes back would keep a `dispatched` that nobody sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orch8_local.engine.guard import close_repeatable, owner_gone
from orch8_local.model.outcome import Mode
from orch8_local.model.records import Failure, Instance
from orch8_local.model.states import InstanceState, NodeState, ReceiptState
from orch8_local.store import instances, receipts
from orch8_local.store.writer import Tx


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a start found: runs given back, blocked, parked; effects that became unknown."""

    n_resumed: int = 0
    n_blocked: int = 0
    n_parked: int = 0
    unknown_effect_ids: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if the last process had stopped with nothing under way."""
        return not (self.n_resumed or self.n_blocked or self.n_parked or self.unknown_effect_ids)

    def as_line(self) -> str:
        """One line for people."""
        parts = [
            (self.n_resumed, "resumed"),
            (self.n_blocked, "blocked by an unknown effect"),
            (self.n_parked, "parked after repeated crashes"),
        ]
        return "recovered: " + ", ".join(f"{n} run(s) {what}" for n, what in parts if n)


def boot_sweep(tx: Tx, *, now_us: int, max_recoveries: int) -> SweepReport:
    """Settle everything that an earlier process left under way."""
    unknown: list[str] = []
    for receipt in receipts.in_state(tx, ReceiptState.DISPATCHED):
        if receipt.mode is Mode.REPEATABLE:
            close_repeatable(tx, receipt, now_us=now_us)
        else:
            owner_gone(tx, receipt, now_us=now_us)
            unknown.append(receipt.id)
    n_resumed = n_blocked = n_parked = 0
    for instance in instances.in_state(tx, InstanceState.RUNNING):
        open_ids = tuple(receipts.unresolved_ids(tx, instance.id))
        if open_ids:
            _block(tx, instance, open_ids, now_us=now_us)
            n_blocked += 1
        elif instance.n_recoveries + 1 >= max_recoveries:
            _park(tx, instance, now_us=now_us)
            n_parked += 1
        else:
            instances.set_recoveries(tx, instance.id, instance.n_recoveries + 1)
            instances.move_instance(
                tx,
                instance,
                InstanceState.RUNNING,
                InstanceState.SCHEDULED,
                now_us=now_us,
                due_at_us=now_us,
                reason="owner_gone",
            )
            n_resumed += 1
    return SweepReport(n_resumed, n_blocked, n_parked, tuple(unknown))


def _block(tx: Tx, instance: Instance, open_ids: tuple[str, ...], *, now_us: int) -> None:
    """Put the run's open steps to waiting for their effects, and the run to failed, blocked (D1)."""
    first: Failure | None = None
    for effect_id in open_ids:
        receipt = receipts.get(tx, effect_id)
        failure = Failure(
            "effect_blocked",
            "the process stopped after the request may have been sent and before its answer was stored",
            receipt.block_id,
            (effect_id,),
        )
        node = instances.node(tx, instance.id, receipt.scope, receipt.block_id)
        assert node is not None, "T0 writes the node with the receipt"
        if node.state is NodeState.RUNNING:
            waiting = replace(node, state=NodeState.WAITING, waiting_for="effect", error=failure.as_dict())
            instances.put_node(tx, instance.id, waiting)
        first = first or failure
    assert first is not None
    instances.move_instance(
        tx,
        instance,
        InstanceState.RUNNING,
        InstanceState.FAILED,
        now_us=now_us,
        failure=replace(first, effect_ids=open_ids),
    )


def _park(tx: Tx, instance: Instance, *, now_us: int) -> None:
    instances.move_instance(
        tx, instance, InstanceState.RUNNING, InstanceState.PAUSED, now_us=now_us, paused_reason="crash_loop"
    )
