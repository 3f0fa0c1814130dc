"""What templates promise for any text and any value."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orch8_local.errors import TemplateError
from orch8_local.lang import template
from orch8_local.lang.filters import NAMES, USAGE
from orch8_local.lang.jsontext import MAX_TEXT_BYTES, compact_json, text_of
from orch8_local.lang.scope import Scope
from tests.pure.lang_values import JSON, OFTEN_WRONG, PIECES

SCOPE = Scope(
    data={"qty": 7, "name": "Ada", "tags": ["red", "heavy"], "evil": "{{ config.secret }}"},
    config={"secret": "s3cret"},
    outputs={"step-2": {"ok": True}},
    state={"n": 4},
)


def resolved(text: str, value: Any = None) -> Any:
    return template.resolve(text, Scope(data={"x": value}))


# --- any text -------------------------------------------------------------------------------------


@given(PIECES | st.text(max_size=40))
@example("{{ data.x | round(99999999999999999999) }}")
@example("{{ data.qty | round(400) }}")
@example("{{ data.x | truncate(5, ''') }}")
def test_any_text_resolves_or_says_what_is_wrong(text: str) -> None:
    """It resolves, or raises TemplateError; what fails for its own sake had been found by check."""
    problems = template.check(text)
    assert all(1 <= problem.column <= len(text) + 1 for problem in problems)
    assert template.has_template(text) or not problems
    try:
        template.resolve(text, SCOPE)
    except TemplateError as error:
        is_found = [problem for problem in problems if not problem.is_warning]
        assert is_found or error.message.startswith("base64")


@given(JSON)
def test_a_value_without_templates_is_unchanged(value: Any) -> None:
    """Resolving what has no template gives it back, types and all."""
    if template.has_template(value):
        return
    assert compact_json(template.resolve(value, SCOPE)) == compact_json(value)
    assert template.references(value) == []


@given(st.lists(st.text(max_size=6).filter(lambda text: "{{" not in text) | st.just(None), max_size=8), JSON)
def test_text_around_templates_is_kept_and_values_stand_between(parts: list[str | None], value: Any) -> None:
    """Whatever stands between two expressions, quotes and closing braces too, is text."""
    text = ""
    for part in parts:  # a brace before an expression would be its first
        text += (" " if text.endswith("{") else "") + ("{{ data.x }}" if part is None else part)
    if text.count("{{") != parts.count(None):
        return
    found = template.resolve(["", text], Scope(data={"x": value}))[1]
    if text.startswith("{{") and parts.count(None) == 1 and text.endswith("data.x }}"):
        assert compact_json(found) == compact_json(value)
    else:
        assert found == text.replace("{{ data.x }}", text_of(value))


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("{{ item }}", 4, "data of the run is data.item"),
        ("{{ dta.x }}", 4, "did you mean 'data'?"),
        ("{{ secrets.KEY }}", 4, None),
        ("{{ json( data.x) }}", 9, "take the space out"),
        ("{{ json(data.x) + 1 }}", 4, "write json(path), then perhaps '|' and a filter"),
        ("{{ json(data.x }}", 4, "write json(path), then perhaps '|' and a filter"),
        ('{{ outputs["step-2"].ok }}', 4, "a path has no brackets: write outputs.step-2.ok"),
        ("{{ 'x' }}", 4, "write it without the braces"),
        ("{{ '(' }}", 4, "write it without the braces"),
        ("{{ data.name | uper }}", 16, "did you mean 'upper'?"),
        ("{{ data.name | upper() }}", 16, "write upper"),
        ("{{ data.name | default }}", 16, "write default('text')"),
        ("{{ data.name | trim | 'x' }}", 23, "a fallback comes directly after the path it stands in for"),
        ("a {{ data.name | defualt('x') }}", 18, "did you mean 'default'?"),
        ("{{ data.x | output.y }}", 13, "did you mean outputs.y? a text that looks like a path needs quotes"),
        ("{{ data.x || 'y' }}", 12, "one '|' is enough; '' is the empty text"),
        ("{{ data.x | 'it''s' }}", 13, "put a text that holds ' into \""),
        ("{{ data.x | replace('a') }}", 13, "write replace('old', 'new')"),
        ("{{ data.x | replace('a', 'b', 'c') }}", 13, "put a text that holds ' into \""),
        ("{{ data.x | round(++2) }}", 13, "write round(2)"),
        ("{{ data.x | round(2 }}", 13, "write round(2)"),
        ("{{ }}", 3, "write a path: {{ data.x }}"),
        ("hello {{ data.x", 7, "close it, or take it out"),
        ("{{ data.x's }}", 1, "close the quote, or take it out"),
        ("{{ data.x and {{ data.y }}", 1, "write '}}' after the first expression"),
        ("{{ upper(data.x) }}", 4, "known are json(path) and len(path); filters come after a '|'"),
        ("{{ context.runtime.attempt }}", 4, "write data.… or config.…"),
        ("{{ data.x | hash('md5') }}", 13, "write hash('sha256')"),
    ],
)
def test_a_mistake_has_a_column_and_a_way_out(text: str, column: int, suggestion: str) -> None:
    """What is wrong with a template is found without running it, and it does not run."""
    (problem,) = template.check(text)
    assert (problem.column, problem.suggestion, problem.is_warning) == (column, suggestion, False)
    if problem.code != "template_unclosed":
        with pytest.raises(TemplateError):
            template.resolve(text, SCOPE)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("{{ data.qty + 1 }}", "calculate in a transform or a `when`"),
        ("{{ data.qty>3 }}", "calculate in a transform or a `when`"),
        ("{{ data.tags[1] }}", "write data.tags.1"),
        ("{{ data..x }}", "take the extra '.' out"),
        ("{{ data.x | default(data.y) }}", "write | data.y"),
        ("{{ data.x | 0049 }}", "a text needs quotes"),
        ("{{ data.x | inf }}", "a text needs quotes"),
        ("{{ data.x | default(1.50) }}", "a text needs quotes"),
    ],
)
def test_what_is_hardly_meant_is_doubted(text: str, suggestion: str) -> None:
    """Legal, and it resolves; the author is warned."""
    (problem,) = template.check(text)
    assert (problem.is_warning, problem.suggestion) == (True, suggestion)
    template.resolve(text, SCOPE)


@pytest.mark.parametrize(
    "text",
    [
        "{{ data.unit price }}",
        "{{ outputs.step-2.ok | 'no' | upper }}",
        "{{ data.x | two words }}",
        "{{ data.x | 42 }}",
        "{{ data.x | default('0049') }}",
        "{{ data.x | www.example.com }}",
        '{"a": {{ json(data.x) }}}',
        "}} {{ data.x }} }}",
    ],
)
def test_what_is_meant_is_not_doubted(text: str) -> None:
    """Neighbours of the doubtful forms pass without a word."""
    assert template.check(text) == []


def test_problems_come_in_the_order_of_the_text() -> None:
    """Errors and doubts together, by column."""
    found = template.check("{{ data.x[0] }} {{ itm }} {{ data.x + 1 }} {{ data.x")
    assert [problem.column for problem in found] == [4, 20, 30, 44]


# --- any value ------------------------------------------------------------------------------------


@given(st.integers())
def test_a_whole_number_is_exact_however_long(number: int) -> None:
    """No integer becomes a float on its way through a template."""
    assert resolved("{{ data.x }}", number) == number
    assert resolved("n={{ data.x }}", number) == f"n={number}"
    assert resolved(f"{{{{ data.y | {number} }}}}") == number


@given(JSON)
def test_what_comes_from_data_is_never_a_template(value: Any) -> None:
    """A value that holds braces is inserted as it is; it cannot read anything."""
    scope = Scope(data={"x": [value, "{{ config.secret }}"]}, config={"secret": "s3cret"})
    assert template.resolve("{{ data.x }}", scope) == [value, "{{ config.secret }}"]
    assert template.resolve("x: {{ data.x }}", scope) == f"x: {compact_json(scope.data['x'])}"


def test_a_value_stays_in_its_field() -> None:
    """A text that would close the JSON around it is inserted, and the other fields stay as they were."""
    evil = 'x"}],"url":"http://127.0.0.1:8099/evil","z":[{"y":"'
    params = {"url": "http://127.0.0.1:8099/a", "body": {"msg": "{{context.data.x}}", "again": "<{{ data.x }}>"}}
    found = template.resolve(params, Scope(data={"x": evil}))
    assert found == {"url": params["url"], "body": {"msg": evil, "again": f"<{evil}>"}}


def test_keys_are_never_templates() -> None:
    """Braces in a key stay."""
    assert template.resolve({"{{ data.qty }}": "{{ data.qty }}"}, SCOPE) == {"{{ data.qty }}": 7}


def test_the_result_shares_nothing_with_the_run() -> None:
    """Whoever changes resolved params changes neither the document nor the data."""
    document = {"a": ["{{ data.tags }}", {"b": []}], "c": "{{ outputs.step-2 }}"}
    found = template.resolve(document, SCOPE)
    found["a"][0].append("more")
    found["a"][1]["b"].append("more")
    found["c"]["ok"] = False
    assert document == {"a": ["{{ data.tags }}", {"b": []}], "c": "{{ outputs.step-2 }}"}
    assert SCOPE.data["tags"] == ["red", "heavy"]
    assert SCOPE.outputs["step-2"] == {"ok": True}


def test_an_error_names_its_place() -> None:
    """The path into the params is in the message, whatever the depth."""
    with pytest.raises(TemplateError, match=r"^body\.items\[1\]\.to: base64_decode: the value is not base64$"):
        template.resolve({"body": {"items": ["ok", {"to": "{{ data.name | base64_decode }}"}]}}, SCOPE)
    with pytest.raises(TemplateError, match=r"^base64_decode: "):
        template.resolve("{{ data.name | base64_decode }}", SCOPE)


def test_references_name_every_path_that_decides_a_value() -> None:
    """Paths in fallbacks, functions and filter arguments are all found, at any depth."""
    text = "{{ data.a | outputs.b.c }}-{{ json(config.d) | replace('x', state.e) }}"
    assert set(template.references({"k": [text, "{{ steps.f }}"]})) == {
        ("data", "a"),
        ("outputs", "b", "c"),
        ("config", "d"),
        ("state", "e"),
        ("steps", "f"),
    }


# --- filters --------------------------------------------------------------------------------------

FILTERS = st.lists(st.sampled_from([*USAGE.values(), "round(0)", "split('')", "replace('a', data.x)", "truncate(0)"]))


@given(FILTERS, JSON | OFTEN_WRONG)
def test_filters_give_json_or_say_what_is_wrong(chain: list[str], value: Any) -> None:
    """No chain of filters raises anything but TemplateError, whatever it is given."""
    text = " | ".join(["{{ data.x", *chain]) + " }}"
    assert template.check(text) == []
    try:
        compact_json(resolved(text, value))
    except TemplateError as error:
        assert error.message.partition(":")[0] in ("base64_decode", "base64", "hash", "url_encode")


def test_every_filter_is_used_as_its_usage_says() -> None:
    """The text that is suggested is right."""
    for name in NAMES:
        assert template.check(f"{{{{ data.x | {USAGE[name]} }}}}") == []


@given(st.text(max_size=20), st.text("ab'|,)(} ", min_size=1, max_size=3))
def test_splitting_and_joining_are_inverse(text: str, separator: str) -> None:
    """By any separator that quotes can hold, pipes and brackets too."""
    quoted = f'"{separator}"'
    parts = resolved(f"{{{{ data.x | split({quoted}) }}}}", text)
    assert parts == text.split(separator)
    assert resolved(f"{{{{ data.x | split({quoted}) | join({quoted}) }}}}", text) == text
    assert resolved(f"{{{{ data.y | {quoted} }}}}") == separator


@given(st.text(max_size=20))
def test_encodings_are_what_their_names_say(text: str) -> None:
    """Each can be undone, or is what the library says."""
    assert unquote(resolved("{{ data.x | url_encode }}", text), errors="strict") == text
    assert base64.b64decode(resolved("{{ data.x | base64 }}", text)).decode() == text
    assert resolved("{{ data.x | base64 | base64_decode }}", text) == text
    assert resolved("{{ data.x | hash('sha256') }}", text) == hashlib.sha256(text.encode()).hexdigest()
    assert re.fullmatch("[A-Za-z0-9%_.~-]*", resolved("{{ data.x | url_encode }}", text))


@given(st.integers(-(10**6), 10**6), st.integers(0, 3))
def test_rounding_goes_half_away_from_zero(thousandths: int, digits: int) -> None:
    """Of the number as it is written: 1.005 with two digits is 1.01."""
    number = thousandths / 1000
    unit = 10 ** (3 - digits)
    whole, rest = divmod(abs(thousandths), unit)
    wanted = (whole + (2 * rest >= unit)) * unit / 1000
    found = resolved(f"{{{{ data.x | round({digits}) }}}}", number)
    assert type(found) is float
    assert abs(found) == wanted
    assert found == 0 or (found < 0) is (thousandths < 0)


@pytest.mark.parametrize(
    ("text", "value", "wanted"),
    [
        ("{{ data.x | trim }}", "\u00a0\t\x1cx\x1f\u2003", "\x1cx\x1f"),
        ("{{ data.x | upper }}", "ß", "SS"),
        ("{{ data.x | round(309) }}", 1.5, None),
        ("{{ data.x | round(30) }}", 0.1, 0.1),
        ("{{ data.x | round(2) }}", 10**400, None),
        ("{{ data.x | round(0) }}", -2.5, -3.0),
        ("{{ data.x | abs }}", -(10**400), None),
        ("{{ data.x | join('-') }}", ["a", 1, 1e16, None, [True]], "a-1-1e16-null-[true]"),
        ("{{ data.x | truncate(1, ',') }}", "ab", "a,"),
        ("{{ data.x | replace('}}', '|') }}", "a}}b", "a|b"),
        ("{{ data.x | replace('a', json(data.x)) }}", "a", '"a"'),
        ("{{\u2003data.x\u00a0|\tupper\n}}", "a", "A"),
        ("{{ data.y | data.x | 'z' }}", "", ""),
        ("{{ data.x }} isn't {{ data.x }}", 1, "1 isn't 1"),
    ],
)
def test_worked_examples(text: str, value: Any, wanted: Any) -> None:
    """Details of the filters and of the grammar."""
    assert compact_json(resolved(text, value)) == compact_json(wanted)


# --- limits ---------------------------------------------------------------------------------------

LONG = "a" * (MAX_TEXT_BYTES // 2 + 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ data.x }}{{ data.x }}", LONG),
        ("{{ data.x | replace('a', data.x) }}", LONG),
        ("{{ data.x | replace('a', 'ä') }}", LONG),
        (f"{{{{ data.x | join('{'-' * 5000}') }}}}", [""] * 1000),
        ("{{ data.x | url_encode }}", "ü" * (MAX_TEXT_BYTES // 6 + 1)),
        ("{{ data.x | upper }}", "ŉ" * (MAX_TEXT_BYTES // 3 + 1)),
        ("{{ json(data.x) }}", [LONG, LONG]),
    ],
)
def test_a_text_beyond_the_limit_is_refused(text: str, value: Any) -> None:
    """A filter and an inserted value may make at most 4 MiB; refused before the memory is taken."""
    with pytest.raises(TemplateError, match=str(MAX_TEXT_BYTES)):
        resolved(text, value)


def test_a_value_that_is_only_handed_on_has_no_limit() -> None:
    """The limit is on texts that templates make, not on what the run holds already."""
    assert resolved("{{ data.x }}", [LONG, LONG]) == [LONG, LONG]


@pytest.mark.parametrize("depth", [320, 50_000])
def test_any_depth_is_resolved(depth: int) -> None:
    """Neither document nor data meets Python's recursion limit."""
    document: Any = "{{ data.x }}"
    value: Any = 1
    for _ in range(depth):
        document, value = [document], {"k": value}
    found = resolved(document, value)
    assert template.has_template(document)
    assert template.references(document) == [("data", "x")]
    for _ in range(depth):
        found = found[0]
    for _ in range(depth):
        found = found["k"]
    assert found == 1


@pytest.mark.parametrize(
    "text",
    [
        "{{" * 300_000,
        "{{'" * 300_000,
        "{{ data.x }}" * 60_000,
        "{{ data.x | " + "1" * 500_000 + "x }}",
        "{{ " + "(" * 500_000 + " }}",
        "{{ data" + ".x" * 300_000 + " }}",
        "{{ data.x | " + "replace(" * 100_000 + " }}",
    ],
)
def test_a_long_text_is_read_in_one_pass(text: str) -> None:
    """A text as long as a document may be ends long before the test's time is over, right or wrong."""
    template.check(text)
    try:
        template.resolve(text, SCOPE)
    except TemplateError as error:
        assert len(error.message) < 300


@pytest.mark.parametrize("text", ["1" * 500_000 + "x", "1." + "1" * 500_000 + "e", "+" * 500_000])
def test_a_text_that_nearly_is_a_number_is_read_in_one_pass(text: str) -> None:
    """What comes from outside cannot hold the runner up."""
    assert resolved("{{ data.x | default(1) }}", text) == text
    assert template.resolve("{{ data.y | " + text + " }}", SCOPE) == text
