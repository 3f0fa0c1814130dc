"""Paths of both languages: the roots they may start from, and one step at a time into a value.

Source: sequence-format 6, 7.2, 7.4, 8.2. A path that leads nowhere gives MISSING, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from orch8_local.lang.scope import Scope

Json = Any


class _Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Nothing is there; JSON's null is a value."""

_INDEX = re.compile(r"\+?[0-9]{1,18}", re.ASCII)


def _input(scope: Scope) -> Json:
    return step_into(scope.data, "input")


ROOTS: Mapping[str, Callable[[Scope], Json]] = {
    "data": lambda scope: scope.data,
    "config": lambda scope: scope.config,
    "outputs": lambda scope: scope.outputs,
    "steps": lambda scope: scope.outputs,
    "input": _input,
    "runtime": lambda scope: scope.runtime,
    "state": lambda scope: scope.state,
    "instance_id": lambda scope: scope.instance_id,
}
CONTEXT_SECTIONS = ("data", "config")


def step_into(value: Json, key: str) -> Json:
    """One segment further: a key of an object, or an index of a list; else MISSING."""
    if isinstance(value, Mapping):
        return value.get(key, MISSING)
    if isinstance(value, (list, tuple)) and _INDEX.fullmatch(key):
        index = int(key)
        return value[index] if index < len(value) else MISSING
    return MISSING


def look_up(value: Json, keys: Sequence[str]) -> Json:
    """Follow all keys."""
    for key in keys:
        value = step_into(value, key)
        if value is MISSING:
            return MISSING
    return value


def from_root(scope: Scope, keys: Sequence[str]) -> Json:
    """Follow a path whose first key is a root, or `context` and one of its sections.

    `instance_id.x` is `instance_id`.
    """
    root = keys[0]
    if root == "context":
        return look_up(ROOTS[keys[1]](scope), keys[2:])
    if root == "instance_id":
        return scope.instance_id
    return look_up(ROOTS[root](scope), keys[1:])


def reader(keys: Sequence[str]) -> Callable[[Scope], Json]:
    """A path as an expression reads it: without a root it is one in the data; what is missing is null.

    `state` is a root unless the data has a key of this name.
    """
    root = keys[0]
    if root == "context" and (len(keys) == 1 or keys[1] not in CONTEXT_SECTIONS):
        return lambda _scope: None
    if root == "state":
        return lambda scope: _value(
            look_up(scope.data, keys) if step_into(scope.data, root) is not MISSING else from_root(scope, keys)
        )
    if root in ROOTS or root == "context":
        return lambda scope: _value(from_root(scope, keys))
    return lambda scope: _value(look_up(scope.data, keys))


def _value(found: Json) -> Json:
    return None if found is MISSING else found
