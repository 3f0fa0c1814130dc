"""How a typed object of the format is declared and read: one dataclass per object, one kind per field.

A field says its kind (`Text`, `Whole`, `Duration`, `Blocks` …) and its default; reading collects every
fault with its place and goes on. Source: sequence-format 1, 3, 11.1. The easy mistake: a default of
None means that null and absent are the same; any other default refuses null (3.3).
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

Json = Any

BRIEF = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about a document; its line and column follow from pointer, key or index."""

    code: str
    message: str
    pointer: str
    is_warning: bool = False
    block_id: str | None = None
    expected: str | None = None
    suggestion: str | None = None
    is_key: bool = False
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands while it is read. depth: how many composites are around it."""

    report: Callable[[Finding], None]
    pointer: str = ""
    name: str = ""
    block_id: str | None = None
    depth: int = 0

    def at(self, name: str | int, **changes: Any) -> Place:
        """One step further down."""
        segment = str(name).replace("~", "~0").replace("/", "~1")
        label = str(name) if isinstance(name, str) else f"{self.name}[{name}]"
        return dataclasses.replace(self, pointer=f"{self.pointer}/{segment}", name=label, **changes)

    def fault(self, code: str, message: str, **more: Any) -> None:
        """Report one fault here."""
        self.report(Finding(code, message, self.pointer, block_id=self.block_id, **more))

    def wrong_type(self, expected: str, value: Json, suggestion: str | None = None) -> None:
        """Report that something else was expected."""
        code = "type.null" if value is None else "type.wrong"
        message = f"{self.name!r} must be {expected}, not {shown(value)}"
        self.fault(code, message, expected=expected, suggestion=suggestion)


class _Invalid:
    """The type of INVALID."""


INVALID = _Invalid()
"""What a kind gives back for a value that it has reported."""


class Kind(Protocol):
    """How one field is read. A kind with `takes_null = True` has null among its values."""

    def read(self, value: Json, place: Place) -> Any:
        """The value as the program holds it, or INVALID after a report."""
        ...


def shown(value: Json) -> str:
    """A value in a message: short, and as JSON."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= BRIEF else f"{text[:BRIEF]}…"


# --- fields and objects ---------------------------------------------------------------------------


def part(kind: Kind, *, default: Any = dataclasses.MISSING, default_factory: Any = dataclasses.MISSING) -> Any:
    """A field of a typed object."""
    metadata = {"kind": kind}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """The base of all typed objects."""

    WRITTEN_AS_NULL: ClassVar[frozenset[str]] = frozenset()
    """Absent optional fields that the stored form writes as null."""

    @classmethod
    def keeps(cls, name: str) -> bool:  # noqa: ARG003
        """True for an unknown key that is allowed."""
        return False

    def check(self, place: Place) -> None:
        """Report what is wrong between the fields."""

    def to_json(self) -> dict[str, Json]:
        """The stored form: defaults filled in, durations in milliseconds, absent options left out."""
        written: dict[str, Json] = {}
        for field in kinds_of(type(self)):
            value = getattr(self, field)
            if value is not None or field in self.WRITTEN_AS_NULL:
                written[field] = _written(value)
        return written


def _written(value: Any) -> Json:
    if isinstance(value, Object):
        return value.to_json()
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value


_KINDS: dict[type[Object], dict[str, dataclasses.Field[Any]]] = {}


def kinds_of(shape: type[Object]) -> Mapping[str, dataclasses.Field[Any]]:
    """The declared fields of a typed object, in order."""
    found = _KINDS.get(shape)
    if found is None:
        found = {f.name: f for f in dataclasses.fields(shape) if "kind" in f.metadata}
        _KINDS[shape] = found
    return found


def read_object(shape: type[Object], value: Json, place: Place, extra: Iterable[str] = ()) -> Any:
    """Read one typed object. extra: keys that somebody else has read."""
    if not isinstance(value, dict):
        place.wrong_type("an object", value)
        return INVALID
    fields = kinds_of(shape)
    arguments: dict[str, Any] = {}
    is_valid = True
    for key in value:
        if key not in fields and key not in extra and not shape.keeps(key):
            _unknown(key, fields, place)
    for name, field in fields.items():
        is_optional = field.default is None
        if name not in value or (value[name] is None and is_optional and not _takes_null(field)):
            if _is_required(field):
                place.fault("type.missing", f"{name!r} is missing{of_block(place)}", expected=name)
                is_valid = False
            continue
        found = field.metadata["kind"].read(value[name], place.at(name))
        if found is INVALID:
            is_valid = False
        arguments[name] = found
    if not is_valid:
        return INVALID
    made = shape(**arguments)
    made.check(place)
    return made


def of_block(place: Place) -> str:
    """Which block or object a message speaks of, with a space before it."""
    if place.block_id is not None:
        return f" (block {place.block_id!r})"
    return f" in {place.name!r}" if place.name else ""


def _takes_null(field: dataclasses.Field[Any]) -> bool:
    return bool(getattr(field.metadata["kind"], "takes_null", False))


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


_MEANT = {
    "timeout_ms": "timeout",
    "retries": "retry",
    "try": "try_block",
    "catch": "catch_block",
    "finally": "finally_block",
    "if": "when",
    "condition": "when",
    "attempts": "max_attempts",
    "backoff": "initial_backoff",
    "args": "params",
    "with": "params",
    "idempotency_key": "key",
}


def _unknown(key: str, fields: Mapping[str, Any], place: Place) -> None:
    meant = _MEANT.get(key)
    near = [meant] if meant in fields else difflib.get_close_matches(key, fields, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
    message = f"there is no field {key!r} here{of_block(place)}"
    place.at(key).fault("field.unknown", message, suggestion=hint, is_key=True)
