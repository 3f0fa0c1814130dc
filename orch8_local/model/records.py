"""Rows of the database as frozen values. Pure: no row knows how it is stored.

Times are integer microseconds UTC, JSON is Python values, ids are lower-case text. The easy
mistake: changing one in place; a changed row is a new value from the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orch8_local.model.ids import ScopePath, parse_scope
from orch8_local.model.outcome import EffectKind, Mode
from orch8_local.model.states import InstanceState, NodeState, ReceiptState

Json = Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run or a step stopped.

    kind: `effect_blocked` (an outcome is unknown), `step_failed`, `effect_compensated`,
    `crash_loop`, `not_built`, `engine_error`.
    """

    kind: str
    message: str
    block_id: str | None = None
    effect_ids: tuple[str, ...] = ()
    details: Mapping[str, Json] | None = None
    attempt: int | None = None

    @property
    def is_blocked(self) -> bool:
        """True if the run waits for a resolution (product D1)."""
        return self.kind == "effect_blocked"

    def as_dict(self) -> dict[str, Json]:
        """The JSON form that is stored and shown."""
        return {
            "kind": self.kind,
            "message": self.message,
            "block_id": self.block_id,
            "effect_ids": list(self.effect_ids),
            "details": dict(self.details) if self.details is not None else None,
            "attempt": self.attempt,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Json]) -> Failure:
        """The inverse of `as_dict`."""
        return cls(
            kind=value["kind"],
            message=value["message"],
            block_id=value.get("block_id"),
            effect_ids=tuple(value.get("effect_ids") or ()),
            details=value.get("details"),
            attempt=value.get("attempt"),
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """One run of a sequence."""

    id: str
    sequence_sha256: str
    sequence_name: str
    sequence_version: int
    state: InstanceState
    priority: int
    due_at_us: int | None
    boot_id: str | None
    claim_epoch: int
    n_recoveries: int
    n_steps: int
    data: Json
    config: Json
    run_id: str
    start_key: str | None
    failure: Failure | None
    paused_reason: str | None
    cancel_requested_at_us: int | None
    created_at_us: int
    started_at_us: int | None
    updated_at_us: int
    ended_at_us: int | None
    tenant_id: str = "local"
    namespace: str = "default"

    @property
    def is_blocked(self) -> bool:
        """Failed, waiting for the resolution of an effect (product D1)."""
        return self.state is InstanceState.FAILED and self.failure is not None and self.failure.is_blocked


NodeKey = tuple[str, str]
"""(scope text, block id): one block in one loop position of one run."""


@dataclass(frozen=True, slots=True)
class Node:
    """One block of one run, in one loop position.

    attempt: executions begun under the present run id. waiting_for: `retry`, `timer`, `effect` while
    the state is waiting. memo: what the block has decided and must not decide again.
    """

    scope: str
    block_id: str
    state: NodeState
    attempt: int = 0
    wake_at_us: int | None = None
    waiting_for: str | None = None
    memo: Json = None
    error: Json = None
    started_at_us: int | None = None
    ended_at_us: int | None = None

    @property
    def key(self) -> NodeKey:
        """The node's address inside its run."""
        return (self.scope, self.block_id)

    @property
    def scope_path(self) -> ScopePath:
        """The scope as a path."""
        return parse_scope(self.scope)


@dataclass(frozen=True, slots=True)
class Output:
    """One row of a block's outputs: a result, an error or a marker (execution-semantics 2.8)."""

    seq: int
    scope: str
    block_id: str
    kind: str
    attempt: int
    output: Json
    effect_id: str | None
    created_at_us: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline. Append-only and hash-chained; effects and runs share it.

    from_state, to_state: the receipt's, for an effect's move; the instance's, for a run's.
    """

    seq: int
    instance_id: str
    at_us: int
    kind: str
    actor: str
    scope: str = ""
    block_id: str | None = None
    effect_id: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    reason: str | None = None
    detail: Json = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The durable record of one attempt of one effect (effect-receipts 2.1, 2.4)."""

    seq: int
    id: str
    intent_id: str
    tenant_id: str
    continuity_id: str
    epoch: int
    instance_id: str
    block_id: str
    scope: str
    rerun: int
    attempt: int
    kind: EffectKind
    mode: Mode
    handler: str
    state: ReceiptState
    destination_fingerprint: str
    request_sha256: str
    idempotency_key: str | None
    sent_key: str | None
    provider_receipt_id: str | None
    method: str | None
    destination: str | None
    boot_id: str | None
    has_request_started: bool
    output: Json
    has_output: bool
    outcome_class: str | None
    reason: str | None
    version: int
    created_at_us: int
    updated_at_us: int
    dispatched_at_us: int | None

    def as_wire(self, *, now_us: int) -> dict[str, Json]:
        """The shape of 2.2 plus the local facts of product.md section 3."""
        return {
            "id": self.id,
            "tenant_id": self.tenant_id,
            "continuity_id": self.continuity_id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "block_id": self.block_id,
            "kind": str(self.kind),
            "state": str(self.state),
            "destination_fingerprint": self.destination_fingerprint,
            "idempotency_key": self.idempotency_key,
            "request_sha256": self.request_sha256,
            "provider_receipt_id": self.provider_receipt_id,
            "attempt": self.attempt,
            "created_at": rfc3339(self.created_at_us),
            "updated_at": rfc3339(self.updated_at_us),
            "intent_id": self.intent_id,
            "mode": str(self.mode),
            "scope": self.scope,
            "handler": self.handler,
            "outcome": self.outcome_class,
            "reason": self.reason,
            "age_s": max(0, (now_us - self.created_at_us) // 1_000_000),
            "sent_key": self.sent_key,
            "method": self.method,
            "destination": self.destination,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What somebody knows about an outcome (effect-receipts 11.2)."""

    kind: str
    note: str = ""
    reference: str | None = None
    looked_at: str | None = None
    searched_for: tuple[str, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Json]:
        """The JSON form that goes into the event; absent parts are left out."""
        parts: dict[str, Json] = {
            "kind": self.kind,
            "note": self.note,
            "reference": self.reference,
            "looked_at": self.looked_at,
            "searched_for": list(self.searched_for),
            **self.facts,
        }
        return {key: value for key, value in parts.items() if value not in (None, "", [])}


def rfc3339(at_us: int) -> str:
    """RFC 3339 with `Z` and six fraction digits; years beyond 9999 are shown as 9999."""
    days, rest_us = divmod(at_us, 86_400_000_000)
    year, month, day = _civil(days)
    seconds, micros = divmod(rest_us, 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    return (
        f"{min(year, 9999):04d}-{month:02d}-{day:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}Z"
    )


def _civil(days: int) -> tuple[int, int, int]:
    """Proleptic Gregorian date of a day count since 1970-01-01."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month, day
