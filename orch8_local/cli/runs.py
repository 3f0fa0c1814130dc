"""`orch8-local run` and `orch8-local up`: executing, here or by asking the engine that runs already.

Owns what happens around one run: its input, the engine for its duration, the live display, being
told to stop, the last line and the exit status. The easy mistake: making the database before the
document and the input are known to be right; bad input changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.asking import actor_name
from orch8_local.cli.completion import complete_sequences
from orch8_local.cli.invocation import Invocation, common_options, database_options
from orch8_local.errors import InputError, NotBuilt

if TYPE_CHECKING:
    from orch8_local.cli.follow import Following, Wait
    from orch8_local.cli.live import Display
    from orch8_local.cli.printer import Printer
    from orch8_local.cli.signals import Stop
    from orch8_local.engine.api import Command, EngineApi
    from orch8_local.engine.engine import Engine
    from orch8_local.settings import Settings
    from orch8_local.world import World

Json = Any


@click.command()
@click.argument("sequence", metavar="SEQUENCE", shell_complete=complete_sequences)
@click.option("--input", "data", metavar="JSON|@FILE|-", help="The run's data; - reads standard input.")
@click.option("--config-data", "config", metavar="JSON|@FILE", help="The run's config.")
@click.option(
    "--set",
    "places",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set one value of the data, or with `config.PATH` of the config: JSON if it parses, else text.",
)
@click.option("--key", metavar="KEY", help="A second start with the same key follows the first.")
@click.option("--detach", is_flag=True, help="Start it and do not wait.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Follow no longer.")
@click.option("--no-wait", is_flag=True, help="Leave when the run waits for a time; exit status 4.")
@click.option("--dry-run", is_flag=True, hidden=True)
@click.option("--mock", metavar="BLOCK=JSON", multiple=True, hidden=True)
@common_options
def run(invocation: Invocation, sequence: str, **options: Any) -> int:
    """Run one sequence to its end.

    SEQUENCE is a file, or the name (`name`, `name@3`) of one of this project, an added or a bundled one.
    If an engine runs for this database already, the run is handed to it and followed.
    """
    for name in ("dry_run", "mock"):
        if options[name]:
            raise NotBuilt(f"--{name.replace('_', '-')} is not built in this version")
    if options["key"] is not None and not options["key"].strip():
        raise InputError("--key is empty", hint="leave it out, or give the name of the business action")
    return asyncio.run(_run(invocation, sequence, options))


async def _run(invocation: Invocation, sequence: str, options: Mapping[str, Any]) -> int:
    from orch8_local.app import Need, connect
    from orch8_local.cli.follow import Wait
    from orch8_local.cli.source import find_source
    from orch8_local.engine.api import Command
    from orch8_local.sequence.document import parse
    from orch8_local.world import real_world

    settings = invocation.settings()
    invocation.start_logging()
    source = await find_source(settings, sequence)
    parse(source.text, source=source.name)  # bad input changes nothing: not even a new database is made
    data, config = _input(options)
    world = real_world()
    arguments = {
        "document": source.text,
        "name": None,
        "version": None,
        "source": source.name,
        "data": data,
        "config": config,
        "key": options["key"],
        "priority": None,
    }
    command = Command(world.ids.token(), "start", arguments, actor=actor_name(None))
    need = Need.START if options["detach"] else Need.RUN
    async with connect(settings, need=need, world=world, say=invocation.note) as api:
        if options["detach"]:
            return await _detach(invocation, settings, api, command)
        wait = Wait(timeout_s=options["timeout_s"], is_patient=not options["no_wait"])
        return await _start_and_follow(invocation, settings, api, command, wait, world=world)


def _input(options: Mapping[str, Any]) -> tuple[Json, Json]:
    """Data and config of the run from its options."""
    from orch8_local.cli.inputs import json_argument, with_settings

    data = {} if options["data"] is None else json_argument(options["data"], "--input")
    config = {} if options["config"] is None else json_argument(options["config"], "--config-data")
    return with_settings(data, config, options["places"])


async def _detach(invocation: Invocation, settings: Settings, api: EngineApi, command: Command) -> int:
    """Start it, say its id, leave it to the engine that runs or will run."""
    from orch8_local.cli.screen import command_line

    result = await api.submit(command)
    instance_id = str(result["instance_id"])
    view = await api.views.instance(instance_id)
    if invocation.is_json:
        from orch8_local.cli.follow import run_json

        invocation.write_json(run_json(view, is_replayed=bool(result.get("is_replayed"))))
        return 0
    invocation.write(instance_id)
    if api.is_owner:
        invocation.note(f"no engine is running; it is carried out by: {command_line(settings, 'up')}")
    return 0


async def _start_and_follow(
    invocation: Invocation,
    settings: Settings,
    api: EngineApi,
    command: Command,
    wait: Wait,
    *,
    world: World,
) -> int:
    from orch8_local.cli.signals import stop_signals

    with stop_signals() as stop:
        if api.is_owner:
            engine: Engine = api  # type: ignore[assignment]
            await engine.start()
        result = await api.submit(command)
        is_replayed = bool(result.get("is_replayed"))
        if is_replayed:
            invocation.note(f"the key {command.arguments['key']!r} has a run already; this follows it")
        carrying = Carrying(invocation, settings, api, wait, stop, world)
        return await carrying.carry(str(result["instance_id"]), is_replayed=is_replayed)


@dataclass(frozen=True, slots=True)
class Carrying:
    """One engine, or a link to one, for the time in which one run is followed."""

    invocation: Invocation
    settings: Settings
    api: EngineApi
    wait: Wait
    stop: Stop
    world: World

    async def carry(self, instance_id: str, *, is_replayed: bool = False) -> int:
        """Follow the run to its end, show it, and return the exit status."""
        from orch8_local.cli.follow import exit_status
        from orch8_local.cli.printer import Printer

        printer = Printer()
        display = make_display(self.invocation, printer, self.world)
        view = await self.api.views.instance(instance_id)
        display.begin(view)
        try:
            following = await self._follow(instance_id, display)
        finally:
            display.end()
        following = await self._stopped(following, instance_id)
        self._tell(following, printer, is_replayed=is_replayed)
        printer.check()
        return exit_status(following)

    async def _follow(self, instance_id: str, display: Display) -> Following:
        from orch8_local.app import find_owner
        from orch8_local.cli.follow import follow_other, follow_own

        if self.api.is_owner:
            engine: Engine = self.api  # type: ignore[assignment]
            return await follow_own(engine, instance_id, display, self.wait, stop=self.stop, world=self.world)
        return await follow_other(
            self.api,
            instance_id,
            display,
            self.wait,
            stop=self.stop,
            world=self.world,
            has_owner=lambda: find_owner(self.settings) is not None,
        )

    async def _stopped(self, following: Following, instance_id: str) -> Following:
        """Told to stop, or out of time: let an own engine finish what is under way, then look again."""
        from orch8_local.cli.follow import End, Following

        if not self.api.is_owner:
            if following.end is End.INTERRUPTED:
                self.invocation.note("no longer following; the engine carries the run on")
            return following
        if following.end is End.STOPPED:
            return following
        engine: Engine = self.api  # type: ignore[assignment]
        is_told = following.end is End.INTERRUPTED
        await drain(self.invocation, engine, self.settings.limits.grace_s, self.stop, self.world, is_told=is_told)
        return Following(following.end, await engine.views.instance(instance_id))

    def _tell(self, following: Following, printer: Printer, *, is_replayed: bool) -> None:
        from orch8_local.cli.follow import ending_line, run_json
        from orch8_local.cli.invocation import json_text
        from orch8_local.cli.screen import command_line, is_terminal, mark, show_lines, state_cell

        if self.invocation.is_json:
            indent = 2 if is_terminal() else None
            printer.line(json_text(run_json(following.view, is_replayed=is_replayed), indent=indent))
            return

        def command(*words: str) -> str:
            return command_line(self.settings, *words)

        key, line = ending_line(following, command=command, is_terminal=is_terminal())
        if is_terminal() and not self.invocation.is_plain and printer.error is None:
            show_lines([state_cell(key, line)])
        else:
            printer.line(f"{mark(key)} {line}" if not self.invocation.is_plain else line)


def make_display(invocation: Invocation, printer: Printer, world: World) -> Display:
    """The way in which a run is shown: a live table, lines, or not at all."""
    from orch8_local.cli.live import LineDisplay, LiveDisplay, NoDisplay
    from orch8_local.cli.screen import is_terminal

    if invocation.verbosity < 0:
        return NoDisplay()
    if invocation.is_json:
        is_shown = sys.stderr.isatty() and not invocation.is_plain
        return LiveDisplay(printer, world.clock.now_us, to_stderr=True) if is_shown else NoDisplay()
    if is_terminal() and not invocation.is_plain:
        return LiveDisplay(printer, world.clock.now_us)
    return LineDisplay(printer, world.clock.now_us)


async def drain(
    invocation: Invocation, engine: Engine, grace_s: float, stop: Stop, world: World, *, is_told: bool
) -> None:
    """Let what is under way finish within the grace; a second signal settles it as it stands."""
    if is_told and engine.n_active:
        invocation.note(f"stopping: steps under way get {grace_s:g} s to finish; once more stops at once")
    ending = world.nursery.start(engine.drain(grace_s), name="drain")
    again = world.nursery.start(stop.second.wait(), name="wait for a second signal")
    await asyncio.wait({ending, again}, return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        invocation.note("stopping at once: what was sent and not answered is recorded as unknown")
        engine.stop_waiting()
    await asyncio.wait({ending}, timeout=5.0)
    again.cancel()
    if ending.done():
        ending.result()


async def carry_on(invocation: Invocation, settings: Settings, instance_id: str) -> int:
    """Execute a run that is due, here or by the engine that runs already, until it stops or waits."""
    from orch8_local.app import Need, connect
    from orch8_local.cli.follow import Wait
    from orch8_local.cli.signals import stop_signals
    from orch8_local.world import real_world

    world = real_world()
    async with connect(settings, need=Need.RUN, world=world, say=invocation.note) as api:
        with stop_signals() as stop:
            if api.is_owner:
                engine: Engine = api  # type: ignore[assignment]
                await engine.start()
            carrying = Carrying(invocation, settings, api, Wait(is_patient=False), stop, world)
            return await carrying.carry(instance_id)


@click.command()
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0, max=3600),
    metavar="SECONDS",
    help="For steps under way when told to stop; default 10, or the setting limits.grace_s.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How events are written.")
@database_options
def up(invocation: Invocation, grace_s: float | None, log_format: str) -> int:
    """Run the engine until it is told to stop (Ctrl-C, SIGTERM); steps under way may finish.

    Writes one line per event. A second signal stops at once. For systemd, launchd or tmux.
    """
    return asyncio.run(_up(invocation, grace_s, is_json=log_format == "json"))


async def _up(invocation: Invocation, grace_s: float | None, *, is_json: bool) -> int:
    from orch8_local.app import Need, connect
    from orch8_local.cli.eventlog import EventLog
    from orch8_local.cli.printer import Printer
    from orch8_local.cli.signals import INTERRUPTED_STATUS, stop_signals
    from orch8_local.world import real_world

    settings = invocation.settings()
    invocation.start_logging()
    world, printer = real_world(), Printer()
    limit_s = settings.limits.grace_s if grace_s is None else grace_s
    async with connect(settings, need=Need.OWN, world=world) as api:
        engine: Engine = api  # type: ignore[assignment]
        log = EventLog(engine.views, printer, world, is_json=is_json)
        await log.begin()
        with stop_signals() as stop:
            await engine.start()
            invocation.note(f"engine is up on {settings.database}; Ctrl-C stops it")
            await _watch_engine(engine, log, stop, world)
            await drain(invocation, engine, limit_s, stop, world, is_told=True)
            await log.catch_up()
            is_hurried = stop.second.is_set()
    with contextlib.suppress(OSError):
        invocation.note("engine is down")
    return INTERRUPTED_STATUS if is_hurried else 0


async def _watch_engine(engine: Engine, log: Any, stop: Stop, world: World) -> None:
    """Write events as they come, until told to stop; an engine that broke raises what broke it."""
    moved = asyncio.Event()
    unsubscribe = engine.subscribe(lambda _: moved.set())
    told = world.nursery.start(stop.first.wait(), name="wait for a signal")
    try:
        while not stop.is_asked:
            wake = world.nursery.start(moved.wait(), name="wait for progress")
            await asyncio.wait({told, wake}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            wake.cancel()
            moved.clear()
            engine.check()
            await log.catch_up()
    finally:
        unsubscribe()
        told.cancel()
