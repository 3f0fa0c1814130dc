"""Documents that are right: what is read, what is stored, and that both say the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch8_local.model.ids import canonical_json
from orch8_local.sequence.bundled import bundled_names, bundled_text
from orch8_local.sequence.document import SequenceDefinition, from_stored, inspect, parse
from tests.sequence.documents import DATA, VECTORS, codes, document, problems, step, text_of

EXAMPLES = sorted((DATA / "good").glob("*.json"))
TEXTS = {
    **{path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES},
    **{f"bundled {name}": bundled_text(name) for name in bundled_names()},
}
PUBLISHED: dict[str, Any] = json.loads(VECTORS.read_text(encoding="utf-8"))
STRICTER = {"blank id", "compensation unknown block", "for_each dotted item_var"}
"""Published documents that a server takes and this program refuses (sequence-format 11.1)."""


def stored(definition: SequenceDefinition) -> str:
    """The text that the database keeps."""
    return canonical_json(definition.to_json())


@pytest.mark.parametrize("name", TEXTS)
def test_every_example_and_bundled_sequence_is_valid(name: str) -> None:
    """The published examples and all that ships with the program have no error."""
    assert [p for p in problems(TEXTS[name]) if p.severity == "error"] == []


def test_the_corpus_is_there() -> None:
    """All twelve published examples are tried."""
    assert len(EXAMPLES) == 12


@pytest.mark.parametrize("name", TEXTS)
def test_the_stored_form_reads_back_as_the_same_document(name: str) -> None:
    """Storing and reading back changes neither the document nor its hash, however often it is done."""
    definition = parse(TEXTS[name]).definition
    once = from_stored(stored(definition))
    again = parse(stored(once)).definition
    assert once == again == definition
    assert once.content_sha256 == again.content_sha256 == definition.content_sha256
    assert definition.content_sha256 == hashlib.sha256(stored(definition).encode()).hexdigest()


def reordered(value: Any) -> Any:
    """The same JSON with every object written the other way round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", TEXTS)
def test_order_of_keys_and_white_space_do_not_matter(name: str) -> None:
    """A document written in another order and layout is the same document."""
    text = json.dumps(reordered(json.loads(TEXTS[name])), indent=7)
    assert parse(text).definition.content_sha256 == parse(TEXTS[name]).definition.content_sha256


@pytest.mark.parametrize("case", PUBLISHED["blocks"], ids=lambda case: json.dumps(case["block"])[:80])
def test_published_blocks_load_exactly_when_the_format_says_so(case: dict[str, Any]) -> None:
    """A block that the format refuses is an error; one that it reads has the published normal form."""
    found = inspect(text_of(case["block"]), strict=False)
    if not case["loads"]:
        assert found.has_errors
    elif found.definition is not None:
        assert found.definition.to_json()["blocks"] == [case["normal"]]
    else:
        assert all(p.code.endswith((".empty", ".variants")) for p in found.problems if p.severity == "error")


@pytest.mark.parametrize("case", PUBLISHED["documents"], ids=lambda case: case["case"])
def test_published_documents_get_the_published_verdict(case: dict[str, Any]) -> None:
    """Where a server's rules hold, the verdict is the server's; else only the listed ones are stricter."""
    text = json.dumps(case["document"])
    assert inspect(text, strict=False).has_errors == (case["verdict"] != "valid")
    assert inspect(text).has_errors == (case["verdict"] != "valid" or case["case"] in STRICTER)


def test_only_name_and_blocks_are_needed() -> None:
    """A hand-written document may leave out all else; the defaults are those of one machine."""
    written = parse(text_of()).definition.to_json()
    assert written == {
        "name": "v",
        "version": 1,
        "tenant_id": "local",
        "namespace": "default",
        "deprecated": False,
        "status": "production",
        "blocks": [step() | {"params": None, "delay": None, "retry": None, "cancellable": True}],
    }


def test_notes_for_people_are_kept() -> None:
    """`description`, `notes`, `$schema` and `x-…` may stand at the top and stay with the document."""
    notes = {"description": "d", "notes": ["n"], "$schema": "s", "x-owner": {"a": 1}}
    definition = parse(text_of(**notes)).definition
    assert notes.items() <= from_stored(stored(definition)).to_json().items()
    assert definition.description == "d"


def test_durations_are_milliseconds_and_a_point_means_seconds() -> None:
    """`5000` and `5.0` are the same time; the second is pointed out, as is a limit of a few milliseconds."""
    whole, point, short = text_of(step(timeout=5000)), text_of(step(timeout=5.0)), text_of(step(timeout=5))
    assert parse(whole).definition.block("a").timeout == 5000  # type: ignore[attr-defined]
    assert parse(whole).definition == parse(point).definition
    assert (codes(whole), codes(point), codes(short)) == ([], ["duration.seconds"], ["duration.short"])
    assert [p.suggestion for p in problems(short)] == ["seconds? write 5000"]


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(0.25, 250), (1.001, 1001), (0.0019, 1), (-0.0, 0), (1e300, 2**64 - 1)]
)
def test_seconds_are_cut_to_whole_milliseconds(seconds: float, milliseconds: int) -> None:
    """A float is seconds, cut to whole milliseconds and to 64 bits."""
    assert parse(text_of(step(timeout=seconds))).definition.block("a").timeout == milliseconds  # type: ignore[attr-defined]


def test_integers_of_any_size_stay_exact() -> None:
    """No integer in params passes through a float, neither at reading nor in the stored form."""
    params = {"a": 3544790567247868102, "b": 2**63, "c": 10**40, "d": -(2**70), "e": 1.10, "f": 5.0}
    definition = parse(text_of(step(params=params))).definition
    again = from_stored(stored(definition)).block("a").params  # type: ignore[attr-defined]
    assert again == params
    assert {key: type(value) for key, value in again.items()} == {key: type(value) for key, value in params.items()}


def test_both_spellings_of_the_split_are_read_and_one_is_written() -> None:
    """`ab_split` is taken for `a_b_split`, which is what the stored form says."""
    variants = [{"name": name, "weight": 1, "blocks": []} for name in "xy"]
    definition = parse(text_of({"type": "ab_split", "id": "s", "variants": variants})).definition
    assert definition.to_json()["blocks"][0]["type"] == "a_b_split"


def test_ids_and_times_are_written_in_one_way() -> None:
    """A UUID in any spelling and a time with any offset are stored in the one form of the format."""
    uuid = "0190F000-0000-7000-8000-0000000000FF"
    for spelling in (uuid, uuid.replace("-", ""), f"{{{uuid}}}", f"urn:uuid:{uuid}"):
        definition = parse(text_of(id=spelling, created_at="2026-01-05 08:00:00+02:00")).definition
        assert (definition.id, definition.created_at) == (uuid.lower(), "2026-01-05T06:00:00Z")


def test_ids_may_repeat_between_the_trees_of_a_document() -> None:
    """The hooks are trees of their own, and may read the outputs of the main one."""
    hook = step(params={"m": "{{ outputs.b.x }}"})
    assert codes(text_of(step(), step("b"), on_failure=[hook], on_cancel=[hook])) == []


@pytest.mark.parametrize("block_id", ["支払い", "été/🚀 1", "a b", "x-1", "👩‍🚀"])
def test_ids_of_any_script_are_allowed_and_the_hard_ones_pointed_out(block_id: str) -> None:
    """What an expression cannot name plainly is a warning with a plain id, never an error."""
    found = inspect(text_of(step(block_id), name=block_id))
    assert found.definition is not None
    assert [p.code for p in found.problems] == ["block.id_style"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "try_catch", "id": "t", "try_block": [step()], "catch_block": []},
        {"type": "parallel", "id": "p", "branches": [[]]},
        {"type": "router", "id": "r", "routes": [], "default": []},
        {"type": "router", "id": "r", "routes": [{"condition": "x", "blocks": []}] * 300},
        {"type": "saga", "id": "g", "steps": []},
        {"type": "loop", "id": "l", "condition": "true", "break_on": "", "body": [step()]},
    ],
    ids=lambda block: block["type"],
)
def test_what_is_allowed_to_be_empty_is(block: dict[str, Any]) -> None:
    """An empty catch, branch, route, saga or `break_on` is valid; where it does nothing, a warning says so."""
    assert inspect(text_of(block)).definition is not None


def test_walk_goes_through_every_block_in_the_order_of_the_document() -> None:
    """Blocks come outer ones first with their pointer and depth, in all kinds of composites."""
    saga = {
        "type": "saga",
        "id": "g",
        "steps": [
            {"id": "s1", "action": step("do1"), "compensation": step("undo1")},
            {"id": "s2", "action": step("do2")},
        ],
    }
    tried = {
        "type": "try_catch",
        "id": "t",
        "try_block": [saga],
        "catch_block": [step("c")],
        "finally_block": [step("f")],
    }
    routes = [{"condition": "a", "blocks": [step("r1")]}, {"condition": "b", "blocks": [step("r2")]}]
    router = {"type": "router", "id": "r", "routes": routes, "default": [step("d")]}
    definition = parse(text_of(tried, router)).definition
    assert [(block.id, depth) for block, _, depth in definition.walk()] == [
        ("t", 0),
        ("g", 1),
        ("do1", 2),
        ("undo1", 2),
        ("do2", 2),
        ("c", 1),
        ("f", 1),
        ("r", 0),
        ("r1", 1),
        ("r2", 1),
        ("d", 1),
    ]
    for block, pointer, _ in definition.walk():
        raw: Any = document(tried, router)
        for part in pointer.split("/")[1:]:
            raw = raw[int(part)] if isinstance(raw, list) else raw[part]
        assert raw["id"] == block.id
        assert definition.block(block.id) is block


def test_a_definition_does_not_change() -> None:
    """What was read is immutable: a run is pinned to what its document said."""
    definition = parse(text_of()).definition
    with pytest.raises(AttributeError):
        definition.name = "w"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        definition.block("a").id = "b"  # type: ignore[misc]


def test_text_deeper_than_a_server_reads_is_pointed_out() -> None:
    """Params of 150 levels run here; a warning says that a server refuses the text."""
    params: Any = 1
    for _ in range(150):
        params = [params]
    found = inspect(text_of(step(params=params)))
    assert found.definition is not None
    assert [p.code for p in found.problems] == ["json.depth"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_params_are_kept_as_they_are_written(params: Any) -> None:
    """Any JSON without a template goes through reading and storing unchanged."""
    text = json.dumps(params)
    if "{{" in text:
        return
    definition = parse(text_of(step(params=params))).definition
    assert from_stored(stored(definition)).block("a").params == params  # type: ignore[attr-defined]


def test_the_examples_are_those_that_were_published() -> None:
    """Each example carries an input that fits its own schema, so that it can be started as it is."""
    from jsonschema import Draft202012Validator

    for path in EXAMPLES:
        schema = parse(Path(path).read_bytes()).definition.input_schema
        assert schema is not None
        for example in schema["examples"]:
            Draft202012Validator(schema).validate(example)
