"""The one way out: where a request may go, and the moment it leaves (effect-receipts 7.3).

Owns the address policy, the first-byte hook and the guarded client behind `http_request` and
`ctx.http`. The sockets are in `handlers.wire`, which is imported at the first request only.

A host that the author wrote into the document, or the operator into the configuration, may be any
but a link-local or metadata address. A host that comes from run data must be public or listed in
`[http] hosts`. Every address is checked after the resolver answered, and the connection goes to the
checked address, so that odd spellings and changing answers have nothing to win. The easy mistake:
deciding by the text of the resolved url; only the document's own text tells who chose the host.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from orch8_local.errors import EgressRefused
from orch8_local.handlers.addresses import NEVER, AddressClass, classify_address
from orch8_local.handlers.base import Context, HttpClient
from orch8_local.lang.template import references
from orch8_local.world import CrashPoint

if TYPE_CHECKING:
    import httpx

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_ANSWER_BYTES = 10 * 1024 * 1024

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses as text. Raises OSError if there are none."""


class Provenance(StrEnum):
    """Who chose the host."""

    AUTHOR = "author"
    OPERATOR = "operator"
    DATA = "data"


# --- who chose the host ---------------------------------------------------------------------------

_TEMPLATE = re.compile(r"""\{\{(?:'[^']*'|"[^"]*"|\}(?!\})|[^'"}])*\}\}""")
_MARK = "\0"
_AUTHORITY = re.compile(rf"(?:[A-Za-z][A-Za-z0-9+.\-]*|{_MARK})://[^/?#]*|{_MARK}[^/?#]*")


def host_provenance(document_url: str) -> Provenance:
    """Who decides the host of a url, judged by its text as written in the document.

    Only what stands before the path counts. No template there: the author. Only templates that read
    `config`: the operator. All else, also a template that touches the host's end without a `/`: data.
    """
    templates: list[str] = []

    def mark(match: re.Match[str]) -> str:
        templates.append(match.group())
        return _MARK

    skeleton = _TEMPLATE.sub(mark, document_url)
    head = _AUTHORITY.match(skeleton)
    if _MARK in document_url or head is None or "{{" in head.group():
        return Provenance.DATA
    used = templates[: head.group().count(_MARK)]
    if not used:
        return Provenance.AUTHOR
    paths = [path for text in used for path in references(text)]
    if paths and all(path[:1] == ("config",) or path[:2] == ("context", "config") for path in paths):
        return Provenance.OPERATOR
    return Provenance.DATA


# --- where it may go ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What the operator allows. hosts: names or addresses, each with or without `:port`, that may be
    reached wherever the name came from."""

    hosts: frozenset[str] = frozenset()
    timeout_s: float = 10.0
    connect_timeout_s: float = 10.0
    max_answer_bytes: int = MAX_ANSWER_BYTES

    def lists(self, host: str, port: int) -> bool:
        """True if the operator listed this host, with this port or without one."""
        name = host.strip("[]").rstrip(".").lower()
        shown = f"[{name}]" if ":" in name else name
        listed = {entry.strip().rstrip(".").lower() for entry in self.hosts}
        return not listed.isdisjoint({name, shown, f"{shown}:{port}"})


def checked_url(url: str) -> SplitResult:
    """The parts of a url that may be sent as it stands. Raises EgressRefused naming the rule."""
    if not url.isprintable() or any(character in url for character in " \\"):
        raise EgressRefused(
            f"the url {url!r} holds white space, a backslash or a control character",
            hint="encode values with the filter url_encode",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EgressRefused(f"the url {url!r} cannot be read: {error}") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise EgressRefused(f"the url {_short(url)!r} does not begin with http:// or https://")
    if "@" in parts.netloc:
        raise EgressRefused(
            "the url holds a user name or password", hint="send them in the header Authorization"
        )
    if not parts.hostname or port == 0:
        raise EgressRefused(f"the url {_short(url)!r} names no host or no valid port")
    if "#" in url:
        raise EgressRefused(
            "the url holds a '#', and what follows it is never sent",
            hint="encode values with the filter url_encode",
        )
    if any(part.replace("%2e", ".").replace("%2E", ".") in (".", "..") for part in parts.path.split("/")):
        raise EgressRefused(
            "the path of the url holds '.' or '..', which would be rewritten on the way",
            hint="write the path it leads to",
        )
    return parts


def allowed_addresses(
    addresses: Sequence[str], *, host: str, port: int, provenance: Provenance, policy: EgressPolicy
) -> list[str]:
    """Those of a host's addresses that may be connected to; raises EgressRefused if none may.

    From data one bad address refuses the host: an answer that mixes public and private is a trick.
    """
    kinds = [(address, classify_address(address)) for address in addresses]
    if provenance is Provenance.DATA and not policy.lists(host, port):
        if port < 1024 and port not in (80, 443):
            raise EgressRefused(
                f"{host} comes from run data, and port {port} is not one of 80, 443 and 1024-65535",
                hint=f"list it in the settings: [http] hosts = [{f'{host}:{port}'!r}]",
            )
        for address, kind in kinds:
            if kind is not AddressClass.PUBLIC:
                raise EgressRefused(
                    f"{host} comes from run data and leads to {address}, a {kind} address",
                    hint="write the host into the document or read it from config, or list it in the "
                    f"settings: [http] hosts = [{host!r}]",
                    details={"rule": str(kind), "address": address},
                )
    usable = [address for address, kind in kinds if kind not in NEVER]
    if not usable:
        address, kind = kinds[0] if kinds else ("no address", AddressClass.RESERVED)
        raise EgressRefused(
            f"{host} leads to {address}, a {kind} address, where nothing is ever sent",
            details={"rule": str(kind), "address": address},
        )
    return usable


def _short(url: str) -> str:
    return url if len(url) <= 80 else url[:77] + "..."


# --- what is sent and what came back --------------------------------------------------------------

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Set by the client from the url and the body; a second opinion would split or misframe the request.
FRAMING_HEADERS = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "proxy-connection",
        "proxy-authorization",
    )
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request as `http_request` asks for it. timeout_s: the whole request with its answer."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    provenance: Provenance = Provenance.DATA
    timeout_s: float | None = None
    max_answer_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. cut: why the body is not whole; null if it is. sent_key: the key that went out."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: str | None = None
    is_over_limit: bool = False
    sent_key: str | None = None

    def header(self, name: str) -> str | None:
        """One header by its lower-case name; several of that name are joined with a comma."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None


def checked_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as bytes. Raises EgressRefused for what would break out of its line or of the framing."""
    seen: set[str] = set()
    checked = []
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise EgressRefused(f"{name!r} is not a header name")
        if name.lower() in FRAMING_HEADERS:
            raise EgressRefused(
                f"the header {name!r} follows from the url and the body", hint="leave it out of the headers"
            )
        if name.lower() in seen:
            raise EgressRefused(f"the header {name!r} is given twice")
        if _CONTROL.search(value):
            raise EgressRefused(f"the header {name!r} holds a line break or another control character")
        seen.add(name.lower())
        checked.append((name.encode("ascii"), value.strip().encode("utf-8", "replace")))
    return checked


class Reading:
    """Collects an answer, never more than its limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.status: int | None = None
        self.headers: tuple[tuple[str, str], ...] = ()
        self.cut: str | None = None
        self.is_over_limit = False
        self._body = bytearray()

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The status line and the headers have arrived."""
        self.headers = tuple((k.decode("latin-1").lower(), v.decode("utf-8", "replace")) for k, v in headers)
        self.status = status

    def add(self, chunk: bytes) -> bool:
        """Keep what fits; True if the limit is passed and reading should end."""
        room = self.limit_bytes - len(self._body)
        self._body += chunk[:room]
        if len(chunk) > room:
            self._pass_limit()
        return self.is_over_limit

    def _pass_limit(self) -> None:
        self.is_over_limit = True
        self.cut = f"the answer is larger than the limit of {self.limit_bytes} bytes"

    def body(self) -> bytes:
        """The body, decompressed up to the same limit."""
        encodings = [value.strip().lower() for key, value in self.headers if key == "content-encoding"]
        encoding = ",".join(encodings)
        if encoding not in ("gzip", "x-gzip", "deflate") or not self._body:
            return bytes(self._body)
        unpacker = zlib.decompressobj(wbits=47)
        try:
            body = unpacker.decompress(bytes(self._body), self.limit_bytes)
        except zlib.error:
            self.cut = self.cut or "the answer cannot be decompressed"
            return bytes(self._body)
        if unpacker.unconsumed_tail:
            self._pass_limit()
        elif not unpacker.eof:
            self.cut = self.cut or "the compressed answer ends too early"
        return body


# --- the client -----------------------------------------------------------------------------------


async def system_resolver(host: str, port: int) -> list[str]:
    """The addresses of a host as this machine's resolver gives them, in its order; an address is its own."""
    import socket
    from ipaddress import ip_address

    with suppress(ValueError):
        return [str(ip_address(host))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Egress:
    """The way out of one program: its policy and its resolver."""

    def __init__(self, policy: EgressPolicy | None = None, *, resolver: Resolver = system_resolver) -> None:
        self.policy = policy or EgressPolicy()
        self.resolver = resolver

    def open(self, ctx: Context) -> GuardedClient:
        """The client of one handler call; give this to `Context.open_http`."""
        return GuardedClient(self, ctx)


class GuardedClient(HttpClient):
    """The client of one handler call.

    is_started: the dispatch is on disk and bytes may have left. Redirects, retries, proxies and
    keep-alive do not exist here: one call is one connection and at most one request.
    """

    def __init__(self, egress: Egress, ctx: Context) -> None:
        self._egress = egress
        self._ctx = ctx
        self._first = asyncio.Lock()
        self.is_started = False
        self.dispatch_error: BaseException | None = None

    async def exchange(self, call: Call) -> Answer:
        """Send one request and read its answer, cut at the limits.

        Once a status line has arrived this returns, with `cut` set if the rest did not. Raises
        EgressRefused (nothing sent), the transport errors of httpx, or what `ctx.dispatching()` raised.
        """
        import httpx

        checked_url(call.url)
        headers = self._with_key(call.method, checked_headers(call.headers))
        request = httpx.Request(call.method, call.url, headers=headers, content=call.body)
        return await self._exchange(request, call.provenance, call.timeout_s, call.max_answer_bytes)

    async def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Send one request for a custom handler; the host counts as chosen by the operator.

        options: headers, params, json, content, data, files as in httpx; timeout_s, max_answer_bytes.
        Returns a read response, whatever its status; `extensions["cut"]` says why a body is not whole.
        The idempotency key goes along on every method but GET, HEAD and OPTIONS: a handler that sends
        two requests to one provider sets the header itself on the second.
        """
        import httpx

        timeout_s = options.pop("timeout_s", None)
        max_answer_bytes = options.pop("max_answer_bytes", None)
        given = httpx.Headers(options.pop("headers", None))
        headers = self._with_key(method.upper(), checked_headers(given))
        request = httpx.Request(method, url, headers=headers, **options)
        checked_url(str(request.url))
        await request.aread()
        answer = await self._exchange(request, Provenance.OPERATOR, timeout_s, max_answer_bytes)
        kept = [(k, v) for k, v in answer.headers if k not in ("content-encoding", "transfer-encoding")]
        extensions = {"cut": answer.cut}
        return httpx.Response(
            answer.status, headers=kept, content=answer.body, request=request, extensions=extensions
        )

    def _with_key(self, method: str, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers with the intent's key, unless they hold one; then with this program's own."""
        names = {name.lower() for name, _ in headers}
        key_name = self._ctx.key_header.encode("ascii")
        if method not in READ_METHODS and key_name.lower() not in names:
            headers.append((key_name, self._ctx.idempotency_key.encode("utf-8")))
        defaults = {b"Accept": b"*/*", b"Accept-Encoding": b"identity", b"User-Agent": b"orch8-local"}
        headers += [(name, value) for name, value in defaults.items() if name.lower() not in names]
        headers.append((b"Connection", b"close"))
        return headers

    async def _exchange(
        self,
        request: httpx.Request,
        provenance: Provenance,
        timeout_s: float | None,
        max_answer_bytes: int | None,
    ) -> Answer:
        import httpx

        from orch8_local.handlers import wire

        policy = self._egress.policy
        limit_s = timeout_s or policy.timeout_s
        reading = Reading(max_answer_bytes or policy.max_answer_bytes)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await wire.perform(
                    request,
                    reading,
                    connect_to=self._connect_to(provenance),
                    connect_timeout_s=min(policy.connect_timeout_s, limit_s),
                    trace=self._trace(limit),
                )
        except TimeoutError as error:
            if not limit.expired() or error is self.dispatch_error:
                raise
            words = f"no whole answer within {limit_s:g} s"
            if reading.status is None:
                raise (httpx.ReadTimeout if self.is_started else httpx.ConnectTimeout)(words) from None
            reading.cut = words
        except httpx.TransportError as error:
            if reading.status is None:
                raise
            reading.cut = f"the answer was cut short: {error}"
        assert reading.status is not None
        body = reading.body()
        key = request.headers.get(self._ctx.key_header)
        return Answer(reading.status, reading.headers, body, reading.cut, reading.is_over_limit, key)

    def _connect_to(self, provenance: Provenance) -> Resolver:
        """Resolve and check: the addresses to connect to."""

        async def connect_to(host: str, port: int) -> list[str]:
            addresses = await self._egress.resolver(host, port)
            return allowed_addresses(
                addresses, host=host, port=port, provenance=provenance, policy=self._egress.policy
            )

        return connect_to

    def _trace(self, limit: asyncio.Timeout) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
        """The hook into the client's events: the dispatch is on disk before the request line is written."""

        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                await self._before_first_byte(limit)
            elif event.endswith("send_request_body.complete"):
                self._ctx.reach(CrashPoint.AFTER_FIRST_BYTE)

        return trace

    async def _before_first_byte(self, limit: asyncio.Timeout) -> None:
        """Mark the dispatch once per handler call. The disk's time is not the request's time."""
        loop = asyncio.get_running_loop()
        until = limit.when()
        left_s = None if until is None else until - loop.time()
        limit.reschedule(None)
        self._ctx.reach(CrashPoint.CONNECTED)
        async with self._first:
            if not self.is_started:
                try:
                    await self._ctx.dispatching()
                except BaseException as error:
                    self.dispatch_error = error
                    raise
                self.is_started = True
        self._ctx.reach(CrashPoint.BEFORE_FIRST_BYTE)
        limit.reschedule(None if left_s is None else loop.time() + left_s)


def open_http(ctx: Context) -> GuardedClient:
    """The client of one handler call under the default policy, which lists no hosts."""
    return Egress().open(ctx)


__all__ = [
    "Answer",
    "Call",
    "Egress",
    "EgressPolicy",
    "GuardedClient",
    "Provenance",
    "allowed_addresses",
    "checked_headers",
    "checked_url",
    "host_provenance",
    "open_http",
    "system_resolver",
]
