"""Any text at all is a definition or a list of problems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.blocks.schemas import DRAFTS
from orch8_local.errors import SequenceInvalid
from orch8_local.sequence.document import inspect, parse
from tests.sequence.documents import DATA, step

EXAMPLES = [path.read_text(encoding="utf-8") for path in sorted((DATA / "good").glob("*.json"))]
_FIELD_WORDS = """
id type handler params when delay send_window retry timeout deadline wait_for_input context_access
output_schema compensation effect branches routes default body condition collection item_var try_block
catch_block finally_block sequence_name variants blocks steps semantics max_iterations break_on name
duration timezone holidays choices key verify outcomes on_failure input_schema interceptors sla
"""
_TYPE_WORDS = """
step parallel race loop for_each router try_catch sub_sequence a_b_split cancellation_scope saga stpe
"""
FIELDS = _FIELD_WORDS.split()
TYPES = _TYPE_WORDS.split()
WORDS = st.sampled_from([*FIELDS, *TYPES, "", "{{ data.a }}", "{{ outputs.a.b", "a == 1", "a = ", "noop", "a.b"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
SHAPES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=25,
)


def hold(text: str | bytes) -> None:
    """The rule of this file, for one text."""
    for strict in (True, False):
        found = inspect(text, handlers=["noop", "log"], strict=strict)
        errors = [problem for problem in found.problems if problem.severity == "error"]
        assert (found.definition is None) == bool(errors)
        assert [(p.line, p.column) for p in found.problems] == sorted((p.line, p.column) for p in found.problems)
        for problem in found.problems:
            assert problem.line >= 1
            assert problem.column >= 1
            assert problem.message
            json.dumps(problem.as_dict(), ensure_ascii=False).encode()
    try:
        parse(text)
    except SequenceInvalid as invalid:
        str(invalid).encode()


@given(st.text() | st.binary())
def test_any_text_is_a_definition_or_problems(text: str | bytes) -> None:
    """Nothing but `SequenceInvalid` ever comes out of a text."""
    hold(text)


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), SHAPES, max_size=8) | SHAPES, max_size=4))
def test_any_json_is_a_definition_or_problems(blocks: list[Any]) -> None:
    """Nor out of JSON that uses the words of the format in any way."""
    hold(json.dumps({"name": "v", "blocks": blocks}))


@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), SHAPES, max_size=10))
def test_any_block_is_a_definition_or_problems(block_type: str, fields: dict[str, Any]) -> None:
    """Nor out of a block of any type with any fields."""
    hold(json.dumps({"name": "v", "blocks": [{**fields, "type": block_type, "id": "a"}]}))


@given(st.dictionaries(st.sampled_from(FIELDS), SHAPES, max_size=6))
def test_any_step_is_a_definition_or_problems(fields: dict[str, Any]) -> None:
    """Nor out of a step with any fields."""
    hold(json.dumps({"name": "v", "blocks": [{**fields, **step()}]}))


@given(st.data())
def test_a_damaged_example_is_a_definition_or_problems(data: st.DataObject) -> None:
    """Nor out of a good document with a piece cut out or put in."""
    text = data.draw(st.sampled_from(EXAMPLES))
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    piece = data.draw(st.sampled_from(["", ",", "}", "]", "{", '"', "null", "1e999", "\ud800", "é", "//", "\\"]))
    hold(text[:start] + piece + text[start + length :])


@pytest.mark.parametrize("value", ["{}", "[]", "true", '"x"', '{"name": {}}', '{"blocks": {}}', '{"blocks": [[]]}'])
def test_json_of_the_wrong_shape_is_an_error(value: str) -> None:
    """A document is an object with a name and a list of blocks."""
    assert inspect(value).has_errors


_KEYWORDS = """
type properties items $ref $id $schema pattern patternProperties $defs allOf anyOf not if then enum const
required minimum additionalProperties prefixItems $anchor $dynamicRef dependentSchemas format a b
"""
_SCHEMA_TEXTS = ["string", "#", "#/$defs/a", "#a", "http://x.example/y", "(", "", "//", "http://[", *DRAFTS]
SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(_SCHEMA_TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYWORDS.split()), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(_KEYWORDS.split()), SCHEMAS, max_size=6))
def test_a_schema_that_is_let_through_never_breaks_a_check(schema: dict[str, Any]) -> None:
    """A schema is refused with its document, or checks any value without an error of its own."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    if inspect(json.dumps({"name": "v", "input_schema": schema, "blocks": [step()]})).definition is None:
        return
    validator = validator_for(schema, default=Draft202012Validator)(schema)
    values: list[Any] = [None, 1, "x", {"a": 1, "b": "x"}, [1]]
    for value in values:
        list(validator.iter_errors(value))
