"""The simulated outside: it outlives every crash, decides by seed, and never forgets or lies.

Handlers of three kinds call it: `charge` marks its own dispatch, `careless` does not (so the moment
before the call counts), `look_up` is repeatable. The easy mistake: letting the process decide what
the provider did; whether a request is applied is decided here, when its last byte arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from orch8_local.handlers.base import Context, HandlerSpec, Refused, Rejected
from orch8_local.model.outcome import EffectKind, Mode, Outcome
from orch8_local.testing.invariants import Seen
from orch8_local.world import CrashPoint

Json = Any

BEFORE = ("connect_refused", "connect_hangs")
NOT_APPLIED = ("refused", "refused_later", "rejected", "dropped", "hung", "conflict", "server_error")
APPLIED = ("answered", "answered_late", "answer_lost", "answer_hung", "half_answer", "odd_output")
MODES = (*BEFORE, *NOT_APPLIED, *APPLIED)
PLAIN_MODES = ("answered", "answered", "answered", "refused", "answer_lost", "dropped")


@dataclass(slots=True)
class Request:
    """One request as the provider saw it."""

    key: str
    block_id: str
    is_whole: bool = False
    is_applied: bool = False
    output: Json = None
    life: int = 0


class SimProvider:
    """One provider for one schedule, across all lives of the process."""

    def __init__(self, seed: int, modes: tuple[str, ...], *, is_fair: bool = False) -> None:
        self._random = random.Random(f"provider {seed}")
        self._modes = modes
        self.is_fair = is_fair
        """From now on every request is answered at once."""
        self.requests: list[Request] = []
        self.life = 0
        """Which life of the process is being played: what an earlier one sent arrives no further."""
        self.modes_seen: Counter[str] = Counter()

    def seen(self) -> list[Seen]:
        """The record for the invariants."""
        return [Seen(request.key, request.is_applied) for request in self.requests]

    def applied_output(self, key: str) -> Json:
        """What a truthful look-up by key finds: the answer that was given or lost; None if nothing."""
        found = [request.output for request in self.requests if request.key == key and request.is_applied]
        return found[0] if found else None

    def has_applied(self, key: str) -> bool:
        """True if an action with this key was carried out."""
        return any(request.key == key and request.is_applied for request in self.requests)

    def is_settled(self, key: str) -> bool:
        """True if no request with this key is still on its way."""
        return all(request.is_whole or request.life < self.life for request in self.requests if request.key == key)

    def specs(self) -> list[HandlerSpec]:
        """The handlers that call this provider."""
        return [
            HandlerSpec("charge", self._charge, EffectKind.WORKER, marks_dispatch=True),
            HandlerSpec("post", self._charge, EffectKind.HTTP, marks_dispatch=True),
            HandlerSpec("careless", self._careless, EffectKind.WORKER),
            HandlerSpec("look_up", self._charge, EffectKind.HTTP, Mode.REPEATABLE, marks_dispatch=True),
        ]

    def _mode(self) -> str:
        mode = "answered" if self.is_fair else self._random.choice(self._modes)
        self.modes_seen[mode] += 1
        return mode

    async def _charge(self, ctx: Context, params: Json) -> Json:
        mode = self._mode()
        if mode == "connect_refused":
            return Outcome.not_sent("connection refused")
        if mode == "connect_hangs":
            await asyncio.sleep(3_000)
            return Outcome.not_sent("connect timed out")
        await asyncio.sleep(self._random.choice((0.0, 0.01, 0.5)))
        ctx.reach(CrashPoint.CONNECTED)
        await ctx.dispatching()
        ctx.reach(CrashPoint.BEFORE_FIRST_BYTE)
        return await self._send(ctx, params, mode)

    async def _careless(self, ctx: Context, params: Json) -> Json:
        mode = self._mode()
        if mode in BEFORE:
            raise ConnectionError(mode)  # nothing was sent, but nobody can know
        return await self._send(ctx, params, mode)

    async def _send(self, ctx: Context, params: Json, mode: str) -> Json:
        request = Request(ctx.idempotency_key, ctx.block_id, life=self.life)
        self.requests.append(request)
        ctx.reach(CrashPoint.AFTER_FIRST_BYTE)
        if self._random.random() < 0.3 and not self.is_fair:
            await asyncio.sleep(0.001)  # the rest of the body; a crash here leaves half a request
        request.is_whole = True
        if mode in APPLIED:
            request.is_applied = True
            amount = params.get("amount") if isinstance(params, dict) else None
            request.output = {"provider_receipt_id": f"r-{ctx.idempotency_key[:13]}", "amount": amount}
        await asyncio.sleep(0.0 if self.is_fair else self._random.choice((0.0, 0.002, 0.2, 2.0)))
        return await self._answer(request, mode)

    async def _answer(self, request: Request, mode: str) -> Json:
        if mode == "refused":
            raise Refused("busy", details={"status": 503})
        if mode == "refused_later":
            raise Refused("come back later", retry_after_s=30.0)
        if mode == "rejected":
            raise Rejected("no", details={"status": 422})
        if mode in ("dropped", "answer_lost"):
            raise ConnectionResetError("connection reset by peer")
        if mode in ("hung", "answer_hung"):
            await asyncio.sleep(3_000)
            raise TimeoutError("no answer")
        if mode == "conflict":
            return Outcome.ambiguous("status 409", details={"status": 409})
        if mode == "server_error":
            return Outcome.ambiguous("status 500", details={"status": 500})
        if mode == "answered_late":
            await asyncio.sleep(20.0)
        if mode == "odd_output":
            request.output = None
            return {"amount": float("nan")}
        if mode == "half_answer":
            request.output = {**request.output, "is_partial": True}
        return request.output
