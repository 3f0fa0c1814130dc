"""Documents with one problem each: what is said of it, where, and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from orch8_local.errors import SequenceInvalid
from orch8_local.sequence.document import inspect, parse
from tests.sequence.documents import MARK, Bad, codes, in_block, in_document, in_step, problems, step, text_of

JSON_FAULTS = [
    Bad("@@", "json.empty", "", "an object"),
    Bad(" \n\t@@", "json.empty", "", "an object"),
    in_document('"name": "v", @@"name": "w"', "json.duplicate_key", "/name", "take one"),
    in_step('"params": {"url": "x", "b": {"c": 1, @@"c": 2}}', "json.duplicate_key", "/params/b/c", "take one"),
    in_step('"timeout": @@NaN', "json.number", "/timeout", "null or a number"),
    in_step('"params": [1, @@-Infinity]', "json.number", "/params/1", "null or a number"),
    in_step('"params": @@1e400', "json.number", "/params", "1.8e308"),
    in_step('"params": @@01', "json.number", "/params", "look like 12"),
    in_step('"cancellable": @@True', "json.word", "/cancellable", "write true"),
    in_step('"params": @@None', "json.word", "/params", "write null"),
    in_step('"params": @@yes', "json.word", "/params", "double quotes"),
    in_step('"params": "x@@\\ud800y"', "json.surrogate", "/params", "the character itself"),
    in_step('"params": "a@@\ty"', "json.control", "/params", "\\t"),
    in_step('"params": "a@@\\qy"', "json.escape", "/params", "\\\\"),
    Bad(
        '@@// hello\n{"name": "v", "blocks": [{"type": "step", "id": "a", "handler": "noop"}]}',
        "json.comment",
        "",
        "desc",
    ),
    in_document('"name": "v" /* no comma */'.replace("/*", "@@/*"), "json.comment", "", "desc"),
    in_step('"params": {"a": 1@@,}', "json.comma", "", "take the comma out"),
    in_step('"params": ["a" @@"b"]', "json.comma", "", "put a comma"),
    Bad(
        '{"name": "v", "blocks": [{"type": "step", "id": "a", "handler": "noop"}]} @@}',
        "json.trailing",
        "",
        "one value",
    ),
    Bad('{"name": "v", "blocks": [@@', "json.syntax", "", "complete"),
    Bad('{"name": "v", @@blocks: []}', "json.syntax", "", '"name": value'),
    Bad("{@@'name': 'v'}", "json.syntax", "", '"name": value'),
    Bad('{"name" @@"v"}', "json.syntax", ""),
    Bad('{"name": @@"v}', "json.syntax", "", 'add "'),
    Bad("[" * 320 + "@@[", "json.depth", "", "flatten"),
]

TYPES = [
    in_step('"timeout": @@"5s"', "type.wrong", "/timeout", "write 5000"),
    in_step('"timeout": @@"1.5 min"', "type.wrong", "/timeout", "write 90000"),
    in_step('"timeout": @@-1', "type.range", "/timeout"),
    in_step('"timeout": @@true', "type.wrong", "/timeout"),
    in_step('@@"timeout_ms": 5000', "field.unknown", "/timeout_ms", "'timeout'"),
    in_step('@@"retries": {}', "field.unknown", "/retries", "'retry'"),
    in_step('@@"if": "true"', "field.unknown", "/if", "'when'"),
    in_step('"cancellable": @@null', "type.null", "/cancellable"),
    in_step('"cancellable": @@"yes"', "type.wrong", "/cancellable", "write true"),
    in_step('"when": @@true', "type.wrong", "/when", 'write "true"'),
    in_step('"queue_name": @@5', "type.wrong", "/queue_name", 'write "5"'),
    in_step('"retry": @@[3]', "type.wrong", "/retry", "{ }"),
    in_step('"retry": @@{"max_attempts": 1, "initial_backoff": 1}', "type.missing", "/retry", '"max_backoff"'),
    in_step(
        '"retry": {"max_attempts": @@"5", "initial_backoff": 1, "max_backoff": 2}',
        "type.wrong",
        "/retry/max_attempts",
        "without quotes",
    ),
    in_step(
        '"retry": {"max_attempts": @@3.0, "initial_backoff": 1, "max_backoff": 2}',
        "type.wrong",
        "/retry/max_attempts",
        "write 3",
    ),
    in_step(
        '"retry": {"max_attempts": @@0, "initial_backoff": 1, "max_backoff": 2}',
        "retry.attempts",
        "/retry/max_attempts",
    ),
    in_step(
        '"retry": {"max_attempts": 2, "initial_backoff": @@3, "max_backoff": 2}',
        "retry.backoff",
        "/retry/initial_backoff",
        "swap",
    ),
    in_step(
        '"retry": {"max_attempts": 2, "initial_backoff": 1, "max_backoff": 2, "backoff_multiplier": @@0}',
        "retry.multiplier",
        "/retry/backoff_multiplier",
    ),
    in_step(
        '"retry": {"max_attempts": 2, "initial_backoff": 1, "max_backoff": 2, "retry_if": @@" "}',
        "retry.condition_blank",
        "/retry/retry_if",
    ),
    in_step(
        '"retry": {"max_attempts": 2, "initial_backoff": 1, "max_backoff": 2, "non_retryable_codes": ["a", @@""]}',
        "retry.code_blank",
        "/retry/non_retryable_codes/1",
    ),
    in_step('"send_window": {"start_hour": @@24}', "window.hour", "/send_window/start_hour"),
    in_step('"send_window": {"start_hour": 6, "end_hour": @@6}', "window.empty", "/send_window/end_hour", "all day"),
    in_step('"send_window": {"days": [0, @@7]}', "window.day", "/send_window/days/1"),
    in_step('"send_window": {"days": [@@"mon"]}', "type.wrong", "/send_window/days/0"),
    in_step('"send_window": {@@"timezone": "UTC"}', "field.unknown", "/send_window/timezone", "known are"),
    in_step('"delay": @@500', "type.wrong", "/delay"),
    in_step('"delay": @@{"timezone": "UTC"}', "type.missing", "/delay", '"duration"'),
    in_step('"delay": {"duration": 1, "timezone": @@"Europe/Berln"}', "delay.zone", "/delay/timezone", "Europe/Berlin"),
    in_step(
        '"delay": {"duration": 1, "fire_at_local": @@"2026-13-01T00:00:00"}',
        "delay.time",
        "/delay/fire_at_local",
        "2026",
    ),
    in_step('"delay": {"duration": 1, "holidays": [@@"1 May"]}', "delay.holiday", "/delay/holidays/0", "2026-12-25"),
    in_step('"wait_for_input": {"choices": @@[]}', "input.choices", "/wait_for_input/choices"),
    in_step('"wait_for_input": {"store_as": @@""}', "input.store_as", "/wait_for_input/store_as"),
    in_step(
        '"wait_for_input": {"choices": [{"label": "A", "value": "x"}, {"label": "B", "value": @@"x"}]}',
        "input.choice_twice",
        "/wait_for_input/choices/1/value",
    ),
    in_step('"context_access": {"data": @@["a"]}', "type.wrong", "/context_access/data"),
    in_step('"context_access": {"data": {"fields": [@@1]}}', "type.wrong", "/context_access/data/fields/0"),
    in_step('"compensation": {"handler": @@" "}', "compensation.handler_blank", "/compensation/handler"),
    in_step(
        '"compensation": {"handler": "noop", "depends_on": [@@"a"]}',
        "compensation.itself",
        "/compensation/depends_on/0",
    ),
    in_step(
        '"compensation": {"handler": "noop", "depends_on": [@@"z"]}',
        "compensation.unknown",
        "/compensation/depends_on/0",
    ),
    in_step(
        '"compensation": {"handler": "noop", "verification": @@"Manual"}',
        "type.word",
        "/compensation/verification",
        "'manual'",
    ),
    in_step('"effect": {"mode": @@"at-most-once"}', "type.word", "/effect/mode", "'at_most_once'"),
    in_step('"effect": @@{"mode": "idempotent"}', "effect.key_missing", "/effect", '"key"'),
    in_step('"effect": {"key": @@""}', "effect.key_blank", "/effect/key"),
    in_step('"effect": {"key_header": @@"a b"}', "effect.key_header", "/effect/key_header", "Idempotency-Key"),
    in_step('"effect": {"outcomes": {"409": @@"reject"}}', "type.word", "/effect/outcomes/409", "'rejected'"),
    in_step('"effect": {"outcomes": {@@"4xx": "rejected"}}', "effect.status", "/effect/outcomes/4xx", "409"),
    in_step('"output_schema": @@true', "schema.not_object", "/output_schema"),
    in_step('"output_schema": {"type": @@"strnig"}', "schema.invalid", "/output_schema/type", "'string'"),
]

BLOCKS = [
    in_block('"type": @@"stpe", "handler": "noop"', "type.block", "/type", "'step'"),
    in_block('"type": @@"Step", "handler": "noop"', "type.block", "/type", "'step'"),
    in_block('"type": @@"if", "handler": "noop"', "type.block", "/type", "'router'"),
    Bad('{"name": "v", "blocks": [@@{"id": "b", "handler": "noop"}]}', "type.missing", "/blocks/0", '"type": "step"'),
    Bad('{"name": "v", "blocks": [@@"b"]}', "type.wrong", "/blocks/0"),
    Bad('{"name": "v", "blocks": [@@{"type": "step", "handler": "noop"}]}', "type.missing", "/blocks/0", '"id"'),
    Bad('{"name": "v", "blocks": [@@{"type": "step", "id": "a"}]}', "type.missing", "/blocks/0", '"handler"'),
    Bad(
        '{"name": "v", "blocks": [{"type": "step", "id": "a", "handler": @@""}]}',
        "step.handler_empty",
        "/blocks/0/handler",
    ),
    Bad(
        '{"name": "v", "blocks": [{"type": "step", "id": "a", "handler": @@" "}]}',
        "step.handler_blank",
        "/blocks/0/handler",
    ),
    in_block('"type": "parallel", "branches": @@[]', "branches.count", "/branches"),
    in_block('"type": "parallel", "branches": [@@NOOP]', "type.wrong", "/branches/0", "[ ]"),
    in_block('"type": "race", "branches": [[NOOP], []], "semantics": @@"first"', "type.word", "/semantics"),
    in_block('"type": "loop", "condition": @@true, "body": [NOOP]', "type.wrong", "/condition", '"true"'),
    in_block('"type": "loop", "condition": @@" ", "body": [NOOP]', "loop.condition_blank", "/condition"),
    in_block('"type": "loop", "condition": "true", "body": @@[]', "loop.empty", "/body"),
    in_block(
        '"type": "loop", "condition": "true", "body": [NOOP], "max_iterations": @@100001',
        "loop.iterations",
        "/max_iterations",
    ),
    in_block(
        '"type": "loop", "condition": "true", "body": [NOOP], "poll_interval": @@1.5', "type.wrong", "/poll_interval"
    ),
    in_block('"type": "for_each", "collection": @@[1], "body": [NOOP]', "type.wrong", "/collection"),
    in_block('"type": "for_each", "collection": @@"", "body": [NOOP]', "for_each.collection_blank", "/collection"),
    in_block(
        '"type": "for_each", "collection": "x", "item_var": @@"a.b", "body": [NOOP]',
        "for_each.item_dotted",
        "/item_var",
        "'a_b'",
    ),
    in_block('"type": "router", "routes": @@[]', "router.empty", "/routes"),
    in_block(
        '"type": "router", "routes": [{"condition": @@"", "blocks": [NOOP]}]',
        "router.condition_blank",
        "/routes/0/condition",
    ),
    in_block('"type": "try_catch", "try_block": @@[], "catch_block": [NOOP]', "try.empty", "/try_block"),
    in_block('"type": "sub_sequence", "sequence_name": @@""', "sub_sequence.name_empty", "/sequence_name"),
    in_block('"type": "sub_sequence", "sequence_name": "s", "version": @@"1"', "type.wrong", "/version", "write 1"),
    in_block(
        '"type": "a_b_split", "variants": @@[{"name": "x", "weight": 1, "blocks": []}]', "split.variants", "/variants"
    ),
    in_block(
        '"type": "a_b_split", "variants": [{"name": "x", "weight": 1, "blocks": []}, '
        '{"name": @@"x", "weight": 1, "blocks": []}]',
        "split.name_twice",
        "/variants/1/name",
    ),
    in_block('"type": "cancellation_scope", "blocks": @@[]', "scope.empty", "/blocks"),
    in_block('"type": "saga", "steps": [{"id": "s", "action": @@[NOOP]}]', "type.wrong", "/steps/0/action"),
    in_block(
        '"type": "saga", "steps": [{"id": @@"inner", "action": NOOP}]',
        "block.id_duplicate",
        "/steps/0/id",
        "different ids",
    ),
]

DOCUMENTS = [
    Bad("@@[]", "type.wrong", "", "'blocks'"),
    Bad("@@null", "type.null", ""),
    Bad('@@{"name": "v"}', "type.missing", "", '"blocks"'),
    Bad('{"name": "v", "blocks": @@[]}', "blocks.empty", "/blocks"),
    in_document('"name": @@" "', "name.blank", "/name"),
    in_document('"name": @@"a\\nb"', "name.control", "/name"),
    in_document('"name": @@5', "type.wrong", "/name", '"5"'),
    in_document('"name": "v", "version": @@1.0', "type.wrong", "/version", "write 1"),
    in_document('"name": "v", "version": @@2147483648', "type.range", "/version"),
    in_document('"name": "v", "tenant_id": @@" "', "type.blank", "/tenant_id"),
    in_document('"name": "v", "id": @@"abc"', "type.uuid", "/id", "leave it out"),
    in_document('"name": "v", "created_at": @@"2026-03-01"', "type.time", "/created_at", "2026-03-01T09:30:00Z"),
    in_document('"name": "v", "status": @@"prod"', "type.word", "/status", "'production'"),
    in_document('"name": "v", @@"desciption": "x"', "field.unknown", "/desciption", "known are"),
    in_document('"name": "v", "sla": {"max_runtime": @@"1h"}', "type.wrong", "/sla/max_runtime", "write 3600000"),
    in_document('"name": "v", "input_schema": {"pattern": @@"("}', "schema.pattern", "/input_schema/pattern"),
    in_document('"name": "v", "input_schema": {"$ref": @@"#/$defs/no"}', "schema.reference", "/input_schema/$ref"),
    in_document(
        '"name": "v", "input_schema": {"$ref": @@"http://x.example/y"}', "schema.remote", "/input_schema/$ref", "$defs"
    ),
    in_document(
        '"name": "v", "input_schema": {"$schema": @@"http://x.example/y"}', "schema.draft", "/input_schema/$schema"
    ),
    in_document(
        '"name": "v", "on_failure": [{"type": "step", "id": "a", "handler": "noop"}, '
        '{"type": "step", "id": @@"a", "handler": "noop"}]',
        "block.id_duplicate",
        "/on_failure/1/id",
        "unique",
    ),
]

LANGUAGES = [
    in_step('"when": "qty @@= 7"', "expression.character", "/when", "=="),
    in_step('"when": "@@"', "expression.empty", "/when"),
    in_step('"when": "\\u0061\\\\b @@% 2"'.replace("\\\\b ", ""), "expression.character", "/when"),
    in_step('"params": {"a": ["x", "é {{ @@itm }}"]}', "template.root", "/params/a/1", "data.itm"),
    in_step('"params": {"m": "say \\"hi\\" {{ data.name | @@uper }}"}', "template.filter", "/params/m", "'upper'"),
    in_step('"params": {"m": "\\ud83d\\ude00 {{ @@itm }}"}', "template.root", "/params/m", "data.itm"),
    in_step('"params": {"m": "@@{{ data.x"}', "template.unclosed", "/params/m"),
    in_step('"cache_key": "{{ @@itm }}"', "template.root", "/cache_key", "data.itm"),
    in_step('"effect": {"unique_key": "{{ @@itm }}"}', "template.root", "/effect/unique_key", "data.itm"),
    in_step('"params": {"m": "@@{{ outputs.b.x }}"}'.replace("@@{{ ", "{{ @@"), "reference.unknown", "/params/m"),
    in_step('"when": "@@outputs.aa == 1"', "reference.unknown", "/when", "'outputs.a'"),
    in_block(
        '"type": "router", "routes": [{"condition": "a @@and b", "blocks": [NOOP]}]',
        "expression.left_over",
        "/routes/0/condition",
        "&&",
    ),
]

ALL = [*JSON_FAULTS, *TYPES, *BLOCKS, *DOCUMENTS, *LANGUAGES]


@pytest.mark.parametrize("bad", ALL, ids=lambda bad: f"{bad.code}:{bad.text[:60]!r}")
def test_a_problem_is_named_with_its_place_and_a_way_out(bad: Bad) -> None:
    """Each problem comes with a code, a JSON pointer, line and column of exactly that place, and a suggestion."""
    assert bad.text.count(MARK) == 1
    found = problems(bad.unmarked)
    shown = [(p.severity, p.code, p.path, (p.line, p.column), p.message, p.suggestion) for p in found]
    matching = [p for p in found if (p.code, p.path, p.severity) == (bad.code, bad.pointer, bad.severity)]
    assert matching, shown
    assert (matching[0].line, matching[0].column) == bad.place, shown
    assert (bad.hint or "") in (matching[0].suggestion or ""), shown
    assert [p.code for p in found if p.severity == "error"] == [bad.code], "one mistake is one error"


@pytest.mark.parametrize("bad", ALL, ids=lambda bad: f"{bad.code}:{bad.text[:60]!r}")
def test_a_document_with_an_error_is_never_usable(bad: Bad) -> None:
    """`parse` refuses it with exit status 2 and names the file, the line and the column of the first error."""
    with pytest.raises(SequenceInvalid) as refused:
        parse(bad.unmarked, source="file.json")
    line, column = bad.place
    assert str(refused.value).startswith(f"file.json:{line}:{column}: ")
    assert refused.value.exit_status == 2
    assert [p.code for p in refused.value.problems] == codes(bad.unmarked)


def test_messages_speak_of_the_field_and_of_what_was_expected() -> None:
    """A message names the place as a path, what belongs there and what stands there, in plain words."""
    bad = text_of(
        step(retry={"max_attempts": "5", "initial_backoff": 1, "max_backoff": 2}),
        step("b", send_window={"start_hour": 24}),
        step("c", effect={"key header": 1}),
    )
    assert [p.message for p in problems(bad)] == [
        'blocks[0].retry.max_attempts: expected a whole number, 1 or more, got "5"',
        "blocks[1].send_window.start_hour: expected a whole number from 0 to 23, got 24",
        'blocks[2].effect["key header"]: there is no such field here',
    ]
    assert [p.expected for p in problems(bad)][:2] == [
        "a whole number, 1 or more",
        "a whole number from 0 to 23",
    ]
    assert [p.block_id for p in problems(bad)] == ["a", "b", "c"]


def test_all_problems_are_reported_in_one_go_in_the_order_of_the_text() -> None:
    """A slip in one place hides none in another: JSON, types, ids, languages, references, handlers, schemas."""
    text = """{
  "name": "v", // first
  "input_schema": {"type": "objekt"},
  "blocks": [
    {"type": "step", "id": "a", "handler": "noop", "timeout": NaN, "retries": 3},
    {"type": "step", "id": "a", "handler": "lgo", "when": "x = 1"},
    {"type": "stpe", "id": "c", "handler": "log", "params": {"m": "{{ outputs.zz.y }} {{ data.a | uper }}"}},
    {"type": "loop", "id": "l", "condition": true, "body": [
      {"type": "step", "id": "c", "handler": "noop", "delay": {"duration": "1s"}},
    ]}
  ]
} end"""
    found = problems(text, handlers=["noop", "log"])
    assert [(p.code, p.line) for p in found] == [
        ("json.comment", 2),
        ("schema.invalid", 3),
        ("json.number", 5),
        ("field.unknown", 5),
        ("block.id_duplicate", 6),
        ("handler.unknown", 6),
        ("expression.character", 6),
        ("type.block", 7),
        ("reference.unknown", 7),
        ("template.filter", 7),
        ("type.wrong", 8),
        ("block.id_duplicate", 9),
        ("type.wrong", 9),
        ("json.comma", 9),
        ("json.trailing", 12),
    ]


def test_a_byte_order_mark_is_named_and_the_rest_is_read() -> None:
    """A file with a byte order mark is refused for that, and still checked to its end."""
    assert codes("\ufeff" + text_of(step(timeout="x"))) == ["json.bom", "type.wrong"]


@pytest.mark.parametrize("raw", [b"\xff\xfe{\x00}\x00", b'{"name": "\xe9"}', b"\xf0\x28\x8c\x28"])
def test_bytes_that_are_not_utf8_are_refused_with_their_place(raw: bytes) -> None:
    """Text in another encoding is one problem, at the first byte that cannot be read."""
    (problem,) = problems(raw)
    good = raw[: max(0, raw.find(b"\xe9"))]
    assert (problem.code, problem.line, problem.column) == ("json.encoding", 1, len(good) + 1)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_depth_is_a_problem_of_the_text_and_never_of_the_stack(text: str) -> None:
    """However deep a text is nested, the answer is a problem with a place."""
    assert codes(text) == ["json.depth"]


def nested(levels: int, kind: str) -> str:
    """A step inside so many composites of a kind."""
    block: dict[str, Any] = step("leaf")
    for level in range(levels):
        composites: dict[str, dict[str, Any]] = {
            "router": {"type": "router", "routes": [{"condition": "true", "blocks": [block]}]},
            "loop": {"type": "loop", "condition": "true", "body": [block]},
            "parallel": {"type": "parallel", "branches": [[block]]},
            "saga": {"type": "saga", "steps": [{"id": f"s{level}", "action": block}]},
        }
        block = {**composites[kind], "id": f"c{level}"}
    return text_of(block)


@pytest.mark.parametrize("kind", ["router", "loop", "parallel", "saga"])
def test_blocks_nest_64_levels_and_no_further(kind: str) -> None:
    """The one limit is 64 levels of blocks, whatever the composites; deeper is an error with a place."""
    assert inspect(nested(64, kind)).definition is not None
    assert [p.code for p in problems(nested(65, kind)) if p.severity == "error"] == ["block.depth"]
    assert inspect(nested(31, kind)).problems == ()


def test_5000_blocks_are_possible_and_no_more() -> None:
    """The limit counts distinct ids of all trees, a saga's steps among them."""
    steps = [step(f"s{n}") for n in range(4999)]
    assert codes(text_of(*steps, on_cancel=[step("s0"), step("h")])) == []
    assert codes(text_of(*steps, on_cancel=[step("h"), step("i")])) == ["block.count"]
