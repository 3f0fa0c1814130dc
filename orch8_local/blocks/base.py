"""What a block type is to the tree: three pure hooks, and the actions they may ask for.

A block type is one file: its JSON shape (a pydantic model) and its behaviour, registered here by
type. `sequence.tree` asks the registry and knows no block by name; a type without a behaviour is
refused when a run starts. The easy mistake: deciding a condition again at a later visit. What a
block has decided goes into its node's memo and is read from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orch8_local.lang.scope import Scope
from orch8_local.model.records import Failure, Node
from orch8_local.model.states import NodeState

Json = Any


@dataclass(frozen=True, slots=True)
class RunHandler:
    """Call this step's handler now."""


@dataclass(frozen=True, slots=True)
class StartChild:
    """Start a child block in the given scope (the parent's own, or one iteration of it)."""

    block: Any
    scope: str


@dataclass(frozen=True, slots=True)
class End:
    """This block ends. has_output: write `output` as its result row."""

    state: NodeState
    output: Json = None
    has_output: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep a decision in this block's node, durably, with the next transaction."""

    memo: Json


Action = RunHandler | StartChild | End | Remember


@dataclass(frozen=True, slots=True)
class BlockContext:
    """What a hook may look at. children: the nodes of this block's children that exist, by position."""

    node: Node
    language: Scope
    now_us: int
    children: Sequence[Node] = field(default_factory=tuple)


class Behaviour(Protocol):
    """The three hooks of a block type. Pure; called again after a restart with the same facts."""

    def children(self, block: Any) -> Sequence[Any]:
        """All blocks directly below this one, in document order."""
        ...

    def start(self, block: Any, context: BlockContext) -> Sequence[Action]:
        """The block is reached for the first time in this scope."""
        ...

    def child_done(self, block: Any, child: Node | None, context: BlockContext) -> Sequence[Action]:
        """A child has ended; `child` is None when a run is taken up again with nothing running below."""
        ...

    def cancel(self, block: Any, context: BlockContext) -> Sequence[Action]:
        """The run is to end: what must still happen here."""
        ...


_behaviours: dict[str, Behaviour] = {}


def register(block_type: str, behaviour: Behaviour) -> None:
    """Give a block type its behaviour; a second one for the same type is a mistake."""
    assert block_type not in _behaviours, f"{block_type} has two behaviours"
    _behaviours[block_type] = behaviour


def behaviour_of(block_type: str) -> Behaviour | None:
    """The behaviour of a type, or None if it is not built."""
    return _behaviours.get(block_type)


def built_types() -> list[str]:
    """The types that can run."""
    return sorted(_behaviours)


def next_of_sequence(
    blocks: Sequence[Any], child: Node | None, done: Sequence[Node], scope: str, *, positions: Mapping[str, int]
) -> Sequence[Action]:
    """One move of a sequential body: the next block, or the end (execution-semantics 3.5 [LOCAL]).

    A failed or cancelled child ends the body with its state; a skipped one counts as done.
    `done` are the children that have ended, in any order; `child` is the one that has just ended;
    `positions` are the places of all blocks in the list, by id.
    """
    if child is not None and child.state in (NodeState.FAILED, NodeState.CANCELLED):
        failure = Failure.from_dict(child.error) if child.error else None
        return (End(child.state, failure=failure),)
    if child is not None:
        index = positions[child.block_id] + 1
    else:
        ended = {node.block_id: node for node in done}
        index = 0
        while index < len(blocks) and blocks[index].id in ended:
            bad = ended[blocks[index].id]
            if bad.state in (NodeState.FAILED, NodeState.CANCELLED):
                return next_of_sequence(blocks, bad, done, scope, positions=positions)
            index += 1
    if index >= len(blocks):
        return (End(NodeState.COMPLETED),)
    return (StartChild(blocks[index], scope),)
