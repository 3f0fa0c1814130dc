"""A loopback "payment provider" that counts, drops, delays and lies by script.

Owns the other side's truth: every event has a number, and an action counts as applied only if the
whole request arrived. The easy mistake in such a double: counting a request that was cut short as
an application; it would report a second sending where there was none.

As a library: `async with Provider() as provider: ... provider.url`. As a program, for tests that
kill their own process: `python -m orch8_local.testing.provider --port 8099 --mode hang --log FILE`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

Json = Any

KINDS = (
    "answer",
    "delay",
    "hold",
    "hang",
    "drop_before_apply",
    "apply_then_drop",
    "5xx_before_apply",
    "5xx_after_apply",
    "half_header",
    "half_body",
    "flood",
    "reset",
)
NOT_APPLYING = frozenset({"hang", "drop_before_apply", "5xx_before_apply", "reset"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What is done with one request.

    kind: one of KINDS. `hold` answers after `release()`, `hang` never; `flood` sends `size_bytes` of
    body, without end if that is 0. body: text, or any JSON; by default a receipt id made of the
    request's number. is_applied: by default as the kind says, and only with a status below 400.
    """

    kind: str = "answer"
    status: int | None = None
    body: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    size_bytes: int = 0
    is_applied: bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is not one of {', '.join(KINDS)}")

    def applies(self) -> bool:
        """True if the provider carries the action out."""
        if self.is_applied is not None:
            return self.is_applied
        return self.kind not in NOT_APPLYING and (self.kind == "5xx_after_apply" or self.final_status() < 400)

    def final_status(self) -> int:
        """The status to answer with."""
        return self.status or (500 if self.kind.startswith("5xx") else 200)


@dataclass(slots=True)
class Request:
    """One request as it arrived. is_complete: its whole body came."""

    number: int
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    is_complete: bool = False

    @property
    def key(self) -> str | None:
        """The idempotency key it carried."""
        return self.headers.get("idempotency-key")


Content = tuple[int, bytes, dict[str, str]]
Script = Sequence[Reply] | Mapping[str, Sequence[Reply]]


class Provider:
    """The provider. script: replies in order of arrival, or lists of them by `path` or `METHOD path`.

    When a script has run out, `default` answers. dedupe: a key that was applied before gets the first
    answer again and nothing is applied. log: a file that gets one JSON line per event.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        default: Reply | None = None,
        dedupe: bool = False,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        self.default = default or Reply()
        self.dedupe = dedupe
        self.events: list[dict[str, Json]] = []
        self.received: list[Request] = []
        self.script = script
        self._port = port
        self._log_path = log
        self._log: IO[str] | None = None
        self._applied: Counter[str | None] = Counter()
        self._answers: dict[str, Content] = {}
        self._waiters: list[tuple[str, int, asyncio.Future[None]]] = []
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._n_requests = 0

    @property
    def script(self) -> Script:
        """What is still to be played; may be replaced at any time."""
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        if isinstance(script, Mapping):
            self._script: dict[str, list[Reply]] | list[Reply] = {k: list(v) for k, v in script.items()}
        else:
            self._script = list(script)

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen on loopback."""
        if self._log_path is not None:
            self._log = self._log_path.open("a", encoding="utf-8")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop what is open."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._log is not None:
            self._log.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://127.0.0.1:{self._port}"

    # --- questions -------------------------------------------------------------------------------

    def applied(self, key: str | None = None) -> int:
        """How often an action was carried out: with this key, or in all."""
        return self._applied[key] if key is not None else self._applied.total()

    def requests(self, path: str | None = None, key: str | None = None) -> list[Request]:
        """The requests that arrived whole, in order, of one path or key if given."""
        return [
            request
            for request in self.received
            if request.is_complete and path in (None, request.path) and key in (None, request.key)
        ]

    def count(self, event: str) -> int:
        """How many events of one name there were: connection, first_byte, received, applied, answered."""
        return sum(entry["event"] == event for entry in self.events)

    async def wait_for(self, event: str, n: int = 1) -> None:
        """Return when at least n events of this name have happened."""
        if self.count(event) >= n:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((event, n, future))
        await future

    async def settle(self) -> None:
        """Return when every connection made so far has been taken and has ended; for clients that are dead.

        Connections are taken in the order in which they were made, so one of our own marks the end.
        """
        n_before = self.count("connection")
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.close()
        await self.wait_for("connection", n_before + 1)
        while self._tasks:
            await asyncio.wait(set(self._tasks))
            await asyncio.sleep(0)

    def release(self) -> None:
        """Let all requests that are held be answered."""
        self._released.set()

    # --- serving ---------------------------------------------------------------------------------

    def _record(self, event: str, request: Request | None = None) -> None:
        entry: dict[str, Json] = {"n": len(self.events) + 1, "event": event}
        if request is not None:
            entry |= {
                "request": request.number,
                "method": request.method,
                "path": request.path,
                "key": request.key,
                "body": request.body,
            }
        self.events.append(entry)
        if self._log is not None:
            self._log.write(json.dumps(entry) + "\n")
            self._log.flush()
        for name, n, future in self._waiters:
            if name == event and not future.done() and self.count(event) >= n:
                future.set_result(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._record("connection")
        try:
            request = await self._receive(reader)
            if request is not None and request.is_complete:
                await self._reply(request, writer)
        except ConnectionError:
            pass  # the client went away: that ends this connection and no other
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _receive(self, reader: asyncio.StreamReader) -> Request | None:
        first = await reader.read(1)
        if not first:
            return None
        self._n_requests += 1
        request = Request(self._n_requests)
        self.received.append(request)
        self._record("first_byte", request)
        try:
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            request.method, request.path = head[0].split(" ")[:2]
            pairs = (line.partition(":") for line in head[1:] if line)
            request.headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(request.headers.get("content-length", "0")))
        except asyncio.IncompleteReadError:
            return request
        request.body = body.decode("utf-8", "replace")
        request.is_complete = True
        self._record("received", request)
        return request

    def _next(self, request: Request) -> Reply:
        script = self._script
        if isinstance(script, dict):
            script = script.get(f"{request.method} {request.path}") or script.get(request.path) or []
        return script.pop(0) if script else self.default

    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.dedupe and request.key is not None and request.key in self._answers:
            await self._answer(request, writer, self._answers[request.key])
            return
        reply = self._next(request)
        status, body, headers = self._content(request, reply)
        if reply.applies():
            self._applied[request.key] += 1
            self._record("applied", request)
            if request.key is not None:
                self._answers[request.key] = (status, body, headers)
        if reply.kind == "hold":
            await self._released.wait()
        elif reply.kind == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(reply.delay_s)
        if reply.kind in ("drop_before_apply", "apply_then_drop"):
            return
        if reply.kind == "reset":
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif reply.kind == "half_header":
            await _send(writer, b"HTTP/1.1 200 OK\r\nContent-Le")
        elif reply.kind == "half_body":
            headers["Content-Length"] = str(len(body) + 100)
            await _send(writer, _head(status, headers) + body)
        elif reply.kind == "flood":
            await self._flood(writer, status, reply.size_bytes)
        else:
            await self._answer(request, writer, (status, body, headers))

    def _content(self, request: Request, reply: Reply) -> Content:
        status = reply.final_status()
        body = {"receipt_id": f"r-{request.number}"} if reply.body is None else reply.body
        headers = {"Connection": "close", **reply.headers}
        if not isinstance(body, str):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        raw = b"" if request.method == "HEAD" or status in (204, 304) else body.encode()
        if status not in (204, 304):
            headers.setdefault("Content-Length", str(len(raw)))
        return status, raw, headers

    async def _answer(self, request: Request, writer: asyncio.StreamWriter, content: Content) -> None:
        status, body, headers = content
        await _send(writer, _head(status, headers) + body)
        self._record("answered", request)

    async def _flood(self, writer: asyncio.StreamWriter, status: int, size_bytes: int) -> None:
        length = {"Content-Length": str(size_bytes)} if size_bytes else {}
        await _send(writer, _head(status, {"Connection": "close", **length}))
        left = size_bytes or sys.maxsize
        while left > 0:
            await _send(writer, b"x" * min(left, 65536))
            left -= 65536


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


# --- as a program -------------------------------------------------------------------------------


def _script_from(path: Path) -> Script:
    """A JSON list of replies, or an object of such lists; a reply is a kind or an object of its fields."""
    loaded = json.loads(path.read_text("utf-8"))

    def replies(items: Sequence[Json]) -> list[Reply]:
        return [Reply(item) if isinstance(item, str) else Reply(**item) for item in items]

    if isinstance(loaded, dict):
        return {key: replies(items) for key, items in loaded.items()}
    return replies(loaded)


@contextlib.asynccontextmanager
async def _until_signalled() -> AsyncIterator[asyncio.Event]:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    yield stop


async def _main(arguments: argparse.Namespace) -> None:
    script = _script_from(arguments.script) if arguments.script else ()
    default = replace(Reply(arguments.mode), delay_s=arguments.delay)
    provider = Provider(
        script, default=default, dedupe=arguments.dedupe, port=arguments.port, log=arguments.log
    )
    async with _until_signalled() as stop, provider:
        sys.stdout.write(json.dumps({"url": provider.url}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> None:
    """Serve until SIGINT or SIGTERM; the first line on stdout is `{"url": ...}`."""
    parser = argparse.ArgumentParser(description="A loopback provider that answers by script.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, help="JSON: a list of replies, or lists by path")
    parser.add_argument("--mode", choices=KINDS, default="answer", help="when the script has run out")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer of that mode")
    parser.add_argument("--dedupe", action="store_true", help="answer a repeated key as before")
    parser.add_argument("--log", type=Path, help="append one JSON line per event")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
