"""What a fact means, in words: the standing of a run, a step, a receipt, and one line of the timeline.

Owns the sentences that every command and the live display share, so that one thing has one name
everywhere. The easy mistake: showing a stored state where it misleads; `running` without a living
owner is not running, and `failed` that waits for a resolution is `blocked` (product D1, case C05).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orch8_local.cli.render import clock_text, elapsed_text, one_line, short_effect
from orch8_local.model.records import Event, Failure, Instance, Node, Receipt
from orch8_local.model.states import InstanceState, NodeState, ReceiptState

Json = Any


@dataclass(frozen=True, slots=True)
class Standing:
    """A state and what to say of it. key: chooses mark and colour."""

    key: str
    text: str


def run_standing(instance: Instance, *, has_owner: bool, now_us: int) -> Standing:
    """Where a run stands, truly. has_owner: a living process owns the database."""
    if instance.is_blocked:
        return Standing("blocked", "blocked")
    state = instance.state
    if state is InstanceState.RUNNING and not has_owner:
        return Standing("paused", f"running (owner gone since {clock_text(instance.updated_at_us, now_us=now_us)})")
    if state is InstanceState.WAITING and instance.due_at_us is not None and instance.due_at_us > now_us:
        return Standing("waiting", f"waiting ({elapsed_text(now_us, instance.due_at_us)} more)")
    if instance.cancel_requested_at_us is not None and instance.ended_at_us is None:
        return Standing("cancelled", f"{state} (being cancelled)")
    return Standing(str(state), str(state))


def run_word(instance: Instance, *, has_owner: bool) -> str:
    """One word for `--json` and `--plain`: the state, `blocked`, or `owner_gone`."""
    if instance.is_blocked:
        return "blocked"
    if instance.state is InstanceState.RUNNING and not has_owner:
        return "owner_gone"
    return str(instance.state)


def run_took(instance: Instance, now_us: int) -> str:
    """How long the run took or has been going on, empty before its start."""
    if instance.started_at_us is None:
        return ""
    return elapsed_text(instance.started_at_us, instance.ended_at_us or now_us)


def node_standing(node: Node | None, now_us: int) -> Standing:
    """Where one step stands."""
    if node is None or node.state is NodeState.PENDING:
        return Standing("pending", "pending")
    if node.state is not NodeState.WAITING:
        return Standing(str(node.state), str(node.state))
    if node.waiting_for == "effect":
        return Standing("blocked", "blocked")
    left = "" if node.wake_at_us is None else f" in {elapsed_text(now_us, node.wake_at_us)}"
    if node.waiting_for == "retry":
        return Standing("retry", f"tries again{left}")
    return Standing("waiting", f"waits for {node.waiting_for or 'something'}{left}")


def receipt_words(receipt: Receipt) -> str:
    """A receipt in three words: short id, state, mode."""
    mode = str(receipt.mode).replace("_", "-")
    return f"{short_effect(receipt.id)} {receipt.state} {mode}"


def request_words(receipt: Receipt) -> str:
    """What was, or was to be, sent where; never a secret, because the ledger holds none."""
    parts = [receipt.method, receipt.destination if receipt.destination != receipt.handler else None]
    return one_line(" ".join(part for part in parts if part)) or receipt.handler


def place(scope: str, block_id: str) -> str:
    """A block in its loop position."""
    return one_line(f"{scope}/{block_id}" if scope else block_id)


def failure_sentence(failure: Failure | None) -> str:
    """Why a run stopped, in one line."""
    if failure is None:
        return "no reason was recorded"
    step = f"step {failure.block_id!r}: " if failure.block_id else ""
    return one_line(f"{step}{failure.message}")


_RECEIPT_WORDS = {
    ReceiptState.PLANNED: "planned",
    ReceiptState.PREPARED: "prepared, nothing sent",
    ReceiptState.DISPATCHED: "request goes out",
    ReceiptState.COMMITTED: "committed",
    ReceiptState.UNKNOWN: "outcome not known",
    ReceiptState.VERIFIED: "verified",
    ReceiptState.COMPENSATED: "undone",
    ReceiptState.ABANDONED: "abandoned, nothing happened",
}
_KIND_WORDS = {
    "instance.started": "run created",
    "instance.running": "run taken up",
    "instance.scheduled": "run is due again",
    "instance.waiting": "run waits",
    "instance.paused": "run paused",
    "instance.completed": "run completed",
    "instance.failed": "run failed",
    "instance.cancelled": "run cancelled",
    "instance.recovered": "run recovered after a crash",
    "step.completed": "done",
    "step.failed": "failed",
    "step.cancelled": "cancelled",
    "step.skipped": "skipped",
    "step.retry": "tries again later",
    "step.timer": "waits for its time",
}


def event_standing(event: Event) -> Standing:
    """What one line of the timeline says happened."""
    group, _, what = event.kind.partition(".")
    if group == "effect" and event.to_state is not None:
        state = ReceiptState(event.to_state)
        return Standing(state, _RECEIPT_WORDS[state])
    if event.kind == "instance.failed" and event.reason == "effect_blocked":
        return Standing("blocked", "run blocked")
    key = {"timer": "waiting", "started": "scheduled"}.get(what, what)
    return Standing(key, _KIND_WORDS.get(event.kind, event.kind.replace(".", " ").replace("_", " ")))


def event_detail(event: Event) -> str:
    """The rest of a timeline line: why, by whom, which attempt."""
    detail = event.detail if isinstance(event.detail, dict) else {}
    parts: list[str] = []
    if isinstance(detail.get("attempt"), int) and detail["attempt"] > 1:
        parts.append(f"attempt {detail['attempt']}")
    parts += [str(detail[name]) for name in ("message", "note", "reference", "looked_at") if detail.get(name)]
    is_said = event.reason is None or event.reason == "effect_blocked" or event.reason in parts
    if not is_said:
        parts.insert(0, str(event.reason).replace("_", " "))
    if event.actor != "engine":
        parts.append(f"by {event.actor}")
    return one_line(" · ".join(dict.fromkeys(parts)))


def event_dict(event: Event, at: str) -> dict[str, Json]:
    """One event as JSON (product section 3)."""
    return {
        "seq": event.seq,
        "instance_id": event.instance_id,
        "at": at,
        "kind": event.kind,
        "actor": event.actor,
        "scope": event.scope,
        "block_id": event.block_id,
        "effect_id": event.effect_id,
        "from": event.from_state,
        "to": event.to_state,
        "reason": event.reason,
        "evidence": event.detail if event.kind.startswith("effect.") else None,
        "detail": None if event.kind.startswith("effect.") else event.detail,
    }


def latest_of(receipts: Sequence[Receipt], node: Node) -> Receipt | None:
    """The last receipt of one step in one loop position."""
    found = [r for r in receipts if r.block_id == node.block_id and r.scope == node.scope]
    return max(found, key=lambda r: r.seq, default=None)
