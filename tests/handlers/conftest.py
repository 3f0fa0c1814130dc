"""A context without an engine: it counts what the handler does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from orch8_local.handlers.base import Context, HandlerSpec
from orch8_local.handlers.egress import Egress, EgressPolicy
from orch8_local.model.outcome import Outcome
from orch8_local.testing.provider import Provider

NOW_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


@dataclass
class Step:
    """One call of a handler and what it did with its context. order: marks in the order they came."""

    spec: HandlerSpec
    params: Any
    ctx: Context
    order: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def n_dispatches(self) -> int:
        return self.order.count("dispatching")

    async def run(self) -> Outcome:
        """Validate the params as the engine does, then call the handler."""
        valid = self.spec.validated(self.params)
        outcome = await self.spec.call(self.ctx, valid)
        assert isinstance(outcome, Outcome)
        return outcome


MakeStep = Callable[..., Step]


@pytest.fixture
def make_step() -> MakeStep:
    """Make one call of a handler; `written` are the params in the document, by default as resolved."""

    def make(
        spec: HandlerSpec,
        params: Any,
        *,
        written: Any = None,
        egress: Egress | None = None,
        hosts: frozenset[str] = frozenset(),
        dispatching: Callable[[], Any] | None = None,
        **fields: Any,
    ) -> Step:
        order: list[str] = []
        lines: list[str] = []

        async def mark() -> None:
            order.append("dispatching")
            if dispatching is not None:
                await dispatching()
            order.append("dispatched")

        way_out = egress or Egress(EgressPolicy(hosts=hosts))
        values: dict[str, Any] = {
            "instance_id": "0190f000-0000-7000-8000-000000000001",
            "block_id": "pay",
            "scope": "",
            "attempt": 0,
            "handler": spec.name,
            "intent_id": "intent-1",
            "idempotency_key": "key-1",
            "data": {},
            "config": {},
            "outputs": {},
            "state": {},
            "runtime": {"attempt": 0},
            "now_us": lambda: NOW_US,
            "random": lambda: 0.5,
            "dispatching": mark,
            "log": lines.append,
            "reach": lambda point: order.append(str(point)),
            "open_http": way_out.open,
            "document_params": params if written is None else written,
        }
        return Step(spec, params, Context(**{**values, **fields}), order, lines)

    return make


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """A provider that answers everything, until its script says otherwise."""
    async with Provider() as started:
        yield started
