"""From the text of a sequence to a definition that can run, or to everything that is wrong with it.

All problems are found in one go, each with pointer, line, column and a way out; nothing else ever
comes out of a text, however broken. What the format allows but a person hardly means is a warning.
Source: sequence-format 2, 11.1. The easy mistake: checking a stored document again; a revision that
runs was checked when it was stored, and `from_stored` takes it as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from orch8_local.blocks.block import Block, Blocks, children_of
from orch8_local.blocks.every import MODULES as _BLOCK_TYPES
from orch8_local.blocks.kinds import Flag, OneOf, Shape, Text, Whole
from orch8_local.blocks.parts import Interceptors, Sla
from orch8_local.blocks.schemas import JsonSchema
from orch8_local.blocks.shape import INVALID, Finding, Kind, Object, Place, Reading, part, read_object, shown
from orch8_local.errors import Problem, SequenceInvalid
from orch8_local.model.ids import canonical_json, sha256_hex
from orch8_local.sequence.json_source import PORTABLE_DEPTH, JsonSource, escaped, parse_json, place_in_words
from orch8_local.sequence.lint import control_character, lint

Json = Any

STATUSES = ("draft", "staging", "production", "unpublished")
_FREE_KEYS = frozenset({"description", "notes", "$schema"})
_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"(urn:uuid:|\{{)?{_HEX}{{8}}(-?){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}}\}}?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

assert _BLOCK_TYPES, "every block type registers itself"


class _Uuid(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """A UUID, written hyphenated and in lower case."""
        found = Text().read(value, place)
        if found is INVALID:
            return found
        if _UUID.fullmatch(found) is None:
            place.unexpected("a UUID", found, "leave it out: one is made", "type.uuid")
            return INVALID
        return str(UUID(found))


class _Moment(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """A time with its offset (RFC 3339), written in UTC."""
        found = Text().read(value, place)
        if found is INVALID:
            return found
        try:
            if _MOMENT.fullmatch(found) is None:
                raise ValueError
            moment = datetime.fromisoformat(found.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            place.unexpected("a time with its offset", found, "write it like 2026-03-01T09:30:00Z", "type.time")
            return INVALID
        return moment.isoformat().replace("+00:00", "Z")


class _Name(Kind):
    """What people and other sequences call it; it has to be typed, shown and put into a path."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        found = Text(blank="name.blank", is_blank_local=True).read(value, place)
        if found is INVALID:
            return found
        if control_character(found):
            message = f"the name {shown(found)} holds {control_character(found)}"
            place.fault("name.control", message, is_local=True)
        if len(found) > 128:
            message = f"a name has at most 128 characters, this one has {len(found)}"
            place.fault("name.long", message, is_local=True)
        return found


class SequenceDefinition(Object):
    """A checked document (section 2). Durations in milliseconds; `blocks` run in order.

    free: notes for people at the top of the document (`description`, `notes`, `$schema`, `x-…`).
    """

    id: str | None = part(_Uuid(), default=None)
    tenant_id: str = part(Text(blank="type.blank"), default="local")
    namespace: str = part(Text(), default="default")
    name: str = part(_Name())
    version: int = part(Whole(-(2**31), 2**31 - 1), default=1)
    deprecated: bool = part(Flag(), default=False)
    status: str = part(OneOf(STATUSES), default="production")
    created_at: str | None = part(_Moment(), default=None)
    blocks: tuple[Block, ...] = part(Blocks(empty="blocks.empty", deeper=0))
    interceptors: Interceptors | None = part(Shape(Interceptors), default=None)
    input_schema: dict[str, Json] | None = part(JsonSchema(), default=None)
    sla: Sla | None = part(Shape(Sla), default=None)
    on_failure: tuple[Block, ...] | None = part(Blocks(deeper=0), default=None)
    on_cancel: tuple[Block, ...] | None = part(Blocks(deeper=0), default=None)

    @classmethod
    def keeps(cls, name: str) -> bool:
        """Notes for people may stand at the top of a document."""
        return name in _FREE_KEYS or name.startswith("x-")

    @property
    def description(self) -> str | None:
        """What the author says it does."""
        text = self.free.get("description")
        return text if isinstance(text, str) else None

    @cached_property
    def content_sha256(self) -> str:
        """The hash of the stored form: two documents that say the same have the same."""
        return sha256_hex(self.stored_text)

    @cached_property
    def stored_text(self) -> str:
        """The stored form as text."""
        return canonical_json(self.to_json())

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
    handlers: Collection[str] | Mapping[str, Any] | None = None,
    external_handlers: Collection[str] = (),
    strict: bool = True,
) -> ParsedDocument:
    """A usable document, with its warnings. Raises SequenceInvalid with all problems.

    handlers: names that exist here, or a mapping from name to the pydantic model of its params (or
    None); None leaves handlers unchecked. external_handlers: names that somebody else will provide
    (product D14). strict=False: what only this program refuses is a warning (sequence-format 11.1).
    """
    found = inspect(text, handlers=handlers, external_handlers=external_handlers, strict=strict)
    if found.definition is None:
        raise SequenceInvalid(found.problems, source=source)
    return ParsedDocument(found.definition, found.problems)


def inspect(
    text: str | bytes,
    *,
    handlers: Collection[str] | Mapping[str, Any] | None = None,
    external_handlers: Collection[str] = (),
    strict: bool = True,
) -> Inspection:
    """Everything wrong with a text, in the order of the text. Takes what `parse` takes; never raises."""
    source = parse_json(text)
    reading = Reading()
    definition = _read(source.value, reading) if source.is_readable else None
    findings = [*reading.findings, *lint(reading, handlers=handlers, external_handlers=external_handlers)]
    if source.is_readable and source.depth > PORTABLE_DEPTH:
        message = f"the text is {source.depth} levels deep; an Orch8 server reads at most {PORTABLE_DEPTH}"
        findings.append(Finding("json.depth", message, "", is_warning=True))
    told = [_judged(finding, strict) for finding in findings if finding.pointer not in source.unread]
    errors = [finding for finding in told if not finding.is_warning]
    is_ours = not source.problems and bool(errors) and all(finding.is_local for finding in errors)
    problems = [*source.problems, *(_placed(finding, source, is_ours=is_ours) for finding in told)]
    problems.sort(key=lambda problem: (problem.line, problem.column))
    is_usable = definition is not None and not source.problems and not errors
    return Inspection(definition if is_usable else None, tuple(problems))


def from_stored(text: str) -> SequenceDefinition:
    """A document that was checked when it was stored."""
    reading = Reading(is_stored=True)
    found = _read(json.loads(text), reading)
    if found is None:
        problems = [Problem(each.code, each.message, each.pointer) for each in reading.findings]
        raise SequenceInvalid(problems, source="stored document")
    return found


def _read(value: Json, reading: Reading) -> SequenceDefinition | None:
    if not isinstance(value, dict):
        expected = 'an object: {"name": "…", "blocks": [ … ]}'
        hint = "put the list into an object, as its 'blocks'" if isinstance(value, list) else None
        Place(reading).unexpected(expected, value, hint)
        return None
    found = read_object(SequenceDefinition, value, Place(reading))
    if value.get("interceptors"):
        message = "interceptors only leave a trace; their handlers are not called"
        Place(reading).at("interceptors").doubt("interceptors.trace", message)
    return found if isinstance(found, SequenceDefinition) else None


def _judged(finding: Finding, strict: bool) -> Finding:
    """What only this program refuses is a warning where a server's rules hold."""
    return replace(finding, is_warning=True) if finding.is_local and not strict else finding


def _placed(finding: Finding, source: JsonSource, *, is_ours: bool) -> Problem:
    line, column = source.place(finding.pointer, is_key=finding.is_key, index=finding.index)
    where = place_in_words(finding.pointer)
    message = f"{where}: {finding.message}" if where else finding.message
    if is_ours and not finding.is_warning:
        message += " (an Orch8 server would take it)"
    return Problem(
        finding.code,
        message,
        path=finding.pointer,
        line=line,
        column=column,
        severity="warning" if finding.is_warning else "error",
        block_id=finding.block_id,
        expected=finding.expected,
        suggestion=finding.suggestion,
    )


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
