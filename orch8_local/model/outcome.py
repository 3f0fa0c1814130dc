"""What an answer proves (effect-receipts section 8), and what a handler gives back. Pure.

Owns the class table. The easy mistake: calling an answer a failure because it is not a success.
Only `not_sent`, `throttled` and `rejected` prove that nothing happened; everything else that is not
`confirmed` is ambiguous, and an ambiguous outcome is never retried by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Any


class OutcomeClass(StrEnum):
    """What is known after one call."""

    CONFIRMED = "confirmed"
    CONFIRMED_PARTIAL = "confirmed_partial"
    NOT_SENT = "not_sent"
    REJECTED = "rejected"
    THROTTLED = "throttled"
    CONFLICT = "conflict"
    AMBIGUOUS = "ambiguous"


class Mode(StrEnum):
    """What may be done when the outcome of an effect is unclear (4.3)."""

    AT_MOST_ONCE = "at_most_once"
    IDEMPOTENT = "idempotent"
    REPEATABLE = "repeatable"
    TRANSACTIONAL = "transactional"
    NONE = "none"


class EffectKind(StrEnum):
    """What sort of system the effect acts on (2.1)."""

    HTTP = "http"
    WORKER = "worker"
    WEBHOOK = "webhook"
    MESSAGE = "message"
    STORAGE = "storage"
    MODEL = "model"
    HUMAN_DECISION = "human_decision"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class SetState:
    """Set one key of the run's key-value state."""

    key: str
    value: Json


@dataclass(frozen=True, slots=True)
class DeleteState:
    """Remove one key of the run's key-value state."""

    key: str


Change = SetState | DeleteState
"""A change to the database that a handler asks for; committed with the step's end or not at all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one handler call.

    retryable: the handler permits a retry (the step's policy still decides). retry_after_s: no
    earlier than this. wait_s: not an end: call it finished after this many seconds (a timer).
    rule: one sentence on why the class was chosen, for people.
    """

    outcome_class: OutcomeClass
    output: Json = None
    message: str = ""
    details: Mapping[str, Json] | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    wait_s: float | None = None
    rule: str = ""
    provider_receipt_id: str | None = None
    changes: tuple[Change, ...] = ()
    evidence: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        """True if the action is known to have happened."""
        return self.outcome_class in (OutcomeClass.CONFIRMED, OutcomeClass.CONFIRMED_PARTIAL)

    @property
    def is_nothing_happened(self) -> bool:
        """True if it is proved that nothing happened."""
        return self.outcome_class in (OutcomeClass.NOT_SENT, OutcomeClass.REJECTED, OutcomeClass.THROTTLED)

    @classmethod
    def ok(cls, output: Json = None, *, changes: tuple[Change, ...] = ()) -> Outcome:
        """Done."""
        return cls(OutcomeClass.CONFIRMED, output=output, changes=changes)

    @classmethod
    def failed(
        cls, message: str, *, retryable: bool = False, details: Mapping[str, Json] | None = None
    ) -> Outcome:
        """Nothing happened, with the reason. `retryable` leaves the rest to the step's policy."""
        return cls(OutcomeClass.REJECTED, message=message, retryable=retryable, details=details)

    @classmethod
    def not_sent(cls, message: str, *, details: Mapping[str, Json] | None = None, rule: str = "") -> Outcome:
        """Nothing left this process: always safe to retry."""
        return cls(OutcomeClass.NOT_SENT, message=message, retryable=True, details=details, rule=rule)

    @classmethod
    def ambiguous(cls, message: str, *, details: Mapping[str, Json] | None = None, rule: str = "") -> Outcome:
        """It may have happened."""
        return cls(OutcomeClass.AMBIGUOUS, message=message, details=details, rule=rule)


REJECTED_STATUSES = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 416, 417, 421, 422, 426, 428, 431, 451}
)
THROTTLED_STATUSES = frozenset({429, 503})
CONFLICT_STATUSES = frozenset({409, 425})


def classify_status(
    status: int, *, has_key: bool = True, is_body_complete: bool = True, has_commit_guard: bool = False
) -> tuple[OutcomeClass, str]:
    """The class of an HTTP answer whose status line arrived, and the rule in words (8, product D3)."""
    if 200 <= status < 300:
        if is_body_complete:
            return OutcomeClass.CONFIRMED, f"status {status} with the whole body confirms it"
        return OutcomeClass.CONFIRMED_PARTIAL, f"status {status} confirms it, although the body was cut short"
    if status in REJECTED_STATUSES:
        return OutcomeClass.REJECTED, f"status {status} says the request was refused"
    if status in THROTTLED_STATUSES and not has_commit_guard:
        return OutcomeClass.THROTTLED, f"status {status} says not now: nothing happened"
    if status in CONFLICT_STATUSES or (status == 412 and has_key):
        return OutcomeClass.CONFLICT, f"status {status} may mean that an earlier request is still running"
    if status == 412:
        return OutcomeClass.REJECTED, "status 412 without a key says a precondition was not met"
    return OutcomeClass.AMBIGUOUS, f"status {status} does not say whether the request was carried out"


class Settlement(StrEnum):
    """What the ledger does with an outcome."""

    COMMIT = "commit"
    ABANDON = "abandon"
    UNKNOWN = "unknown"


def settle(outcome: Outcome, *, is_dispatched: bool) -> Settlement:
    """The one place that turns an outcome into a ledger move.

    Before the dispatch nothing can have happened, whatever the handler says: abandoned, unless the
    handler claims success, which then commits (its receipt is dispatched first by the guard).
    """
    if outcome.is_success:
        return Settlement.COMMIT
    if not is_dispatched or outcome.is_nothing_happened:
        return Settlement.ABANDON
    return Settlement.UNKNOWN
