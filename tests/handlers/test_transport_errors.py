"""Socket-level faults: what they prove, and that the installed client still behaves as written down."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import httpcore
import httpx
import pytest

from orch8_local.handlers.http import (
    HTTP_REQUEST,
    PERMANENT_ERRORS,
    TRANSPORT_ERRORS,
    transport_outcome,
)
from orch8_local.handlers.wire import HTTPX_ERRORS, errors_of_httpx
from orch8_local.model.outcome import Outcome
from orch8_local.testing.provider import Provider, Reply
from tests.handlers.conftest import MakeStep, Step

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Serve], Awaitable[int]]


def names_below(root: type[BaseException]) -> set[str]:
    found = {root.__name__}
    for child in root.__subclasses__():
        found |= names_below(child)
    return found


def test_every_transport_error_of_the_client_has_a_row() -> None:
    """A new exception class of httpx fails here before it surprises anybody."""
    installed = {name for name in names_below(httpx.TransportError) if hasattr(httpx, name)}
    assert installed == set(TRANSPORT_ERRORS)


def test_every_error_of_the_lower_client_is_mapped() -> None:
    """A new exception class of httpcore fails here; each becomes the one of the same name."""
    installed = {
        kind
        for _, kind in inspect.getmembers(httpcore, inspect.isclass)
        if issubclass(kind, Exception) and kind is not httpcore.ConnectionNotAvailable
    }
    assert installed == set(HTTPX_ERRORS)
    for lower, upper in HTTPX_ERRORS.items():
        assert lower.__name__ == upper.__name__


@pytest.mark.parametrize("name", sorted(TRANSPORT_ERRORS))
def test_an_error_proves_only_when_it_came(name: str) -> None:
    """Before the dispatch every error is not_sent, after it every error is ambiguous."""
    error = getattr(httpx, name)("words")
    before = transport_outcome(error, "POST x", is_started=False, is_repeatable=False)
    assert before.outcome_class == "not_sent"
    assert before.retryable == (name not in PERMANENT_ERRORS)
    after = transport_outcome(error, "POST x", is_started=True, is_repeatable=False)
    assert after.outcome_class == "ambiguous"
    assert not after.retryable
    assert "words" in after.message


def test_foreign_errors_pass_unchanged() -> None:
    """An error that is not the client's own is not renamed."""
    with pytest.raises(KeyError), errors_of_httpx():
        raise KeyError("x")


def post(make_step: MakeStep, url: str, timeout_ms: int = 10_000) -> Step:
    return make_step(HTTP_REQUEST, {"method": "POST", "url": url, "body": {"n": 1}, "timeout_ms": timeout_ms})


def error_of(outcome: Outcome) -> object:
    assert outcome.details is not None
    return outcome.details["error"]


async def test_the_client_still_tells_when_the_request_begins(make_step: MakeStep, provider: Provider) -> None:
    """The names of the client's events are those that the first-byte hook listens for."""
    step = post(make_step, f"{provider.url}/x")
    await step.run()
    assert step.order == ["c2_connected", "dispatching", "dispatched", "c3_after_t1", "c4_after_first_byte"]


async def test_a_refused_connection_is_not_sent(make_step: MakeStep) -> None:
    """Nobody listens: nothing was sent, and the retry policy may try again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    step = post(make_step, f"http://127.0.0.1:{port}/x")
    outcome = await step.run()
    assert outcome.outcome_class == "not_sent"
    assert error_of(outcome) == "ConnectError"
    assert "refused" in outcome.message
    assert outcome.retryable
    assert step.n_dispatches == 0


async def test_a_connection_that_is_not_made_in_time_is_not_sent(make_step: MakeStep) -> None:
    """A full queue or a silent network is a connect timeout, before anything was sent."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        step = post(make_step, f"http://127.0.0.1:{port}/x", timeout_ms=300)
        outcome = await step.run()
        for filler in fillers:
            filler.close()
    assert outcome.outcome_class == "not_sent"
    assert error_of(outcome) == "ConnectTimeout"
    assert outcome.retryable
    assert step.n_dispatches == 0


async def test_a_server_without_tls_is_not_sent(make_step: MakeStep, provider: Provider) -> None:
    """A failed handshake comes before the request."""
    step = post(make_step, provider.url.replace("http://", "https://") + "/x", timeout_ms=5_000)
    async with asyncio.timeout(30):
        outcome = await step.run()
    assert outcome.outcome_class == "not_sent"
    assert step.n_dispatches == 0
    assert provider.count("received") == 0


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Start a server of raw sockets; returns its port."""
    servers: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(serve: Serve) -> int:
        async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await serve(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

        server = await asyncio.start_server(tracked, "127.0.0.1", 0)
        servers.append(server)
        port = server.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    yield start
    for server in servers:
        server.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_peer_that_closes_after_accepting_is_ambiguous(make_step: MakeStep, listen: Listen) -> None:
    """The request may have been read before the connection was closed."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    step = post(make_step, f"http://127.0.0.1:{await listen(close)}/x")
    outcome = await step.run()
    assert outcome.outcome_class == "ambiguous"
    assert error_of(outcome) in ("ReadError", "RemoteProtocolError", "WriteError")
    assert step.n_dispatches == 1


@pytest.mark.parametrize(
    ("kind", "errors"),
    [
        ("drop_before_apply", {"RemoteProtocolError", "ReadError"}),
        ("apply_then_drop", {"RemoteProtocolError", "ReadError"}),
        ("half_header", {"RemoteProtocolError"}),
        ("reset", {"ReadError"}),
        ("hang", {"ReadTimeout"}),
    ],
)
async def test_no_answer_after_the_first_byte_is_ambiguous(
    make_step: MakeStep, provider: Provider, kind: str, errors: set[str]
) -> None:
    """Whether the provider applied it or not, the runner cannot tell, and says so."""
    provider.script = [Reply(kind)]
    outcome = await post(make_step, f"{provider.url}/x", timeout_ms=1_000 if kind == "hang" else 10_000).run()
    assert outcome.outcome_class == "ambiguous"
    assert error_of(outcome) in errors
    assert not outcome.retryable
    assert len(provider.requests()) == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 100 Continue\r\n\r\n", b"garbage\r\n\r\n", b""])
async def test_an_answer_without_a_final_status_is_ambiguous(
    make_step: MakeStep, listen: Listen, answer: bytes
) -> None:
    """An interim status, nonsense or nothing does not say what became of the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    outcome = await post(make_step, f"http://127.0.0.1:{await listen(serve)}/x").run()
    assert outcome.outcome_class == "ambiguous"


async def test_an_early_refusal_of_a_large_body_is_read(make_step: MakeStep, listen: Listen) -> None:
    """A server that answers 413 and closes while the body is still being sent has refused it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        while await reader.read(65536):
            pass

    step = make_step(
        HTTP_REQUEST,
        {"method": "POST", "url": f"http://127.0.0.1:{await listen(serve)}/x", "body": "x" * 3_000_000},
    )
    assert (await step.run()).outcome_class == "rejected"


async def test_each_request_has_a_connection_of_its_own(make_step: MakeStep, provider: Provider) -> None:
    """No connection is used twice: a stale one would turn into an ambiguous error."""
    for _ in range(3):
        await post(make_step, f"{provider.url}/x").run()
    assert provider.count("connection") == 3
    assert {request.headers["connection"] for request in provider.requests()} == {"close"}


async def test_a_cancelled_request_is_cancelled_and_closes_its_connection(
    make_step: MakeStep, provider: Provider
) -> None:
    """Cancellation is not an outcome: it comes out of the handler as what it is."""
    provider.script = [Reply("hang")]
    task = asyncio.ensure_future(post(make_step, f"{provider.url}/x").run())
    await provider.wait_for("received")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_name_is_kept_for_tls(make_step: MakeStep) -> None:
    """The connection goes to the checked address, and TLS asks for the name of the url."""
    from orch8_local.handlers.egress import Egress

    names: list[str | None] = []
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def remember(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        names.append(name)
        return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE

    context.sni_callback = remember
    loop.set_exception_handler(lambda *_: None)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def resolve(host: str, _port: int) -> list[str]:
        assert host == "bank.example"
        return ["127.0.0.1"]

    step = make_step(
        HTTP_REQUEST,
        {"method": "POST", "url": f"https://bank.example:{port}/x"},
        egress=Egress(resolver=resolve),
    )
    outcome = await step.run()
    server.close()
    assert outcome.outcome_class == "not_sent"
    assert names == ["bank.example"]
    assert step.n_dispatches == 0
