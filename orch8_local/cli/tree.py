"""The blocks of one run as a tree: the document's shape, with the state of each block in it.

Owns the walk over any document, whatever its block types: a block inside a block is its child. The
easy mistake: showing a block of a loop once; each loop position that was reached has its own line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orch8_local.cli.invocation import Invocation
from orch8_local.cli.render import one_line
from orch8_local.cli.wording import Standing, latest_of, node_standing, place, receipt_words
from orch8_local.model.ids import parse_scope, scope_text

if TYPE_CHECKING:
    from orch8_local.engine.api import InstanceView
    from orch8_local.model.records import Node

Json = Any
_NOT_STRUCTURE = ("params", "context", "metadata", "retry", "effect")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the tree. kind: a block's type, or `round` for one position of a loop."""

    depth: int
    label: str
    kind: str
    scope: str
    block_id: str
    node: Node | None


def tree_lines(view: InstanceView) -> list[Line]:
    """The tree, outermost first, in the order of the document."""
    nodes = {node.key: node for node in view.nodes}
    return list(_lines(json.loads(view.document).get("blocks", []), nodes, scope="", depth=0))


def _lines(value: Json, nodes: Mapping[tuple[str, str], Node], *, scope: str, depth: int) -> Iterator[Line]:
    for block in _outermost(value):
        block_id = block["id"]
        node = nodes.get((scope, block_id))
        yield Line(depth, one_line(block_id), block["type"], scope, block_id, node)
        inside = {name: part for name, part in block.items() if name not in _NOT_STRUCTURE}
        inside.pop("id")
        rounds = _rounds(nodes, scope, block_id)
        if not rounds:
            yield from _lines(inside, nodes, scope=scope, depth=depth + 1)
        for index, inner in rounds:
            yield Line(depth + 1, f"round {index + 1}", "round", inner, block_id, None)
            yield from _lines(inside, nodes, scope=inner, depth=depth + 2)


def _outermost(value: Json) -> Iterator[Mapping[str, Json]]:
    """The nearest blocks inside a value, without looking into them."""
    if isinstance(value, dict):
        if isinstance(value.get("id"), str) and isinstance(value.get("type"), str):
            yield value
            return
        for part in value.values():
            yield from _outermost(part)
    elif isinstance(value, list):
        for part in value:
            yield from _outermost(part)


def _rounds(nodes: Mapping[tuple[str, str], Node], scope: str, block_id: str) -> list[tuple[int, str]]:
    """(index, scope) of every position of a loop that some node was reached in."""
    outer = parse_scope(scope)
    found = set()
    for node_scope, _ in nodes:
        path = parse_scope(node_scope)
        if len(path) > len(outer) and path[: len(outer)] == outer and path[len(outer)][0] == block_id:
            found.add(path[len(outer)][1])
    return [(index, scope_text((*outer, (block_id, index)))) for index in sorted(found)]


def tree_json(view: InstanceView) -> list[dict[str, Json]]:
    """The tree as a flat list with depths."""
    return [
        {
            "depth": line.depth,
            "block_id": line.block_id,
            "type": line.kind,
            "scope": line.scope,
            "state": str(line.node.state) if line.node else "pending",
            "attempt": line.node.attempt if line.node else 0,
        }
        for line in tree_lines(view)
        if line.kind != "round"
    ]


def show_tree(invocation: Invocation, view: InstanceView, now_us: int) -> None:
    """Print it."""
    from orch8_local.cli.screen import Cell, show_table, state_cell

    table: list[list[Cell | str]] = []
    for line in tree_lines(view):
        standing = Standing("", "") if line.kind == "round" else node_standing(line.node, now_us)
        receipt = latest_of(view.receipts, line.node) if line.node else None
        label = place(line.scope, line.block_id) if invocation.is_plain else "  " * line.depth + line.label
        state: Cell | str = state_cell(standing.key, standing.text) if standing.key else ""
        table.append([label, state, line.kind, receipt_words(receipt) if receipt else ""])
    show_table(invocation, ["BLOCK", "STATE", "TYPE", "EFFECT"], table)
