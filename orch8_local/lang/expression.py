"""Expressions: conditions in `when`, `retry_if`, routers, loops and `assert` (sequence-format 8).

A document is refused if one of its expressions deviates from the grammar in any way, so what runs
has been checked. `evaluate` refuses such a text again; `evaluate_lenient` takes what can be
understood of it, as the format wants it for some fields. The easy mistake: changing what an
expression gave; a path gives the list or object of the scope itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from orch8_local.errors import ExpressionError
from orch8_local.lang.functions import FUNCTIONS
from orch8_local.lang.operators import truthy
from orch8_local.lang.parser import Parsed
from orch8_local.lang.parser import parse as _parse
from orch8_local.lang.problem import LangProblem, nearest, shown
from orch8_local.lang.scope import Scope

Json = Any

_LONGEST_CACHED = 16_384
"""Characters; what is longer is parsed each time, so that the cache stays small."""


def parse(text: str) -> Parsed:
    """The parsed text; its problems are in the result. Never raises."""
    return _remembered(text) if len(text) <= _LONGEST_CACHED else _parse(text)


@lru_cache(maxsize=2048)
def _remembered(text: str) -> Parsed:
    return _parse(text)


def evaluate(text: str, scope: Scope) -> Json:
    """The value of an expression. Raises ExpressionError, with a column, if it is not one."""
    parsed = parse(text)
    if parsed.problems:
        first = parsed.problems[0]
        message = f"{first.message} (column {first.column} of {shown(text)})"
        raise ExpressionError(message, column=first.column, suggestion=first.suggestion)
    return parsed.code(scope)


def evaluate_lenient(text: str, scope: Scope) -> Json:
    """The value of what could be understood; null if nothing. Never raises."""
    return parse(text).code(scope)


def check(text: str) -> list[LangProblem]:
    """Everything wrong or doubtful in an expression, in order; functions that nobody has are errors."""
    parsed = parse(text)
    unknown = [
        LangProblem("expression_function", f"there is no function {shown(name)}", column, _known(name))
        for name, column in parsed.calls
        if name not in FUNCTIONS
    ]
    return sorted([*parsed.problems, *unknown, *parsed.hints], key=lambda problem: problem.column)


def references(text: str) -> list[tuple[str, ...]]:
    """Every path that an expression reads, as its keys."""
    return list(parse(text).paths)


def _known(name: str) -> str:
    near = nearest(name, FUNCTIONS)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(FUNCTIONS))}"


__all__ = ["Parsed", "check", "evaluate", "evaluate_lenient", "parse", "references", "truthy"]
