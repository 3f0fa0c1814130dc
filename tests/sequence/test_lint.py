"""What only the whole document shows: handlers, params, references, and what is hardly meant."""

from __future__ import annotations

from typing import Any

import pytest

from orch8_local.handlers.builtins import builtin_specs
from orch8_local.sequence.document import inspect
from tests.sequence.documents import codes, document, problems, step, text_of

MODELS = {spec.name: spec.params for spec in builtin_specs()}


def said(text: str, **options: Any) -> list[tuple[str, str, str | None]]:
    """(code, pointer, suggestion) of everything."""
    return [(p.code, p.path, p.suggestion) for p in problems(text, **options)]


# --- handlers --------------------------------------------------------------------------------------


def test_a_handler_that_nobody_has_is_an_error_with_the_nearest_name() -> None:
    """A typo in a handler's name does not wait for a worker that never comes."""
    text = text_of(step(handler="htpp_request"))
    assert said(text, handlers=MODELS) == [("handler.unknown", "/blocks/0/handler", "did you mean 'http_request'?")]
    assert inspect(text, handlers=MODELS).has_errors


def test_a_handler_somebody_else_provides_is_not_looked_for() -> None:
    """A queue on the step, or a name in `external_handlers`, says that a worker has it."""
    assert codes(text_of(step(handler="weld", queue_name="shop")), handlers=MODELS) == []
    assert codes(text_of(step(handler="weld")), handlers=MODELS, external_handlers=["weld"]) == []
    assert codes(text_of(step(handler="weld"), step("b", handler="weld", queue_name="q")), handlers=MODELS) == [
        "handler.unknown"
    ]


def test_handlers_are_looked_for_wherever_one_is_named() -> None:
    """Compensation, fallback, deadline, escalation, probe and hooks name handlers, too."""
    text = text_of(
        step(
            compensation={"handler": "h1"},
            fallback_handler="h2",
            deadline=60000,
            on_deadline_breach={"handler": "h3"},
            wait_for_input={"escalation_handler": "h4"},
            effect={"verify": {"handler": "h5", "found_if": "data.a"}},
        ),
        {"type": "loop", "id": "l", "condition": "true", "body": [step("b", handler="h6")]},
        on_failure=[step(handler="h7")],
    )
    unknown = [p.message.rpartition(" ")[2] for p in problems(text, handlers=MODELS, strict=False)]
    assert sorted(unknown) == [f'"h{n}"' for n in range(1, 8)]


def test_without_a_list_of_handlers_none_is_unknown() -> None:
    """Who only wants the document checked does not need the handlers."""
    assert codes(text_of(step(handler="anything"))) == []


def test_plug_ins_of_a_server_are_refused() -> None:
    """`ap://`, `grpc://` and `wasm://` name code that is not here."""
    assert [codes(text_of(step(handler=f"{kind}://x"))) for kind in ("ap", "grpc", "wasm")] == [["handler.plugin"]] * 3


def test_a_built_in_of_the_format_that_is_not_built_yet_is_a_warning() -> None:
    """The document is right; what refuses it is the start of a run, by name."""
    found = inspect(text_of(step(handler="llm_call", params={"system": "x"})), handlers=MODELS)
    assert found.definition is not None
    assert [p.code for p in found.problems] == ["handler.not_built"]


# --- params ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "params", "expected"),
    [
        ("http_request", {}, [("params.missing", "/params", 'add "url"')]),
        ("http_request", None, [("params.missing", "/params", 'add "url"')]),
        ("http_request", {"url": "u", "urll": 1}, [("params.unknown", "/params/urll", "did you mean 'url'?")]),
        ("http_request", {"url": "u", "headers": []}, [("params.invalid", "/params/headers", None)]),
        ("sleep", {"duration_ms": -1}, [("params.invalid", "/params/duration_ms", None)]),
        ("log", {"level": "loud"}, [("params.invalid", "/params/level", None)]),
        ("merge_state", {"values": [1]}, [("params.invalid", "/params/values", None)]),
        ("sleep", {"duration_ms": "{{ data.ms }}"}, []),
        ("http_request", "{{ data.request }}", []),
        ("http_request", {"url": "{{ data.url }}", "headers": {"a": "{{ data.b }}"}}, []),
        ("transform", {"anything": 1}, []),
    ],
)
def test_params_are_held_against_the_handler(handler: str, params: Any, expected: list[Any]) -> None:
    """A param that cannot be right is an error; one that a template will fill is not judged."""
    found = said(text_of(step(handler=handler, params=params)), handlers=MODELS)
    assert [(code, path.removeprefix("/blocks/0"), hint) for code, path, hint in found] == expected


def test_params_are_spoken_of_in_plain_words() -> None:
    """No message shows the words of the library that checks them."""
    text = text_of(
        step(handler="sleep", params={"duration_ms": "long"}), step("b", handler="http_request", params={"url": 5})
    )
    assert [p.message.partition(" (an")[0] for p in problems(text, handlers=MODELS)] == [
        'blocks[0].params.duration_ms: expected a whole number, got "long"',
        "blocks[1].params.url: expected a text, got 5",
    ]


def test_missing_params_of_handlers_without_a_model_are_warnings() -> None:
    """What a built-in of the format needs is known even where its handler is not."""
    assert said(text_of(step(handler="emit_event", params={}))) == [("params.missing", "/blocks/0/params", None)]
    assert said(text_of(step(handler="llm_call", params={"messages": []}))) == []


# --- references ------------------------------------------------------------------------------------


def test_a_reference_to_no_block_is_an_error_where_it_stands() -> None:
    """It would always be null; the place is that of the reference inside the text."""
    text = text_of(step("weigh"), step("b", params={"m": ["é {{ outputs.wiegh.grams }}"]}))
    (problem,) = problems(text)
    assert (problem.code, problem.path) == ("reference.unknown", "/blocks/1/params/m/0")
    assert problem.suggestion == "did you mean 'outputs.weigh'?"
    assert text[problem.column - 1 :].startswith("outputs.wiegh")


def test_an_expression_is_told_to_read_an_id_with_a_hyphen_by_brackets() -> None:
    """There '-' is minus: what is suggested must be right where it is to be written."""
    text = text_of(step("fetch-user"), step("b", when="outputs.fetch-user.ok"))
    unknown = [problem for problem in problems(text) if problem.code == "reference.unknown"]
    assert [problem.suggestion for problem in unknown] == ["did you mean 'outputs[\"fetch-user\"]'?"]


def test_references_are_looked_for_in_every_language_field() -> None:
    """Conditions, collections, inputs, keys and hooks are read as well as params."""
    text = text_of(
        step(when="outputs.n1", cache_key="{{ outputs.n2 }}", effect={"key": "{{ outputs.n3 }}"}),
        {"type": "router", "id": "r", "routes": [{"condition": "steps.n4.x", "blocks": [step("c")]}]},
        {"type": "for_each", "id": "f", "collection": "{{ outputs.n5 }}", "body": [step("d")]},
        {"type": "sub_sequence", "id": "s", "sequence_name": "t", "input": {"x": "{{ outputs.n6 }}"}},
        step("e", handler="assert", params={"condition": "outputs.n7.ok"}),
        on_cancel=[step("h", params="{{ outputs.n8 }}")],
    )
    assert [p.message.rpartition("block ")[2][:4] for p in problems(text)] == [f'"n{n}"' for n in range(1, 9)]


def test_prose_that_looks_like_a_reference_is_left_alone() -> None:
    """Only the parsed languages are read, not the text around them."""
    assert codes(text_of(step(params={"m": "see outputs.log and {{ data.outputs.x }}"}))) == []


def test_a_block_that_comes_later_cannot_be_read_yet() -> None:
    """Reading ahead is a warning, except in a loop, where the last round has left an output."""
    ahead = [step(params="{{ outputs.b.x }}"), step("b")]
    assert codes(text_of(*ahead)) == ["reference.later"]
    assert codes(text_of(*reversed(ahead))) == []
    assert codes(text_of({"type": "loop", "id": "l", "condition": "true", "body": ahead})) == []
    assert codes(text_of({"type": "parallel", "id": "p", "branches": [[ahead[0]], [ahead[1]]]})) == []


# --- what is hardly meant --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "code", "pointer"),
    [
        ({"type": "parallel", "id": "p", "branches": [[step()], []]}, "branches.empty", "/branches/1"),
        (
            {"type": "race", "id": "p", "branches": [[step()]], "semantics": "first_to_succeed"},
            "race.single",
            "/branches",
        ),
        ({"type": "race", "id": "p", "branches": [[step()], []]}, "race.semantics", ""),
        (
            {"type": "router", "id": "r", "routes": [{"condition": "a", "blocks": []}]},
            "router.route_empty",
            "/routes/0/blocks",
        ),
        ({"type": "try_catch", "id": "t", "try_block": [step()], "catch_block": []}, "try.catch_empty", "/catch_block"),
        ({"type": "saga", "id": "g", "steps": []}, "saga.empty", "/steps"),
        (
            {"type": "for_each", "id": "f", "collection": "context.data.items", "body": [step()]},
            "for_each.root",
            "/collection",
        ),
        (
            {"type": "for_each", "id": "f", "collection": "outputs.a.items", "body": [step()]},
            "for_each.root",
            "/collection",
        ),
        (step(timeout=2000, deadline=1000), "step.timeout", "/timeout"),
        (step(on_deadline_breach={"handler": "log"}), "step.deadline", "/on_deadline_breach"),
        (step(fallback_handler="noop"), "step.fallback", "/fallback_handler"),
        (step(handler="wait_for_event"), "step.event", ""),
        (step(context_access={"config": False}, params="{{ config.a }}"), "step.access", "/context_access"),
        (step(when="now() != null"), "expression.volatile", "/when"),
        (step(params={"body": '{"a": "{{ data.a }}"}'}), "template.quoted", "/params/body"),
        (step(effect={"verify": {"handler": "noop"}}), "effect.verify_mute", "/effect/verify"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_hardly_meant_is_a_warning(block: dict[str, Any], code: str, pointer: str) -> None:
    """The document can be used, and the warning stands at its place."""
    found = inspect(text_of(block))
    assert found.definition is not None
    assert (code, f"/blocks/0{pointer}", "warning") in [(p.code, p.path, p.severity) for p in found.problems]


def test_a_block_after_a_failure_is_never_reached() -> None:
    """A `fail` without a guard ends its list; with one it may not."""
    assert said(text_of(step(handler="fail"), step("b"))) == [("block.unreachable", "/blocks/1", None)]
    assert codes(text_of(step(handler="fail", when="data.a"), step("b"))) == []


def test_an_inner_loop_over_the_same_name_hides_the_outer_one() -> None:
    """Both write `data.item`, and the inner one removes it at its end."""
    inner = {"type": "for_each", "id": "in", "collection": "y", "body": [step()]}
    outer = {"type": "for_each", "id": "out", "collection": "x", "body": [inner]}
    assert said(text_of(outer)) == [("for_each.item_hidden", "/blocks/0/body/0", 'give one of them another "item_var"')]
    assert codes(text_of(outer | {"item_var": "row"})) == []


def test_interceptors_only_leave_a_trace() -> None:
    """A hook that is never called is said to be one."""
    assert codes(text_of(interceptors={"before_step": {"handler": "log"}})) == ["interceptors.trace"]


def test_compensations_that_wait_for_each_other_are_an_error() -> None:
    """Dependencies exist, and do not go round in a circle; several steps may share one."""

    def undo(*names: str) -> dict[str, Any]:
        return {"handler": "noop", "depends_on": list(names)}

    circle = text_of(step(compensation=undo("b")), step("b", compensation=undo("c")), step("c", compensation=undo("a")))
    assert codes(circle) == ["compensation.cycle"] * 3
    assert codes(text_of(step(), step("b", compensation=undo("a")), step("c", compensation=undo("a", "b")))) == []


# --- where a server's rules hold -------------------------------------------------------------------

OURS = [
    document(step(when="x = 1")),
    document(step(when="")),
    document(step(params="{{ itm }}")),
    document(step(delay={"duration": 1, "timezone": "Nowhere", "fire_at_local": "soon", "holidays": ["x"]})),
    document(step("a.b")),
    document(step(timeout_ms=5)),
    document(step(handler=" ")),
    document(step(), name=""),
    document(step(handler="ap://x")),
    document(step(handler="unknown")),
]


@pytest.mark.parametrize("given", OURS, ids=str)
def test_what_only_this_program_refuses_is_a_warning_where_a_servers_rules_hold(given: dict[str, Any]) -> None:
    """Strictly it is refused, saying that a server would take it; else it is stored with the same finding."""
    text = text_of(*given.pop("blocks"), **given)
    strict, lenient = inspect(text, handlers=MODELS), inspect(text, handlers=MODELS, strict=False)
    assert strict.definition is None
    assert all("an Orch8 server would take it" in p.message for p in strict.problems if p.severity == "error")
    assert lenient.definition is not None
    assert [p.code for p in lenient.problems] == [p.code for p in strict.problems]
    assert {p.severity for p in lenient.problems} == {"warning"}


def test_a_document_that_a_server_refuses_too_does_not_speak_of_it() -> None:
    """Beside an error of the format, taking it elsewhere is no way out."""
    assert not any("Orch8 server" in p.message for p in problems(text_of(step(timeout="x", retries=1))))
