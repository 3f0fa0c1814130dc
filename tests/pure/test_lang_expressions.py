"""What expressions promise for any text and any value."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orch8_local.errors import ExpressionError
from orch8_local.lang import expression
from orch8_local.lang.functions import FUNCTIONS
from orch8_local.lang.jsontext import compact_json
from orch8_local.lang.operators import BINARY, equal, negated, truthy
from orch8_local.lang.scope import Scope
from orch8_local.model.ids import json_fault
from tests.pure import lang_model
from tests.pure.lang_values import JSON, OFTEN_WRONG, PIECES

SCOPE = Scope(
    data={"qty": 7, "tags": ["red"], "größe": 3, "x": None},
    config={"limit": 50},
    outputs={"step-2": {"ok": True}},
    state={"n": 4},
    now_us=lambda: 1_767_225_600_000_000,
    random=lambda: 0.5,
)
SPACES = st.sampled_from(["", " ", "\n\t  \r"])


# --- any text -------------------------------------------------------------------------------------


@given(PIECES | st.text(max_size=40))
@example("+".join(["1"] * 20_000))
def test_any_text_evaluates_or_says_what_is_wrong_and_where(text: str) -> None:
    """Leniently any text has a value; strictly it has the same one, or an error with a column in it."""
    lenient = expression.evaluate_lenient(text, SCOPE)
    errors = [problem for problem in expression.check(text) if not problem.is_warning]
    try:
        assert compact_json(expression.evaluate(text, SCOPE)) == compact_json(lenient)
    except ExpressionError as error:
        assert 1 <= error.column <= len(text) + 1
        assert error.column in [problem.column for problem in errors]
    else:
        assert {problem.code for problem in errors} <= {"expression_function"}


@given(lang_model.trees(), SPACES)
def test_what_is_written_is_read_as_the_grammar_says(tree: lang_model.Tree, space: str) -> None:
    """The text of any tree, with no parenthesis more than needed, has the value and the truth of the tree."""
    text = lang_model.text_of(tree, space)
    wanted = lang_model.worth(tree)
    found = expression.evaluate(text, Scope(data=lang_model.DATA))
    assert compact_json(found) == compact_json(wanted), text
    assert truthy(found) is lang_model.truth(wanted)
    assert [problem for problem in expression.check(text) if not problem.is_warning] == []


def test_any_two_operators_bind_as_the_grammar_says() -> None:
    """Every operator inside every other one, on either side, over values that tell the readings apart."""
    scope = Scope(data=lang_model.DATA)
    names = [name for name in lang_model.LEVELS if name != "?"]
    leaves = [("leaf", text, value) for text, value in (("7", 7), ("0.5", 0.5), ("true", True), ("null", None))]
    for outer, inner in product(names, names):
        for a, b, c in product(leaves, repeat=3):
            for tree in ((outer, (inner, a, b), c), (outer, a, (inner, b, c)), ("!", (inner, a, ("neg", b)))):
                text = lang_model.text_of(tree, "", 0)
                assert compact_json(expression.parse(text).code(scope)) == compact_json(lang_model.worth(tree)), text


@given(lang_model.trees())
def test_braces_around_the_whole_change_nothing(tree: lang_model.Tree) -> None:
    """One outer pair of braces is taken off; the columns stay those of the text."""
    text = lang_model.text_of(tree, " ")
    scope = Scope(data=lang_model.DATA)
    assert compact_json(expression.evaluate(f" {{{{ {text} }}}} ", scope)) == compact_json(
        expression.evaluate(text, scope)
    )


@pytest.mark.parametrize(("n", "is_right"), [(8, True), (9, False)])
def test_eight_brackets_may_nest(n: int, is_right: bool) -> None:
    """Parentheses, lists and calls share one bound."""
    for opening, closing in (("(", ")"), ("[", "]"), ("first(", ")")):
        assert (expression.check(opening * n + "qty" + closing * n) == []) is is_right
    assert expression.check("(" * 8 + "!" * 2 + "qty" + ")" * 8)
    assert expression.check("(" * 8 + "!" + "qty" + ")" * 8) == []


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("qty = 7", 5, "two '=' compare: a == b"),
        ("qty > 5 and qty < 9", 9, "write &&"),
        ("not qty", 5, "write !"),
        ("tags[0]", 6, "write .0"),
        ("qty % 2", 5, "there is no remainder; calculate it in a step"),
        ("1 < qty < 3", 9, "compare twice: a < b && b < c"),
        ("a ? b : c ? d : e", 11, "put the inner one into parentheses"),
        ("a ? b ? c : d : e", 7, "write a ? b : c"),
        ("qty in tags + 1", 13, None),
        ("qty in -1", 8, "complete the expression"),
        ("== null", 1, "complete the expression"),
        ("qty > 5 ? 'a'", 14, "write a ? b : c"),
        ("1e3 < qty", 2, "write the number without an exponent"),
        ("lenn(tags)", 1, "did you mean 'len'?"),
        ("qty ==", 7, "complete the expression"),
        ("(qty", 5, "add ')'"),
        ("'qty", 1, "add '"),
        ("", 1, "write a condition, or leave the field out"),
        ("  ", 1, "write a condition, or leave the field out"),
        ("{{ qty = 1 }}", 8, "two '=' compare: a == b"),
        ("{{ qty }} > 5", 1, "an expression stands without braces"),
        ("“x” == qty", 1, "write plain quotes: 'text'"),
        ("qty\u00a0> 5", 4, "write a plain space"),
        ("data.größe", 8, "a name has only ASCII letters, digits and '_'; write outputs[\"…\"] for others"),
        ("9" * 5000, 1, "at most 1.8e308"),
        ("outputs.step-2.ok == 1", 13, "the output of block 'step-2' is outputs[\"step-2\"]"),
    ],
)
def test_a_mistake_has_a_column_and_a_way_out(text: str, column: int, suggestion: str | None) -> None:
    """What is wrong with an expression is found without running it."""
    problem = expression.check(text)[0]
    assert (problem.column, problem.suggestion) == (column, suggestion)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("output.weigh.grams > 3", "did you mean 'outputs'? otherwise write data.output"),
        ("context.runtime.attempt == 0", "write data.… or config.…"),
        ("outputs.step-two.ok", "the output of block 'step-two' is outputs[\"step-two\"]"),
        ("qty == None", "write null"),
        ("True", "write true"),
        ("!qty in tags", "write !(a in b)"),
        ("user..name", "take the extra '.' out"),
    ],
)
def test_what_is_null_without_a_word_is_doubted(text: str, suggestion: str) -> None:
    """Legal and hardly meant: it runs, and the author is warned."""
    (problem,) = expression.check(text)
    assert (problem.is_warning, problem.suggestion) == (True, suggestion)
    expression.evaluate(text, SCOPE)


@pytest.mark.parametrize("text", ["outputs.step - two.ok", "qty-2", "outputs.a.n-1", "!(qty in tags)", "item.price"])
def test_what_is_meant_is_not_doubted(text: str) -> None:
    """Neighbours of the doubtful forms pass without a word."""
    assert expression.check(text) == []


# --- any value ------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(FUNCTIONS)), st.lists(JSON | OFTEN_WRONG, max_size=4))
def test_a_function_gives_json_for_any_arguments(name: str, arguments: list[Any]) -> None:
    """No function raises, whatever it is given, and its result is one value that JSON can hold."""
    data = {f"a{index}": value for index, value in enumerate(arguments)}
    scope = Scope(data=data, now_us=lambda: 0, random=lambda: 0.25)
    found = expression.evaluate(f"{name}({','.join(data)})", scope)
    assert json_fault(found) is None or json_fault(arguments) is not None


@given(st.sampled_from(sorted(BINARY)), JSON | OFTEN_WRONG, JSON | OFTEN_WRONG)
def test_an_operator_gives_a_value_for_any_two(name: str, a: Any, b: Any) -> None:
    """No operator raises; comparisons and logic give a bool, arithmetic a number, a text or null."""
    found = BINARY[name](a, b)
    if name in "+-*/":
        assert found is None or isinstance(found, (float, str))
        assert isinstance(found, str) is (name == "+" and isinstance(a, str) and isinstance(b, str))
        assert found != float("inf")
    else:
        assert isinstance(found, bool)
    assert negated(a) is None or isinstance(negated(a), float)


@given(JSON, JSON)
def test_equality_agrees_with_its_model(a: Any, b: Any) -> None:
    """Symmetric and reflexive; numbers by value at any depth; a bool never equals a number, nor a text."""
    assert equal(a, a)
    assert equal(a, b) is equal(b, a) is lang_model.same(a, b)


@given(st.integers(), st.integers())
def test_whole_numbers_compare_exactly(a: int, b: int) -> None:
    """However long: not as floats."""
    scope = Scope(data={"a": a, "b": b})
    for name, wanted in (("==", a == b), ("<", a < b), (">=", a >= b)):
        assert expression.evaluate(f"a {name} b", scope) is wanted
    assert expression.evaluate("a in [b]", scope) is (a == b)
    assert expression.evaluate(f"a == {abs(a)}", scope) is (a >= 0)


@given(st.lists(JSON, max_size=8), st.booleans())
def test_sorting_keeps_every_element_and_orders_kinds_before_values(items: list[Any], is_down: bool) -> None:
    """null, bools, numbers, texts, lists, objects; equal ones stay in place, downwards too."""
    found = expression.evaluate("sort(l, o)", Scope(data={"l": items, "o": "desc" if is_down else "asc"}))
    kinds = ["NoneType", "bool", "number", "str", "list", "dict"]
    ranks = [kinds.index("number" if type(item) in (int, float) else type(item).__name__) for item in found]
    assert ranks == sorted(ranks, reverse=is_down)
    assert sorted(map(compact_json, found)) == sorted(map(compact_json, items))
    for kind in (str, int):
        values = [item for item in found if type(item) is kind]
        assert values == sorted(values, reverse=is_down)
    loose = [item for item in items if isinstance(item, (bool, list, dict))]
    assert [compact_json(i) for i in found if type(i) is list] == [compact_json(i) for i in loose if type(i) is list]


@given(st.lists(JSON, max_size=8))
def test_unique_keeps_the_first_of_each(items: list[Any]) -> None:
    """Compared by their JSON text, so 1 and 1.0 are two."""
    found = expression.evaluate("unique(l)", Scope(data={"l": items}))
    texts = list(dict.fromkeys(map(compact_json, items)))
    assert list(map(compact_json, found)) == texts


@given(st.lists(st.integers(), max_size=6), st.integers(-3, 9), st.integers(-3, 9))
def test_slice_counts_from_zero_and_cuts(items: list[int], begin: int, end: int) -> None:
    """Negative counts as zero, beyond the end is the end."""
    found = expression.evaluate("slice(l, b, e)", Scope(data={"l": items, "b": begin, "e": end}))
    assert found == [item for index, item in enumerate(items) if begin <= index < end]


@given(st.floats(0, 1, exclude_max=True), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_random_stays_within_its_bounds(drawn: float, low: int, high: int) -> None:
    """At least the lower, less than the upper; without room between them, the lower."""
    found = expression.evaluate("random(a, b)", Scope(data={"a": low, "b": high}, random=lambda: drawn))
    a, b = (max(-(2**63), min(int(float(bound)), 2**63 - 1)) for bound in (low, high))
    assert found == a if b <= a else a <= found < b


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4))
def test_uuid_is_made_of_the_randomness_of_the_scope(drawn: list[float]) -> None:
    """A version 4 UUID; the same draws give the same one, so a run can be replayed."""
    found = [expression.evaluate("uuid()", Scope(random=iter(drawn).__next__)) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0][14] == "4"
    assert found[0][19] in "89ab"
    assert expression.evaluate("uuid()", Scope(random=lambda: 0.25)) != expression.evaluate("uuid()", SCOPE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clamp(5, 10, 1)", None),
        ("format_date('2026-03-01T10:00:00Z', '%Q')", None),
        ("format_date('2026-03-01T10:00:00Z', '50%')", None),
        (
            "format_date('2026-03-01T09:05:07.123456789+01:00', '%F %T %.3f %f %z %:z %-d|%_d|%0e %j %V')",
            "2026-03-01 09:05:07 .123 123456789 +0100 +01:00 1| 1|01 060 09",
        ),
        ("format_date('2026-02-30T10:00:00Z')", None),
        ("format_date('2026-02-28T10:00:00')", None),
        ("format_date('2016-12-31T23:59:60Z', '%T')", "23:59:59"),
        ("format_date('2026-03-01T24:00:00Z')", None),
        ("format_date('1969-12-31T23:59:59-12:34', '%s %Z')", "45239 -12:34"),
        ("day_of_week('2026-12-01T00:00:00Z')", 1),
        ("now()", "2026-01-01T00:00:00.000000000+00:00"),
        ("random(3, 3)", 3),
        ("sum([1, '2', 'x', true, null])", 4.0),
        ("sum([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])", 0.9999999999999999),
        ("sort([3, 'a', null, 1], 'desc')", ["a", 3, 1, None]),
        ('outputs["step-2"].ok', True),
        ('data["größe"] == 3', True),
        ("state.n", 4),
        ("-'inf'", None),
        ("'1' + 1", 2.0),
        ("1 / 0", None),
    ],
)
def test_worked_examples(text: str, value: Any) -> None:
    """Wrong arguments give null; dates are printed in their own offset, in English."""
    assert compact_json(expression.evaluate(text, SCOPE)) == compact_json(value)


def test_state_is_a_root_unless_the_data_has_such_a_key() -> None:
    """A document that calls a key of its data `state` keeps its meaning."""
    assert expression.evaluate("state.n", Scope(data={"state": {"n": 1}}, state={"n": 4})) == 1
    assert expression.evaluate("state.n", Scope(data={"state": None}, state={"n": 4})) is None


def test_references_name_every_path_that_is_read() -> None:
    """In operators, arguments, lists and both branches, whether or not they count this time."""
    found = expression.references('a.b > 1 ? len(outputs["x-1"].c) : [state.d, 1, true]')
    assert found == [("a", "b"), ("outputs", "x-1", "c"), ("state", "d")]


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300_000,
        "!" * 300_000,
        "a = " * 100_000,
        "'" * 300_001,
        "1." * 150_000,
        "[" + "1," * 30_000 + "]",
        'outputs["a"]' + '["a"]' * 50_000,
        "qty" + " + 1" * 50_000,
        "len(" * 100_000,
        "a" * 500_000 + "(1)",
    ],
)
def test_a_long_text_is_read_in_one_pass(text: str) -> None:
    """A text as long as a document may be ends long before the test's time is over, right or wrong."""
    expression.check(text)
    expression.evaluate_lenient(text, SCOPE)
    try:
        expression.evaluate(text, SCOPE)
    except ExpressionError as error:
        assert len(error.message) < 300


@pytest.mark.parametrize("text", ["1" * 500_000 + "x", "1." + "1" * 500_000 + "e"])
def test_a_text_that_nearly_is_a_number_is_none(text: str) -> None:
    """What comes from outside cannot hold the runner up."""
    assert expression.evaluate("x + 1", Scope(data={"x": text})) is None


def test_a_text_beyond_the_limit_is_null() -> None:
    """Joined texts and JSON may have 4 MiB."""
    scope = Scope(data={"x": "a" * (4_194_304 // 2)})
    assert len(expression.evaluate("x + x", scope)) == 4_194_304
    assert expression.evaluate("x + x + 'a'", scope) is None
    assert expression.evaluate("json([x, x])", scope) is None


def test_lists_beyond_their_bound_are_null() -> None:
    """100,000 elements are counted, sorted and added; one more is null."""
    names = ("sum(l)", "avg(l)", "min(l)", "max(l)", "slice(l)", "sort(l)", "unique(l)", "count(l, 1)", "values(o)")
    for n, is_right in ((100_000, True), (100_001, False)):
        scope = Scope(data={"l": [1] * n, "o": dict.fromkeys(map(str, range(n)), 1)})
        assert [expression.evaluate(name, scope) is not None for name in names] == [is_right] * len(names)


def test_any_depth_is_compared_and_written() -> None:
    """Neither operators nor functions meet Python's recursion limit."""
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    scope = Scope(data={"a": deep, "b": [deep[0]]})
    assert expression.evaluate("a == b && a in [b] && contains([b], a) && count([b], a) == 1", scope) is True
    assert expression.evaluate("len(json(a))", scope) == 100_001
    assert expression.evaluate("len(unique([a, b]))", scope) == 1
