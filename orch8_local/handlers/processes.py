"""A child process of `command`: started apart from the terminal, and ended with all that it started.

Owns who belongs to a call: the members of its process group, and on Linux also whatever carries its
mark in the environment, so that a grandchild which left the group is found. The easy mistake:
waiting for the pipes to close; a process left behind may hold them open for days. This waits for
the exit.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

PROC = Path("/proc")
POLL_S = 0.05
KILL_WAIT_S = 5.0

Rung = tuple[signal.Signals, float]
TERMINATE: tuple[Rung, ...] = ((signal.SIGTERM, 2.0), (signal.SIGKILL, KILL_WAIT_S))
"""After a time-out: ask, wait two seconds, kill."""
INTERRUPT: tuple[Rung, ...] = ((signal.SIGINT, 10.0), *TERMINATE)
"""When the run is cancelled: one interrupt and time to clean up; each further request is a rung up."""


@dataclass(frozen=True, slots=True)
class Member:
    """One living process of a call."""

    pid: int
    name: str


class Stream:
    """What a process wrote to one pipe: the beginning is kept, the rest is counted."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self.size_bytes = 0

    def add(self, data: bytes) -> None:
        """Keep what fits."""
        self.size_bytes += len(data)
        self._kept += data[: self._limit_bytes - len(self._kept)]

    @property
    def is_truncated(self) -> bool:
        """True if more came than was kept."""
        return self.size_bytes > len(self._kept)

    def text(self) -> str:
        """The kept part; bytes that are not UTF-8 as backslash escapes."""
        return self._kept.decode("utf-8", "backslashreplace")


class Child(asyncio.SubprocessProtocol):
    """One process and its output. exited: done when the process itself has ended."""

    def __init__(self, mark: str, limit_bytes: int) -> None:
        self._mark = mark.encode()
        self._transport: asyncio.SubprocessTransport | None = None
        self.pid = 0
        self.stdout = Stream(limit_bytes)
        self.stderr = Stream(limit_bytes)
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self._n_open = 2

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        executable: str,
        env: Mapping[str, str],
        cwd: str | None,
        has_stdin: bool,
        limit_bytes: int,
        mark: tuple[str, str],
    ) -> Child:
        """Start a program in a session of its own, so that the terminal's Ctrl-C does not reach it.

        mark: a variable and a value found in no other process. Raises OSError or ValueError if the
        system did not start it; then the program has not run.
        """
        child = cls("=".join(mark), limit_bytes)
        pipe = asyncio.subprocess.PIPE
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child,
                *argv,
                executable=executable,
                env={**env, mark[0]: mark[1]},
                cwd=cwd,
                stdin=pipe if has_stdin else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except asyncio.CancelledError:
            child.signal(signal.SIGKILL)
            raise
        return child

    # --- what asyncio tells ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid() or 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Output came."""
        (self.stdout if fd == 1 else self.stderr).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe was closed by all who held it."""
        self._n_open -= fd in (1, 2)
        if self._n_open == 0 and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        """The process itself has ended; others may still hold its pipes."""
        if not self.exited.done():
            self.exited.set_result(None)

    # --- what the handler asks ------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write to stdin and close it."""
        pipe = self._transport.get_pipe_transport(0) if self._transport else None
        if pipe is not None:
            writable = cast("asyncio.WriteTransport", pipe)
            writable.write(data)
            writable.close()

    @property
    def exit_code(self) -> int | None:
        """The exit code, minus the signal's number if one ended it, or None while it runs."""
        return self._transport.get_returncode() if self._transport else None

    def close(self) -> None:
        """Let go of the pipes."""
        if self._transport is not None:
            self._transport.close()

    def members(self) -> list[Member]:
        """The living processes of this call, zombies left out."""
        if self.pid == 0:
            return []
        if not PROC.joinpath("self", "stat").exists():
            return [Member(self.pid, "")] if _is_group_alive(self.pid) else []
        found = (self._member(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
        return [member for member in found if member is not None]

    def _member(self, pid: int) -> Member | None:
        """A process of this call, judged by its group, else by the mark in its environment."""
        try:
            head, _, rest = (PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")
            state, _, group = rest.split()[:3]
            if state in "ZX":
                return None
            is_ours = int(group) == self.pid or self._is_marked(pid)
        except (OSError, ValueError):
            return None
        return Member(pid, head.partition("(")[2]) if is_ours else None

    def _is_marked(self, pid: int) -> bool:
        return self._mark in (PROC / str(pid) / "environ").read_bytes().split(b"\0")

    def signal(self, number: signal.Signals) -> list[Member]:
        """Send a signal to all living processes of this call and say which."""
        members = self.members()
        for member in members:
            try:
                if member.pid == self.pid and not member.name:
                    os.killpg(self.pid, number)
                else:
                    os.kill(member.pid, number)
            except (ProcessLookupError, PermissionError):
                continue
        return members

    async def end(self, rungs: Sequence[Rung], say: Callable[[str], None]) -> list[dict[str, str | int]]:
        """Signal all processes of this call, rung by rung, until none lives; say what was done.

        Cancelling the wait goes on to the next rung at once. Returns each signal with its receiver.
        """
        sent: list[dict[str, str | int]] = []
        for number, grace_s in rungs:
            members = self.signal(number)
            if not members:
                break
            shown = ", ".join(f"{member.pid} {member.name}".rstrip() for member in members)
            say(f"sent {number.name} to {shown}; waiting up to {grace_s:g} s")
            sent += [{"signal": number.name, "pid": member.pid, "name": member.name} for member in members]
            try:
                await self._gone_within(grace_s)
            except asyncio.CancelledError:
                say("asked to stop again")
        return sent

    async def _gone_within(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while loop.time() < until:
            await asyncio.wait([self.exited], timeout=POLL_S)
            if self.exited.done():
                if not self.members():
                    return
                await asyncio.sleep(POLL_S)


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
