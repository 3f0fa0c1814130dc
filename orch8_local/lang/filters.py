"""The filters of templates (sequence-format 7.7). Each is `(value, arguments, scope) -> value`.

"Text" is the value if it is a string, else the empty string; "number" is a JSON number, else 0. A
wrong argument is found when the template is compiled, wherever it can be.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from urllib.parse import quote

from orch8_local.errors import TemplateError
from orch8_local.lang.jsontext import is_number, number_from_text, text_of

Json = Any
Filter = Callable[[Json], Json]

BARE = ("upper", "lower", "trim", "abs", "url_encode", "base64", "base64_decode")
WITH_ARGUMENTS = ("replace", "default", "truncate", "join", "split", "hash", "round")
NAMES = (*BARE, *WITH_ARGUMENTS)


def bare(name: str) -> Filter:
    """A filter without arguments, by its exact name."""
    return _BARE[name]


def with_argument(name: str, argument: str) -> Filter:
    """A filter with the text between its parentheses; `replace` is the template's own business.

    Raises TemplateError if the argument cannot be meant.
    """
    text = argument.strip()
    match name:
        case "default":
            fallback = literal(text)
            return lambda value: fallback if value is None or value == "" else value
        case "truncate":
            count, comma, suffix = text.partition(",")
            return _truncate(_unsigned("truncate", count.strip()), unquoted(suffix.strip()) if comma else "")
        case "round":
            return _round(_unsigned("round", text))
        case "join":
            separator = unquoted(text)
            return lambda value: (
                separator.join(text_of(item) for item in value) if isinstance(value, list) else ""
            )
        case "split":
            return _split(unquoted(text))
        case "hash":
            if unquoted(text) != "sha256":
                raise TemplateError(f"hash() knows no {unquoted(text)!r}", hint="write hash('sha256')")
            return lambda value: hashlib.sha256(_text(value).encode()).hexdigest()
    raise AssertionError(name)


def literal(text: str) -> Json:
    """A literal (7.5): quoted text, a number, true, false, null, or the text itself.

    Whole numbers stay whole; `inf` and `nan` are null.
    """
    if is_quoted(text):
        return text[1:-1]
    number = number_from_text(text)
    if number is not None:
        return number if isinstance(number, int) or math.isfinite(number) else None
    words: dict[str, Json] = {"true": True, "false": False, "null": None}
    return words.get(text, text)


def is_quoted(text: str) -> bool:
    """True if a text begins and ends with the same quote."""
    return len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]


def unquoted(text: str) -> str:
    """The text without the quotes around it, if it has them."""
    return text[1:-1] if is_quoted(text) else text


def replace(value: Json, old: str, new: str) -> str:
    """Every occurrence of `old`; a value that is no text is its JSON text first."""
    return text_of(value).replace(old, new)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _unsigned(name: str, text: str) -> int:
    number = number_from_text(text.removeprefix("+")) if text.isascii() else None
    if not isinstance(number, int) or number < 0 or text.startswith("-"):
        raise TemplateError(f"{name}({text}) needs a whole number that is not negative")
    return number


def _truncate(count: int, suffix: str) -> Filter:
    def cut(value: Json) -> str:
        text = _text(value)
        return text if len(text) <= count else text[:count] + suffix

    return cut


def _round(digits: int) -> Filter:
    def rounded(value: Json) -> float | None:
        try:
            number = float(value) if is_number(value) else 0.0
        except OverflowError:
            return None
        if digits >= 309 or not math.isfinite(number):
            return None
        exponent = Decimal(1).scaleb(-digits)
        try:
            return float(Decimal(repr(number)).quantize(exponent, rounding=ROUND_HALF_UP))
        except ArithmeticError:  # more digits than the number has: it is as round as it will get
            return number

    return rounded


def _split(separator: str) -> Filter:
    def parts(value: Json) -> list[str]:
        text = value if isinstance(value, str) else None
        if text is None:
            return [""]
        return text.split(separator) if separator else ["", *text, ""]

    return parts


def _absolute(value: Json) -> float | None:
    try:
        return abs(float(value)) if is_number(value) else 0.0
    except OverflowError:
        return None


def _decoded(value: Json) -> str:
    try:
        return base64.b64decode(_text(value).encode(), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise TemplateError("base64_decode: the value is not base64") from None


_BARE: dict[str, Filter] = {
    "upper": lambda value: _text(value).upper(),
    "lower": lambda value: _text(value).lower(),
    "trim": lambda value: _text(value).strip(),
    "abs": _absolute,
    "url_encode": lambda value: quote(_text(value), safe="-_.~"),
    "base64": lambda value: base64.b64encode(_text(value).encode()).decode(),
    "base64_decode": _decoded,
}
