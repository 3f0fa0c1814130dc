"""The params of a step against what its handler takes, as far as the document itself decides.

A value with a template in it is not judged: nobody knows yet what it will be. Source: sequence-format
11.2, execution-semantics 5. The easy mistake: pydantic's own words, which speak of Python.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from orch8_local.blocks.shape import Finding, Reading, segment, shown
from orch8_local.lang import template

Json = Any

REQUIRED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "http_request": (("url",),),
    "tool_call": (("url",),),
    "mcp_call": (("url", "server"),),
    "llm_call": (("messages", "system"),),
    "agent": (("goal", "messages"),),
    "send_signal": (("instance_id",), ("signal_type",)),
    "emit_event": (("trigger_slug",),),
    "query_instance": (("instance_id",),),
    "set_state": (("key",), ("value",)),
    "get_state": (("key",),),
    "delete_state": (("key",),),
    "merge_state": (("values",),),
    "memory_delete": (("key",),),
    "embed": (("input",),),
    "memory_store": (("text", "embedding"),),
    "memory_search": (("query", "query_embedding"),),
    "assert": (("condition",),),
}
"""Built-ins whose model is not at hand: one param of each group has to be there."""
_WORDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("gt", "a number above {}"),
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than": ("lt", "a number below {}"),
    "less_than_equal": ("le", "a number of at most {}"),
    "too_short": ("min_length", "at least {} of them"),
    "too_long": ("max_length", "at most {} of them"),
    "string_too_short": ("min_length", "at least {} characters"),
    "string_too_long": ("max_length", "at most {} characters"),
    "literal_error": ("expected", "one of {}"),
    "enum": ("expected", "one of {}"),
}


def param_findings(reading: Reading, models: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the params of every step. models: pydantic models by handler, or None."""
    for pointer, step in reading.steps:
        handler, params, block_id = step.get("handler"), step.get("params"), step.get("id")
        if not isinstance(handler, str) or (isinstance(params, str) and "{{" in params):
            continue
        given = {} if params is None else params
        model = models.get(handler)
        if model is not None:
            found = _against_model(model, given, f"{pointer}/params")
        else:
            found = _missing(handler, given, f"{pointer}/params")
        for finding in found:
            yield replace(finding, block_id=block_id if isinstance(block_id, str) else None)


def _missing(handler: str, params: Json, pointer: str) -> Iterator[Finding]:
    if not isinstance(params, dict):
        return
    for group in REQUIRED.get(handler, ()):
        if not any((name in params and params[name] not in (None, "")) or name == "value" for name in group):
            message = f"{handler!r} needs {' or '.join(map(repr, group))}"
            yield Finding("params.missing", message, pointer, is_warning=True)


def _against_model(model: Any, params: Json, pointer: str) -> Iterator[Finding]:
    from pydantic import ValidationError

    try:
        model.model_validate(params)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path, value = _followed(params, fault["loc"])
            is_whole = not fault["loc"] and fault["type"] == "value_error"
            if template.has_template(params if is_whole else value if fault["type"] != "missing" else None):
                continue
            yield _finding(model, fault, pointer + "".join(f"/{segment(part)}" for part in path), value)


def _followed(value: Json, location: tuple[int | str, ...]) -> tuple[list[int | str], Json]:
    """The part of a location that leads into the value, and what is there."""
    path: list[int | str] = []
    for part in location:
        is_inside = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not is_inside and not (isinstance(value, dict) and part in value):
            break
        value = value[part]
        path.append(part)
    return path, value


def _finding(model: Any, fault: Mapping[str, Any], pointer: str, value: Json) -> Finding:
    kind, name = fault["type"], str(fault["loc"][-1]) if fault["loc"] else ""
    if kind == "missing":
        message = f"the param {name!r} is missing"
        return Finding("params.missing", message, pointer, expected=name, suggestion=f'add "{name}"', is_local=True)
    if kind == "extra_forbidden":
        names = list(model.model_fields) if len(fault["loc"]) == 1 else []
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names) or 'none'}"
        message = "the handler has no such param"
        return Finding("params.unknown", message, pointer, suggestion=hint, is_key=True, is_local=True)
    expected = _WORDS.get(kind)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        expected = words.format(fault["ctx"][key])
    if expected is None:
        message = str(fault["msg"]).removeprefix("Value error, ")
        return Finding("params.invalid", message, pointer, is_local=True)
    message = f"expected {expected}, got {shown(value)}"
    return Finding("params.invalid", message, pointer, expected=expected, is_local=True)
