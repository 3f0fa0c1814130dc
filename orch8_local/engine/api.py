"""The contract of all faces: one engine, in this process or behind the command inbox.

A face reads through `views` and changes things by `submit(Command)`. Both work the same whether
this process owns the database or another one does (product D7). The easy mistake: a face that
keeps what it read; every answer is a snapshot, and `changes_since` says when to look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orch8_local.model.command import Command
from orch8_local.model.reading import (
    Backlog,
    Change,
    EffectFilter,
    InstanceFilter,
    InstanceView,
    SequenceRow,
)
from orch8_local.model.records import Event, Instance, Receipt

Json = Any


class Views(Protocol):
    """Reads. Every call is one short read transaction; ids may be unique prefixes."""

    async def instances(self, which: InstanceFilter) -> list[Instance]: ...
    async def instance_counts(self) -> dict[str, int]: ...
    async def instance_id(self, prefix: str) -> str:
        """The full id; NotFound if none fits, InputError naming some if several do."""
        ...

    async def instance(self, instance_id: str) -> InstanceView: ...
    async def instance_by_key(self, start_key: str) -> Instance | None: ...
    async def events(
        self,
        *,
        instance_id: str | None = None,
        effect_id: str | None = None,
        after_seq: int = 0,
        limit: int = 1000,
    ) -> list[Event]: ...
    async def effects(self, which: EffectFilter) -> list[Receipt]: ...
    async def effect_id(self, prefix: str) -> str: ...
    async def effect(self, effect_id: str) -> Receipt: ...
    async def siblings(self, intent_id: str) -> list[Receipt]: ...
    async def backlog(self) -> Backlog: ...
    async def sequences(self, *, name: str | None = None) -> list[SequenceRow]: ...
    async def sequence(self, sha256: str) -> SequenceRow: ...
    async def command_result(self, command_id: str) -> tuple[str, Json] | None:
        """(status, result) of an applied command, or None while it waits."""
        ...

    async def last_seq(self) -> int: ...
    async def changes_since(self, seq: int, limit: int = 1000) -> list[Change]: ...
    async def close(self) -> None: ...


class EngineApi(Protocol):
    """What a face may do."""

    @property
    def is_owner(self) -> bool:
        """True if this process holds the lease."""
        ...

    @property
    def views(self) -> Views: ...

    async def submit(self, command: Command) -> Mapping[str, Json]:
        """Apply one command and return its result; raises the error that refused it."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StepProgress:
    """What a live display is told while steps run in this process.

    phase: started, dispatched, ended, retry, blocked, waiting.
    """

    instance_id: str
    scope: str
    block_id: str
    phase: str
    attempt: int = 0
    handler: str = ""
    mode: str = ""
    message: str = ""
    until_us: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


__all__ = [
    "Backlog",
    "Change",
    "Command",
    "EffectFilter",
    "EngineApi",
    "InstanceFilter",
    "InstanceView",
    "SequenceRow",
    "StepProgress",
    "Views",
]
