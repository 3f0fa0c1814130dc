"""The functions of expressions (sequence-format 8.6). Each is `(scope, *values) -> value`.

Missing arguments are null, extra ones are ignored, and what makes no sense gives null: a function
never raises. The easy mistake: a list without a bound; those marked † in the source give null
beyond 100,000 elements.
"""

from __future__ import annotations

import functools
import operator
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orch8_local.lang import dates
from orch8_local.lang.jsontext import as_float, byte_length, compact_json, is_number, is_too_long
from orch8_local.lang.operators import equal
from orch8_local.lang.scope import Scope

Json = Any
Function = Callable[..., Json]

MAX_ELEMENTS = 100_000
_INT64 = 2**63


def _len(_scope: Scope, value: Json = None, *_: Json) -> int:
    if isinstance(value, str):
        return byte_length(value)
    return len(value) if isinstance(value, (list, Mapping)) else 0


def _json(_scope: Scope, value: Json = None, *_: Json) -> str | None:
    text = compact_json(value)
    return None if is_too_long(text) else text


def _abs(_scope: Scope, value: Json = None, *_: Json) -> float | None:
    number = as_float(value)
    return None if number is None else abs(number)


def _now(scope: Scope, *_: Json) -> str:
    return dates.rfc3339(scope.now_us())


def _uuid(scope: Scope, *_: Json) -> str:
    number = functools.reduce(lambda bits, _: bits << 32 | int(scope.random() * 2**32), range(4), 0)
    return str(uuid.UUID(int=number, version=4))


def _random(scope: Scope, low: Json = None, high: Json = None, *_: Json) -> int:
    a, b = _int64(low, 0), _int64(high, 100)
    return a if b <= a else a + int(scope.random() * (b - a))


def _int64(value: Json, default: int) -> int:
    number = as_float(value)
    return default if number is None else max(-_INT64, min(int(number), _INT64 - 1))


def _format_date(_scope: Scope, moment: Json = None, pattern: Json = None, *_: Json) -> str | None:
    if not isinstance(moment, str):
        return None
    return dates.formatted(moment, pattern if isinstance(pattern, str) else "%Y-%m-%d")


def _day_of_week(_scope: Scope, moment: Json = None, *_: Json) -> int | None:
    return dates.day_of_week(moment) if isinstance(moment, str) else None


def _keys(_scope: Scope, value: Json = None, *_: Json) -> list[str]:
    return sorted(value) if isinstance(value, Mapping) else []


def _values(_scope: Scope, value: Json = None, *_: Json) -> list[Json] | None:
    if not isinstance(value, Mapping):
        return []
    return [value[key] for key in sorted(value)] if len(value) <= MAX_ELEMENTS else None


def _contains(_scope: Scope, whole: Json = None, part: Json = None, *_: Json) -> bool:
    if isinstance(whole, list):
        return any(equal(item, part) for item in whole)
    return isinstance(whole, str) and isinstance(part, str) and part in whole


def _starts_with(_scope: Scope, text: Json = None, prefix: Json = None, *_: Json) -> bool:
    return _as_text(text).startswith(_as_text(prefix))


def _ends_with(_scope: Scope, text: Json = None, suffix: Json = None, *_: Json) -> bool:
    return _as_text(text).endswith(_as_text(suffix))


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _numbers(value: Json) -> list[float] | None:
    """The elements that are numbers, or None if this is no list of a sensible length."""
    if not isinstance(value, list) or len(value) > MAX_ELEMENTS:
        return None
    return [number for item in value if (number := as_float(item)) is not None]


def _sum(_scope: Scope, value: Json = None, *_: Json) -> float | None:
    numbers = _numbers(value)
    return None if numbers is None else _finite(_total(numbers))


def _average(_scope: Scope, value: Json = None, *_: Json) -> float | None:
    numbers = _numbers(value)
    return _finite(_total(numbers) / len(numbers)) if numbers else None


def _total(numbers: Iterable[float]) -> float:
    """Added one by one: Python's own sum gives other digits in other versions."""
    return functools.reduce(operator.add, numbers, 0.0)


def _finite(number: float) -> float | None:
    return number if abs(number) != float("inf") and number == number else None


def _extreme(choose: Callable[[Iterable[float]], float]) -> Function:
    def run(_scope: Scope, value: Json = None, *_: Json) -> float | None:
        numbers = _numbers(value)
        return choose(numbers) if numbers else None

    return run


def _element(index: int) -> Function:
    def run(_scope: Scope, value: Json = None, *_: Json) -> Json:
        return value[index] if isinstance(value, list) and value else None

    return run


def _slice(_scope: Scope, value: Json = None, low: Json = None, high: Json = None, *_: Json) -> list[Json] | None:
    if not isinstance(value, list) or len(value) > MAX_ELEMENTS:
        return None
    begin = min(max(_int64(low, 0), 0), len(value))
    end = min(max(_int64(high, len(value)), 0), len(value))
    return value[begin:end]


def _rank(value: Json) -> tuple[int, Any]:
    """null < bools (equal) < numbers < texts < lists (equal) < objects (equal)."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (1, 0)
    if is_number(value):
        return (2, value)
    if isinstance(value, str):
        return (3, value)
    return (4, 0) if isinstance(value, list) else (5, 0)


def _sort(_scope: Scope, value: Json = None, order: Json = None, *_: Json) -> list[Json] | None:
    if not isinstance(value, list) or len(value) > MAX_ELEMENTS:
        return None
    return sorted(value, key=_rank, reverse=order == "desc")


def _unique(_scope: Scope, value: Json = None, *_: Json) -> list[Json] | None:
    if not isinstance(value, list) or len(value) > MAX_ELEMENTS:
        return None
    firsts: dict[str, Json] = {}
    for item in value:
        firsts.setdefault(compact_json(item), item)
    return list(firsts.values())


def _count(_scope: Scope, value: Json = None, wanted: Json = None, *_: Json) -> int | None:
    if not isinstance(value, list):
        return 0
    return sum(equal(item, wanted) for item in value) if len(value) <= MAX_ELEMENTS else None


def _change_pct(_scope: Scope, old: Json = None, new: Json = None, *_: Json) -> float | None:
    a, b = as_float(old), as_float(new)
    return _finite((b - a) / a * 100) if a and b is not None else None


def _clamp(_scope: Scope, value: Json = None, low: Json = None, high: Json = None, *_: Json) -> Json:
    number, lowest, highest = as_float(value), as_float(low), as_float(high)
    if number is None or lowest is None or highest is None:
        return value
    return None if lowest > highest else min(max(number, lowest), highest)


FUNCTIONS: Mapping[str, Function] = {
    "abs": _abs,
    "len": _len,
    "json": _json,
    "now": _now,
    "uuid": _uuid,
    "random": _random,
    "format_date": _format_date,
    "day_of_week": _day_of_week,
    "keys": _keys,
    "values": _values,
    "contains": _contains,
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "sum": _sum,
    "avg": _average,
    "min": _extreme(min),
    "max": _extreme(max),
    "first": _element(0),
    "last": _element(-1),
    "slice": _slice,
    "sort": _sort,
    "unique": _unique,
    "count": _count,
    "change_pct": _change_pct,
    "clamp": _clamp,
}
