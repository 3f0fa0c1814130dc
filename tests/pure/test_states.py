"""The three state machines: which moves exist, and who may cause them (effect-receipts section 1)."""

from __future__ import annotations

from itertools import product

import pytest

from orch8_local.errors import IllegalMove
from orch8_local.model import states
from orch8_local.model.states import (
    INSTANCE,
    MACHINES,
    NODE,
    RECEIPT,
    Actor,
    InstanceState,
    Machine,
    NodeState,
    ReceiptState,
)

# Rows and columns as drawn in effect-receipts 1.2.
RECEIPT_TABLE = """
              planned prepared dispatched committed unknown verified compensated abandoned
planned       .       L        .          .         .       .        .           L
prepared      .       .        L          .         .       .        .           L
dispatched    .       .        .          L         L       .        .           .
committed     .       .        .          .         .       .        L           .
unknown       .       .        .          L         .       L        L           L
verified      .       .        .          .         .       .        L           .
compensated   .       .        .          .         .       .        .           .
abandoned     .       .        .          .         .       .        .           .
"""

# Execution-semantics 1.2 with the two local moves (waiting to paused and back).
INSTANCE_TABLE = """
              scheduled running waiting paused completed failed cancelled
scheduled     .         L       .       L      .         .      L
running       L         .       L       L      L         L      L
waiting       L         L       .       L      .         L      L
paused        L         .       L       .      .         .      L
completed     L         .       .       .      .         .      .
failed        L         .       .       .      .         .      .
cancelled     L         .       .       .      .         .      .
"""


def _legal(table: str) -> dict[tuple[str, str], bool]:
    head, *rows = table.strip().splitlines()
    columns = head.split()
    return {
        (row.split()[0], column): mark == "L"
        for row in rows
        for column, mark in zip(columns, row.split()[1:], strict=True)
    }


def test_receipt_table_has_twelve_moves_of_sixty_four() -> None:
    """All 64 pairs of receipt states are decided, and 12 of them are legal."""
    assert len(_legal(RECEIPT_TABLE)) == 64
    assert len(RECEIPT.pairs()) == 12
    assert sum(_legal(RECEIPT_TABLE).values()) == 12


@pytest.mark.parametrize(("pair", "is_legal"), _legal(RECEIPT_TABLE).items(), ids=str)
def test_receipt_pair(pair: tuple[str, str], is_legal: bool) -> None:
    """A receipt moves exactly where the table says; anything else is an error naming both states."""
    _check(RECEIPT, pair, is_legal)


@pytest.mark.parametrize(("pair", "is_legal"), _legal(INSTANCE_TABLE).items(), ids=str)
def test_instance_pair(pair: tuple[str, str], is_legal: bool) -> None:
    """A run moves exactly where the table says; anything else is an error naming both states."""
    _check(INSTANCE, pair, is_legal)


def _check(machine: Machine, pair: tuple[str, str], is_legal: bool) -> None:
    old, new = pair
    assert machine.allows(old, new) is is_legal
    if is_legal:
        states.move(machine, old, new)
        return
    with pytest.raises(IllegalMove) as caught:
        states.move(machine, old, new)
    assert caught.value.details == {"machine": machine.name, "from": old, "to": new}
    assert old in str(caught.value)
    assert new in str(caught.value)


@pytest.mark.parametrize(
    ("machine", "enum"),
    [(RECEIPT, ReceiptState), (INSTANCE, InstanceState), (NODE, NodeState)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_state_has_a_row(
    machine: Machine, enum: type[ReceiptState] | type[InstanceState] | type[NodeState]
) -> None:
    """No state is missing from its table, and no table moves to a state that does not exist."""
    names = {str(state) for state in enum}
    assert {str(state) for state in machine.moves} == names
    assert {new for _, new in machine.pairs()} <= names


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_no_state_moves_to_itself(machine: Machine) -> None:
    """There are no self-transitions: writing a state again is a mistake, not a move."""
    assert all(old != new for old, new in machine.pairs())


def test_an_ended_block_or_run_only_begins_again() -> None:
    """What has ended leaves its state only by an explicit new beginning."""
    for state in states.ENDED_NODES:
        assert NODE.moves[state] == {NodeState.PENDING}
    for ended in states.ENDED_INSTANCES:
        assert INSTANCE.moves[ended] == {InstanceState.SCHEDULED}


def test_a_block_that_never_ran_can_only_be_skipped_before_it_waits() -> None:
    """A waiting block has begun, so it cannot be skipped any more."""
    assert not NODE.allows(NodeState.WAITING, NodeState.SKIPPED)
    assert NODE.allows(NodeState.PENDING, NodeState.SKIPPED)


@pytest.mark.parametrize("pair", sorted(RECEIPT.pairs()))
def test_each_receipt_move_names_its_actors(pair: tuple[str, str]) -> None:
    """Every legal move of a receipt says who may cause it, and somebody may."""
    assert states.RECEIPT_ACTORS[ReceiptState(pair[0]), ReceiptState(pair[1])]


def test_actors_are_given_for_legal_moves_only() -> None:
    """The table of actors does not open a move that the state machine forbids."""
    assert {(str(old), str(new)) for old, new in states.RECEIPT_ACTORS} == RECEIPT.pairs()


def test_who_may_cause_what() -> None:
    """An operator never prepares, sends or answers for a request in flight; a probe only looks up."""
    by_actor = {
        actor: {(str(old), str(new)) for (old, new), who in states.RECEIPT_ACTORS.items() if actor in who}
        for actor in Actor
    }
    assert by_actor[Actor.OPERATOR] == {
        ("planned", "abandoned"),
        ("prepared", "abandoned"),
        ("unknown", "committed"),
        ("unknown", "abandoned"),
        ("unknown", "verified"),
        ("unknown", "compensated"),
        ("committed", "compensated"),
        ("verified", "compensated"),
    }
    assert by_actor[Actor.PROBE] == {("unknown", "abandoned"), ("unknown", "verified")}
    assert ("unknown", "verified") not in by_actor[Actor.ENGINE]
    assert ("unknown", "compensated") not in by_actor[Actor.ENGINE]


def test_resolved_and_unresolved_are_apart() -> None:
    """Unknown and dispatched are never resolved, and a resolved receipt goes back to neither."""
    assert ReceiptState.UNKNOWN not in states.RESOLVED
    assert ReceiptState.DISPATCHED not in states.RESOLVED
    assert not states.RESOLVED & states.UNRESOLVED
    for state in states.RESOLVED:
        assert not RECEIPT.moves[state] & states.UNRESOLVED


def test_nothing_returns_to_a_state_before_the_dispatch() -> None:
    """What may have been sent is never again recorded as not sent, except by resolving it."""
    reachable = {ReceiptState.DISPATCHED}
    frontier = [ReceiptState.DISPATCHED]
    while frontier:
        for new in RECEIPT.moves[frontier.pop()]:
            if ReceiptState(new) not in reachable:
                reachable.add(ReceiptState(new))
                frontier.append(ReceiptState(new))
    assert not reachable & {ReceiptState.PLANNED, ReceiptState.PREPARED}


def test_every_receipt_can_be_resolved() -> None:
    """From every unresolved or unsent state some legal path leads to a resolved one."""
    for start in ReceiptState:
        reached, frontier = {start}, [start]
        while frontier:
            for new in map(ReceiptState, RECEIPT.moves[frontier.pop()]):
                if new not in reached:
                    reached.add(new)
                    frontier.append(new)
        assert reached & states.RESOLVED


def test_pairs_of_all_machines_are_few() -> None:
    """Most pairs are illegal in every machine: a table that allows everything protects nothing."""
    for machine in MACHINES:
        n_pairs = len(list(product(machine.moves, machine.moves)))
        assert len(machine.pairs()) < n_pairs / 2
