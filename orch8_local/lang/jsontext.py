"""Values as text and back: the compact JSON of both languages, and numbers.

Source: sequence-format 7.3, 7.8. The easy mistake: Python's own text of a float, which writes
`1e+16` and `1e-05` where the format has `1e16` and `0.00001`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

Json = Any

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_LONGEST_WHOLE = 4000
"""Digits of a whole number that is kept exact; Python refuses to read more than 4300."""


def compact_json(value: Json) -> str:
    """JSON text with sorted keys, no spaces, and numbers as 7.8 writes them."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
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


def _written(value: Json) -> str:
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{_written(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in value) + "]"
    return _text(value)


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
