"""Strict JSON: exact values, exact places, and never an exception of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.errors import InputError
from orch8_local.sequence.json_source import JsonSource, loads_strict, parse_json, place_in_words

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_is_json_is_read_as_it_is(value: Any, is_ascii: bool, indent: Any) -> None:
    """Any value, however it is written, is read exactly, by both ways of reading."""
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    source = parse_json(text)
    assert (source.problems, source.value) == ([], value)
    assert loads_strict(text) == value
    assert json.dumps(loads_strict(text)) == json.dumps(source.value)


def offset(source: JsonSource, place: tuple[int, int]) -> int:
    """The character at a line and a column."""
    lines = source.text.split("\n")
    return sum(len(line) + 1 for line in lines[: place[0] - 1]) + place[1] - 1


@given(VALUES, st.booleans(), st.sampled_from([None, 3]))
def test_every_pointer_leads_to_its_value_and_its_key(value: Any, is_ascii: bool, indent: int | None) -> None:
    """The place of a pointer is where that value begins; the place of its key is where the key begins."""
    source = parse_json(json.dumps(value, ensure_ascii=is_ascii, indent=indent))
    decoder = json.JSONDecoder()
    stack: list[tuple[str, Any]] = [("", source.value)]
    while stack:
        pointer, item = stack.pop()
        found, _ = decoder.raw_decode(source.text, offset(source, source.place(pointer)))
        assert found == item
        if isinstance(item, dict):
            for key, child in item.items():
                below = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
                at = offset(source, source.place(below, is_key=True))
                assert decoder.raw_decode(source.text, at)[0] == key
                stack.append((below, child))
        elif isinstance(item, list):
            stack += [(f"{pointer}/{index}", child) for index, child in enumerate(item)]


@given(st.text(min_size=1), st.booleans(), st.data())
def test_a_character_of_a_text_is_found_behind_its_escapes(text: str, is_ascii: bool, data: st.DataObject) -> None:
    """The place of character n of a text counts escapes and surrogate pairs as the one character they are."""
    index = data.draw(st.integers(0, len(text) - 1))
    source = parse_json(json.dumps([text], ensure_ascii=is_ascii))
    at = offset(source, source.place("/0", index=index))
    assert json.loads('"' + source.text[at:-2] + '"') == text[index:]


@given(st.text() | st.binary() | st.text(alphabet='{}[]",:\\/*#0123456789.-+eE ntu\n\ud800'))
def test_no_text_raises(text: str | bytes) -> None:
    """Whatever a text holds, the answer is a value or problems with places, and both ways of reading agree."""
    source = parse_json(text)
    assert source.is_readable or source.problems
    for problem in source.problems:
        assert problem.line >= 1
        assert problem.column >= 1
        problem.message.encode()
        problem.path.encode()
    if not source.problems:
        assert loads_strict(text) == source.value
        return
    with pytest.raises(InputError) as refused:
        loads_strict(text, "--input")
    assert refused.value.message.startswith(f"--input:{source.problems[0].line}:{source.problems[0].column}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": NaN}', "--input:1:7: x: NaN is no number of JSON"),
        ('{"a": {"b": [1e400]}}', "--input:1:14: a.b[0]: 1e400 is too large for a number"),
        ('{"a": 1, "a": 2}', "--input:1:10: a: the key 'a' stands here for the second time; the first is in line 1"),
        ("{a: 1}", "--input:1:2: expected a key in double quotes, found 'a'"),
    ],
)
def test_input_that_is_not_json_is_refused_with_its_path(text: str, message: str) -> None:
    """The message names the source, line, column and path; the exit status is that of invalid input."""
    with pytest.raises(InputError) as refused:
        loads_strict(text, "--input")
    assert refused.value.message == message
    assert refused.value.exit_status == 2
    assert refused.value.hint
    assert refused.value.details["problems"][0]["line"] == 1


@pytest.mark.parametrize("read", [loads_strict, lambda text: parse_json(text).value], ids=["loads", "parse"])
def test_numbers_keep_their_kind_and_all_their_digits(read: Any) -> None:
    """5 is an integer, 5.0 and 5e0 are floats, -0 is the float -0.0, and no integer is rounded."""
    value = read("[5, 5.0, 5e0, -0, 9007199254740993, 18446744073709551616, 1" + "0" * 3990 + "]")
    assert [type(item) for item in value] == [int, float, float, float, int, int, int]
    assert str(value[3]) == "-0.0"
    assert value[4:] == [9007199254740993, 18446744073709551616, 10**3990]


@pytest.mark.parametrize("read", [loads_strict, lambda text: parse_json(text).value], ids=["loads", "parse"])
def test_objects_are_sorted_by_key_from_reading_on(read: Any) -> None:
    """The order of keys in a text never shows: all objects are kept in code point order."""
    value = read('{"b": [{"z": 1, "é": 2, "A": 3}], "a": {"2": 1, "10": 2}}')
    assert list(value) == ["a", "b"]
    assert list(value["b"][0]) == ["A", "z", "é"]
    assert list(value["a"]) == ["10", "2"]


def test_depth_is_limited_whichever_way_a_text_is_read() -> None:
    """320 levels are read, 321 are refused with a place."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deepest = opening * 319 + "[1]" + closing * 319
        assert parse_json(deepest).depth == 320
        assert loads_strict(deepest) == parse_json(deepest).value
        with pytest.raises(InputError, match="nested more than 320 levels"):
            loads_strict(opening + deepest + closing)


@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        ("", ""),
        ("/blocks/2/retry/max_attempts", "blocks[2].retry.max_attempts"),
        ("/a~1b/c d", '["a/b"]["c d"]'),
        ("/$schema", "$schema"),
        ("/a" * 40, "a" + ".a" * 11 + " … " + ".a" * 12),
    ],
)
def test_a_place_is_written_as_people_write_it(pointer: str, words: str) -> None:
    """Names with dots, positions in brackets, odd names in quotes, very deep ones shortened."""
    assert place_in_words(pointer) == words
