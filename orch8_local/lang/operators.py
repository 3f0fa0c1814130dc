"""The operators of expressions: truth, comparison, arithmetic (sequence-format 8.3 to 8.5).

Numbers compare by value at any depth, two whole numbers exactly. Arithmetic gives floats; what is no
number, divides by zero or overflows gives null, never an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from orch8_local.lang.jsontext import as_float, is_number, is_too_long

Json = Any
Binary = Callable[[Json, Json], Json]


def truthy(value: Json) -> bool:
    """False for null, false, zero, the empty text and the empty list; true for all else, `{}` too."""
    return True if isinstance(value, Mapping) else bool(value)


def equal(a: Json, b: Json) -> bool:
    """Same value; a number is never a bool or a text."""
    stack = [(a, b)]
    while stack:
        left, right = stack.pop()
        if isinstance(left, bool) or isinstance(right, bool):
            if left is not right:
                return False
        elif isinstance(left, Mapping) and isinstance(right, Mapping):
            if left.keys() != right.keys():
                return False
            stack.extend((left[key], right[key]) for key in left)
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right, strict=True))
        elif left != right:
            return False
    return True


def is_in(value: Json, items: Json) -> bool:
    """True if some element of a list equals the value; false for anything that is no list."""
    return isinstance(items, list) and any(equal(value, item) for item in items)


def negated(value: Json) -> float | None:
    """Minus a number."""
    number = as_float(value)
    return None if number is None else -number


def _ordered(compare: Callable[[Any, Any], bool]) -> Binary:
    def run(a: Json, b: Json) -> bool:
        if (is_number(a) and is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
            return compare(a, b)
        return False

    return run


def _arithmetic(calculate: Callable[[float, float], float]) -> Binary:
    def run(a: Json, b: Json) -> float | None:
        left, right = as_float(a), as_float(b)
        if left is None or right is None:
            return None
        try:
            result = calculate(left, right)
        except (ZeroDivisionError, OverflowError):
            return None
        return result if math.isfinite(result) else None

    return run


_add_numbers = _arithmetic(operator.add)


def _add(a: Json, b: Json) -> Json:
    if not isinstance(a, str) or not isinstance(b, str):
        return _add_numbers(a, b)
    text = a + b
    return None if is_too_long(text) else text


BINARY: Mapping[str, Binary] = {
    "||": lambda a, b: truthy(a) or truthy(b),
    "&&": lambda a, b: truthy(a) and truthy(b),
    "==": equal,
    "!=": lambda a, b: not equal(a, b),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "+": _add,
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(operator.truediv),
}
