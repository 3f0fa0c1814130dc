"""What both languages promise for any text and any value."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orch8_local.errors import ExpressionError, TemplateError
from orch8_local.lang import expression, template
from orch8_local.lang.jsontext import as_float, compact_json, float_text, number_from_text
from orch8_local.lang.operators import equal, truthy
from orch8_local.lang.scope import Scope

DATA = {
    "qty": 7,
    "name": "Ada",
    "tags": ["red", "heavy"],
    "größe": 3,
    "big": 2**70,
    "evil": "{{ config.secret }}",
}
SCOPE = Scope(data=DATA, config={"secret": "s3cret"}, outputs={"step-2": {"ok": True}}, state={"n": 4})

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
PIECES = st.lists(
    st.sampled_from(
        [
            *("{{", "}}", " ", "|", "data.qty", "data.tags", "config.x", "'", '"', "(", ")", ",", "default"),
            *(
                "json(",
                "len(",
                "round(2)",
                "upper",
                "qty",
                "==",
                "&&",
                "||",
                "!",
                "-",
                "[",
                "]",
                "in",
                "?",
                ":",
            ),
            *("1", "2.5", "null", "true", "sum(", "é", "\x00", ".", "\n", "replace('a','b')", "state.n"),
        ]
    ),
    max_size=14,
).map("".join)


@given(PIECES | st.text(max_size=40))
@example("{{ data.x | round(99999999999999999999) }}")
@example("{{ data.qty | round(400) }}")
def test_a_template_resolves_or_says_what_is_wrong(text: str) -> None:
    """Any text resolves, or raises TemplateError and nothing else; what fails had been found by check."""
    problems = template.check(text)
    try:
        template.resolve(text, SCOPE)
    except TemplateError:
        if not any(word in text for word in ("base64_decode", "json(")):
            assert [p for p in problems if not p.is_warning]


@given(PIECES | st.text(max_size=40))
@example("(" * 500)
@example("-" * 5000)
@example("1" * 10_000)
@example("+".join(["1"] * 20_000))
def test_an_expression_evaluates_or_says_what_is_wrong(text: str) -> None:
    """Any text has a lenient value; strictly it has a value, or an error whose column lies in it."""
    compact_json(expression.evaluate_lenient(text, SCOPE))
    try:
        expression.evaluate(text, SCOPE)
    except ExpressionError as error:
        assert 1 <= error.column <= len(text) + 1
        assert expression.check(text)


@given(JSON)
def test_a_value_without_templates_is_unchanged(value: Any) -> None:
    """Resolving what has no template gives it back, types and all."""
    if template.has_template(value):
        return
    assert compact_json(template.resolve(value, SCOPE)) == compact_json(value)
    assert template.references(value) == []


@given(JSON)
def test_json_text_reads_back_as_the_same_value(value: Any) -> None:
    """The text of a value is JSON for it, with every number kept."""
    assert equal(json.loads(compact_json(value)), value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_reads_back_exactly_and_is_never_pythons_own_spelling(number: float) -> None:
    """Floats are written as the format says, and lose nothing."""
    text = float_text(number)
    assert float(text) == number
    assert math.copysign(1, float(text)) == math.copysign(1, number)
    assert "e+" not in text
    assert "e-0" not in text
    assert ("e" in text) == (number != 0 and not 1e-5 <= abs(number) < 1e16)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (100.0, "100.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e16"),
        (1.2345678901234568e17, "1.2345678901234568e17"),
        (0.00001, "0.00001"),
        (0.0000125, "0.0000125"),
        (-0.00002, "-0.00002"),
        (1e-6, "1e-6"),
        (-0.0, "-0.0"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_are_written_as_in_the_table(number: float, text: str) -> None:
    """The examples of the format's section on numbers."""
    assert float_text(number) == text


@given(st.integers())
def test_a_whole_number_is_exact_however_long(number: int) -> None:
    """No integer becomes a float on its way through either language."""
    scope = Scope(data={"n": number})
    assert template.resolve("{{ data.n }}", scope) == number
    assert template.resolve("n={{ data.n }}", scope) == f"n={number}"
    assert expression.evaluate("data.n", scope) == number
    assert number_from_text(str(number)) == number


@given(JSON)
def test_what_comes_from_data_is_never_a_template(value: Any) -> None:
    """A value that holds braces is inserted as it is; it cannot read anything."""
    scope = Scope(data={"x": [value, "{{ config.secret }}"]}, config={"secret": "s3cret"})
    assert template.resolve("{{ data.x }}", scope) == [value, "{{ config.secret }}"]
    assert "s3cret" not in template.resolve("x: {{ data.x }}", scope) or "s3cret" in compact_json(value)


@given(JSON, JSON)
def test_equality_is_an_equivalence_that_never_mixes_types(a: Any, b: Any) -> None:
    """Equal is symmetric; a bool never equals a number, nor a text."""
    assert equal(a, a)
    assert equal(a, b) is equal(b, a)
    if isinstance(a, bool) is not isinstance(b, bool):
        assert not equal(a, b)


@given(JSON)
def test_arithmetic_sees_a_finite_number_or_none(value: Any) -> None:
    """Nothing that reaches an operator is infinite or not a number."""
    number = as_float(value)
    assert number is None or math.isfinite(number)
    assert isinstance(truthy(value), bool)


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("{{ item }}", 4, "data of the run is data.item"),
        ("{{ dta.x }}", 4, "did you mean 'data'?"),
        ("{{ data.name | uper }}", 16, "did you mean 'upper'?"),
        ("a {{ data.name | defualt('x') }}", 18, "did you mean 'default'?"),
        ("{{ data.x || 'y' }}", 12, "one '|' is enough; '' is the empty text"),
        ("{{ }}", 3, "write a path: {{ data.x }}"),
        ("hello {{ data.x", 7, "close it, or take it out"),
        ("{{ upper(data.x) }}", 4, "known are json(path) and len(path); filters come after a '|'"),
        ("{{ context.runtime.attempt }}", 4, "write data.… or config.…"),
        ("{{ data.x | hash('md5') }}", 13, "write hash('sha256')"),
    ],
)
def test_a_mistake_in_a_template_has_a_column_and_a_way_out(text: str, column: int, suggestion: str) -> None:
    """What is wrong with a template is found without running it."""
    problem = template.check(text)[0]
    assert (problem.column, problem.suggestion) == (column, suggestion)


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("qty = 7", 5, "two '=' compare: a == b"),
        ("qty > 5 and qty < 9", 9, "write &&"),
        ("tags[0]", 6, "write .0"),
        ("qty % 2", 5, "there is no remainder; calculate it in a step"),
        ("1 < qty < 3", 9, "compare twice: a < b && b < c"),
        ("qty > 5 ? 'a'", 14, "write a ? b : c"),
        ("lenn(tags)", 1, "did you mean 'len'?"),
        ("qty ==", 7, "complete the expression"),
        ("(qty", 5, "add ')'"),
        ("", 1, "write a condition, or leave the field out"),
        ("{{ qty = 1 }}", 8, "two '=' compare: a == b"),
    ],
)
def test_a_mistake_in_an_expression_has_a_column_and_a_way_out(text: str, column: int, suggestion: str) -> None:
    """What is wrong with an expression is found without running it."""
    problem = expression.check(text)[0]
    assert (problem.column, problem.suggestion) == (column, suggestion)


def test_a_template_that_reads_a_key_with_an_operator_in_it_is_doubted() -> None:
    """`{{ data.qty + 1 }}` is legal and null; it is reported as a probable mistake."""
    assert [p.is_warning for p in template.check("{{ data.qty + 1 }}")] == [True]


def test_brackets_and_the_state_root_reach_what_paths_cannot() -> None:
    """A key in brackets reads any block; `state` is a root unless the data has such a key."""
    assert expression.evaluate('outputs["step-2"].ok', SCOPE) is True
    assert expression.evaluate('data["größe"] == 3', SCOPE) is True
    assert expression.evaluate("state.n", SCOPE) == 4
    assert expression.evaluate("state.n", Scope(data={"state": {"n": 1}}, state={"n": 4})) == 1


def test_references_name_every_path_that_decides_a_value() -> None:
    """Paths in fallbacks, functions and filter arguments are all found."""
    text = "{{ data.a | outputs.b.c }}-{{ json(config.d) | replace('x', state.e) }}"
    assert set(template.references([text])) == {
        ("data", "a"),
        ("outputs", "b", "c"),
        ("config", "d"),
        ("state", "e"),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clamp(5, 10, 1)", None),
        ("format_date('2026-03-01T10:00:00Z', '%Q')", None),
        ("format_date('2026-03-01T09:05:07.123456789+01:00', '%F %T %.3f %f %z %:z')", None),
        ("format_date('2026-02-30T10:00:00Z')", None),
        ("day_of_week('2026-12-01T00:00:00Z')", 1),
        ("random(3, 3)", 3),
        ("sum([1, '2', 'x'])", 3.0),
        ("sort([3, 'a', null, 1], 'desc')", ["a", 3, 1, None]),
    ],
)
def test_a_function_never_aborts(text: str, value: Any) -> None:
    """Wrong arguments give null."""
    if "%.3f" in text:
        value = "2026-03-01 09:05:07 .123 123456789 +0100 +01:00"
    assert expression.evaluate(text, SCOPE) == value
