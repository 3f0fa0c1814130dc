"""Expressions: conditions in `when`, `retry_if`, routers, loops and `assert` (sequence-format 8).

A document is refused if one of its expressions deviates from the grammar in any way, so what runs
has been checked. `evaluate` refuses such a text again; `evaluate_lenient` takes what can be
understood of it, as the format wants it for some fields.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from orch8_local.errors import ExpressionError
from orch8_local.lang.functions import FUNCTIONS
from orch8_local.lang.operators import truthy
from orch8_local.lang.parser import Parsed, suggestion_for_call
from orch8_local.lang.parser import parse as _parse
from orch8_local.lang.problem import LangProblem
from orch8_local.lang.scope import Scope

Json = Any


@lru_cache(maxsize=4096)
def parse(text: str) -> Parsed:
    """The parsed text; its problems are in the result. Never raises."""
    return _parse(text)


def evaluate(text: str, scope: Scope) -> Json:
    """The value of an expression. Raises ExpressionError, with a column, if it is not one."""
    parsed = parse(text)
    if parsed.problems:
        first = parsed.problems[0]
        message = f"{first.message} (column {first.column} of {text!r})"
        raise ExpressionError(message, column=first.column, suggestion=first.suggestion)
    return parsed.code(scope)


def evaluate_lenient(text: str, scope: Scope) -> Json:
    """The value of what could be understood; null if nothing. Never raises."""
    return parse(text).code(scope)


def check(text: str) -> list[LangProblem]:
    """Everything wrong with an expression: deviations from the grammar, and functions that nobody has."""
    parsed = parse(text)
    unknown = [
        LangProblem(
            "expression_function", f"there is no function {name!r}", column, suggestion_for_call(name)
        )
        for name, column in parsed.calls
        if name not in FUNCTIONS
    ]
    return sorted([*parsed.problems, *unknown], key=lambda problem: problem.column)


def references(text: str) -> list[tuple[str, ...]]:
    """Every path that an expression reads, as its keys."""
    return list(parse(text).paths)


__all__ = ["Parsed", "check", "evaluate", "evaluate_lenient", "parse", "references", "truthy"]
