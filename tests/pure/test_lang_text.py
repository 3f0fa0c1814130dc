"""Values as text and back."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.lang.jsontext import (
    MAX_TEXT_BYTES,
    WHITE_SPACE,
    as_float,
    compact_json,
    copied,
    float_text,
    is_too_long,
    number_from_text,
)
from orch8_local.lang.operators import truthy
from tests.pure.lang_model import same
from tests.pure.lang_values import JSON, OFTEN_WRONG


@given(JSON)
def test_the_text_of_a_value_reads_back_as_the_same_value(value: Any) -> None:
    """Every number is kept, keys are sorted, and nothing is there that need not be."""
    text = compact_json(value)
    assert same(json.loads(text), value)
    assert compact_json(json.loads(text)) == text


@given(JSON)
def test_both_ways_of_writing_agree(value: Any) -> None:
    """The quick way and the one for floats, depth and length give the same text."""
    assert compact_json([value, 1e300]) == f"[{compact_json(value)},1e300]"
    assert compact_json({"b": value, "a": 1e-300}) == f'{{"a":1e-300,"b":{compact_json(value)}}}'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_reads_back_exactly_and_is_never_pythons_own_spelling(number: float) -> None:
    """Floats are written as the format says, and lose nothing."""
    text = float_text(number)
    assert float(text) == number
    assert math.copysign(1, float(text)) == math.copysign(1, number)
    assert "e+" not in text
    assert "e-0" not in text
    assert ("e" in text) == (number != 0 and not 1e-5 <= abs(number) < 1e16)
    assert number_from_text(text) == number


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
    assert compact_json({"e-": number}) == f'{{"e-":{text}}}'


@pytest.mark.parametrize("text", ["5", "+5", "-5", "5.", ".5", "-.5e3", "1E+2", "0007", "inf", "-NaN", "Infinity"])
def test_what_reads_as_a_number_is_one(text: str) -> None:
    """Sign, digits, point and exponent, and the three words."""
    assert number_from_text(text) is not None


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "1_0", "٣", "0x10", ".", "e5", "1e", "--5", "+-5", "5.5.5", "1,5", "in"]
)
def test_what_does_not_read_as_a_number_is_none(text: str) -> None:
    """Python's own reading is wider; spaces, underscores and other digits are no numbers."""
    assert number_from_text(text) is None


@given(st.integers())
def test_a_whole_number_is_exact_however_long(number: int) -> None:
    """Digits in, digits out."""
    assert number_from_text(str(number)) == number
    assert compact_json(number) == str(number)


@given(JSON | OFTEN_WRONG)
def test_arithmetic_sees_a_finite_number_or_none(value: Any) -> None:
    """Nothing that reaches an operator is infinite or not a number."""
    number = as_float(value)
    assert number is None or math.isfinite(number)
    assert isinstance(truthy(value), bool)


@given(JSON)
def test_a_copy_is_the_same_value_and_shares_nothing(value: Any) -> None:
    """Changing a copy at any depth leaves the original as it was."""
    before = compact_json(value)
    twin = copied(value)
    assert compact_json(twin) == before
    stack = [twin]
    for item in stack:
        if isinstance(item, (list, dict)):
            stack.extend(item.values() if isinstance(item, dict) else item)
            item.clear()
    assert compact_json(value) == before


def test_a_read_only_view_is_written_and_copied_like_an_object() -> None:
    """The sections of a scope may be views."""
    view = MappingProxyType({"b": 1, "a": MappingProxyType({"c": 1e16})})
    assert compact_json(view) == '{"a":{"c":1e16},"b":1}'
    assert copied(view) == {"b": 1, "a": {"c": 1e16}}
    assert type(copied(view)["a"]) is dict


def test_any_depth_and_any_number_of_digits_has_a_text() -> None:
    """Neither Python's recursion limit nor its limit on digits is ours."""
    deep: Any = 1
    for _ in range(50_000):
        deep = {"a": [deep]}
    assert compact_json(deep) == '{"a":[' * 50_000 + "1" + "]}" * 50_000
    assert compact_json([10**5000, -(10**5000)]) == f"[1{'0' * 5000},-1{'0' * 5000}]"


def test_what_json_cannot_hold_is_null() -> None:
    """Such a number never enters a run; if one did, the text would still be JSON."""
    assert compact_json([math.nan, math.inf, {"a": -math.inf}]) == '[null,null,{"a":null}]'


@pytest.mark.parametrize(("character", "size"), [("a", 1), ("ü", 2), ("語", 3), ("🚀", 4), ("\ud800", 3)])
def test_the_bound_on_a_text_counts_bytes(character: str, size: int) -> None:
    """Exactly as many bytes as allowed are allowed, one more is not."""
    fitting = character * (MAX_TEXT_BYTES // size) + "a" * (MAX_TEXT_BYTES % size)
    assert not is_too_long(fitting)
    assert is_too_long(fitting + "a")


def test_white_space_is_what_unicode_calls_white_space() -> None:
    """All of Python's, without the four separators that are no white space."""
    python = {chr(code) for code in range(0x110000) if chr(code).isspace()}
    assert set(WHITE_SPACE) == python - set("\x1c\x1d\x1e\x1f")
