"""How a typed object of the format is declared and read: one dataclass per object, one kind per field.

A field says its kind (`Text`, `Whole`, `Duration`, `Blocks` …) and its default; reading collects every
fault with its place and goes on, and notes what only the whole document can judge: ids, handlers,
texts that speak a language. Source: sequence-format 1, 3, 11.1. The easy mistake: a default of None
means that null and absent are the same; any other default refuses null (3.3).
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, dataclass_transform

Json = Any

BRIEF = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about a document; its line and column follow from pointer, key or index.

    message: without the place. is_local: an Orch8 server would accept the document all the same.
    """

    code: str
    message: str
    pointer: str
    is_warning: bool = False
    is_local: bool = False
    block_id: str | None = None
    expected: str | None = None
    suggestion: str | None = None
    is_key: bool = False
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A text that the whole document has to judge, and where it stands.

    is_queued: a handler's step names a queue, so somebody else may provide it.
    """

    text: str
    pointer: str
    block_id: str | None = None
    is_queued: bool = False


@dataclass(slots=True)
class Reading:
    """All that is found while one document is read. Everything is kept of broken blocks, too.

    is_stored: the document was checked before; languages and schemas are taken as they are.
    lists: (pointer, raw list) of every list of blocks. steps: (pointer, raw step).
    """

    is_stored: bool = False
    findings: list[Finding] = field(default_factory=list)
    block_ids: list[Note] = field(default_factory=list)
    saga_ids: list[Note] = field(default_factory=list)
    handlers: list[Note] = field(default_factory=list)
    templates: list[Note] = field(default_factory=list)
    expressions: list[Note] = field(default_factory=list)
    lists: list[tuple[str, list[Json]]] = field(default_factory=list)
    steps: list[tuple[str, dict[str, Json]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands while it is read. depth: how many composites are around it."""

    reading: Reading
    pointer: str = ""
    block_id: str | None = None
    is_queued: bool = False
    depth: int = 0

    def at(self, name: str | int) -> Place:
        """One step further down."""
        return dataclasses.replace(self, pointer=f"{self.pointer}/{segment(name)}")

    def fault(self, code: str, message: str, **more: Any) -> None:
        """Report one fault here."""
        self.reading.findings.append(Finding(code, message, self.pointer, block_id=self.block_id, **more))

    def doubt(self, code: str, message: str, suggestion: str | None = None) -> None:
        """Report a warning here: it runs, but hardly as meant."""
        self.fault(code, message, suggestion=suggestion, is_warning=True)

    def unexpected(self, expected: str, value: Json, suggestion: str | None = None, code: str = "") -> None:
        """Report that something else was expected. code: of a right type with a wrong value."""
        code = code or ("type.null" if value is None else "type.wrong")
        message = f"expected {expected}, got {shown(value)}"
        self.fault(code, message, expected=expected, suggestion=suggestion)

    def note(self, text: str) -> Note:
        """The text that stands here."""
        return Note(text, self.pointer, self.block_id, self.is_queued)


class _Invalid:
    """The type of INVALID."""


INVALID = _Invalid()
"""What a kind gives back for a value that it has reported."""


@dataclass_transform()
class Kind:
    """How one field is read. What is annotated in a subclass can be given when it is made.

    Neither this nor Object is a dataclass: generating the code of sixty of them takes longer than
    reading a document.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        settings = {**dict(zip(type(self).__annotations__, given, strict=False)), **named}
        for name, value in settings.items():
            setattr(self, name, value)

    def read(self, value: Json, place: Place) -> Any:
        """The value as the program holds it, or INVALID after a report."""
        raise AssertionError("every kind reads")


def segment(name: str | int) -> str:
    """A key or an index as a segment of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def shown(value: Json) -> str:
    """A value in a message: short, and as JSON."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= BRIEF else f"{text[:BRIEF]}…"


# --- fields and objects ---------------------------------------------------------------------------


class Part:
    """A declared field: how it is read, and what it is if it is absent (REQUIRED: it must not be)."""

    def __init__(self, kind: Kind, default: Any) -> None:
        self.kind = kind
        self.default = default


REQUIRED = object()


def part(kind: Kind, *, default: Any = REQUIRED) -> Any:
    """A field of a typed object."""
    return Part(kind, default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(part,))
class Object:
    """The base of all typed objects: immutable, equal by value."""

    PARTS: ClassVar[Mapping[str, Part]] = {}
    """The declared fields, in order."""
    WRITTEN_AS_NULL: ClassVar[frozenset[str]] = frozenset()
    """Absent optional fields that the stored form writes as null."""
    UNWRITTEN_EMPTY: ClassVar[frozenset[str]] = frozenset()
    """Lists that the stored form leaves out while they are empty."""

    free: ClassVar[Mapping[str, Json]] = MappingProxyType({})
    """Keys beside the declared ones that `keeps` lets through, as they are."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Part)}
        cls.PARTS = {**cls.PARTS, **own}

    def __init__(self, **values: Any) -> None:
        for name, declared in self.PARTS.items():
            value = values.get(name, declared.default)
            assert value is not REQUIRED, f"{type(self).__name__} needs {name}"
            object.__setattr__(self, name, value)
        if values.get("free"):
            object.__setattr__(self, "free", values["free"])

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), getattr(self, "id", None)))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._values().items() if value is not None)
        return f"{type(self).__name__}({given})"

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.PARTS, "free")}

    @classmethod
    def keeps(cls, name: str) -> bool:  # noqa: ARG003 - the top of a document looks at it
        """True for unknown keys that are allowed here."""
        return False

    def check(self, place: Place) -> None:
        """Report what is wrong between the fields."""

    def to_json(self) -> dict[str, Json]:
        """The stored form: defaults filled in, durations in milliseconds, absent options left out."""
        written: dict[str, Json] = {}
        for name in self.PARTS:
            value = getattr(self, name)
            is_left_out = value is None and name not in self.WRITTEN_AS_NULL
            if not is_left_out and not (value == () and name in self.UNWRITTEN_EMPTY):
                written[name] = _written(value)
        return {**written, **self.free}


def _written(value: Any) -> Json:
    if isinstance(value, Object):
        return value.to_json()
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value


def read_object(shape: type[Object], value: Json, place: Place, extra: Iterable[str] = ()) -> Any:
    """Read one typed object. extra: keys that somebody else has read."""
    if not isinstance(value, dict):
        hint = "put its fields into { }" if isinstance(value, list) else None
        place.unexpected("an object", value, hint)
        return INVALID
    arguments: dict[str, Any] = {}
    is_valid = True
    for key in value:
        if key in shape.PARTS or key in extra:
            continue
        if shape.keeps(key):
            arguments.setdefault("free", {})[key] = value[key]
        else:
            _unknown(key, shape.PARTS, place)
    for name, declared in shape.PARTS.items():
        if name not in value:
            if declared.default is REQUIRED:
                _missing(name, value, shape.PARTS, place)
                is_valid = False
            continue
        if value[name] is None and declared.default is None:
            continue
        found = declared.kind.read(value[name], place.at(name))
        if found is INVALID:
            is_valid = False
        arguments[name] = found
    if not is_valid:
        return INVALID
    made = shape(**arguments)
    made.check(place)
    return made


def _missing(name: str, value: Mapping[str, Json], fields: Mapping[str, Any], place: Place) -> None:
    """Report a required field; if another key was probably meant to be it, say so there."""
    meant = [key for key in value if key not in fields and _near(key, fields) == name]
    hint = f"is {meant[0]!r} meant to be it?" if meant else f'add "{name}"'
    place.fault("type.missing", f"{name!r} is missing", expected=name, suggestion=hint)


MEANT = {
    "timeout_ms": ("timeout",),
    "retries": ("retry", "max_attempts"),
    "try": ("try_block",),
    "catch": ("catch_block",),
    "finally": ("finally_block",),
    "if": ("when", "condition"),
    "condition": ("when",),
    "when": ("condition",),
    "then": ("blocks",),
    "else": ("default",),
    "steps": ("blocks", "body", "branches", "routes"),
    "do": ("body",),
    "blocks": ("body", "steps"),
    "items": ("collection",),
    "attempts": ("max_attempts",),
    "backoff": ("initial_backoff",),
    "args": ("params",),
    "with": ("params",),
    "config": ("params",),
    "idempotency_key": ("key",),
    "until": ("break_on",),
}
"""What people write who come from elsewhere; only fields that exist at the place count."""


def _near(key: str, fields: Mapping[str, Any]) -> str | None:
    """The field that an unknown key was probably meant to be."""
    known = [name for name in MEANT.get(key, ()) if name in fields]
    return next(iter(known or difflib.get_close_matches(key, fields, n=1, cutoff=0.6)), None)


def _unknown(key: str, fields: Mapping[str, Any], place: Place) -> None:
    near = _near(key, fields)
    hint = f"did you mean {near!r}?" if near else f"known are {', '.join(fields)}"
    place.at(key).fault("field.unknown", "there is no such field here", suggestion=hint, is_key=True, is_local=True)
