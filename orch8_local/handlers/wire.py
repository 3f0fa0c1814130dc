"""One request on one connection: the only module that opens a socket for a handler.

Built on httpcore, whose errors leave here as those of httpx. The easy mistake: letting the client
resolve the host a second time; here the connection goes to an address that was just checked, and
the name is kept for TLS and for the header Host. It imports httpx (0.2 s), so nothing imports it
before the first request.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

if TYPE_CHECKING:
    from orch8_local.handlers.egress import Reading, Resolver

# httpcore and httpx name their transport errors alike; a test fails if either grows another one.
HTTPX_ERRORS: dict[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.NetworkError: httpx.NetworkError,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ProtocolError: httpx.ProtocolError,
    httpcore.ProxyError: httpx.ProxyError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.TimeoutException: httpx.TimeoutException,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
    httpcore.WriteError: httpx.WriteError,
    httpcore.WriteTimeout: httpx.WriteTimeout,
}

Trace = Callable[[str, Mapping[str, Any]], Awaitable[None]]


@contextmanager
def errors_of_httpx() -> Iterator[None]:
    """Turn an error of httpcore into the one of httpx with the same name; let all others pass."""
    try:
        yield
    except Exception as error:
        named = next((HTTPX_ERRORS[kind] for kind in type(error).__mro__ if kind in HTTPX_ERRORS), None)
        if named is None:
            raise
        raise named(str(error) or named.__name__) from error


@cache
def load_certificates() -> ssl.SSLContext:
    """certifi's certificates, or those that SSL_CERT_FILE or SSL_CERT_DIR name; read once (20 ms)."""
    return httpx.create_ssl_context()


def reason_of(error: BaseException) -> str:
    """The system's own words for a failed connection, from the innermost cause that has some."""
    words = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            is_system = isinstance(cause.errno, int) and cause.errno in errno.errorcode
            words = os.strerror(cause.errno) if is_system and cause.errno else cause.strerror
        cause = cause.__cause__ or cause.__context__
    return words or type(error).__name__


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that `connect_to` has resolved and checked, one after the other."""

    def __init__(self, connect_to: Resolver) -> None:
        self._connect_to = connect_to
        self._sockets = httpcore.AnyIOBackend()
        self._streams: list[httpcore.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A stream to the host. Raises ConnectError, ConnectTimeout or EgressRefused."""
        clock = asyncio.get_running_loop().time
        until = clock() + (timeout or 0.0)
        addresses = await self._resolve(host, port, timeout)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for index, address in enumerate(addresses):
            share = None if timeout is None else max(until - clock(), 0.0) / (len(addresses) - index)
            try:
                stream = await self._sockets.connect_tcp(
                    address, port, timeout=share, local_address=local_address, socket_options=socket_options
                )
                self._streams.append(stream)
                return stream
            except httpcore.ConnectTimeout:
                failure = httpcore.ConnectTimeout(f"{host} ({address}) port {port}: no answer")
            except httpcore.ConnectError as error:
                failure = httpcore.ConnectError(f"{host} ({address}) port {port}: {reason_of(error)}")
        raise failure

    async def close(self) -> None:
        """Close what is still open: httpcore forgets a connection whose TLS handshake was cancelled."""
        for stream in self._streams:
            await stream.aclose()

    async def _resolve(self, host: str, port: int, timeout_s: float | None) -> list[str]:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return list(await self._connect_to(host, port))
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved within {timeout_s:g} s") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {reason_of(error)}") from error

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Never: a request goes to a host."""
        raise httpcore.UnsupportedProtocol(f"no request is sent to the unix socket {path}")

    async def sleep(self, seconds: float) -> None:
        """Wait; asked for between retries, of which there are none."""
        await asyncio.sleep(seconds)


async def perform(
    request: httpx.Request,
    reading: Reading,
    *,
    connect_to: Resolver,
    connect_timeout_s: float,
    trace: Trace,
) -> None:
    """Send a read request over a connection of its own and fill `reading` until the end or its limit.

    Raises transport errors of httpx, and whatever `trace` or `connect_to` raised, unchanged.
    """
    core = httpcore.Request(
        request.method,
        httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        ),
        headers=request.headers.raw,
        content=request.content,
        extensions={"trace": trace, "timeout": {"connect": connect_timeout_s}},
    )
    backend = PinnedBackend(connect_to)
    connection = httpcore.AsyncHTTPConnection(
        core.url.origin,
        ssl_context=load_certificates() if request.url.scheme == "https" else None,
        http2=False,
        retries=0,
        network_backend=backend,
    )
    with errors_of_httpx():
        try:
            await _exchange(connection, core, reading)
        finally:
            await connection.aclose()
            await backend.close()


async def _exchange(connection: httpcore.AsyncHTTPConnection, core: httpcore.Request, reading: Reading) -> None:
    response = await connection.handle_async_request(core)
    try:
        reading.begin(response.status, response.headers)
        async for chunk in response.aiter_stream():
            if reading.add(chunk):
                break
    finally:
        await response.aclose()
