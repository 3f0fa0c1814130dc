"""The kinds of fields: what each takes, what it becomes, and what is said of anything else.

Source: sequence-format 3, 5, 11.1. Types are strict: `"3"` is no number, `3.0` is not whole, a bool is
never a number. The easy mistake: stopping at the first fault; a kind reports and gives back INVALID.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from orch8_local.blocks.shape import INVALID, Kind, Object, Place, read_object, shown
from orch8_local.lang import expression, template
from orch8_local.lang.problem import LangProblem

Json = Any


@dataclass(frozen=True, slots=True)
class Text:
    """A string. empty, blank: the code of the fault if it is that."""

    empty: str | None = None
    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, str):
            hint = f'write "{shown(value)}"' if isinstance(value, (int, float)) else None
            place.wrong_type("a text", value, hint)
            return INVALID
        code = self.empty if value == "" and self.empty else self.blank if not value.strip() else None
        if code is not None:
            place.fault(code, f"{place.name!r} must not be {'empty' if value == '' else 'blank'}")
            return INVALID
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both included."""

    low: int
    high: int
    code: str = "type.range"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        expected = f"a whole number from {self.low} to {self.high}"
        if isinstance(value, bool) or not isinstance(value, int):
            place.wrong_type(expected, value, _as_number(value))
            return INVALID
        if not self.low <= value <= self.high:
            place.fault(self.code, f"{place.name!r} must be {expected}, not {value}", expected=expected)
            return INVALID
        return value


def _as_number(value: Json) -> str | None:
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if isinstance(value, str) and value.strip().isdecimal():
        return f"write {value.strip()} without quotes"
    return None


@dataclass(frozen=True, slots=True)
class Number:
    """A number, kept as a float; above or from `above`, up to `high`."""

    above: float | None = None
    low: float | None = None
    high: float | None = None
    code: str = "type.range"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            place.wrong_type("a number", value, _as_number(value))
            return INVALID
        is_low = (self.above is not None and value <= self.above) or (self.low is not None and value < self.low)
        if is_low or (self.high is not None and value > self.high):
            bounds = [f"more than {self.above:g}"] if self.above is not None else []
            bounds += [f"at least {self.low:g}"] if self.low is not None else []
            bounds += [f"at most {self.high:g}"] if self.high is not None else []
            expected = " and ".join(bounds)
            place.fault(self.code, f"{place.name!r} must be {expected}, not {value}", expected=expected)
            return INVALID
        return float(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, bool):
            return value
        hint = f"write {value.lower()}" if isinstance(value, str) and value.lower() in ("true", "false") else None
        place.wrong_type("true or false", value, hint)
        return INVALID


@dataclass(frozen=True, slots=True)
class Duration:
    """Whole milliseconds, or a float of seconds (3.1). small: warn below 50 ms, which were probably seconds."""

    small: bool = False

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        expected = "a time in milliseconds (a whole number, 0 or more)"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            place.wrong_type(expected, value, _as_milliseconds(value))
            return INVALID
        if value < 0:
            place.fault("type.range", f"{place.name!r} must be {expected}, not {value}", expected=expected)
            return INVALID
        longest = 2**64 - 1
        if isinstance(value, int) and value <= longest:
            if self.small and 0 < value < 50:
                message = f"{place.name!r} is {value} milliseconds"
                place.fault("duration.small", message, is_warning=True, suggestion=f"seconds? write {value * 1000}")
            return value
        milliseconds = int(min(value * 1000, longest))
        message = f"{place.name!r} is a fraction and counts as seconds: {milliseconds} ms"
        place.fault("duration.seconds", message, is_warning=True, suggestion=f"write {milliseconds}")
        return milliseconds


_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _as_milliseconds(value: Json) -> str | None:
    if not isinstance(value, str):
        return None
    digits = value.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = value.strip()[len(digits) :].strip() or "ms"
    try:
        return f"write {int(float(digits) * _UNITS[unit])}"
    except (ValueError, KeyError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words."""

    words: tuple[str, ...]

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, str) and value in self.words:
            return value
        near = difflib.get_close_matches(str(value).lower(), self.words, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else None
        place.wrong_type(f"one of {', '.join(self.words)}", value, hint)
        return INVALID


@dataclass(frozen=True, slots=True)
class AnyJson:
    """Any JSON; null is a value. has_templates: its strings are checked as templates."""

    takes_null: ClassVar[bool] = True
    has_templates: bool = False

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if self.has_templates:
            _check_templates(value, place)
        return value


def _check_templates(value: Json, place: Place) -> None:
    stack: list[tuple[Json, Place]] = [(value, place)]
    while stack:
        item, at = stack.pop()
        if isinstance(item, str):
            report_language(template.check(item), at)
        elif isinstance(item, dict):
            stack.extend((child, at.at(key)) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((child, at.at(index)) for index, child in enumerate(item))


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A free object; is_schema: it must compile as a JSON Schema."""

    is_schema: bool = False

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, dict):
            place.wrong_type("an object", value)
            return INVALID
        if self.is_schema:
            fault = schema_fault(value)
            if fault is not None:
                pointer, message = fault
                here = dataclasses.replace(place, pointer=place.pointer + pointer)
                here.fault("schema.invalid", f"{place.name!r} is no JSON Schema: {message}")
                return INVALID
        return value


def schema_fault(schema: Json) -> tuple[str, str] | None:
    """(pointer into the schema, what is wrong), or None if it compiles without fetching anything."""
    from jsonschema import exceptions, validators

    try:
        chosen = validators.validator_for(schema, default=validators.Draft202012Validator)
        chosen.check_schema(schema)
    except exceptions.SchemaError as error:
        return "".join(f"/{segment}" for segment in error.absolute_path), error.message
    remote = _remote_reference(schema)
    return ("", f"it refers to {remote}, and nothing is fetched") if remote else None


def _remote_reference(schema: Json) -> str | None:
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            target = item.get("$ref")
            if isinstance(target, str) and "://" in target:
                return target
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return None


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression. blank: the code of the fault if it is blank; None lets `check` say it."""

    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, str):
            hint = f'write "{shown(value)}"' if isinstance(value, bool) else None
            place.wrong_type("an expression (a text)", value, hint)
            return INVALID
        if self.blank is not None and not value.strip():
            place.fault(self.blank, f"{place.name!r} must not be blank", suggestion="write a condition")
            return INVALID
        report_language(expression.check(value), place)
        return value


@dataclass(frozen=True, slots=True)
class TemplateText:
    """A text that may hold templates."""

    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        found = Text(blank=self.blank).read(value, place)
        if found is not INVALID:
            report_language(template.check(value), place)
        return found


def report_language(problems: Iterable[LangProblem], place: Place) -> None:
    """Problems of a template or an expression, at their place in the document."""
    for problem in problems:
        place.fault(
            problem.code.replace("_", ".", 1),
            f"{place.name!r}: {problem.message}",
            suggestion=problem.suggestion,
            is_warning=problem.is_warning,
            index=problem.column - 1,
        )


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. low, high: how many; code: of the fault if there are fewer or more."""

    kind: Kind
    low: int = 0
    high: int | None = None
    code: str = "type.length"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind. The list becomes a tuple."""
        if not isinstance(value, list):
            place.wrong_type("a list", value, "put it into [ ]" if value is not None else None)
            return INVALID
        if len(value) < self.low or (self.high is not None and len(value) > self.high):
            expected = f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"
            if len(value) < self.low and self.low == 1:
                expected = "at least one"
            place.fault(self.code, f"{place.name!r} must have {expected} entries, not {len(value)}")
            return INVALID
        read = [self.kind.read(item, place.at(index)) for index, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in read) else tuple(read)


@dataclass(frozen=True, slots=True)
class Shape:
    """A typed object."""

    shape: type[Object]

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        return read_object(self.shape, value, place)
