"""The engine in this process: it holds the lease, sweeps, schedules, and answers faces.

Owns life and death: open (lease, checks, boot sweep), start (the loops), drain, close. The easy
mistake: starting the loops before the sweep has settled what an earlier process left under way;
`open` sweeps before it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from orch8_local import inbox
from orch8_local.engine import commands, resolution
from orch8_local.engine.api import Command, StepProgress, Views
from orch8_local.engine.guard import Dispatch, Guard
from orch8_local.engine.handles import Opening, Runs, Sequences
from orch8_local.engine.recovery import SweepReport, boot_sweep
from orch8_local.engine.scheduler import Scheduler
from orch8_local.engine.shared import EngineLimits, Shared
from orch8_local.engine.transactions import Transaction
from orch8_local.errors import Bug, CommitUnknown, InputError, Orch8Error, StoreError
from orch8_local.handlers.base import Context, HttpClient, Registry, spec_of
from orch8_local.model.outcome import Outcome
from orch8_local.model.records import Instance
from orch8_local.model.states import ENDED_INSTANCES, InstanceState
from orch8_local.store import commands as stored_commands
from orch8_local.store import instances, receipts
from orch8_local.store.database import Database
from orch8_local.store.writer import Tx, WriterApi
from orch8_local.world import CrashPoint, World, real_world

Json = Any
log = logging.getLogger("orch8_local")


class Engine:
    """`EngineApi` for the owner of the database."""

    is_owner = True

    def __init__(
        self,
        writer: WriterApi,
        registry: Registry,
        *,
        boot_id: str,
        world: World,
        limits: EngineLimits,
        open_http: Callable[[Context], HttpClient] | None = None,
        database: Database | None = None,
        views: Views | None = None,
        inbox_folder: Path | None = None,
    ) -> None:
        self._shared = Shared(world, writer, registry, boot_id, 0, limits, open_http=open_http)
        self._shared.progress = self._tell
        self._guard = Guard(self._shared, on_late_answer=self._late_answer)
        self._scheduler = Scheduler(self._shared, self._guard, on_stopped=self._stopped)
        self._database = database
        self._views = views
        self._inbox = inbox_folder
        self._callbacks: dict[int, Callable[[StepProgress], None]] = {}
        self._changed = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._inbox_task: asyncio.Task[None] | None = None
        self.sweep_report = SweepReport()

    # --- life ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        handlers: Iterable[Any] = (),
        registry: Registry | None = None,
        limits: EngineLimits | None = None,
        world: World | None = None,
        open_http: Callable[[Context], HttpClient] | None = None,
        allow_any_filesystem: bool = False,
    ) -> Opening:
        """Take the lease, open and check the database, settle what an earlier process left.

        `async with Engine.open(…) as engine` works at once and drains at the end; `await Engine.open(…)`
        gives an engine that executes nothing before `start`. handlers: functions declared with
        `@handler`, beside the built-in ones. Raises OwnedElsewhere, SchemaNewer, Unsuitable, Corrupt,
        ReadOnly.
        """
        return Opening(
            cls._open(
                Path(path),
                world or real_world(),
                handlers=tuple(handlers),
                registry=registry,
                limits=limits or EngineLimits(),
                open_http=open_http or _open_http,
                allow_any_filesystem=allow_any_filesystem,
            )
        )

    @classmethod
    async def _open(
        cls,
        path: Path,
        world: World,
        *,
        handlers: Iterable[Any],
        registry: Registry | None,
        limits: EngineLimits,
        open_http: Callable[[Context], HttpClient],
        allow_any_filesystem: bool,
    ) -> Engine:
        if registry is None:
            from orch8_local.handlers.builtins import builtin_specs

            registry = Registry(builtin_specs())
        for function in handlers:
            registry.add(spec_of(function))
        database = await Database.open(path, world, allow_any_filesystem=allow_any_filesystem)
        try:
            engine = cls(
                database.writer,
                registry,
                boot_id=database.boot_id,
                world=world,
                limits=limits,
                open_http=open_http,
                database=database,
                views=await database.open_views(),
                inbox_folder=inbox.inbox_folder(database.path),
            )
            await engine.sweep()
        except BaseException:
            await database.close()
            raise
        return engine

    async def sweep(self) -> SweepReport:
        """The boot sweep, in one transaction."""
        limit = self._shared.limits.max_recoveries

        def body(tx: Tx) -> SweepReport:
            self._shared.epoch = receipts.epoch(tx)
            return boot_sweep(tx, now_us=self._shared.now_us(), max_recoveries=limit)

        self.sweep_report = await self._shared.transact(body, Transaction.SWEEP)
        self._shared.world.crash.reach(CrashPoint.AFTER_SWEEP)
        if not self.sweep_report.is_empty:
            log.warning("%s", self.sweep_report.as_line(), extra={"action": "recovered"})
        return self.sweep_report

    async def start(self) -> SweepReport:
        """Start executing: claims due runs and takes commands from the inbox, until `drain`."""
        if self._loop_task is None:
            nursery = self._shared.world.nursery
            self._loop_task = nursery.start(self._scheduler.loop(self._tick), name="scheduler")
            self._loop_task.add_done_callback(self._loop_ended)
            self._tick()
        return self.sweep_report

    async def drain(self, grace_s: float | None = None) -> None:
        """Start nothing new; let steps in flight end within `grace_s`, then settle them as they stand."""
        self._shared.is_draining = True
        self._scheduler.wake()
        if self._loop_task is not None:  # a claim under way is finished, so that what it took is given back
            await asyncio.wait({self._loop_task})
        tasks = [task for _, task in self._scheduler.runners.values()]
        if tasks:
            limit = self._shared.limits.grace_s if grace_s is None else grace_s
            await asyncio.wait(tasks, timeout=max(limit, 0))
            self._guard.stop_waiting()
            await asyncio.wait(tasks, timeout=2.0)

    def stop_waiting(self) -> None:
        """A second request to stop: settle every step in flight now, as what is known of it."""
        self._shared.is_draining = True
        self._guard.stop_waiting()

    async def close(self) -> None:
        """Stop, release what is left, and give the lease back."""
        await self.drain(0)
        await self._shared.world.nursery.cancel_all()
        if self._views is not None:
            await self._views.close()
        if self._database is not None:
            await self._database.close()

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()
        await self.close()

    # --- what faces use ------------------------------------------------------------------------

    @property
    def views(self) -> Views:
        """Reads."""
        assert self._views is not None, "this engine was made without views"
        return self._views

    @property
    def sequences(self) -> Sequences:
        """Documents to add."""
        return Sequences(self, self._shared.world.ids.token)

    @property
    def runs(self) -> Runs:
        """Runs to start."""
        return Runs(self, self._shared.world.ids.token)

    @property
    def registry(self) -> Registry:
        """The handlers."""
        return self._shared.registry

    @property
    def n_active(self) -> int:
        """How many runs are executed right now."""
        return len(self._scheduler.runners)

    @property
    def trouble(self) -> str | None:
        """What keeps the engine from writing at the moment, if anything."""
        return self._shared.trouble

    def subscribe(self, callback: Callable[[StepProgress], None]) -> Callable[[], None]:
        """Be told while steps run; returns the function that ends it."""
        key = max(self._callbacks, default=0) + 1
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    async def submit(self, command: Command) -> Mapping[str, Json]:
        """Apply a command; it is on disk when this returns."""
        apply, name = commands.prepare(command, self._shared)
        result = await self._shared.transact(apply, name)
        self._applied(command, result)
        return result

    def check(self) -> None:
        """Raise what has broken the engine, if anything has: a lost disk, a bug."""
        if self._scheduler.fatal is not None:
            raise self._scheduler.fatal

    async def wait_until_stopped(self, instance_id: str) -> Instance:
        """Until the run has ended, is blocked or parked, and no late answer can move it on."""
        while True:
            self._changed.clear()
            self.check()
            if not self._scheduler.is_active(instance_id) and not self._guard.is_listening(instance_id):
                instance = await self._instance(instance_id)
                if instance.state in ENDED_INSTANCES or instance.state is InstanceState.PAUSED:
                    return instance
                if self._shared.is_draining:
                    return instance
            await self._changed.wait()

    def is_listening(self, instance_id: str) -> bool:
        """True while a request of this run is still listened to, although its step has stopped waiting."""
        return self._guard.is_listening(instance_id)

    # --- inside --------------------------------------------------------------------------------

    async def _instance(self, instance_id: str) -> Instance:
        def body(tx: Tx) -> Instance:
            return instances.get(tx, instance_id)

        return await self._shared.writer.transact(body, name="read")

    def _applied(self, command: Command, result: Mapping[str, Json]) -> None:
        if command.kind == "cancel" and result.get("state") == "running":
            self._scheduler.request_cancel(str(result["instance_id"]))
        if command.kind == "resolve":
            self._shared.world.crash.reach(CrashPoint.AFTER_RESOLUTION)
        self._scheduler.due(self._shared.now_us())
        self._changed.set()

    async def _late_answer(self, dispatch: Dispatch, outcome: Outcome) -> None:
        receipt = dispatch.receipt

        def body(tx: Tx) -> InstanceState | None:
            allowed = commands.attempts_allowed(tx, receipt.instance_id, receipt.block_id)
            return resolution.late_answer(tx, receipt.id, outcome, max_attempts=allowed, now_us=self._shared.now_us())

        state = await self._shared.transact(body, Transaction.LATE_ANSWER)
        log.info(
            "a late answer for effect %s: %s",
            receipt.id,
            outcome.outcome_class,
            extra={"action": "late_answer"},
        )
        if state is InstanceState.SCHEDULED:
            self._scheduler.due(self._shared.now_us())
        self._tell(StepProgress(receipt.instance_id, receipt.scope, receipt.block_id, "late_answer"))

    def _tell(self, progress: StepProgress) -> None:
        for callback in list(self._callbacks.values()):
            callback(progress)

    def _stopped(self, instance_id: str) -> None:
        del instance_id
        self._changed.set()

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._scheduler.fatal = self._scheduler.fatal or error
        self._changed.set()

    def _tick(self) -> None:
        """About once a second: take the commands that lie in the inbox."""
        self._changed.set()
        if self._inbox is None or (self._inbox_task is not None and not self._inbox_task.done()):
            return
        if inbox.list_commands(self._inbox):
            self._inbox_task = self._shared.world.nursery.start(self.take_commands(), name="inbox")

    async def take_commands(self) -> int:
        """Apply every command file in the inbox, each once; returns how many."""
        assert self._inbox is not None
        paths = inbox.list_commands(self._inbox)
        for path in paths:
            try:
                command = inbox.read_command(path)
            except InputError as error:
                log.warning("%s: %s", path.name, error, extra={"action": "command_refused"})
                inbox.refuse_command(path, str(error))
                continue
            await self._take(command)
            self._shared.world.crash.reach(CrashPoint.COMMAND_APPLIED)
            inbox.remove_command(path)
        return len(paths)

    async def _take(self, command: Command) -> None:
        """Apply one command and record its result under its id, in one transaction."""
        try:
            apply, name = commands.prepare(command, self._shared)
            result = await self._shared.transact(partial(self._once, command, apply), name)
        except (StoreError, Bug, CommitUnknown):
            raise
        except Orch8Error as error:
            refusal = {
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "details": error.details,
            }
            body = partial(self._refuse, command, {"error": refusal})
            await self._shared.transact(body, Transaction.COMMAND_REFUSED)
        else:
            if result is not None:
                self._applied(command, result)

    def _once(self, command: Command, apply: commands.Apply, tx: Tx) -> dict[str, Json] | None:
        if stored_commands.seen(tx, command.id) is not None:
            return None
        result = apply(tx)
        stored_commands.record(tx, command, status="done", result=result, now_us=self._shared.now_us())
        return result

    def _refuse(self, command: Command, result: dict[str, Json], tx: Tx) -> None:
        if stored_commands.seen(tx, command.id) is None:
            stored_commands.record(tx, command, status="refused", result=result, now_us=self._shared.now_us())


def _open_http(context: Context) -> HttpClient:
    """The guarded client, loaded when the first handler asks for the network."""
    from orch8_local.handlers.egress import open_http

    return open_http(context)
