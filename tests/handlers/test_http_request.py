"""`http_request`: what is sent, and every row of what an answer proves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orch8_local.errors import ParamsInvalid
from orch8_local.handlers.http import (
    HTTP_REQUEST,
    HttpParams,
    answer_json,
    destination_of,
    provider_receipt_id,
    request_facts,
    retry_after_s,
)
from orch8_local.model.outcome import Mode, Outcome
from orch8_local.testing.provider import Provider, Reply
from tests.handlers.conftest import NOW_US, MakeStep

ROWS = [
    (200, "confirmed"),
    (201, "confirmed"),
    (202, "confirmed"),
    (204, "confirmed"),
    *[
        (status, "rejected")
        for status in (
            *(400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 416, 417),
            *(421, 422, 426, 428, 431, 451),
        )
    ],
    (429, "throttled"),
    (503, "throttled"),
    (409, "conflict"),
    (425, "conflict"),
    (412, "conflict"),
    (500, "ambiguous"),
    (501, "ambiguous"),
    (502, "ambiguous"),
    (504, "ambiguous"),
    (507, "ambiguous"),
    (408, "ambiguous"),
    (499, "ambiguous"),
    (418, "ambiguous"),
    (301, "ambiguous"),
    (302, "ambiguous"),
    (303, "ambiguous"),
    (304, "ambiguous"),
    (307, "ambiguous"),
]


async def post(make_step: MakeStep, provider: Provider, **params: Any) -> Outcome:
    step = make_step(HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/charge", **params})
    outcome = await step.run()
    assert step.n_dispatches == 1
    return outcome


@pytest.mark.parametrize(("status", "outcome_class"), ROWS)
async def test_every_status_proves_what_the_table_says(
    make_step: MakeStep, provider: Provider, status: int, outcome_class: str
) -> None:
    """Each row of the class table, against a server that answers so."""
    provider.script = [Reply(status=status, body={"why": "because"})]
    outcome = await post(make_step, provider, body={"n": 1})
    assert outcome.outcome_class == outcome_class
    assert outcome.rule
    assert outcome.retryable == (outcome_class == "throttled")
    assert len(provider.requests()) == 1
    if not outcome.is_success:
        assert outcome.details is not None
        assert outcome.details["status"] == status
        assert str(status) in outcome.message


async def test_a_precondition_without_a_key_is_a_refusal(make_step: MakeStep, provider: Provider) -> None:
    """412 is a conflict only if a key was sent that an earlier request may hold."""
    provider.script = [Reply(status=412), Reply(status=412)]
    assert (await post(make_step, provider)).outcome_class == "conflict"
    step = make_step(HTTP_REQUEST, {"url": f"{provider.url}/charge"})
    assert (await step.run()).outcome_class == "rejected"


async def test_an_answer_cut_short_after_a_good_status_is_a_success(make_step: MakeStep, provider: Provider) -> None:
    """A 2xx status line proves the action, whatever happens to the body; it is never sent again."""
    provider.script = [Reply("half_body", body='{"receipt_id": "r-1"')]
    outcome = await post(make_step, provider)
    assert outcome.outcome_class == "confirmed_partial"
    assert outcome.output["status"] == 200
    assert outcome.output["body"] == '{"receipt_id": "r-1"'
    assert "cut short" in outcome.output["truncated"]
    assert "json" not in outcome.output


async def test_a_refusal_cut_short_is_still_a_refusal(make_step: MakeStep, provider: Provider) -> None:
    """The status line says it all."""
    provider.script = [Reply("half_body", status=402)]
    assert (await post(make_step, provider)).outcome_class == "rejected"


@pytest.mark.parametrize("size_bytes", [8_000_000, 0])
async def test_a_huge_answer_is_cut_with_its_limit_named(
    make_step: MakeStep, provider: Provider, size_bytes: int
) -> None:
    """C44: an answer beyond the limit, also one without end, is kept to the limit and confirmed."""
    provider.script = [Reply("flood", size_bytes=size_bytes)]
    from orch8_local.handlers.egress import Egress, EgressPolicy

    egress = Egress(EgressPolicy(max_answer_bytes=100_000))
    step = make_step(HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/big"}, egress=egress)
    outcome = await step.run()
    assert outcome.outcome_class == "confirmed_partial"
    assert len(outcome.output["body"]) == 100_000
    assert outcome.output["truncated"] == "the answer is larger than the limit of 100000 bytes"
    assert not outcome.retryable


async def test_a_huge_answer_costs_bounded_memory(make_step: MakeStep, provider: Provider) -> None:
    """C44: reading 60 times the limit takes less than three times the limit of memory."""
    import tracemalloc

    from orch8_local.handlers.egress import Egress, EgressPolicy

    limit_bytes = 1_000_000
    provider.script = [Reply(), Reply("flood", size_bytes=60 * limit_bytes)]
    egress = Egress(EgressPolicy(max_answer_bytes=limit_bytes))
    await make_step(HTTP_REQUEST, {"url": f"{provider.url}/warm-up"}, egress=egress).run()
    tracemalloc.start()
    try:
        step = make_step(HTTP_REQUEST, {"method": "POST", "url": f"{provider.url}/big"}, egress=egress)
        outcome = await step.run()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.outcome_class == "confirmed_partial"
    assert peak_bytes < 3.5 * limit_bytes


async def test_a_failure_carries_what_a_policy_and_a_person_need(make_step: MakeStep, provider: Provider) -> None:
    """Details hold status, the beginning of the body and the telling headers; evidence its hash."""
    headers = {"Retry-After": "7", "X-Request-Id": "q-1", "Set-Cookie": "secret=1"}
    provider.script = [Reply(status=429, body="x" * 5000, headers=headers)]
    outcome = await post(make_step, provider)
    assert outcome.details == {
        "status": 429,
        "body": "x" * 2048,
        "headers": {"retry-after": "7", "x-request-id": "q-1"},
    }
    assert outcome.retry_after_s == 7
    assert outcome.evidence["status"] == 429
    assert len(outcome.evidence["body_sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("999999999", 86_400.0),
        ("-5", None),
        ("soon", None),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2015 00:01:00 GMT", 0.0),
        ("Thu, 01 Jan 2099 00:01:00 GMT", 86_400.0),
        ("Thu, 99 Jan 2026 00:01:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_at_most_a_day(text: str | None, seconds: float | None) -> None:
    """Retry-After is honoured in both forms, capped, and ignored if it is neither."""
    assert retry_after_s(text, NOW_US) == seconds


async def test_reads_may_be_repeated(make_step: MakeStep, provider: Provider) -> None:
    """An ambiguous answer to GET, HEAD or OPTIONS keeps its class and may be asked again."""
    for method in ("GET", "HEAD", "OPTIONS"):
        provider.script = [Reply(status=500), Reply("drop_before_apply")]
        for _ in range(2):
            outcome = await make_step(HTTP_REQUEST, {"method": method, "url": f"{provider.url}/r"}).run()
            assert outcome.outcome_class == "ambiguous"
            assert outcome.retryable


async def test_a_read_that_is_cut_short_is_read_again(make_step: MakeStep, provider: Provider) -> None:
    """Half an answer to a repeatable request is no success, since asking again is harmless."""
    provider.script = [Reply("half_body")]
    outcome = await make_step(HTTP_REQUEST, {"url": f"{provider.url}/r"}).run()
    assert outcome.outcome_class == "ambiguous"
    assert outcome.retryable


async def test_the_mode_in_force_decides_what_may_be_repeated(make_step: MakeStep, provider: Provider) -> None:
    """A step that declares its POST repeatable, or its GET at most once, is believed."""
    provider.script = [Reply(status=500), Reply(status=500), Reply("half_body")]
    url = f"{provider.url}/r"
    repeatable = make_step(HTTP_REQUEST, {"method": "POST", "url": url}, mode=Mode.REPEATABLE)
    assert (await repeatable.run()).retryable
    once = make_step(HTTP_REQUEST, {"url": url}, mode=Mode.AT_MOST_ONCE)
    assert not (await once.run()).retryable
    cut = make_step(HTTP_REQUEST, {"url": url}, mode=Mode.AT_MOST_ONCE)
    assert (await cut.run()).outcome_class == "confirmed_partial"


async def test_a_step_may_move_a_status_between_classes(make_step: MakeStep, provider: Provider) -> None:
    """The author knows this server better, and the rule says that it was the author."""
    provider.script = [Reply(status=404), Reply(status=500)]
    classes = {"404": "confirmed", "500": "rejected"}
    found = await post(make_step, provider, status_classes=classes)
    assert found.outcome_class == "confirmed"
    assert found.rule == "the step says that status 404 means confirmed"
    assert found.output["status"] == 404
    assert (await post(make_step, provider, status_classes=classes)).outcome_class == "rejected"


async def test_a_redirect_is_an_answer_and_not_followed(make_step: MakeStep, provider: Provider) -> None:
    """C51: the first hop is the effect; nothing is sent to the second, wherever it leads."""
    target = "http://169.254.169.254/latest/"
    provider.script = [Reply(status=302, headers={"Location": target})]
    outcome = await post(make_step, provider)
    assert outcome.outcome_class == "ambiguous"
    assert target in outcome.message
    assert len(provider.requests()) == 1


# --- what is sent --------------------------------------------------------------------------------


async def test_output_holds_status_headers_body_and_json(make_step: MakeStep, provider: Provider) -> None:
    """A success gives status, headers by lower-case name, the body as text, and json if it is JSON."""
    provider.script = [Reply(status=201, body={"request_id": "q-9", "n": 1.10}, headers={"X-Part": "a"})]
    outcome = await post(make_step, provider, body={"n": 1})
    assert outcome.output["status"] == 201
    assert outcome.output["headers"]["x-part"] == "a"
    assert json.loads(outcome.output["body"]) == outcome.output["json"] == {"request_id": "q-9", "n": 1.10}
    assert outcome.provider_receipt_id == "q-9"
    assert outcome.evidence["status"] == 201


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}', "application/json"),
        ([1, 2], "[1,2]", "application/json"),
        (7, "7", "application/json"),
        (False, "false", "application/json"),
        ('{"a": 1}', '{"a": 1}', "application/json"),
        ("plain ü", "plain ü", "text/plain; charset=utf-8"),
        ('{"a": NaN}', '{"a": NaN}', "text/plain; charset=utf-8"),
        ("", "", None),
        (None, "", None),
    ],
)
async def test_the_body_and_its_content_type(
    make_step: MakeStep, provider: Provider, body: Any, sent: str, content_type: str | None
) -> None:
    """Text goes out as it is, all else as JSON, and the type says which unless the step does."""
    await post(make_step, provider, body=body)
    request = provider.requests()[0]
    assert request.body == sent
    assert request.headers.get("content-type") == content_type


async def test_the_steps_own_content_type_wins(make_step: MakeStep, provider: Provider) -> None:
    """One Content-Type is sent: the step's."""
    await post(make_step, provider, body="<a/>", headers={"content-type": "text/xml"})
    assert provider.requests()[0].headers["content-type"] == "text/xml"


async def test_headers_may_be_numbers_and_booleans(make_step: MakeStep, provider: Provider) -> None:
    """A template keeps the type of its value, so a header takes a number or a boolean as its text."""
    await post(make_step, provider, headers={"X-N": 7, "X-Flag": True, "X-Name": "Zoë"})
    sent = provider.requests()[0].headers
    assert (sent["x-n"], sent["x-flag"]) == ("7", "true")
    assert sent["x-name"].encode("latin-1").decode() == "Zoë"


async def test_the_key_leaves_the_process(make_step: MakeStep, provider: Provider) -> None:
    """Every request that acts carries the intent's key, the step's key, or the header of the step."""
    await post(make_step, provider)
    await post(make_step, provider, idempotency_key="mine")
    await post(make_step, provider, headers={"IDEMPOTENCY-KEY": "header"}, idempotency_key="mine")
    await make_step(HTTP_REQUEST, {"url": f"{provider.url}/charge"}).run()
    await make_step(HTTP_REQUEST, {"method": "DELETE", "url": f"{provider.url}/charge"}, key_header="X-Key").run()
    requests = provider.requests()
    assert [request.key for request in requests] == ["key-1", "mine", "header", None, None]
    assert requests[-1].headers["x-key"] == "key-1"


async def test_every_method_is_sent_as_named(make_step: MakeStep, provider: Provider) -> None:
    """Methods are taken in any case."""
    for method in ("get", "Post", "PUT", "patch", "delete", "HEAD", "options"):
        outcome = await make_step(HTTP_REQUEST, {"method": method, "url": f"{provider.url}/m"}).run()
        assert outcome.is_success
    sent = [request.method for request in provider.requests()]
    assert sent == ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


async def test_the_query_is_encoded_and_added(make_step: MakeStep, provider: Provider) -> None:
    """Members of `query` cannot leave their place in the url."""
    query = {"q": "a&b=c d/ü", "tag": ["x", 2], "flag": True, "none": None}
    await make_step(HTTP_REQUEST, {"url": f"{provider.url}/s?a=1", "query": query}).run()
    await make_step(HTTP_REQUEST, {"url": f"{provider.url}/s", "query": {}}).run()
    assert provider.received[0].path == "/s?a=1&q=a%26b%3Dc+d%2F%C3%BC&tag=x&tag=2&flag=true"
    assert provider.received[1].path == "/s"


async def test_a_value_stays_a_value(make_step: MakeStep, provider: Provider) -> None:
    """C47: text that looks like the rest of a definition is sent as text, to the url of the document."""
    value = 'x"}],"url":"http://127.0.0.1:8099/evil","z":[{"y":"'
    await post(make_step, provider, body={"msg": value})
    request = provider.requests()[0]
    assert request.path == "/charge"
    assert json.loads(request.body) == {"msg": value}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "params.url: Field required"),
        ({"url": "http://a", "method": "TRACE"}, "is not one of GET"),
        ({"url": "http://a", "metod": "POST"}, "did you mean 'method'"),
        ({"url": "http://a", "headers": {"X": ["a"]}}, "not a list"),
        ({"url": "http://a", "headers": {"X": None}}, "not null"),
        ({"url": "http://a", "query": {"x": {"y": 1}}}, "not an object"),
        ({"url": "http://a", "timeout_ms": 0}, "greater than 0"),
        ({"url": "http://a", "status_classes": {"99": "confirmed"}}, "is not a status"),
        ({"url": "http://a", "status_classes": {"404": "fine"}}, "params.status_classes.404"),
        ({"url": ["http://a"]}, "params.url"),
        ({"url": "http://a", "idempotency_key": ""}, "params.idempotency_key"),
    ],
)
def test_wrong_params_are_refused_before_anything_is_sent(params: Any, words: str) -> None:
    """A wrong type or name is an error that names the place, never a silent default."""
    with pytest.raises(ParamsInvalid) as caught:
        HTTP_REQUEST.validated(params)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "params",
    [
        {"url": "http://a.example/x", "headers": {"Host": "b"}},
        {"url": "http://a.example/x", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://user:pass@a.example/x"},
        {"url": "null/x"},
        {"url": "http://a.example/x", "body": "\ud800"},
        {"url": "http://" + "a" * 80 + ".xn--\u00ad/x"},
    ],
)
async def test_what_cannot_be_sent_is_not_sent(make_step: MakeStep, params: Any) -> None:
    """A request that would not be what it says is refused for good, before any connection."""
    step = make_step(HTTP_REQUEST, params)
    outcome = await step.run()
    assert outcome.outcome_class == "not_sent"
    assert not outcome.retryable
    assert step.order == []


# --- reading the answer --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ('{"a": 1, "a": 2}', True),
        ("1.10", True),
        ("3544790567247868102", True),
        ("NaN", False),
        ('{"a": Infinity}', False),
        ("[-Infinity]", False),
        ("1e400", False),
        ('"\\ud800"', False),
        ('"\\ud83d\\ude80"', True),
        ("", False),
        ("<html>", False),
        ("[" * 100_000, False),
        ("1" * 5000, False),
    ],
)
def test_only_json_is_json(text: str, is_json: bool) -> None:
    """C41: NaN, infinities and what cannot be stored are no JSON; the body is kept as text."""
    from orch8_local.handlers.http import NOT_JSON

    assert (answer_json(text) is not NOT_JSON) == is_json


async def test_a_nan_in_an_answer_leaves_the_body(make_step: MakeStep, provider: Provider) -> None:
    """C41: an answer with NaN confirms the action; its text is kept and no json is made of it."""
    provider.script = [Reply(body='{"x": NaN}', headers={"Content-Type": "application/json"})]
    outcome = await post(make_step, provider)
    assert outcome.outcome_class == "confirmed"
    assert outcome.output["body"] == '{"x": NaN}'
    assert "json" not in outcome.output


@pytest.mark.parametrize(
    ("value", "receipt_id"),
    [
        ({"provider_receipt_id": "p", "receipt_id": "r", "request_id": "q"}, "p"),
        ({"receipt_id": "r", "request_id": "q"}, "r"),
        ({"receipt_id": 7, "request_id": "q"}, "q"),
        ({"receipt_id": "x" * 257}, None),
        ({"receipt_id": "ü" * 128}, "ü" * 128),
        ({"id": "x"}, None),
        (["receipt_id"], None),
        (None, None),
    ],
)
def test_the_providers_own_name_of_the_action(value: Any, receipt_id: str | None) -> None:
    """The first of three fields that holds text names it, if it has at most 256 bytes."""
    assert provider_receipt_id(value) == receipt_id


async def test_a_body_is_read_in_its_charset(make_step: MakeStep, provider: Provider) -> None:
    """A named charset is honoured; what cannot be read becomes a replacement character."""
    provider.script = [Reply(body="Zoë", headers={"Content-Type": "text/plain; charset=ISO-8859-1"}), Reply(body="Zoë")]
    assert (await post(make_step, provider)).output["body"] == "Zoë".encode().decode("latin-1")
    assert (await post(make_step, provider)).output["body"] == "Zoë"


# --- what the receipt shows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pass@A.example:8080/x?token=1#f", "http://a.example:8080/x"),
        ("HTTPS://a.example", "https://a.example"),
        ("http://[::1]:9/x", "http://[::1]:9/x"),
        ("http://a.example:x/", None),
        ("nowhere", None),
    ],
)
def test_the_destination_shows_no_secret(url: str, shown: str | None) -> None:
    """A receipt shows scheme, host, port and path; never a user name, password or query."""
    assert destination_of(url) == shown


def test_the_facts_of_a_request() -> None:
    """Method, place and key come from resolved params; reads are repeatable by default."""
    facts = request_facts({"url": "http://a/x?t=1", "method": "post", "idempotency_key": "k"})
    assert (facts.method, facts.destination, facts.key, facts.mode) == ("POST", "http://a/x", "k", None)
    assert request_facts({"url": "http://a/", "headers": {"Idempotency-KEY": "h"}}).key == "h"
    assert request_facts(HttpParams(url="http://a/")).mode is Mode.REPEATABLE
