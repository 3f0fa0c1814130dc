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


@dataclass(frozen=True, slots=True)
class _Ended:
    node: Node


@dataclass(frozen=True, slots=True)
class _Actions:
    """Actions of one block still to be done; block None stands for the document's own list."""

    block: Any
    scope: str
    actions: tuple[Action, ...]


_Job = _Ended | _Actions


class Tree:
    """The nodes of one run and what follows from each event."""

    def __init__(
        self,
        blocks: Sequence[Any],
        nodes: Iterable[Node],
        *,
        language: Callable[[], Scope],
        now_us: Callable[[], int],
    ) -> None:
        self._blocks = blocks
        self._nodes: dict[NodeKey, Node] = {node.key: node for node in nodes}
        self._language = language
        self._now_us = now_us
        self._positions = {block.id: index for index, block in enumerate(blocks)}
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
        times = [
            n.wake_at_us for n in self._nodes.values() if n.state is NodeState.WAITING and n.wake_at_us is not None
        ]
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
                decisions += self._work([self._reaction(block, node.scope, None)])
            elif node.state is NodeState.RUNNING or node.wake_at_us is None or node.wake_at_us <= self._now_us():
                decisions.append(RunStep(block, node))
        if not active:
            decisions += self._work([self._root_done(None)])
        return decisions

    def ended(self, node: Node) -> list[Decision]:
        """What follows from the end of a node that `put` has taken over."""
        return self._work([_Ended(node)])

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

    def _work(self, jobs: list[_Job]) -> list[Decision]:
        """Do jobs depth first, in order, on a stack of its own: documents may be long and deep."""
        decisions: list[Decision] = []
        stack = list(reversed(jobs))
        while stack:
            job = stack.pop()
            if isinstance(job, _Ended):
                parent = self._parent[job.node.block_id]
                if parent is None:
                    stack.append(self._root_done(job.node))
                else:
                    stack.append(self._reaction(parent, _parent_scope(job.node.scope, parent.id), job.node))
            elif job.block is None:
                self._act_on_root(job, decisions, stack)
            else:
                self._act(job, decisions, stack)
        return decisions

    def _act_on_root(self, job: _Actions, decisions: list[Decision], stack: list[_Job]) -> None:
        for action in job.actions:
            if isinstance(action, End):
                decisions.append(Finished(action.state, action.failure))
            elif isinstance(action, StartChild):
                stack.append(self._begin(action))

    def _act(self, job: _Actions, decisions: list[Decision], stack: list[_Job]) -> None:
        """The first action of a job; what is left of the job waits below what the first one causes."""
        if not job.actions:
            return
        action, rest = job.actions[0], job.actions[1:]
        if rest:
            stack.append(replace(job, actions=rest))
        now_us = self._now_us()
        key = (job.scope, job.block.id)
        node = self._nodes.get(key) or Node(*key, NodeState.PENDING)
        match action:
            case RunHandler():
                self._nodes[key] = node
                decisions.append(RunStep(job.block, node))
            case Remember(memo):
                self._change(replace(_begun(node, now_us), memo=memo), decisions)
            case StartChild():
                if node.state is NodeState.PENDING:
                    self._change(_begun(node, now_us), decisions)
                stack.append(self._begin(action))
            case End():
                change = self._end(node, action, now_us)
                decisions.append(change)
                stack.append(_Ended(change.node))

    def _root_done(self, child: Node | None) -> _Actions:
        done = () if child is not None else self._ended_children(self._blocks)
        return _Actions(None, "", tuple(next_of_sequence(self._blocks, child, done, "", positions=self._positions)))

    def _begin(self, child: StartChild) -> _Actions:
        key = (child.scope, child.block.id)
        node = self._nodes.get(key) or Node(*key, NodeState.PENDING)
        actions = self._behaviour(child.block).start(child.block, self._context(node, ()))
        return _Actions(child.block, child.scope, tuple(actions))

    def _reaction(self, block: Any, scope: str, child: Node | None) -> _Actions:
        node = self._nodes[(scope, block.id)]
        behaviour = self._behaviour(block)
        done = self._ended_children(behaviour.children(block))
        actions = behaviour.child_done(block, child, self._context(node, done))
        return _Actions(block, scope, tuple(actions))

    def _change(self, node: Node, decisions: list[Decision]) -> None:
        self._nodes[node.key] = node
        decisions.append(Changed(node))

    def _end(self, node: Node, action: End, now_us: int) -> Changed:
        move(NODE, node.state, action.state)
        error = action.failure.as_dict() if action.failure else None
        ended = replace(node, state=action.state, ended_at_us=now_us, wake_at_us=None, waiting_for=None, error=error)
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

    def _ended_children(self, blocks: Sequence[Any]) -> list[Node]:
        ids = {block.id for block in blocks}
        return [n for n in self._nodes.values() if n.block_id in ids and n.state in ENDED_NODES]

    def _has_active_child(self, block: Any, active: Sequence[Node]) -> bool:
        return any(self._parent[node.block_id] is block for node in active)


def _begun(node: Node, now_us: int) -> Node:
    return replace(node, state=NodeState.RUNNING, started_at_us=node.started_at_us or now_us)


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
