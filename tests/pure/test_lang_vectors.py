"""Every published case of both languages, and the list of those that we answer differently, with why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orch8_local.errors import ExpressionError, TemplateError
from orch8_local.lang import expression, template
from orch8_local.lang.scope import Scope

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sequence-format-vectors.json").read_text("utf-8")
)
SCOPE = Scope(
    data=VECTORS["context"]["data"],
    config=VECTORS["context"]["config"],
    runtime=VECTORS["context"]["runtime"],
    outputs=VECTORS["outputs"],
    state=VECTORS["state"],
    instance_id="i-77",
)
ERROR = "error"

OUR_TEMPLATES = {
    "x{{ data.missing | 42 }}": "x42",  # whole numbers stay whole
    "{{ data.missing | a | b }}": ERROR,  # b can never be used
    "{{ data.missing | 'a|b' }}": "a|b",  # quotes protect
    "{{ data.label }} }}": "crate }}",  # read from left to right
    "{{ data.label }} can't hold {{ data.qty }}": "crate can't hold 7",
}
OUR_EXPRESSIONS: dict[str, tuple[Any, Any]] = {
    "big == 9007199254740992": (False, False),  # whole numbers compare exactly
    "json(3)": ("3", True),  # whole numbers stay whole
    "user['name']": ("Ada", True),  # a key in brackets is an addition
    "scores == [9, 4, 4]": (True, True),  # numbers compare by value at any depth
    "'open end": ("open end", ERROR),  # these four are mistakes, not expressions
    "qty ==": (False, ERROR),
    "(qty": (7, ERROR),
    "len(tags": (2, ERROR),
    "": (None, ERROR),
    " ": (None, ERROR),
}


def resolved(text: str) -> Any:
    try:
        return template.resolve(text, SCOPE)
    except TemplateError:
        return ERROR


def strictly(text: str) -> Any:
    try:
        return expression.truthy(expression.evaluate(text, SCOPE))
    except ExpressionError:
        return ERROR


@pytest.mark.parametrize("case", VECTORS["templates"], ids=lambda case: str(case["template"]))
def test_every_published_template_resolves_as_published_or_as_we_have_said(case: dict[str, Any]) -> None:
    """A template gives what the format's table says; each deviation is in the list above."""
    published = case.get("value", ERROR)
    text = case["template"]
    assert resolved(text) == (OUR_TEMPLATES.get(text, published) if isinstance(text, str) else published)


@pytest.mark.parametrize("case", VECTORS["expressions"], ids=lambda case: case["expression"])
def test_every_published_expression_evaluates_as_published_or_as_we_have_said(case: dict[str, Any]) -> None:
    """An expression gives the published value, truth and strict verdict, or the listed deviation."""
    text = case["expression"]
    value, strict = OUR_EXPRESSIONS.get(text, (case["value"], case["strict"]))
    found = expression.evaluate_lenient(text, SCOPE)
    assert found == value
    assert expression.truthy(found) is (expression.truthy(value))
    assert strictly(text) == strict


@pytest.mark.parametrize("text", [t for t, wanted in OUR_TEMPLATES.items() if wanted != ERROR])
def test_a_listed_deviation_is_one(text: str) -> None:
    """No line of the list of deviations is idle: the published value is another one."""
    published = next(case for case in VECTORS["templates"] if case["template"] == text)
    assert published.get("value", ERROR) != OUR_TEMPLATES[text]


@pytest.mark.parametrize(
    "case",
    [c for c in VECTORS["expressions"] if c["strict"] == ERROR and c["expression"] not in OUR_EXPRESSIONS],
    ids=lambda case: case["expression"],
)
def test_what_does_not_parse_is_found_before_it_runs_and_says_where(case: dict[str, Any]) -> None:
    """Every expression that fails strictly has a problem with a column inside its text."""
    problems = expression.check(case["expression"])
    assert problems
    assert all(1 <= problem.column <= len(case["expression"]) + 1 for problem in problems)
