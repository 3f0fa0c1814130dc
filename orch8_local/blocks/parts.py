"""The parts of a step and of a document (sequence-format 2.1, 5, 12): shapes only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from orch8_local.blocks.kinds import (
    AnyJson,
    Condition,
    Duration,
    Flag,
    JsonObject,
    ListOf,
    Number,
    OneOf,
    Shape,
    TemplateText,
    Text,
    Whole,
)
from orch8_local.blocks.shape import INVALID, Object, Place, part

Json = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Object):
    """When a failed step is executed again (5.1). Times in milliseconds."""

    max_attempts: int = part(Whole(1, 2**32 - 1, code="retry.attempts"))
    initial_backoff: int = part(Duration())
    max_backoff: int = part(Duration())
    backoff_multiplier: float = part(Number(above=0, code="retry.multiplier"), default=2.0)
    retry_if: str | None = part(Condition(blank="retry.condition_blank"), default=None)
    non_retryable_codes: tuple[str, ...] | None = part(ListOf(Text(blank="retry.code_blank")), default=None)
    jitter: float | None = part(Number(low=0, high=1), default=None)

    def check(self, place: Place) -> None:
        """The first wait is not longer than the longest."""
        if self.initial_backoff > self.max_backoff:
            message = f"'initial_backoff' ({self.initial_backoff}) is longer than 'max_backoff' ({self.max_backoff})"
            place.at("initial_backoff").fault("retry.backoff", message, suggestion="swap the two")


_LOCAL_TIME = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _LocalTime:
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
            message = f"{place.name!r} is no local time: {found!r}"
            place.fault("delay.time", message, suggestion="write it like 2026-03-01T09:30:00")
            return INVALID
        return found


@dataclass(frozen=True, slots=True)
class _Zone:
    def read(self, value: Json, place: Place) -> Any:
        """The name of a time zone."""
        found = Text(blank="delay.zone").read(value, place)
        if found is INVALID:
            return found
        try:
            ZoneInfo(found)
        except (KeyError, ValueError, OSError):
            message = f"there is no time zone {found!r}"
            place.fault("delay.zone", message, suggestion="write a name like Europe/Berlin or UTC")
            return INVALID
        return found


@dataclass(frozen=True, slots=True)
class _Day:
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
            place.fault("delay.holiday", f"{found!r} is no date", suggestion="write it like 2026-12-25")
            return INVALID
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Object):
    """A wait before the first attempt (5.2)."""

    duration: int = part(Duration())
    fire_at_local: str | None = part(_LocalTime(), default=None)
    timezone: str | None = part(_Zone(), default=None)
    business_days_only: bool = part(Flag(), default=False)
    holidays: tuple[str, ...] = part(ListOf(_Day()), default=())
    jitter: int | None = part(Duration(), default=None)

    def to_json(self) -> dict[str, Json]:
        """An empty list of holidays is left out."""
        written = Object.to_json(self)
        if not self.holidays:
            del written["holidays"]
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWindow(Object):
    """Only inside these hours (5.3)."""

    start_hour: int = part(Whole(0, 23, code="window.hour"), default=9)
    end_hour: int = part(Whole(0, 23, code="window.hour"), default=17)
    days: tuple[int, ...] = part(ListOf(Whole(0, 6, code="window.day")), default=())

    def check(self, place: Place) -> None:
        """A window has a length."""
        if self.start_hour == self.end_hour:
            message = f"'start_hour' and 'end_hour' are both {self.start_hour}"
            place.fault("window.empty", message, suggestion="for all day, leave 'send_window' out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Object):
    """One answer that a person may give."""

    label: str = part(Text())
    value: str = part(Text())


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForInput(Object):
    """A person must answer first (5.5)."""

    prompt: str = part(TemplateText(), default="")
    timeout: int | None = part(Duration(small=True), default=None)
    escalation_handler: str | None = part(Text(), default=None)
    choices: tuple[Choice, ...] | None = part(ListOf(Shape(Choice), low=1, code="input.choices"), default=None)
    store_as: str | None = part(Text(empty="input.store_as"), default=None)
    allow_comment: bool = part(Flag(), default=False)
    input_schema: dict[str, Json] | None = part(JsonObject(is_schema=True), default=None)

    def check(self, place: Place) -> None:
        """No two answers have the same value."""
        seen: set[str] = set()
        for index, choice in enumerate(self.choices or ()):
            if choice.value in seen:
                here = place.at("choices").at(index).at("value")
                here.fault("input.choice_twice", f"the value {choice.value!r} is given twice")
            seen.add(choice.value)


@dataclass(frozen=True, slots=True)
class _DataAccess:
    def read(self, value: Json, place: Place) -> Any:
        """true, false, "all", "none" or {"fields": […]}."""
        if isinstance(value, bool) or value in ("all", "none"):
            return value
        if isinstance(value, dict) and set(value) == {"fields"}:
            return {"fields": value["fields"]} if _are_texts(value["fields"], place) else INVALID
        place.wrong_type('true, false, "all", "none" or {"fields": […]}', value)
        return INVALID


def _are_texts(value: Json, place: Place) -> bool:
    return ListOf(Text()).read(value, place.at("fields")) is not INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAccess(Object):
    """Which sections of the context the step sees (5.6)."""

    data: Json = part(_DataAccess(), default=True)
    config: bool = part(Flag(), default=True)
    audit: bool = part(Flag(), default=False)
    runtime: bool = part(Flag(), default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineBreach(Object):
    """What is called when the deadline passes (5.4)."""

    handler: str = part(Text())
    params: Json = part(AnyJson(), default=None)

    WRITTEN_AS_NULL = frozenset({"params"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation(Object):
    """How this effect can be undone (5.10)."""

    handler: str = part(Text(blank="compensation.handler_blank"))
    params: Json = part(AnyJson(has_templates=True), default=None)
    depends_on: tuple[str, ...] = part(ListOf(Text(), high=256, code="compensation.too_many"), default=())
    verification: str = part(OneOf(("handler_result", "provider_receipt", "manual")), default="handler_result")

    WRITTEN_AS_NULL = frozenset({"params"})

    def check(self, place: Place) -> None:
        """No dependency twice."""
        for index, block_id in enumerate(self.depends_on):
            if block_id in self.depends_on[:index]:
                here = place.at("depends_on").at(index)
                here.fault("compensation.twice", f"{block_id!r} is named twice")

    def to_json(self) -> dict[str, Json]:
        """What is at its default is left out."""
        written = Object.to_json(self)
        if not self.depends_on:
            del written["depends_on"]
        if self.verification == "handler_result":
            del written["verification"]
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Object):
    """What may be done when the outcome of this action is unclear (effect-receipts 4.3)."""

    mode: str | None = part(OneOf(("at_most_once", "idempotent", "repeatable", "transactional")), default=None)
    key: str | None = part(TemplateText(blank="effect.key_blank"), default=None)
    key_header: str | None = part(Text(blank="effect.key_header_blank"), default=None)
    key_ttl: int | None = part(Duration(), default=None)
    verify: Json = part(AnyJson(has_templates=True), default=None)
    unique_key: str | None = part(TemplateText(blank="effect.key_blank"), default=None)
    settle: Json = part(AnyJson(), default=None)
    outcomes: Json = part(AnyJson(), default=None)

    def check(self, place: Place) -> None:
        """The header is one that HTTP can carry."""
        if self.key_header is not None and not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", self.key_header):
            message = f"{self.key_header!r} is no name of a header"
            place.at("key_header").fault("effect.key_header", message, suggestion="for example Idempotency-Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook(Object):
    """A trace point (2.1): its params are stored as a row, the handler is never called."""

    handler: str = part(Text())
    params: Json = part(AnyJson(), default=None)

    WRITTEN_AS_NULL = frozenset({"params"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Interceptors(Object):
    """Trace points of a document (2.1)."""

    before_step: Hook | None = part(Shape(Hook), default=None)
    after_step: Hook | None = part(Shape(Hook), default=None)
    on_signal: Hook | None = part(Shape(Hook), default=None)
    on_complete: Hook | None = part(Shape(Hook), default=None)
    on_failure: Hook | None = part(Shape(Hook), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla(Object):
    """Alert only (2): never changes a state."""

    max_runtime: int | None = part(Duration(), default=None)
    max_step_runtime: int | None = part(Duration(), default=None)
