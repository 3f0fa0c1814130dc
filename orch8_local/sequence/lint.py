"""What a valid document probably does not mean: names nobody has, references that lead nowhere.

Source: sequence-format 11.1 (errors beyond the reference), 11.2. Works on the parsed languages, not on
the text, so prose that mentions `outputs.x` is left alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from orch8_local.blocks.block import Block, children_of
from orch8_local.blocks.for_each import ForEach
from orch8_local.blocks.loop import Loop
from orch8_local.blocks.router import Router
from orch8_local.blocks.saga import Saga
from orch8_local.blocks.shape import Finding
from orch8_local.blocks.step import Step
from orch8_local.blocks.sub_sequence import SubSequence
from orch8_local.lang import expression, template

if TYPE_CHECKING:
    from orch8_local.sequence.document import SequenceDefinition

Json = Any

_EASY_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_PLUGINS = ("ap://", "grpc://", "wasm://")


def lint(
    definition: SequenceDefinition, *, handlers: Collection[str] | None, external_handlers: Collection[str]
) -> Iterator[Finding]:
    """All findings about a definition that could be read whole."""
    known = {block.id for block, _, _ in definition.walk()}
    known |= {step.id for block, _, _ in definition.walk() if isinstance(block, Saga) for step in block.steps}
    if definition.interceptors is not None:
        message = "interceptors only leave a trace; their handlers are not called"
        yield Finding("interceptors.trace", message, "/interceptors", is_warning=True)
    yield from _unreachable(definition.blocks, "/blocks")
    for block, pointer, _ in definition.walk():
        if not _EASY_ID.fullmatch(block.id) and block.id.strip() and "." not in block.id:
            message = f"the id {block.id!r} is easier to use as letters, digits and '_'"
            yield Finding("block.id_style", message, f"{pointer}/id", is_warning=True, block_id=block.id)
        if isinstance(block, Step):
            yield from _handlers(block, pointer, handlers, external_handlers)
        for where, siblings in _lists_below(block):
            yield from _unreachable(siblings, pointer + where)
        yield from _references(block, pointer, known)


def _lists_below(block: Block) -> Iterator[tuple[str, list[Block]]]:
    """(pointer below the block, blocks) of every list of blocks directly in it."""
    for where, members in groupby(children_of(block), key=lambda child: child[0].rpartition("/")[0]):
        yield where, [member for _, member in members]


def _unreachable(blocks: Sequence[Block], pointer: str) -> Iterator[Finding]:
    """A block after an unconditional `fail` never runs."""
    for index, (block, following) in enumerate(pairwise(blocks), 1):
        if isinstance(block, Step) and block.handler == "fail" and block.when is None:
            message = f"{following.id!r} comes after a 'fail' and never runs"
            where = f"{pointer}/{index}"
            yield Finding("block.unreachable", message, where, is_warning=True, block_id=following.id)


def _handlers(
    step: Step, pointer: str, handlers: Collection[str] | None, external_handlers: Collection[str]
) -> Iterator[Finding]:
    """A handler is known here, or somebody else is named who has it (product D14)."""
    named = [("handler", step.handler)]
    if step.compensation is not None:
        named.append(("compensation/handler", step.compensation.handler))
    for field, name in named:
        where = f"{pointer}/{field}"
        if name.startswith(_PLUGINS):
            message = f"{name!r} is a plugin of an Orch8 server; there are none here"
            yield Finding("handler.plugin", message, where, block_id=step.id)
        elif handlers is not None and name not in handlers and name not in external_handlers:
            if field == "handler" and step.queue_name is not None:
                continue
            near = difflib.get_close_matches(name, handlers, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`orch8-local handlers list` shows all"
            yield Finding(
                "handler.unknown",
                f"there is no handler {name!r}",
                where,
                block_id=step.id,
                suggestion=hint,
                is_warning=field != "handler",
            )


def _references(block: Block, pointer: str, known: set[str]) -> Iterator[Finding]:
    """`outputs.x` where no block has the id x."""
    for where, paths in _read_by(block):
        for path in paths:
            if path[0] not in ("outputs", "steps") or len(path) < 2 or path[1] in known:
                continue
            near = difflib.get_close_matches(path[1], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"blocks are {', '.join(sorted(known)[:8])}"
            message = f"'{path[0]}.{path[1]}' is always null: there is no block {path[1]!r}"
            yield Finding(
                "reference.unknown", message, pointer + where, is_warning=True, block_id=block.id, suggestion=hint
            )


def _read_by(block: Block) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """(pointer below the block, paths read there) for every field that speaks a language."""
    if isinstance(block, Step):
        yield from _templates("/params", block.params)
        yield from _templates("/cache_key", block.cache_key)
        if block.effect is not None:
            yield from _templates("/effect/key", block.effect.key)
        yield from _conditions({"/when": block.when})
    elif isinstance(block, SubSequence):
        yield from _templates("/input", block.input)
    elif isinstance(block, ForEach):
        yield from _templates("/collection", block.collection)
    elif isinstance(block, Loop):
        yield from _conditions({"/condition": block.condition, "/break_on": block.break_on})
    elif isinstance(block, Router):
        yield from _conditions(
            {f"/routes/{index}/condition": route.condition for index, route in enumerate(block.routes)}
        )


def _conditions(fields: dict[str, str | None]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    for where, text in fields.items():
        if text is not None:
            yield where, expression.references(text)


def _templates(where: str, value: Json) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Each string with templates, at its own place."""
    stack: list[tuple[str, Json]] = [(where, value)]
    while stack:
        at, item = stack.pop()
        if isinstance(item, str):
            if "{{" in item:
                yield at, template.references(item)
        elif isinstance(item, dict):
            stack.extend((f"{at}/{_segment(key)}", child) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((f"{at}/{index}", child) for index, child in enumerate(item))


def _segment(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
