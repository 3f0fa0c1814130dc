"""The filters of templates (sequence-format 7.7): each takes a value and gives a value.

"Text" is the value if it is a string, else the empty string; "number" is a JSON number, else 0. A
wrong argument is found when the template is compiled, a wrong value when it is resolved; both are a
TemplateError. The easy mistake: measuring a text after it was made; a short template can ask for
more memory than there is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final
from urllib.parse import quote

from orch8_local.errors import TemplateError
from orch8_local.lang.jsontext import (
    MAX_TEXT_BYTES,
    WHITE_SPACE,
    is_number,
    is_too_long,
    number_from_text,
    text_of,
)

Json = Any
Filter = Callable[[Json], Json]

USAGE: Final[Mapping[str, str]] = {
    **{name: name for name in ("upper", "lower", "trim", "abs", "url_encode", "base64", "base64_decode")},
    "replace": "replace('old', 'new')",
    "default": "default('text')",
    "truncate": "truncate(80, '…')",
    "join": "join(', ')",
    "split": "split(',')",
    "hash": "hash('sha256')",
    "round": "round(2)",
}
"""How each filter is written."""
NAMES: Final = tuple(USAGE)

_UNSIGNED = re.compile(r"\+?[0-9]{1,20}", re.ASCII)
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None}


def literal(text: str) -> Json:
    """A literal (7.5): quoted text, a number, true, false, null, or the text itself.

    Whole numbers stay whole; `inf` and `nan` are null. Raises TemplateError for quotes that do not fit.
    """
    if text[:1] in ("'", '"'):
        return unquoted(text)
    number = number_from_text(text)
    if number is not None:
        return number if isinstance(number, int) or math.isfinite(number) else None
    return _WORDS.get(text, text)


def unquoted(text: str) -> str:
    """The text between the quotes; a text without quotes is itself.

    Raises TemplateError if there is more than one text in quotes, or anything behind it.
    """
    if text[:1] not in ("'", '"'):
        return text
    if text.find(text[0], 1) != len(text) - 1:
        other = "'" if text[0] == '"' else '"'
        raise TemplateError(
            f"a text in {text[0]} ends at the next {text[0]}, and something follows it",
            hint=f"put a text that holds {text[0]} into {other}",
        )
    return text[1:-1]


def bounded(name: str, text: str) -> str:
    """The text, unless it is too long."""
    if is_too_long(text):
        raise _too_long(name)
    return text


def default(fallback: Json) -> Filter:
    """Another value for null and for the empty text."""
    return lambda value: fallback if value is None or value == "" else value


def replaced(value: Json, old: str, new: str) -> str:
    """Every occurrence of `old`; a value that is no text is its JSON text first."""
    text = text_of(value)
    if len(text) + text.count(old) * (len(new) - len(old)) > MAX_TEXT_BYTES:
        raise _too_long("replace")
    return bounded("replace", text.replace(old, new))


def _too_long(name: str) -> TemplateError:
    return TemplateError(f"{name} made a text of more than {MAX_TEXT_BYTES} bytes", hint="pass large values by a file")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _bytes(name: str, value: Json) -> bytes:
    try:
        return _text(value).encode()
    except UnicodeEncodeError:
        raise TemplateError(f"{name}: the text holds half a character (a lone surrogate)") from None


def _count(name: str, text: str) -> int:
    if not _UNSIGNED.fullmatch(text):
        raise TemplateError(f"{name}() needs a whole number that is not negative", hint=f"write {USAGE[name]}")
    return int(text)


# --- without arguments ----------------------------------------------------------------------------


def _absolute(value: Json) -> float | None:
    try:
        return abs(float(value)) if is_number(value) else 0.0
    except OverflowError:
        return None


def _url_encoded(value: Json) -> str:
    return bounded("url_encode", quote(_bytes("url_encode", value), safe="-_.~"))


def _encoded(value: Json) -> str:
    return bounded("base64", base64.b64encode(_bytes("base64", value)).decode())


def _decoded(value: Json) -> str:
    try:
        return bounded("base64_decode", base64.b64decode(_text(value), validate=True).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        raise TemplateError("base64_decode: the value is not base64") from None


# --- with arguments: the text between the parentheses gives the filter -----------------------------


def _truncate(argument: str) -> Filter:
    number, comma, rest = argument.partition(",")
    count = _count("truncate", number.strip(WHITE_SPACE))
    suffix = unquoted(rest.strip(WHITE_SPACE)) if comma else ""

    def cut(value: Json) -> str:
        text = _text(value)
        return text if len(text) <= count else bounded("truncate", text[:count] + suffix)

    return cut


def _join(argument: str) -> Filter:
    separator = unquoted(argument)

    def joined(value: Json) -> str:
        if not isinstance(value, list):
            return ""
        if len(separator) * (len(value) - 1) > MAX_TEXT_BYTES:
            raise _too_long("join")
        return bounded("join", separator.join(map(text_of, value)))

    return joined


def _split(argument: str) -> Filter:
    separator = unquoted(argument)

    def parts(value: Json) -> list[str]:
        if not isinstance(value, str):
            return [""]
        return value.split(separator) if separator else ["", *value, ""]

    return parts


def _hash(argument: str) -> Filter:
    if unquoted(argument) != "sha256":
        raise TemplateError("hash() knows only sha256", hint=f"write {USAGE['hash']}")
    return lambda value: hashlib.sha256(_bytes("hash", value)).hexdigest()


def _round(argument: str) -> Filter:
    digits = _count("round", argument)

    def rounded(value: Json) -> float | None:
        try:
            number = float(value) if is_number(value) else 0.0
        except OverflowError:
            return None
        if digits >= 309 or not math.isfinite(number):
            return None
        try:
            return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))
        except ArithmeticError:  # more digits than the number has: it is as round as it will get
            return number

    return rounded


BARE: Final[Mapping[str, Filter]] = {
    "upper": lambda value: bounded("upper", _text(value).upper()),
    "lower": lambda value: bounded("lower", _text(value).lower()),
    "trim": lambda value: _text(value).strip(WHITE_SPACE),
    "abs": _absolute,
    "url_encode": _url_encoded,
    "base64": _encoded,
    "base64_decode": _decoded,
}
MADE_BY_ARGUMENT: Final[Mapping[str, Callable[[str], Filter]]] = {
    "truncate": _truncate,
    "join": _join,
    "split": _split,
    "hash": _hash,
    "round": _round,
}
