"""The kinds of fields: what each takes, what it becomes, and what is said of anything else.

Source: sequence-format 3, 5, 11.1. Types are strict: `"3"` is no number, `3.0` is not whole, a bool is
never a number. The easy mistake: stopping at the first fault; a kind reports and gives back INVALID.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import Any

from orch8_local.blocks.shape import INVALID, Kind, Object, Place, read_object, shown
from orch8_local.lang import expression, template
from orch8_local.lang.problem import LangProblem

Json = Any

LONGEST_MS = 2**64 - 1
SHORT_MS = 50
MAX_FLOAT = sys.float_info.max


class Text(Kind):
    """A string. empty, blank: the code of the fault if it is that; a server accepts a blank one."""

    empty: str | None = None
    blank: str | None = None
    is_blank_local: bool = False
    """A server accepts a blank text here."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, str):
            hint = f'write "{shown(value)}"' if isinstance(value, (int, float)) else None
            place.unexpected("a text", value, hint)
            return INVALID
        if value == "" and self.empty is not None:
            place.unexpected("a text that is not empty", value, code=self.empty)
            return INVALID
        if self.blank is not None and not value.strip():
            expected = "a text that is not blank"
            message = f"expected {expected}, got {shown(value)}"
            place.fault(self.blank, message, expected=expected, is_local=self.is_blank_local)
            return value if self.is_blank_local else INVALID
        return value


class HandlerName(Kind):
    """The name of a handler; whether somebody has it is for the whole document to say."""

    empty: str | None = None
    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        found = Text(empty=self.empty, blank=self.blank, is_blank_local=self.empty is not None).read(value, place)
        if isinstance(found, str) and found.strip():
            place.reading.handlers.append(place.note(found))
        return found


class Whole(Kind):
    """A whole number between two bounds, both included."""

    low: int
    high: int
    code: str = "type.range"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, bool) or not isinstance(value, int):
            place.unexpected(self._expected(self.low), value, _as_number(value))
            return INVALID
        if not self.low <= value <= self.high:
            place.unexpected(self._expected(value), value, code=self.code)
            return INVALID
        return value

    def _expected(self, value: int) -> str:
        """In words; a bound that is only there for the machine is named only where it is broken."""
        if self.high < 2**31 - 1:
            return f"a whole number from {self.low} to {self.high}"
        if value > self.high:
            return f"a whole number of at most {self.high}"
        return "a whole number" if self.low < 0 else f"a whole number, {self.low} or more"


def _as_number(value: Json) -> str | None:
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if isinstance(value, str) and value.strip().isdecimal():
        return f"write {value.strip()} without quotes"
    return None


class Number(Kind):
    """A number, kept as a float; above or from `above`, up to `high`."""

    expected: str
    above: float | None = None
    low: float | None = None
    high: float | None = None
    code: str = "type.range"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            place.unexpected(self.expected, value, _as_number(value))
            return INVALID
        is_low = (self.above is not None and value <= self.above) or (self.low is not None and value < self.low)
        if is_low or value > (MAX_FLOAT if self.high is None else self.high):
            place.unexpected(self.expected, value, code=self.code)
            return INVALID
        return float(value)


class Flag(Kind):
    """true or false."""

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, bool):
            return value
        words = {"true": "true", "yes": "true", "1": "true", "false": "false", "no": "false", "0": "false"}
        word = words.get(str(value).lower()) if isinstance(value, (str, int)) else None
        place.unexpected("true or false", value, f"write {word}" if word else None)
        return INVALID


class Duration(Kind):
    """Whole milliseconds, or a float of seconds (3.1). is_long: a value below 50 ms was probably seconds."""

    is_long: bool = False

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        expected = "a time in milliseconds, a whole number of 0 or more"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            place.unexpected(expected, value, _as_milliseconds(value))
            return INVALID
        if value < 0:
            place.unexpected(expected, value, code="type.range")
            return INVALID
        if isinstance(value, int) and value <= LONGEST_MS:
            if self.is_long and 0 < value < SHORT_MS:
                place.doubt("duration.short", f"{value} milliseconds is very short", f"seconds? write {value * 1000}")
            return value
        milliseconds = LONGEST_MS if value >= LONGEST_MS / 1000 else round(value * 1_000_000_000) // 1_000_000
        message = f"a number with a point counts as seconds: {milliseconds} ms"
        place.doubt("duration.seconds", message, f"write {milliseconds}")
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


class OneOf(Kind):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if isinstance(value, str) and value in self.words:
            return value
        near = difflib.get_close_matches(value.lower(), self.words, n=1, cutoff=0.5) if isinstance(value, str) else ()
        hint = f"did you mean {near[0]!r}?" if near else None
        code = "type.word" if isinstance(value, str) else ""
        place.unexpected(f"one of {', '.join(self.words)}", value, hint, code)
        return INVALID


class AnyJson(Kind):
    """Any JSON; null is a value. has_templates: its strings are checked as templates."""

    has_templates: bool = False

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if self.has_templates and not place.reading.is_stored:
            _check_templates(value, place)
        return value


def _check_templates(value: Json, place: Place) -> None:
    stack: list[tuple[Json, Place]] = [(value, place)]
    while stack:
        item, at = stack.pop()
        if isinstance(item, str):
            if "{{" in item:
                check_template(item, at)
        elif isinstance(item, dict):
            stack.extend((child, at.at(key)) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((child, at.at(index)) for index, child in enumerate(item))


def check_template(text: str, place: Place) -> None:
    """Report what is wrong with the templates in a text, and note it for the whole document."""
    if not place.reading.is_stored:
        report_language(template.check(text), place)
        place.reading.templates.append(place.note(text))


def check_expression(text: str, place: Place) -> None:
    """Report what is wrong with an expression, and note it for the whole document."""
    if not place.reading.is_stored:
        report_language(expression.check(text), place)
        place.reading.expressions.append(place.note(text))


def report_language(problems: Iterable[LangProblem], place: Place) -> None:
    """Problems of a template or an expression, at their place in the document."""
    for problem in problems:
        place.fault(
            problem.code.replace("_", ".", 1),
            problem.message,
            suggestion=problem.suggestion,
            is_warning=problem.is_warning,
            is_local=True,
            index=problem.column - 1,
        )


class Condition(Kind):
    """An expression. blank: the code of the fault if it is blank; "" allows that (it is never true)."""

    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        if not isinstance(value, str):
            hint = f'write "{shown(value)}"' if isinstance(value, bool) else None
            place.unexpected("an expression, as text", value, hint)
            return INVALID
        if not value.strip() and self.blank is not None:
            if self.blank:
                place.unexpected("an expression that is not blank", value, code=self.blank)
            return INVALID if self.blank else value
        check_expression(value, place)
        return value


class TemplateText(Kind):
    """A text that may hold templates."""

    blank: str | None = None

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        found = Text(blank=self.blank).read(value, place)
        if found is not INVALID and "{{" in value:
            check_template(value, place)
        return found


class ListOf(Kind):
    """A list. low, high: how many; code: of the fault if there are fewer or more."""

    kind: Kind
    low: int = 0
    high: int | None = None
    code: str = "type.length"

    def read(self, value: Json, place: Place) -> Any:
        """See Kind. The list becomes a tuple."""
        if not isinstance(value, list):
            place.unexpected("a list", value, "put it into [ ]" if value is not None else None)
            return INVALID
        is_fitting = self.low <= len(value) and (self.high is None or len(value) <= self.high)
        if not is_fitting:
            expected = f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"
            noun = "entry" if expected.endswith(" 1") else "entries"
            expected = f"a list of {expected} {noun}"
            place.fault(self.code, f"expected {expected}, got {len(value)}", expected=expected)
        read = [self.kind.read(item, place.at(index)) for index, item in enumerate(value)]
        return tuple(read) if is_fitting and not any(item is INVALID for item in read) else INVALID


class Shape(Kind):
    """A typed object."""

    shape: type[Object]

    def read(self, value: Json, place: Place) -> Any:
        """See Kind."""
        return read_object(self.shape, value, place)
