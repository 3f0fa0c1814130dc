"""From the text of a sequence to a definition that can run, or to everything that is wrong with it.

All problems are found in one go, each with pointer, line, column and a way out; nothing else ever
comes out of a text, however broken. What the format allows but a person hardly means is a warning.
Source: sequence-format 2, 11.1. The easy mistake: checking a stored document again; a revision that
runs was checked when it was stored, and `from_stored` takes it as it is.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from orch8_local.blocks.block import Block, Blocks, children_of
from orch8_local.blocks.every import MODULES as _BLOCK_TYPES
from orch8_local.blocks.kinds import Flag, JsonObject, OneOf, Shape, Text, Whole
from orch8_local.blocks.parts import Interceptors, Sla
from orch8_local.blocks.saga import Saga
from orch8_local.blocks.shape import INVALID, Finding, Object, Place, part, read_object
from orch8_local.errors import Problem, SequenceInvalid
from orch8_local.model.ids import canonical_json, sha256_hex
from orch8_local.sequence.json_source import PORTABLE_DEPTH, JsonSource, escaped, parse_json
from orch8_local.sequence.lint import lint

Json = Any

MAX_BLOCKS = 5000
MAX_ID_CHARACTERS = 128
_STATUSES = ("draft", "staging", "production", "unpublished")
_FREE_KEYS = frozenset({"description", "notes", "$schema"})

assert _BLOCK_TYPES, "every block type registers itself"


@dataclass(frozen=True, slots=True)
class _Uuid:
    def read(self, value: Json, place: Place) -> Any:
        """A UUID, written hyphenated and in lower case."""
        found = Text().read(value, place)
        if found is INVALID:
            return found
        try:
            return str(UUID(found))
        except ValueError:
            place.fault("type.uuid", f"{place.name!r} is no UUID: {found!r}", suggestion="leave it out: one is made")
            return INVALID


@dataclass(frozen=True, kw_only=True)
class SequenceDefinition(Object):
    """A checked document (section 2). Durations in milliseconds; `blocks` run in order."""

    @classmethod
    def keeps(cls, name: str) -> bool:
        """Notes for people may stand at the top of a document."""
        return name in _FREE_KEYS or name.startswith("x-")

    id: str | None = part(_Uuid(), default=None)
    tenant_id: str = part(Text(blank="type.blank"), default="local")
    namespace: str = part(Text(), default="default")
    name: str = part(Text(blank="type.blank"))
    version: int = part(Whole(-(2**31), 2**31 - 1), default=1)
    deprecated: bool = part(Flag(), default=False)
    status: str = part(OneOf(_STATUSES), default="production")
    created_at: str | None = part(Text(blank="type.blank"), default=None)
    blocks: tuple[Block, ...] = part(Blocks(empty="blocks.empty", deeper=0))
    interceptors: Interceptors | None = part(Shape(Interceptors), default=None)
    input_schema: dict[str, Json] | None = part(JsonObject(is_schema=True), default=None)
    sla: Sla | None = part(Shape(Sla), default=None)
    on_failure: tuple[Block, ...] | None = part(Blocks(deeper=0), default=None)
    on_cancel: tuple[Block, ...] | None = part(Blocks(deeper=0), default=None)

    @cached_property
    def content_sha256(self) -> str:
        """The hash of the stored form: two documents that mean the same have the same."""
        return sha256_hex(canonical_json(self.to_json()))

    @cached_property
    def _by_id(self) -> dict[str, Block]:
        return {block.id: block for block, _, _ in self.walk()}

    def block(self, block_id: str) -> Block:
        """A block of the main tree; KeyError if there is none."""
        return self._by_id[block_id]

    def walk(self) -> Iterator[tuple[Block, str, int]]:
        """(block, JSON pointer, how many composites are around it) for the main tree, in document order."""
        return walk_blocks(self.blocks, "/blocks")


def walk_blocks(blocks: tuple[Block, ...], pointer: str) -> Iterator[tuple[Block, str, int]]:
    """Every block of a tree, outer ones first, in the order of the document."""
    stack = [(block, f"{pointer}/{index}", 0) for index, block in reversed(list(enumerate(blocks)))]
    while stack:
        block, at, depth = stack.pop()
        yield block, at, depth
        below = [(child, at + suffix, depth + 1) for suffix, child in children_of(block)]
        stack.extend(reversed(below))


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A definition with the warnings about it."""

    definition: SequenceDefinition
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is to say about a text; definition is None if there is an error among the problems."""

    definition: SequenceDefinition | None
    problems: tuple[Problem, ...]

    @property
    def has_errors(self) -> bool:
        """True if the document cannot be used."""
        return any(problem.severity == "error" for problem in self.problems)


def parse(
    text: str | bytes,
    *,
    source: str = "document",
    handlers: Collection[str] | None = None,
    external_handlers: Collection[str] = (),
) -> ParsedDocument:
    """A usable document, with its warnings. Raises SequenceInvalid with all problems.

    handlers: names that exist here; None leaves handlers unchecked. external_handlers: names that
    somebody else will provide (product D14).
    """
    found = inspect(text, handlers=handlers, external_handlers=external_handlers)
    if found.definition is None:
        raise SequenceInvalid(found.problems, source=source)
    return ParsedDocument(found.definition, found.problems)


def inspect(
    text: str | bytes, *, handlers: Collection[str] | None = None, external_handlers: Collection[str] = ()
) -> Inspection:
    """Everything wrong with a text, in the order of the text. Never raises."""
    source = parse_json(text)
    findings: list[Finding] = []
    definition = _read(source, findings) if source.is_readable else None
    if definition is not None:
        findings += _between_blocks(definition)
        findings += lint(definition, handlers=handlers, external_handlers=external_handlers)
    if source.depth > PORTABLE_DEPTH:
        message = f"the text is nested {source.depth} levels deep; an Orch8 server reads at most {PORTABLE_DEPTH}"
        findings.append(Finding("json.depth", message, "", is_warning=True))
    told = [finding for finding in findings if finding.pointer not in source.unread]
    problems = [*source.problems, *(_placed(finding, source) for finding in told)]
    problems.sort(key=lambda problem: (problem.line, problem.column))
    has_errors = any(problem.severity == "error" for problem in problems)
    return Inspection(None if has_errors else definition, tuple(problems))


def from_stored(text: str) -> SequenceDefinition:
    """A document that was checked when it was stored."""
    findings: list[Finding] = []
    found = read_object(SequenceDefinition, json.loads(text), Place(findings.append))
    if found is INVALID:
        problems = [Problem(finding.code, finding.message, finding.pointer) for finding in findings]
        raise SequenceInvalid(problems, source="stored document")
    assert isinstance(found, SequenceDefinition)
    return found


def _read(source: JsonSource, findings: list[Finding]) -> SequenceDefinition | None:
    if not isinstance(source.value, dict):
        message = 'a sequence is an object: {"name": "…", "blocks": [ … ]}'
        hint = "put the list into an object, as its 'blocks'" if isinstance(source.value, list) else None
        findings.append(Finding("type.wrong", message, "", suggestion=hint))
        return None
    found = read_object(SequenceDefinition, source.value, Place(findings.append))
    return found if isinstance(found, SequenceDefinition) else None


def _placed(finding: Finding, source: JsonSource) -> Problem:
    line, column = source.place(finding.pointer, is_key=finding.is_key, index=finding.index)
    return Problem(
        finding.code,
        finding.message,
        path=finding.pointer,
        line=line,
        column=column,
        severity="warning" if finding.is_warning else "error",
        block_id=finding.block_id,
        expected=finding.expected,
        suggestion=finding.suggestion,
    )


# --- what only the whole document shows -----------------------------------------------------------


def _between_blocks(definition: SequenceDefinition) -> Iterator[Finding]:
    n_ids = 0
    for name in ("blocks", "on_failure", "on_cancel"):
        blocks = getattr(definition, name)
        if blocks:
            ids = list(_ids(blocks, f"/{name}"))
            n_ids += len(ids)
            yield from _id_faults(ids)
            yield from _dependency_faults(blocks, f"/{name}", {block_id for block_id, _, _ in ids})
    if n_ids > MAX_BLOCKS:
        yield Finding("block.count", f"there are {n_ids} blocks; at most {MAX_BLOCKS} are possible", "/blocks")


def _ids(blocks: tuple[Block, ...], pointer: str) -> Iterator[tuple[str, str, bool]]:
    """(id, pointer of its owner, True for a saga's step)."""
    for block, at, _ in walk_blocks(blocks, pointer):
        yield block.id, at, False
        if isinstance(block, Saga):
            for index, step in enumerate(block.steps):
                yield step.id, f"{at}/steps/{index}", True


def _id_faults(ids: list[tuple[str, str, bool]]) -> Iterator[Finding]:
    first: dict[str, tuple[str, str, bool]] = {}
    for block_id, owner, is_saga_step in ids:
        pointer = f"{owner}/id"
        key = unicodedata.normalize("NFC", block_id)
        earlier = first.setdefault(key, (block_id, owner, is_saga_step))
        if earlier[1] != owner:
            yield _duplicate(block_id, pointer, earlier, is_saga_step=is_saga_step)
        if "." in block_id or any(unicodedata.category(c) == "Cc" for c in block_id):
            message = f"the id {block_id!r} has a dot or a control character, so no path can reach its output"
            hint = f"write {_plain(block_id)!r}"
            yield Finding("block.id_unreachable", message, pointer, block_id=block_id, suggestion=hint)
        elif not block_id.strip():
            yield Finding("block.id_blank", "an id must not be blank", pointer, block_id=block_id)
        elif len(block_id) > MAX_ID_CHARACTERS:
            message = f"an id has at most {MAX_ID_CHARACTERS} characters, this one has {len(block_id)}"
            yield Finding("block.id_long", message, pointer, block_id=block_id)
        elif block_id.startswith(("_interceptor:", "_sla:")):
            yield Finding("block.id_reserved", f"ids like {block_id!r} are reserved", pointer, block_id=block_id)


def _plain(block_id: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in block_id)


def _duplicate(block_id: str, pointer: str, earlier: tuple[str, str, bool], *, is_saga_step: bool) -> Finding:
    other, owner, was_saga_step = earlier
    message = f"the id {block_id!r} is given twice; the other one is at {owner}"
    if other != block_id:
        message = f"the ids {block_id!r} and {other!r} look the same (at {owner})"
    hint = "an id is unique in its tree"
    if is_saga_step or was_saga_step:
        hint = "a saga's step and its action need different ids"
    return Finding("block.id_duplicate", message, pointer, block_id=block_id, suggestion=hint)


def _dependency_faults(blocks: tuple[Block, ...], pointer: str, known: set[str]) -> Iterator[Finding]:
    """Ids in `compensation.depends_on` exist, and do not go round in a circle."""
    needs: dict[str, tuple[str, tuple[str, ...]]] = {}
    for block, at, _ in walk_blocks(blocks, pointer):
        compensation = getattr(block, "compensation", None)
        if compensation is None:
            continue
        where = f"{at}/compensation/depends_on"
        needs[block.id] = (where, compensation.depends_on)
        for index, wanted in enumerate(compensation.depends_on):
            if wanted not in known:
                message = f"there is no block {wanted!r} to depend on"
                yield Finding("compensation.unknown", message, f"{where}/{index}", block_id=block.id)
    for block_id, (where, _) in needs.items():
        if _reaches(block_id, block_id, needs):
            message = f"{block_id!r} depends on itself, over others"
            yield Finding("compensation.cycle", message, where, block_id=block_id)


def _reaches(start: str, goal: str, needs: dict[str, tuple[str, tuple[str, ...]]]) -> bool:
    seen: set[str] = set()
    stack = [start]
    while stack:
        for following in needs.get(stack.pop(), ("", ()))[1]:
            if following == goal and not (start == goal == following and needs[start][1] == (start,)):
                return True
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False


__all__ = [
    "Inspection",
    "ParsedDocument",
    "SequenceDefinition",
    "escaped",
    "from_stored",
    "inspect",
    "parse",
    "walk_blocks",
]
