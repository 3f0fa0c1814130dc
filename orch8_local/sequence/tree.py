"""The execution tree of one run: the only place that walks. Pure.

It holds the nodes of a run beside the document, asks each block's behaviour what follows from an
event, and says what the runner has to do. It knows no block type by name. A node exists only from
the moment its block is reached; a block without a node is pending.

The easy mistake: acting on a decision before it is written. The runner puts all that follows from
one step's end into the transaction that ends the step, then starts the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orch8_local.blocks.base import (
    Action,
    Behaviour,
    BlockContext,
    End,
    Remember,
    RunHandler,
    StartChild,
    behaviour_of,
    next_of_sequence,
)
from orch8_local.errors import Bug
from orch8_local.lang.scope import Scope
from orch8_local.model.ids import parse_scope, scope_text
from orch8_local.model.records import Failure, Node, NodeKey
from orch8_local.model.states import ENDED_NODES, NODE, NodeState, move

Json = Any


@dataclass(frozen=True, slots=True)
class RunStep:
    """Execute this step's handler; its node is as the tree knows it."""

    block: Any
    node: Node


@dataclass(frozen=True, slots=True)
class Changed:
    """A node to be written, with a result row if it has one."""

    node: Node
    output: Json = None
    has_output: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The run itself ends."""

    state: NodeState
    failure: Failure | None = None


Decision = RunStep | Changed | Finished


class Tree:
    """The nodes of one run and what follows from each event."""

    def __init__(
        self, blocks: Sequence[Any], nodes: Iterable[Node], *, language: Callable[[], Scope], now_us: Callable[[], int]
    ) -> None:
        self._blocks = blocks
        self._nodes: dict[NodeKey, Node] = {node.key: node for node in nodes}
        self._language = language
        self._now_us = now_us
        self._block: dict[str, Any] = {}
        self._parent: dict[str, Any] = {}
        for block, parent in _with_parents(blocks):
            self._block[block.id] = block
            self._parent[block.id] = parent

    def node(self, key: NodeKey) -> Node | None:
        """A node, if its block was reached."""
        return self._nodes.get(key)

    def nodes(self) -> list[Node]:
        """All nodes there are."""
        return list(self._nodes.values())

    def put(self, node: Node) -> None:
        """Take over what the runner has decided about a step's node; the move must be legal."""
        old = self._nodes.get(node.key)
        if old is not None and old.state is not node.state:
            move(NODE, old.state, node.state)
        self._nodes[node.key] = node

    def next_wake_us(self) -> int | None:
        """The earliest moment at which a waiting node becomes runnable."""
        times = [n.wake_at_us for n in self._nodes.values() if n.state is NodeState.WAITING and n.wake_at_us is not None]
        return min(times, default=None)

    def resume(self) -> list[Decision]:
        """What to do after a claim: run what was running or is due, and react where a reaction is owed."""
        decisions: list[Decision] = []
        active = [n for n in self._nodes.values() if n.state not in ENDED_NODES and n.state is not NodeState.PENDING]
        for node in active:
            block = self._block[node.block_id]
            if self._has_active_child(block, active):
                continue
            if self._behaviour(block).children(block):
                decisions += self._react(block, node.scope, None)
            elif node.state is NodeState.RUNNING or node.wake_at_us is None or node.wake_at_us <= self._now_us():
                decisions.append(RunStep(block, node))
        if not active:
            decisions += self._root_done(None)
        return decisions

    def ended(self, node: Node) -> list[Decision]:
        """What follows from the end of a node that `put` has taken over."""
        parent = self._parent[node.block_id]
        if parent is None:
            return self._root_done(node)
        return self._react(parent, _parent_scope(node.scope, parent.id), node)

    def cancel(self) -> list[Decision]:
        """End every active node as cancelled, deepest first, and the run with them."""
        decisions: list[Decision] = []
        now_us = self._now_us()
        active = [n for n in self._nodes.values() if n.state not in ENDED_NODES and n.state is not NodeState.PENDING]
        for node in reversed(active):
            block = self._block[node.block_id]
            for action in self._behaviour(block).cancel(block, self._context(node, ())):
                assert isinstance(action, End), "a cancelled block can only end"
                decisions.append(self._end(node, action, now_us))
        decisions.append(Finished(NodeState.CANCELLED))
        return decisions

    # --- the walk ------------------------------------------------------------------------------

    def _root_done(self, child: Node | None) -> list[Decision]:
        done = () if child is not None else self._ended_children(self._blocks, "")
        decisions: list[Decision] = []
        for action in next_of_sequence(self._blocks, child, done, ""):
            if isinstance(action, End):
                decisions.append(Finished(action.state, action.failure))
            elif isinstance(action, StartChild):
                decisions += self._start(action.block, action.scope)
        return decisions

    def _start(self, block: Any, scope: str) -> list[Decision]:
        node = self._nodes.get((scope, block.id)) or Node(scope, block.id, NodeState.PENDING)
        actions = self._behaviour(block).start(block, self._context(node, ()))
        return self._apply(block, node, actions)

    def _react(self, block: Any, scope: str, child: Node | None) -> list[Decision]:
        node = self._nodes[(scope, block.id)]
        behaviour = self._behaviour(block)
        done = self._ended_children(behaviour.children(block), None)
        return self._apply(block, node, behaviour.child_done(block, child, self._context(node, done)))

    def _apply(self, block: Any, node: Node, actions: Sequence[Action]) -> list[Decision]:
        decisions: list[Decision] = []
        now_us = self._now_us()
        for action in actions:
            match action:
                case RunHandler():
                    self._nodes[node.key] = node
                    decisions.append(RunStep(block, node))
                case Remember(memo):
                    node = replace(self._begun(node, now_us), memo=memo)
                    self._nodes[node.key] = node
                    decisions.append(Changed(node))
                case StartChild(child, scope):
                    if node.state is NodeState.PENDING:
                        node = self._begun(node, now_us)
                        self._nodes[node.key] = node
                        decisions.append(Changed(node))
                    decisions += self._start(child, scope)
                case End():
                    change = self._end(node, action, now_us)
                    decisions.append(change)
                    decisions += self.ended(change.node)
        return decisions

    def _begun(self, node: Node, now_us: int) -> Node:
        return replace(node, state=NodeState.RUNNING, started_at_us=node.started_at_us or now_us)

    def _end(self, node: Node, action: End, now_us: int) -> Changed:
        move(NODE, node.state, action.state)
        error = action.failure.as_dict() if action.failure else None
        ended = replace(
            node, state=action.state, ended_at_us=now_us, wake_at_us=None, waiting_for=None, error=error
        )
        self._nodes[node.key] = ended
        return Changed(ended, action.output, action.has_output)

    # --- look-up -------------------------------------------------------------------------------

    def _context(self, node: Node, children: Sequence[Node]) -> BlockContext:
        return BlockContext(node, self._language(), self._now_us(), children)

    def _behaviour(self, block: Any) -> Behaviour:
        behaviour = behaviour_of(block.type)
        if behaviour is None:
            raise Bug(f"a run with a {block.type} block was let in, although that is not built")
        return behaviour

    def _ended_children(self, blocks: Sequence[Any], scope: str | None) -> list[Node]:
        if scope is not None:
            found = (self._nodes.get((scope, block.id)) for block in blocks)
            return [node for node in found if node is not None and node.state in ENDED_NODES]
        ids = {block.id for block in blocks}
        return [n for n in self._nodes.values() if n.block_id in ids and n.state in ENDED_NODES]

    def _has_active_child(self, block: Any, active: Sequence[Node]) -> bool:
        return any(self._parent[node.block_id] is block for node in active)


def _with_parents(blocks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    stack: list[tuple[Any, Any]] = [(block, None) for block in reversed(blocks)]
    while stack:
        block, parent = stack.pop()
        yield block, parent
        behaviour = behaviour_of(block.type)
        if behaviour is not None:
            stack.extend((child, block) for child in reversed(behaviour.children(block)))


def _parent_scope(scope: str, parent_id: str) -> str:
    """A child runs in its parent's scope, or one iteration deeper if the parent is a loop."""
    path = parse_scope(scope)
    if path and path[-1][0] == parent_id:
        return scope_text(path[:-1])
    return scope
