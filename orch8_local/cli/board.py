"""What a live display knows of one run: its steps in order, and where each stands. Pure.

Fed by the progress of an engine in this process, or by what was read of a run elsewhere; both end in
the same rows. The easy mistake: showing only the steps that have begun; what is still to come is
read from the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orch8_local.cli.wording import latest_of, node_standing
from orch8_local.engine.api import InstanceView, StepProgress

Json = Any

PHASES = {
    "started": "running",
    "dispatched": "dispatched",
    "ended": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "retry": "retry",
    "timer": "waiting",
    "waiting": "waiting",
    "blocked": "blocked",
    "effect": "blocked",
}
OVER = ("completed", "failed", "cancelled", "skipped", "blocked")
RowKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One step in one loop position. key: the state that chooses mark and colour.

    since_us, ended_us: of the present execution. until_us: when it goes on, if it waits.
    """

    scope: str
    block_id: str
    key: str = "pending"
    attempt: int = 0
    handler: str = ""
    mode: str = ""
    effect_id: str = ""
    message: str = ""
    since_us: int | None = None
    ended_us: int | None = None
    until_us: int | None = None

    @property
    def is_over(self) -> bool:
        """True if the step has ended for good or is blocked."""
        return self.key in OVER


class Board:
    """The rows of one run."""

    def __init__(self, document: str) -> None:
        self.rows: dict[RowKey, Row] = {
            ("", block_id): Row("", block_id, handler=handler) for block_id, handler in steps_of(document)
        }

    def apply(self, progress: StepProgress, now_us: int) -> Row | None:
        """Take one piece of progress in; the row if something about it is worth a line."""
        key = (progress.scope, progress.block_id)
        row = self.rows.get(key) or Row(*key)
        state = PHASES.get(progress.phase)
        if state is None:  # a message of the handler
            self.rows[key] = replace(row, message=progress.message)
            return self.rows[key]
        attempt = progress.attempt or row.attempt
        if (state, attempt) == (row.key, row.attempt) or (row.is_over and attempt <= row.attempt and state not in OVER):
            return None  # the disk has told it already, or more
        is_begun = state == "running"
        row = replace(
            row,
            key=state,
            attempt=progress.attempt or row.attempt,
            handler=progress.handler or row.handler,
            mode=progress.mode or row.mode,
            effect_id="" if is_begun else progress.extra.get("effect_id") or row.effect_id,
            message=progress.message if not is_begun else "",
            since_us=now_us if is_begun or row.since_us is None else row.since_us,
            until_us=progress.until_us,
        )
        self.rows[key] = replace(row, ended_us=now_us if row.is_over else None)
        return self.rows[key]

    def load(self, view: InstanceView, now_us: int) -> list[Row]:
        """Take in what was read of the run; the rows that changed, in order."""
        changed: list[Row] = []
        for node in view.nodes:
            if node.key not in self.rows and _is_container(view.document, node.block_id):
                continue
            old = self.rows.get(node.key) or Row(node.scope, node.block_id)
            receipt = latest_of(view.receipts, node)
            key = node_standing(node, now_us).key
            if key == "running" and receipt is not None and receipt.state == "dispatched":
                key = "dispatched"
            error = node.error if isinstance(node.error, Mapping) else {}
            new = replace(
                old,
                key=key,
                attempt=node.attempt,
                handler=receipt.handler if receipt else old.handler,
                mode=str(receipt.mode) if receipt else old.mode,
                effect_id=receipt.id if receipt else old.effect_id,
                message=str(error.get("message", "")) or (old.message if key == old.key else ""),
                since_us=node.started_at_us,
                ended_us=node.ended_at_us,
                until_us=node.wake_at_us,
            )
            self.rows[node.key] = new
            if (new.key, new.attempt) != (old.key, old.attempt):
                changed.append(new)
        return sorted(changed, key=lambda row: row.since_us or 0)


def blocks_of(value: Json) -> Iterator[Mapping[str, Json]]:
    """Every block of a document, outermost first, in the order in which it is written."""
    if isinstance(value, dict):
        if isinstance(value.get("id"), str) and isinstance(value.get("type"), str):
            yield value
        for name, part in value.items():
            if name not in ("params", "context", "metadata"):
                yield from blocks_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from blocks_of(part)


def steps_of(document: str) -> list[tuple[str, str]]:
    """(block id, handler) of every step of a document."""
    found = blocks_of(json.loads(document).get("blocks", []))
    return [(block["id"], str(block.get("handler", ""))) for block in found if block["type"] == "step"]


def _is_container(document: str, block_id: str) -> bool:
    found = blocks_of(json.loads(document).get("blocks", []))
    return any(block["id"] == block_id and block["type"] != "step" for block in found)
