"""`http_request`: one request to somebody else's system, and what its answer proves.

Owns the mapping from answers and transport errors to outcomes (effect-receipts 7.3 and 8). The easy
mistake: calling an error "not sent" because it looks like a connection problem; only an error before
the dispatch was marked is that. A body that is text goes out as it is, with Content-Type
application/json if it parses as JSON and text/plain if not; any other body goes out as JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlencode, urlsplit

from pydantic import Field, field_validator

from orch8_local.errors import EgressRefused
from orch8_local.handlers.base import Context, HandlerSpec, RequestFacts
from orch8_local.handlers.egress import READ_METHODS, Answer, Call, GuardedClient, Provenance, host_provenance
from orch8_local.handlers.params import Params, ScalarText, scalar_text
from orch8_local.model.ids import sha256_hex
from orch8_local.model.outcome import EffectKind, Mode, Outcome, OutcomeClass, classify_status

if TYPE_CHECKING:
    import httpx

Json = Any

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
EXCERPT_BYTES = 2048
MAX_RETRY_AFTER_S = 86_400.0
MAX_RECEIPT_ID_BYTES = 256
DEFAULT_KEY_HEADER = "idempotency-key"
RECEIPT_ID_FIELDS = ("provider_receipt_id", "receipt_id", "request_id")
SHOWN_HEADERS = ("content-type", "date", "location", "retry-after", "request-id", "x-request-id")

# Every transport error of httpx: what it means before the dispatch was marked, and after it. The class
# depends on nothing but that: not_sent before, ambiguous after. A test compares the names with httpx.
TRANSPORT_ERRORS: Mapping[str, tuple[str, str]] = {
    "CloseError": ("the connection could not be closed", "the connection broke while it was closed"),
    "ConnectError": ("no connection could be made", "the connection broke"),
    "ConnectTimeout": ("no connection was made in time", "the connection broke"),
    "LocalProtocolError": ("the request is not valid HTTP", "the request was not valid HTTP to its end"),
    "NetworkError": ("the network failed before the request", "the network failed after the request began"),
    "PoolTimeout": ("no connection was free in time", "the connection broke"),
    "ProtocolError": ("the connection did not speak HTTP", "the answer was not valid HTTP"),
    "ProxyError": ("a proxy refused the connection", "a proxy broke the connection"),
    "ReadError": ("the connection broke before the request", "the connection broke before an answer came"),
    "ReadTimeout": ("the other side was silent before the request", "no answer came in time"),
    "RemoteProtocolError": ("the other side did not speak HTTP", "the connection ended without an answer"),
    "TimeoutException": ("time ran out before the request", "no answer came in time"),
    "TransportError": ("the request could not be sent", "the request failed on its way"),
    "UnsupportedProtocol": ("the url is not one of http or https", "the answer changed the protocol"),
    "WriteError": ("the connection broke before the request", "the connection broke during the request"),
    "WriteTimeout": ("time ran out before the request", "the request could not be sent in time"),
}
# Trying again sends the same bytes to the same place: these would only fail again.
PERMANENT_ERRORS = frozenset({"LocalProtocolError", "UnsupportedProtocol"})


class HttpParams(Params):
    """The params of `http_request`."""

    url: str = Field(
        description="Where to: http:// or https://, a host and a path. Redirects are not followed. "
        "A host from run data has to be public, unless the settings list it under [http] hosts."
    )
    method: str = Field("GET", description=f"One of {', '.join(METHODS)}, in any case.")
    headers: dict[str, ScalarText] = Field(
        default_factory=dict,
        description="Headers by name. Numbers and booleans become text. Host and Content-Length are refused.",
    )
    query: dict[str, Json] | None = Field(
        None,
        description="Added to the query of the url, encoded. A list repeats its name; null leaves it out.",
    )
    body: Json = Field(
        None, description="Text is sent as it is; an object, a list, a number or a boolean is sent as JSON."
    )
    timeout_ms: int = Field(
        10_000, gt=0, le=3_600_000, description="Milliseconds for the whole request, its answer included."
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="The key to send instead of the intent's own, in the header Idempotency-Key.",
    )
    status_classes: dict[str, Literal["confirmed", "rejected", "throttled", "conflict", "ambiguous"]] = Field(
        default_factory=dict,
        description="What single answers of this server prove, where you know better: {'404': 'confirmed'}.",
    )

    @field_validator("method")
    @classmethod
    def _known_method(cls, value: str) -> str:
        method = value.upper()
        if method not in METHODS:
            raise ValueError(f"{value!r} is not one of {', '.join(METHODS)}")
        return method

    @field_validator("query")
    @classmethod
    def _scalars(cls, value: dict[str, Json] | None) -> dict[str, Json] | None:
        for item in (value or {}).values():
            for part in item if isinstance(item, list) else [item]:
                if part is not None:
                    scalar_text(part)
        return value

    @field_validator("status_classes")
    @classmethod
    def _statuses(cls, value: dict[str, Any]) -> dict[str, Any]:
        for status in value:
            if not re.fullmatch(r"[2-5]\d\d", status):
                raise ValueError(f"{status!r} is not a status from 200 to 599")
        return value


# --- before it is sent ----------------------------------------------------------------------------


def request_facts(params: Json) -> RequestFacts:
    """What the receipt shows, from resolved params: the method, and the place without query and user."""
    fields = params.model_dump() if isinstance(params, HttpParams) else dict(params or {})
    method = str(fields.get("method") or "GET").upper()
    headers = fields.get("headers") or {}
    own = [str(value) for name, value in headers.items() if str(name).lower() == DEFAULT_KEY_HEADER]
    return RequestFacts(
        method=method,
        destination=destination_of(str(fields.get("url", ""))),
        key=fields.get("idempotency_key") or (own[0] if own else None),
        mode=Mode.REPEATABLE if method in READ_METHODS else None,
    )


def destination_of(url: str) -> str | None:
    """`scheme://host[:port]/path` of a url, or None if it has no such parts."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme.lower()}://{host}{f':{port}' if port else ''}{parts.path}"


def encoded_body(body: Json) -> tuple[bytes | None, str | None]:
    """The bytes of a body and the content type that fits them, both None for no body."""
    if body is None or body == "":
        return None, None
    if not isinstance(body, str):
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8"), "application/json"
    is_json = answer_json(body) is not NOT_JSON
    return body.encode("utf-8"), "application/json" if is_json else "text/plain; charset=utf-8"


def url_with_query(url: str, query: Mapping[str, Json] | None) -> str:
    """The url with the query's members added, percent-encoded."""
    pairs = [
        (name, scalar_text(part))
        for name, value in (query or {}).items()
        for part in (value if isinstance(value, list) else [value])
        if part is not None
    ]
    if not pairs:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"


def _call_of(ctx: Context, params: HttpParams) -> Call:
    written = ctx.document_params.get("url") if isinstance(ctx.document_params, Mapping) else None
    body, content_type = encoded_body(params.body)
    headers = dict(params.headers)
    names = {name.lower() for name in headers}
    if content_type is not None and "content-type" not in names:
        headers["Content-Type"] = content_type
    if params.idempotency_key is not None and ctx.key_header.lower() not in names:
        headers[ctx.key_header] = params.idempotency_key
    return Call(
        method=params.method,
        url=url_with_query(params.url, params.query),
        headers=headers,
        body=body,
        provenance=host_provenance(written) if isinstance(written, str) else Provenance.DATA,
        timeout_s=params.timeout_ms / 1000,
    )


# --- the call -------------------------------------------------------------------------------------


async def http_request(ctx: Context, params: HttpParams) -> Outcome:
    """Send one HTTP request; the answer's class says what it proves. Never follows a redirect."""
    import httpx

    client = cast("GuardedClient", ctx.http)
    shown = f"{params.method} {destination_of(params.url) or params.url}"
    is_repeatable = (ctx.mode or request_facts(params).mode) is Mode.REPEATABLE
    try:
        answer = await client.exchange(_call_of(ctx, params))
    except (EgressRefused, httpx.InvalidURL, UnicodeEncodeError) as error:
        return _refused(f"{shown}: {error}", error)
    except httpx.TransportError as error:
        return transport_outcome(error, shown, is_started=client.is_started, is_repeatable=is_repeatable)
    return answer_outcome(answer, params, shown, is_repeatable=is_repeatable, now_us=ctx.now_us())


def _refused(message: str, error: Exception) -> Outcome:
    """This program itself says no: nothing was sent, and trying again would change nothing."""
    details: dict[str, Json] = {"error": "invalid"}
    if isinstance(error, EgressRefused):
        details = {"error": error.code, **error.details}
        message = f"{message}; {error.hint}" if error.hint else message
    rule = "refused here, before anything was sent"
    return Outcome(OutcomeClass.NOT_SENT, message=message, details=details, rule=rule)


def transport_outcome(
    error: httpx.TransportError, shown: str, *, is_started: bool, is_repeatable: bool
) -> Outcome:
    """The outcome of a request that got no status line (7.3)."""
    name = type(error).__name__
    before, after = TRANSPORT_ERRORS.get(name, TRANSPORT_ERRORS["TransportError"])
    words = after if is_started else before
    details = {"error": name, "is_started": is_started}
    message = f"{shown}: {words} ({error})" if str(error) else f"{shown}: {words}"
    if not is_started:
        return Outcome(
            OutcomeClass.NOT_SENT,
            message=message,
            details=details,
            retryable=name not in PERMANENT_ERRORS,
            rule=f"{words}: nothing was sent",
        )
    return Outcome(
        OutcomeClass.AMBIGUOUS,
        message=message,
        details=details,
        retryable=is_repeatable,
        rule=f"{words}: it may have been carried out",
    )


def answer_outcome(
    answer: Answer, params: HttpParams, shown: str, *, is_repeatable: bool, now_us: int
) -> Outcome:
    """The outcome of a request whose status line arrived (8)."""
    outcome_class, rule = classify_status(
        answer.status, has_key=answer.sent_key is not None, is_body_complete=answer.cut is None
    )
    if str(answer.status) in params.status_classes:
        outcome_class = OutcomeClass(params.status_classes[str(answer.status)])
        rule = f"the step says that status {answer.status} means {outcome_class}"
    is_success = outcome_class in (OutcomeClass.CONFIRMED, OutcomeClass.CONFIRMED_PARTIAL)
    if is_success and answer.cut is not None and is_repeatable and not answer.is_over_limit:
        outcome_class, is_success = OutcomeClass.AMBIGUOUS, False
        rule = f"{answer.cut}; reading again is harmless"
    body = decoded_body(answer)
    evidence: dict[str, Json] = {
        "status": answer.status,
        "body_sha256": sha256_hex(answer.body),
        "is_complete": answer.cut is None,
    }
    if is_success:
        output = answer_output(answer, body)
        receipt_id = provider_receipt_id(output.get("json"))
        return Outcome(
            outcome_class, output=output, rule=rule, provider_receipt_id=receipt_id, evidence=evidence
        )
    excerpt = body.encode("utf-8")[:EXCERPT_BYTES].decode("utf-8", "ignore")
    shown_headers = {name: value for name, value in answer.headers if name in SHOWN_HEADERS}
    is_nothing = outcome_class in (OutcomeClass.REJECTED, OutcomeClass.THROTTLED)
    return Outcome(
        outcome_class,
        message=f"{shown} was answered {answer.status} {_phrase(answer.status)}".rstrip() + _advice(answer),
        details={"status": answer.status, "body": excerpt, "headers": shown_headers},
        retryable=outcome_class is OutcomeClass.THROTTLED or (is_repeatable and not is_nothing),
        retry_after_s=retry_after_s(answer.header("retry-after"), now_us),
        rule=rule,
        evidence={**evidence, "excerpt": excerpt},
    )


def _advice(answer: Answer) -> str:
    if 300 <= answer.status < 400 and answer.header("location"):
        return f"; redirects are not followed, it points to {answer.header('location')}"
    return f"; {answer.cut}" if answer.cut else ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


# --- reading an answer ----------------------------------------------------------------------------

NOT_JSON = object()
# Charsets that are cheap and safe to decode; all others are read as UTF-8.
CHARSETS = re.compile(
    r"(us-)?ascii|latin-1|iso-8859-(1|2|15)|windows-125[0-2]|koi8-r|utf-16([lb]e)?"
    r"|shift_jis|euc-(jp|kr)|gb18030|big5"
)


def answer_output(answer: Answer, body: str) -> dict[str, Json]:
    """The step's output: status, headers by lower-case name, body as text, json if it is JSON, and
    truncated with the reason if the body is not whole."""
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    output: dict[str, Json] = {"status": answer.status, "headers": headers, "body": body}
    if answer.cut is not None:
        output["truncated"] = answer.cut
        return output
    parsed = answer_json(body)
    if parsed is not NOT_JSON:
        output["json"] = parsed
    return output


def decoded_body(answer: Answer) -> str:
    """The body as text in the charset it names, else UTF-8; what cannot be read becomes U+FFFD."""
    found = re.search(r"charset\s*=\s*\"?([\w.:\-]+)", answer.header("content-type") or "", re.IGNORECASE)
    charset = found.group(1).lower() if found else "utf-8"
    return answer.body.decode(charset if CHARSETS.fullmatch(charset) else "utf-8", "replace")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def answer_json(text: str) -> Json:
    """The JSON value of a text, or NOT_JSON: also for NaN, infinities and lone surrogates.

    Of a repeated member the last one counts: the text is somebody else's, and it has been received.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return NOT_JSON
    return value


def provider_receipt_id(value: Json) -> str | None:
    """The provider's own name of the action, if its answer has one of at most 256 bytes."""
    if not isinstance(value, dict):
        return None
    named = next((value[name] for name in RECEIPT_ID_FIELDS if isinstance(value.get(name), str)), None)
    return named if named is not None and len(named.encode("utf-8")) <= MAX_RECEIPT_ID_BYTES else None


def retry_after_s(text: str | None, now_us: int) -> float | None:
    """Seconds until the other side wants to be asked again: a number or an HTTP date, at most a day."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return min(float(text), MAX_RETRY_AFTER_S)
    from email.utils import parsedate_to_datetime

    try:
        at_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(at_s - now_us / 1_000_000, 0.0), MAX_RETRY_AFTER_S)


HTTP_REQUEST = HandlerSpec(
    "http_request",
    http_request,
    kind=EffectKind.HTTP,
    mode=Mode.AT_MOST_ONCE,
    params=HttpParams,
    marks_dispatch=True,
    is_builtin=True,
    facts=request_facts,
    summary="Send one HTTP request; GET, HEAD and OPTIONS may be repeated, all others are sent at most once.",
)
