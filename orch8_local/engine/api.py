"""The contract of all faces: one engine, in this process or behind the command inbox.

A face reads through `views` and changes things by `submit(Command)`. Both work the same whether
this process owns the database or another one does (product D7). The easy mistake: a face that
keeps what it read; every answer is a snapshot, and `changes_since` says when to look again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orch8_local.model.command import Command
from orch8_local.model.records import Event, Instance, Node, Output, Receipt

Json = Any


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One stored revision of a sequence."""

    sha256: str
    name: str
    version: int
    source: str
    is_deprecated: bool
    created_at_us: int
    document: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which runs to list. states: any of them, empty for all. before_seq: keyset paging."""

    states: Sequence[str] = ()
    sequence_name: str | None = None
    is_blocked: bool | None = None
    limit: int = 50
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class EffectFilter:
    """Which receipts to list, newest first."""

    is_unresolved: bool = False
    instance_id: str | None = None
    state: str | None = None
    kind: str | None = None
    limit: int = 200
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One run with all that belongs to it."""

    instance: Instance
    nodes: Sequence[Node]
    outputs: Sequence[Output]
    receipts: Sequence[Receipt]
    state: Mapping[str, Json]
    document: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unresolved queue in two numbers; counts dispatched receipts of dead processes too."""

    n_unresolved: int
    oldest_at_us: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the change feed: the seq of an event, and what it touched."""

    seq: int
    instance_id: str
    effect_id: str | None
    kind: str


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
        self, *, instance_id: str | None = None, effect_id: str | None = None, after_seq: int = 0, limit: int = 1000
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
