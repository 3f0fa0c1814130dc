"""What is due, and when to look again: the loop that claims runs and hands them to runners.

Driven by due times, not by polling: this process is the only writer, so it knows the next due time
without asking the disk. Once a second it compares that time with the wall clock (which may have
jumped while the machine slept) and looks into the inbox; nothing is written while idle. The easy
mistake: a sleep as long as the wait; the clock that counts it stands still with the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from orch8_local.engine.commands import definition_of
from orch8_local.engine.guard import Guard
from orch8_local.engine.runner import Runner
from orch8_local.engine.shared import Shared
from orch8_local.engine.step import StepExecutor
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import StoreError
from orch8_local.store import instances, sequences
from orch8_local.store.instances import Loaded
from orch8_local.store.writer import Tx

log = logging.getLogger("orch8_local")

TICK_S = 1.0
"""The longest time between two looks at the wall clock and the inbox (product D11)."""


class Scheduler:
    """Claims due runs while there is room, and keeps their runners."""

    def __init__(self, shared: Shared, guard: Guard, *, on_stopped: Callable[[str], None]) -> None:
        self._shared = shared
        self._guard = guard
        self._steps = StepExecutor(shared, guard)
        self._on_stopped = on_stopped
        self._wake = asyncio.Event()
        self._next_due_us: int | None = 0
        self._documents: dict[str, str] = {}
        self.runners: dict[str, tuple[Runner, asyncio.Task[None]]] = {}
        self.fatal: BaseException | None = None

    def due(self, at_us: int) -> None:
        """Something becomes due at this time."""
        if self._next_due_us is None or at_us < self._next_due_us:
            self._next_due_us = at_us
            self._wake.set()

    def is_active(self, instance_id: str) -> bool:
        """True while this process executes the run."""
        return instance_id in self.runners

    def request_cancel(self, instance_id: str) -> None:
        """A cancel of a running run is on disk: its runner starts no further step."""
        found = self.runners.get(instance_id)
        if found is not None:
            found[0].is_cancel_requested = True

    def wake(self) -> None:
        """Look again now."""
        self._wake.set()

    async def loop(self, tick: Callable[[], object]) -> None:
        """Until cancelled or draining: claim what is due; call `tick` about once a second."""
        while not self._shared.is_draining:
            self._wake.clear()
            now_us = self._shared.now_us()
            free = self._shared.limits.max_concurrent - len(self.runners)
            if free > 0 and self._next_due_us is not None and self._next_due_us <= now_us:
                await self._claim(free)
                continue
            timeout_s = TICK_S
            if free > 0 and self._next_due_us is not None:
                timeout_s = min(TICK_S, (self._next_due_us - now_us) / 1_000_000)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                tick()

    async def _claim(self, limit: int) -> None:
        body = partial(self._claim_body, self._shared.now_us(), limit)
        loaded, documents, next_due_us = await self._shared.transact(body, Transaction.CLAIM)
        self._documents.update(documents)
        self._next_due_us = next_due_us
        for one in loaded:
            self._spawn(one)

    def _claim_body(self, now_us: int, limit: int, tx: Tx) -> tuple[list[Loaded], dict[str, str], int | None]:
        loaded = instances.claim(tx, boot_id=self._shared.boot_id, now_us=now_us, limit=limit)
        documents: dict[str, str] = {}
        for one in loaded:
            sha256 = one.instance.sequence_sha256
            if sha256 not in self._documents and sha256 not in documents:
                row = sequences.get(tx, sha256)
                assert row.document is not None, "a stored revision has its document"
                documents[sha256] = row.document
        next_due_us = now_us if len(loaded) >= limit else instances.next_due_us(tx, now_us=now_us)
        return loaded, documents, next_due_us

    def _spawn(self, loaded: Loaded) -> None:
        definition = definition_of(self._documents[loaded.instance.sequence_sha256])
        runner = Runner(self._shared, self._guard, self._steps, definition, loaded)
        instance_id = loaded.instance.id
        task = self._shared.world.nursery.start(runner.run(), name=f"run {instance_id}")
        self.runners[instance_id] = (runner, task)
        task.add_done_callback(partial(self._stopped, runner))

    def _stopped(self, runner: Runner, task: asyncio.Task[None]) -> None:
        instance_id = runner.instance.id
        self.runners.pop(instance_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            kind = "store_failed" if isinstance(error, StoreError) else "bug"
            log.error("run %s: %s", instance_id, error, extra={"action": kind}, exc_info=error)
            self.fatal = self.fatal or error
        if runner.parked_until_us is not None:
            self.due(runner.parked_until_us)
        self._wake.set()
        self._on_stopped(instance_id)
