"""JSON Schemas inside a document: that they compile, before anything is checked against them.

Nothing is ever fetched, so a reference to elsewhere is a fault. Source: sequence-format 5.8, 11.1. The
easy mistake: a pattern that is no regular expression passes the meta-schema and breaks the run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from orch8_local.blocks.shape import INVALID, Kind, Place, shown

Json = Any

MAX_LEVELS = 48
"""Arrays and objects inside each other; checking a schema costs several frames of the stack for each."""
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-03/schema",
)
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SINGLE = frozenset({"items", "additionalItems", "additionalProperties", "unevaluatedItems", "contains"})
_SINGLE |= {"unevaluatedProperties", "propertyNames", "not", "if", "then", "else"}


class JsonSchema(Kind):
    """A JSON Schema, as an object."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, dict):
            place.unexpected("a JSON Schema, an object", value, code="schema.not_object")
            return INVALID
        if place.reading.is_stored:
            return value
        known = len(place.reading.findings)
        _check(value, place)
        return value if len(place.reading.findings) == known else INVALID


def _check(schema: dict[str, Json], place: Place) -> None:
    draft = schema.get("$schema", DRAFTS[0])
    if not isinstance(draft, str) or draft.rstrip("#") not in DRAFTS:
        near = difflib.get_close_matches(str(draft), DRAFTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"leave it out for {DRAFTS[0]}"
        place.at("$schema").fault("schema.draft", "this draft of JSON Schema is not known", suggestion=hint)
    elif _levels(schema) > MAX_LEVELS:
        message = f"the schema is nested more than {MAX_LEVELS} levels deep"
        place.fault("schema.deep", message, suggestion="move parts of it to $defs")
    elif not _meta_faults(schema, place):
        references = [*_keyword_faults(schema, place)]
        _reference_faults(schema, references, place)


def _levels(value: Json) -> int:
    levels, level = 0, [value]
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        levels += 1
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    return levels


def _meta_faults(schema: dict[str, Json], place: Place) -> bool:
    """Report what the meta-schema says; True if there is anything."""
    from jsonschema import exceptions, validators

    chosen = validators.validator_for(schema, default=validators.Draft202012Validator)
    found = list(chosen(chosen.META_SCHEMA).iter_errors(schema))
    for error in found:
        best = exceptions.best_match([error]) or error
        at = place
        for part in best.absolute_path:
            at = at.at(part)
        words = TYPES if best.absolute_path and best.absolute_path[-1] == "type" else best.validator_value
        near: list[str] = []
        if isinstance(best.instance, str) and isinstance(words, (list, tuple)):
            near = difflib.get_close_matches(best.instance, [str(word) for word in words], n=1)
        reason = f"{shown(best.instance)} is no type" if words is TYPES else best.message[:200]
        hint = f"did you mean {near[0]!r}?" if near else None
        at.fault("schema.invalid", f"this is no JSON Schema: {reason}", suggestion=hint)
    return bool(found)


def _keyword_faults(schema: dict[str, Json], place: Place) -> Iterator[tuple[str, Place]]:
    """Report patterns that do not compile; the references that there are, and where."""
    for item, at in _schemas(schema, place):
        target = item.get("$ref")
        if isinstance(target, str):
            yield target, at.at("$ref")
        named = item.get("patternProperties")
        patterns = [(name, at.at("patternProperties").at(name)) for name in named] if isinstance(named, dict) else []
        if isinstance(item.get("pattern"), str):
            patterns.append((item["pattern"], at.at("pattern")))
        for pattern, where in patterns:
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                where.fault("schema.pattern", f"this is no regular expression: {error}")


def _schemas(schema: dict[str, Json], place: Place) -> Iterator[tuple[dict[str, Json], Place]]:
    """Every schema inside a schema, itself first; what stands in examples and constants is none."""
    stack: list[tuple[Json, Place]] = [(schema, place)]
    while stack:
        item, at = stack.pop()
        if not isinstance(item, dict):
            continue
        yield item, at
        for keyword, value in item.items():
            below = at.at(keyword)
            if keyword in _BY_NAME and isinstance(value, Mapping):
                stack += [(child, below.at(name)) for name, child in value.items()]
            elif keyword in _LISTS and isinstance(value, list):
                stack += [(child, below.at(index)) for index, child in enumerate(value)]
            elif keyword in _SINGLE:
                stack.append((value, below))


def _reference_faults(schema: dict[str, Json], references: list[tuple[str, Place]], place: Place) -> None:
    """Report references that lead nowhere, or to something that would have to be fetched."""
    if not references:
        return
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    has_own_names = any("$id" in item for item, _ in _schemas(schema, place))
    specification = specification_with(str(schema.get("$schema", DRAFTS[0])))
    root = specification.create_resource(schema)
    registry: Registry[Json] = Registry().with_resource(root.id() or "", root).crawl()
    resolver = registry.resolver(root.id() or "")
    for target, at in references:
        try:
            resolver.lookup(target)
        except Unresolvable:
            if target.startswith("#"):
                if not has_own_names:  # else the target is looked up in a part with a name of its own
                    at.fault("schema.reference", f"{shown(target)} leads nowhere in this schema")
            else:
                hint = "copy it into $defs and refer to '#/$defs/…'"
                at.fault("schema.remote", f"{shown(target)} would have to be fetched; nothing is", suggestion=hint)
