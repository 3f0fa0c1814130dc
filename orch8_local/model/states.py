"""The three state machines, as data, and the one function that asks them. Pure.

The same tables stand in the database, where triggers enforce them a second time; a test holds the
two together. Nothing else in the program compares states to decide whether a move is legal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orch8_local.errors import IllegalMove


class ReceiptState(StrEnum):
    """Where one attempt of an effect stands (effect-receipts 1.1)."""

    PLANNED = "planned"
    PREPARED = "prepared"
    DISPATCHED = "dispatched"
    COMMITTED = "committed"
    UNKNOWN = "unknown"
    VERIFIED = "verified"
    COMPENSATED = "compensated"
    ABANDONED = "abandoned"


class InstanceState(StrEnum):
    """Where a run stands (execution-semantics 1.2)."""

    SCHEDULED = "scheduled"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NodeState(StrEnum):
    """Where one block of a run stands, in one loop position (execution-semantics 3.1)."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Actor(StrEnum):
    """Who causes a move (effect-receipts 1.3)."""

    ENGINE = "engine"
    PROBE = "probe"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Machine:
    """A named table of legal moves."""

    name: str
    moves: Mapping[str, frozenset[str]]

    def allows(self, old: str, new: str) -> bool:
        """True if the table has the move."""
        return new in self.moves[old]

    def pairs(self) -> set[tuple[str, str]]:
        """All legal moves as (from, to)."""
        return {(str(old), str(new)) for old, targets in self.moves.items() for new in targets}


R, I, N = ReceiptState, InstanceState, NodeState  # noqa: E741 - the tables below read like the specification

RECEIPT = Machine(
    "receipt",
    {
        R.PLANNED: frozenset({R.PREPARED, R.ABANDONED}),
        R.PREPARED: frozenset({R.DISPATCHED, R.ABANDONED}),
        R.DISPATCHED: frozenset({R.COMMITTED, R.UNKNOWN}),
        R.UNKNOWN: frozenset({R.VERIFIED, R.COMMITTED, R.COMPENSATED, R.ABANDONED}),
        R.COMMITTED: frozenset({R.COMPENSATED}),
        R.VERIFIED: frozenset({R.COMPENSATED}),
        R.COMPENSATED: frozenset(),
        R.ABANDONED: frozenset(),
    },
)

INSTANCE = Machine(
    "instance",
    {
        I.SCHEDULED: frozenset({I.RUNNING, I.PAUSED, I.CANCELLED}),
        I.RUNNING: frozenset({I.SCHEDULED, I.WAITING, I.PAUSED, I.COMPLETED, I.FAILED, I.CANCELLED}),
        I.WAITING: frozenset({I.SCHEDULED, I.RUNNING, I.PAUSED, I.FAILED, I.CANCELLED}),
        I.PAUSED: frozenset({I.SCHEDULED, I.WAITING, I.CANCELLED}),
        I.COMPLETED: frozenset({I.SCHEDULED}),
        I.FAILED: frozenset({I.SCHEDULED}),
        I.CANCELLED: frozenset({I.SCHEDULED}),
    },
)

NODE = Machine(
    "node",
    {
        N.PENDING: frozenset({N.RUNNING, N.WAITING, N.COMPLETED, N.FAILED, N.SKIPPED, N.CANCELLED}),
        N.RUNNING: frozenset({N.WAITING, N.COMPLETED, N.FAILED, N.SKIPPED, N.CANCELLED, N.PENDING}),
        N.WAITING: frozenset({N.RUNNING, N.COMPLETED, N.FAILED, N.CANCELLED, N.PENDING}),
        N.COMPLETED: frozenset({N.PENDING}),
        N.FAILED: frozenset({N.PENDING}),
        N.CANCELLED: frozenset({N.PENDING}),
        N.SKIPPED: frozenset({N.PENDING}),
    },
)

MACHINES = (RECEIPT, INSTANCE, NODE)

RECEIPT_ACTORS: Mapping[tuple[ReceiptState, ReceiptState], frozenset[Actor]] = {
    (R.PLANNED, R.PREPARED): frozenset({Actor.ENGINE}),
    (R.PREPARED, R.DISPATCHED): frozenset({Actor.ENGINE}),
    (R.PLANNED, R.ABANDONED): frozenset({Actor.ENGINE, Actor.OPERATOR}),
    (R.PREPARED, R.ABANDONED): frozenset({Actor.ENGINE, Actor.OPERATOR}),
    (R.DISPATCHED, R.COMMITTED): frozenset({Actor.ENGINE}),
    (R.DISPATCHED, R.UNKNOWN): frozenset({Actor.ENGINE}),
    (R.UNKNOWN, R.COMMITTED): frozenset({Actor.ENGINE, Actor.OPERATOR}),
    (R.UNKNOWN, R.ABANDONED): frozenset({Actor.ENGINE, Actor.PROBE, Actor.OPERATOR}),
    (R.UNKNOWN, R.VERIFIED): frozenset({Actor.PROBE, Actor.OPERATOR}),
    (R.UNKNOWN, R.COMPENSATED): frozenset({Actor.OPERATOR}),
    (R.COMMITTED, R.COMPENSATED): frozenset({Actor.ENGINE, Actor.OPERATOR}),
    (R.VERIFIED, R.COMPENSATED): frozenset({Actor.ENGINE, Actor.OPERATOR}),
}

RESOLVED = frozenset({R.COMMITTED, R.VERIFIED, R.COMPENSATED, R.ABANDONED})
UNRESOLVED = frozenset({R.DISPATCHED, R.UNKNOWN})
ENDED_INSTANCES = frozenset({I.COMPLETED, I.FAILED, I.CANCELLED})
ENDED_NODES = frozenset({N.COMPLETED, N.FAILED, N.CANCELLED, N.SKIPPED})


def move(machine: Machine, old: str, new: str) -> None:
    """Raise IllegalMove unless the table has the move."""
    if new not in machine.moves[old]:
        raise IllegalMove(machine.name, str(old), str(new))
