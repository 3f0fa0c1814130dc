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
from typing import Any, ClassVar, Protocol

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


class Kind(Protocol):
    """How one field is read. A kind with `takes_null = True` has null among its values."""

    def read(self, value: Json, place: Place) -> Any:
        """The value as the program holds it, or INVALID after a report."""
        ...


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
    UNWRITTEN_EMPTY: ClassVar[frozenset[str]] = frozenset()
    """Lists that the stored form leaves out while they are empty."""

    @classmethod
    def keeps(cls, name: str) -> bool:  # noqa: ARG003 - the top of a document looks at it
        """True for unknown keys that are allowed here."""
        return False

    def check(self, place: Place) -> None:
        """Report what is wrong between the fields."""

    def to_json(self) -> dict[str, Json]:
        """The stored form: defaults filled in, durations in milliseconds, absent options left out."""
        written: dict[str, Json] = {}
        for name in kinds_of(type(self)):
            value = getattr(self, name)
            is_left_out = value is None and name not in self.WRITTEN_AS_NULL
            if not is_left_out and not (value == () and name in self.UNWRITTEN_EMPTY):
                written[name] = _written(value)
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
        hint = "put its fields into { }" if isinstance(value, list) else None
        place.unexpected("an object", value, hint)
        return INVALID
    fields = kinds_of(shape)
    arguments: dict[str, Any] = {}
    is_valid = True
    for key in value:
        if key not in fields and key not in extra and not shape.keeps(key):
            _unknown(key, fields, place)
    for name, declared in fields.items():
        if name not in value:
            if _is_required(declared):
                _missing(name, value, fields, place)
                is_valid = False
            continue
        if value[name] is None and declared.default is None and not _takes_null(declared):
            continue
        found = declared.metadata["kind"].read(value[name], place.at(name))
        if found is INVALID:
            is_valid = False
        arguments[name] = found
    if not is_valid:
        return INVALID
    made = shape(**arguments)
    made.check(place)
    return made


def _takes_null(declared: dataclasses.Field[Any]) -> bool:
    return bool(getattr(declared.metadata["kind"], "takes_null", False))


def _is_required(declared: dataclasses.Field[Any]) -> bool:
    return declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING


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
