"""The parts of a step and of a document (sequence-format 2.1, 5, 12): shapes only. Times in milliseconds.

The easy mistake: guessing what an unreadable time, zone or date means. It is refused: a step that is
sent at once is the worst reading of a slip.
"""

from __future__ import annotations

import difflib
import re
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from orch8_local.blocks.kinds import (
    AnyJson,
    Condition,
    Duration,
    Flag,
    HandlerName,
    ListOf,
    Number,
    OneOf,
    Shape,
    TemplateText,
    Text,
    Whole,
)
from orch8_local.blocks.schemas import JsonSchema
from orch8_local.blocks.shape import INVALID, Kind, Object, Place, part, shown

Json = Any


class Retry(Object):
    """When a failed step is executed again (5.1)."""

    max_attempts: int = part(Whole(1, 2**32 - 1, code="retry.attempts"))
    initial_backoff: int = part(Duration())
    max_backoff: int = part(Duration())
    backoff_multiplier: float = part(Number("a number above 0", above=0, code="retry.multiplier"), default=2.0)
    retry_if: str | None = part(Condition(blank="retry.condition_blank"), default=None)
    non_retryable_codes: tuple[str, ...] | None = part(ListOf(Text(blank="retry.code_blank")), default=None)
    jitter: float | None = part(Number("a number from 0 to 1", low=0, high=1), default=None)

    def check(self, place: Place) -> None:
        """The first wait is not longer than the longest."""
        if self.initial_backoff > self.max_backoff:
            message = f"{self.initial_backoff} is longer than 'max_backoff' ({self.max_backoff})"
            place.at("initial_backoff").fault("retry.backoff", message, suggestion="swap the two")


_LOCAL_TIME = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})", re.ASCII)


class _LocalTime(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """A wall-clock time without zone."""
        found = Text().read(value, place)
        if found is INVALID:
            return found
        parts = _LOCAL_TIME.fullmatch(found)
        try:
            if parts is None:
                raise ValueError
            datetime(*(int(number) for number in parts.groups()))  # type: ignore[arg-type]
        except ValueError:
            _unreadable(place, "delay.time", "a local time", found, "2026-03-01T09:30:00")
        return found


class _Zone(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """The name of a time zone."""
        found = Text().read(value, place)
        if found is INVALID or place.reading.is_stored:
            return found
        try:
            ZoneInfo(found)
        except (KeyError, ValueError, OSError):
            near = difflib.get_close_matches(found, sorted(available_timezones()), n=1)
            _unreadable(place, "delay.zone", "the name of a time zone", found, near[0] if near else "Europe/Berlin")
        return found


class _Day(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """A date."""
        found = Text().read(value, place)
        if found is INVALID:
            return found
        try:
            if len(found) != 10:
                raise ValueError
            date.fromisoformat(found)
        except ValueError:
            _unreadable(place, "delay.holiday", "a date", found, "2026-12-25")
        return found


def _unreadable(place: Place, code: str, expected: str, found: str, example: str) -> None:
    """A server takes the text and ignores it; here it is refused."""
    message = f"expected {expected}, got {shown(found)}"
    place.fault(code, message, expected=expected, suggestion=f"write it like {example}", is_local=True)


class Delay(Object):
    """A wait before the first attempt (5.2)."""

    duration: int = part(Duration())
    fire_at_local: str | None = part(_LocalTime(), default=None)
    timezone: str | None = part(_Zone(), default=None)
    business_days_only: bool = part(Flag(), default=False)
    holidays: tuple[str, ...] = part(ListOf(_Day()), default=())
    jitter: int | None = part(Duration(), default=None)

    UNWRITTEN_EMPTY = frozenset({"holidays"})


class SendWindow(Object):
    """Only inside these hours (5.3)."""

    start_hour: int = part(Whole(0, 23, code="window.hour"), default=9)
    end_hour: int = part(Whole(0, 23, code="window.hour"), default=17)
    days: tuple[int, ...] = part(ListOf(Whole(0, 6, code="window.day")), default=())

    def check(self, place: Place) -> None:
        """A window has a length."""
        if self.start_hour == self.end_hour:
            message = f"the window begins and ends at {self.start_hour}"
            place.at("end_hour").fault("window.empty", message, suggestion="for all day, leave 'send_window' out")


class Choice(Object):
    """One answer that a person may give."""

    label: str = part(TemplateText())
    value: str = part(Text())


class WaitForInput(Object):
    """A person must answer first (5.5)."""

    prompt: str = part(TemplateText(), default="")
    timeout: int | None = part(Duration(is_long=True), default=None)
    escalation_handler: str | None = part(HandlerName(), default=None)
    choices: tuple[Choice, ...] | None = part(ListOf(Shape(Choice), low=1, code="input.choices"), default=None)
    store_as: str | None = part(Text(empty="input.store_as"), default=None)
    allow_comment: bool = part(Flag(), default=False)
    input_schema: dict[str, Json] | None = part(JsonSchema(), default=None)

    def check(self, place: Place) -> None:
        """No two answers have the same value."""
        seen: set[str] = set()
        for index, choice in enumerate(self.choices or ()):
            if choice.value in seen:
                here = place.at("choices").at(index).at("value")
                here.fault("input.choice_twice", f"{choice.value!r} is the value of two choices")
            seen.add(choice.value)


class _DataAccess(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """true, false, "all", "none" or {"fields": […]}."""
        if isinstance(value, bool) or value in ("all", "none"):
            return value
        if isinstance(value, dict) and set(value) == {"fields"}:
            fields = ListOf(Text()).read(value["fields"], place.at("fields"))
            return INVALID if fields is INVALID else value
        place.unexpected('true, false, "all", "none" or {"fields": […]}', value)
        return INVALID


class ContextAccess(Object):
    """Which sections of the context the step sees (5.6)."""

    data: Json = part(_DataAccess(), default=True)
    config: bool = part(Flag(), default=True)
    audit: bool = part(Flag(), default=False)
    runtime: bool = part(Flag(), default=False)


class DeadlineBreach(Object):
    """What is called when the deadline passes (5.4)."""

    handler: str = part(HandlerName())
    params: Json = part(AnyJson(has_templates=True), default=None)

    WRITTEN_AS_NULL = frozenset({"params"})

    def check(self, place: Place) -> None:
        """Somebody is called."""
        if not self.handler.strip():
            place.at("handler").doubt("step.deadline_handler", "an empty name calls nobody")


class Compensation(Object):
    """How this effect can be undone (5.10)."""

    handler: str = part(HandlerName(blank="compensation.handler_blank"))
    params: Json = part(AnyJson(has_templates=True), default=None)
    depends_on: tuple[str, ...] = part(ListOf(Text(), high=256, code="compensation.too_many"), default=())
    verification: str = part(OneOf(("handler_result", "provider_receipt", "manual")), default="handler_result")

    WRITTEN_AS_NULL = frozenset({"params"})
    UNWRITTEN_EMPTY = frozenset({"depends_on"})

    def check(self, place: Place) -> None:
        """No dependency twice."""
        for index, block_id in enumerate(self.depends_on):
            if block_id in self.depends_on[:index]:
                here = place.at("depends_on").at(index)
                here.fault("compensation.twice", f"{block_id!r} is named twice")


class Verify(Object):
    """A read-only question that tells what became of an effect (effect-receipts 11.5)."""

    handler: str = part(HandlerName(blank="effect.verify_handler"))
    params: Json = part(AnyJson(has_templates=True), default=None)
    found_if: str | None = part(Condition(blank="effect.verify_condition"), default=None)
    absent_if: str | None = part(Condition(blank="effect.verify_condition"), default=None)
    output: Json = part(AnyJson(has_templates=True), default=None)
    settle_after: int | None = part(Duration(is_long=True), default=None)
    checks: int | None = part(Whole(1, 1000), default=None)

    def check(self, place: Place) -> None:
        """The answer means something."""
        if self.found_if is None and self.absent_if is None:
            hint = 'write "found_if", a condition on the answer'
            place.doubt("effect.verify_mute", "no answer of this probe can settle anything", hint)


OUTCOMES = ("confirmed", "rejected", "throttled", "conflict", "ambiguous")


class _Outcomes(Kind):
    def read(self, value: Json, place: Place) -> Any:
        """From an HTTP status, as text, to what such an answer proves (effect-receipts 8)."""
        if not isinstance(value, dict):
            place.unexpected("an object from status to outcome", value)
            return INVALID
        is_valid = True
        for status, outcome in value.items():
            if re.fullmatch("[1-5][0-9]{2}", status) is None:
                message = f"{shown(status)} is no HTTP status"
                place.at(status).fault("effect.status", message, suggestion='write it like "409"', is_key=True)
                is_valid = False
            is_valid &= OneOf(OUTCOMES).read(outcome, place.at(status)) is not INVALID
        return value if is_valid else INVALID


class Effect(Object):
    """What may be done when the outcome of this action is unclear (effect-receipts 4.3)."""

    mode: str | None = part(OneOf(("at_most_once", "idempotent", "repeatable", "transactional")), default=None)
    key: str | None = part(TemplateText(blank="effect.key_blank"), default=None)
    key_header: str | None = part(Text(blank="effect.key_header"), default=None)
    key_ttl: int | None = part(Duration(is_long=True), default=None)
    verify: Verify | None = part(Shape(Verify), default=None)
    unique_key: str | None = part(TemplateText(blank="effect.key_blank"), default=None)
    settle: int | None = part(Duration(is_long=True), default=None)
    outcomes: dict[str, str] | None = part(_Outcomes(), default=None)

    def check(self, place: Place) -> None:
        """A key that is sent for sure, under a name that HTTP can carry."""
        if self.key_header is not None and not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", self.key_header):
            message = f"{shown(self.key_header)} is no name of a header"
            place.at("key_header").fault("effect.key_header", message, suggestion="for example Idempotency-Key")
        if self.mode == "idempotent" and self.key is None:
            message = "an effect that is declared idempotent needs a key that is sent with it"
            place.fault("effect.key_missing", message, suggestion='add "key", or take "mode" out')


class Hook(Object):
    """A trace point (2.1): its params are stored as a row, the handler is never called."""

    handler: str = part(Text())
    params: Json = part(AnyJson(), default=None)

    WRITTEN_AS_NULL = frozenset({"params"})


class Interceptors(Object):
    """Trace points of a document (2.1)."""

    before_step: Hook | None = part(Shape(Hook), default=None)
    after_step: Hook | None = part(Shape(Hook), default=None)
    on_signal: Hook | None = part(Shape(Hook), default=None)
    on_complete: Hook | None = part(Shape(Hook), default=None)
    on_failure: Hook | None = part(Shape(Hook), default=None)


class Sla(Object):
    """Alert only (2): never changes a state."""

    max_runtime: int | None = part(Duration(), default=None)
    max_step_runtime: int | None = part(Duration(), default=None)
