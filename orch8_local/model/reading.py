"""What faces ask for and get: filters and read models, as frozen values. Pure.

The easy mistake: keeping one; each is a snapshot of one short read transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orch8_local.model.records import Instance, Node, Output, Receipt

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
