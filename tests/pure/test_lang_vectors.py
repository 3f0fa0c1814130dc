"""Every published case of both languages, and the list of those that we answer differently, with why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orch8_local.errors import ExpressionError, TemplateError
from orch8_local.lang import expression, template
from orch8_local.lang.jsontext import compact_json
from orch8_local.lang.scope import Scope
from tests.pure.lang_model import same

DATA = Path(__file__).parent / "data"
VECTORS: dict[str, Any] = json.loads((DATA / "sequence-format-vectors.json").read_text("utf-8"))
WORKED: dict[str, Any] = json.loads((DATA / "worked-examples.json").read_text("utf-8"))
"""The tables of sequence-format 7.9 and 9; many of their lines are not among the vectors."""


def _cases(kind: str, text: str) -> list[dict[str, Any]]:
    listed = [case[text] for case in VECTORS[kind]]
    return [*VECTORS[kind], *(case for case in WORKED[kind] if case[text] not in listed)]


TEMPLATES = _cases("templates", "template")
EXPRESSIONS = _cases("expressions", "expression")
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
    "{{ data.missing | null | 'z' }}": ERROR,  # nor can 'z'
    "{{ data.missing || 'x' }}": ERROR,  # two '|' are no operator, and an empty fallback is hardly meant
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
    " ": (None, ERROR),
}


WHOLE_LITERALS = (
    *("{{ data.missing | 42 }}", "{{ data.missing | default(5) }}"),
    *("42", "[1, 'a', true, null,]", "1e3", "qty?1:0", "note ? 1 : 2", "clamp(5)", "5 5"),
)
"""Published as floats, here whole numbers: the same value of another kind."""


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


def is_as_wanted(text: str, found: Any, wanted: Any) -> bool:
    """The same JSON text, so that 7, 7.0, true and "7" are four; the same value for the whole literals."""
    return compact_json(found) == compact_json(wanted) or (text in WHOLE_LITERALS and same(found, wanted))


@pytest.mark.parametrize("case", TEMPLATES, ids=lambda case: str(case["template"]))
def test_every_published_template_resolves_as_published_or_as_we_have_said(case: dict[str, Any]) -> None:
    """A template gives what the format's table says; each deviation is in the list above."""
    published = case.get("value", ERROR)
    text = case["template"]
    wanted = OUR_TEMPLATES.get(text, published) if isinstance(text, str) else published
    assert is_as_wanted(str(text), resolved(text), wanted)


@pytest.mark.parametrize("case", EXPRESSIONS, ids=lambda case: case["expression"])
def test_every_published_expression_evaluates_as_published_or_as_we_have_said(case: dict[str, Any]) -> None:
    """An expression gives the published value, truth and strict verdict, or the listed deviation."""
    text = case["expression"]
    value, strict = OUR_EXPRESSIONS.get(text, (case["value"], case["strict"]))
    found = expression.evaluate_lenient(text, SCOPE)
    assert is_as_wanted(text, found, value)
    assert expression.truthy(found) is (expression.truthy(value))
    assert strictly(text) == strict


@pytest.mark.parametrize("text", [t for t, wanted in OUR_TEMPLATES.items() if wanted != ERROR])
def test_a_listed_deviation_is_one(text: str) -> None:
    """No line of the list of deviations is idle: the published value is another one."""
    published = next(case for case in TEMPLATES if case["template"] == text)
    assert published.get("value", ERROR) != OUR_TEMPLATES[text]


def test_no_listed_deviation_is_of_a_case_that_is_not_published() -> None:
    """Every text in the lists above is one of the published ones."""
    published = {case["template"] for case in TEMPLATES if isinstance(case["template"], str)}
    published |= {case["expression"] for case in EXPRESSIONS}
    assert {*OUR_TEMPLATES, *OUR_EXPRESSIONS, *WHOLE_LITERALS} <= published


@pytest.mark.parametrize("text", sorted(OUR_EXPRESSIONS))
def test_a_listed_deviation_of_an_expression_is_one(text: str) -> None:
    """No line of the list is idle: the published value or verdict is another one."""
    published = next(case for case in EXPRESSIONS if case["expression"] == text)
    assert (compact_json(published["value"]), published["strict"]) != (
        compact_json(OUR_EXPRESSIONS[text][0]),
        OUR_EXPRESSIONS[text][1],
    )


@pytest.mark.parametrize(
    "case",
    [c for c in EXPRESSIONS if c["strict"] == ERROR and c["expression"] not in OUR_EXPRESSIONS],
    ids=lambda case: case["expression"],
)
def test_what_does_not_parse_is_found_before_it_runs_and_says_where(case: dict[str, Any]) -> None:
    """Every expression that fails strictly has a problem with a column inside its text."""
    problems = expression.check(case["expression"])
    assert problems
    assert all(1 <= problem.column <= len(case["expression"]) + 1 for problem in problems)
