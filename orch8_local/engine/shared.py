"""What the parts of one engine share: the world, the writer, the handlers, and what is in flight.

Owns the rule for a full disk: a transaction that was rolled back whole is tried again until there
is room, because giving up would lose an answer. The easy mistake: retrying anything else; only
DiskFull proves that nothing was written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from orch8_local.engine.api import StepProgress
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import DiskFull
from orch8_local.handlers.base import Context, HttpClient, Registry
from orch8_local.store.writer import Tx, WriterApi
from orch8_local.world import World

if TYPE_CHECKING:
    from orch8_local.engine.guard import Dispatch

log = logging.getLogger("orch8_local")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much at once, and how long.

    max_concurrent: runs executed at the same time. grace_s: how long a drain waits. settle_s: how
    long a request whose step has timed out is still listened to. max_recoveries: a run found
    running after this many crashes, without a finished step in between, is parked.
    max_output_bytes: a larger output is kept as its hash and its beginning.
    """

    max_concurrent: int = 200
    grace_s: float = 10.0
    settle_s: float = 60.0
    max_recoveries: int = 3
    max_output_bytes: int = 16 * 1024 * 1024
    first_disk_wait_s: float = 0.5
    longest_disk_wait_s: float = 5.0


@dataclass(slots=True)
class Shared:
    """One engine's common ground."""

    world: World
    writer: WriterApi
    registry: Registry
    boot_id: str
    epoch: int
    limits: EngineLimits
    open_http: Callable[[Context], HttpClient] | None = None
    live: dict[str, Dispatch] = field(default_factory=dict)
    progress: Callable[[StepProgress], None] = lambda _: None
    checked: set[str] = field(default_factory=set)
    """Hashes of documents that were found to be built whole."""
    is_draining: bool = False
    trouble: str | None = None

    def now_us(self) -> int:
        """The wall clock."""
        return self.world.clock.now_us()

    async def transact(self, fn: Callable[[Tx], T], name: Transaction) -> T:
        """Run one whole transaction; while the disk is full, wait and try again."""
        wait_s = self.limits.first_disk_wait_s
        while True:
            try:
                result = await self.writer.transact(fn, name=name)
            except DiskFull as error:
                if self.trouble is None:
                    self.trouble = str(error)
                    log.error("%s; waiting for space", error, extra={"action": "disk_full"})
                if self.is_draining:
                    raise
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, self.limits.longest_disk_wait_s)
            else:
                if self.trouble is not None:
                    self.trouble = None
                    log.warning("there is space again; going on", extra={"action": "disk_has_space"})
                return result
