"""Values as text and back: the compact JSON of both languages, and numbers.

Source: sequence-format 7.3, 7.8. The easy mistakes: Python's own text of a float, which writes
`1e+16` and `1e-05` where the format has `1e16` and `0.00001`; and `str.strip()`, which also takes
characters away that Unicode does not call white space.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

Json = Any

MAX_TEXT_BYTES: Final = 4_194_304
"""The largest text, in bytes of UTF-8, that a filter, a function or an inserted value may make (7.4, 8.6)."""

WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What Unicode calls white space."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_LONGEST_WHOLE = 4000
"""Digits of a whole number that is kept exact; Python refuses to read more than 4300."""


def compact_json(value: Json) -> str:
    """JSON text with sorted keys, no spaces, and numbers as 7.8 writes them.

    For any value, however deep or long; what JSON cannot hold (infinite, not a number) is null.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict
        )
    except (ValueError, RecursionError):  # not finite, more digits or more levels than `json` takes
        return _written(value)
    if "e+" in text or "e-" in text:  # perhaps a float that Python writes another way, perhaps only a word
        return _written(value)
    return text


def text_of(value: Json) -> str:
    """What a value becomes inside a text: a string as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else compact_json(value)


def float_text(value: float) -> str:
    """The shortest digits that read back: plain for 1e-5 <= |x| < 1e16, else like `1e16` and `5e-324`."""
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    power = int(exponent)
    if power == -5:
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '').removesuffix('0') or '0'}"
    return f"{mantissa.removesuffix('.0')}e{power}"


def number_from_text(text: str) -> int | float | None:
    """The number that a text is, or None. Whole numbers stay exact; `inf` and `nan` are floats."""
    if _WHOLE.fullmatch(text) and len(text) <= _LONGEST_WHOLE:
        return int(text)
    if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text)
    return None


def as_float(value: Json) -> float | None:
    """A value as the finite number that arithmetic sees, or None (sequence-format 8.5)."""
    if isinstance(value, str):
        value = number_from_text(value)
    if value is None or not isinstance(value, (bool, int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def is_number(value: Json) -> bool:
    """True for a JSON number; a bool is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_too_long(text: str) -> bool:
    """True if a text has more bytes than a text may have."""
    if len(text) * 4 <= MAX_TEXT_BYTES:  # no character has more than four
        return False
    return len(text) > MAX_TEXT_BYTES or byte_length(text) > MAX_TEXT_BYTES


def byte_length(text: str) -> int:
    """Bytes of UTF-8; half a character counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def copied(value: Json) -> Json:
    """The same value in containers of its own, at any depth."""
    if not isinstance(value, (dict, list, tuple, Mapping)):
        return value
    shell: Json = _shell(value)
    pending = [(value, shell)]
    for source, target in pending:
        for key, item in source.items() if isinstance(source, Mapping) else enumerate(source):
            if isinstance(item, (dict, list, tuple, Mapping)):
                target[key] = _shell(item)
                pending.append((item, target[key]))
            else:
                target[key] = item
    return shell


def _shell(value: Json) -> Json:
    return {} if isinstance(value, Mapping) else [None] * len(value)


class _Raw(str):
    """Text that is JSON already."""


def _written(value: Json) -> str:
    pieces: list[str] = []
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Raw):
            pieces.append(item)
        elif isinstance(item, Mapping):
            pieces.append("{")
            inner: list[Json] = []
            for key in sorted(item):
                inner += [_Raw(("," if inner else "") + _scalar(key) + ":"), item[key]]
            stack += [_Raw("}"), *reversed(inner)]
        elif isinstance(item, (list, tuple)):
            pieces.append("[")
            inner = [part for element in item for part in (_Raw(","), element)][1:]
            stack += [_Raw("]"), *reversed(inner)]
        else:
            pieces.append(_scalar(item))
    return "".join(pieces)


def _scalar(value: Json) -> str:
    if isinstance(value, float):
        return float_text(value) if math.isfinite(value) else "null"
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # more digits than Python turns into text; decimals know no such bound
        return format(Decimal(value), "f")
