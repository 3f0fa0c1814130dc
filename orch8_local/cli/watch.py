"""`instances watch`: follow a run that somebody executes, or see that nobody does.

Owns the choice of what to write: the live table, lines, or with `--json` one event a line. The easy
mistake: waiting for ever for a run that nobody executes; without an owner that is said, and the exit
status is 8.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orch8_local.cli.eventlog import EventLog
from orch8_local.cli.follow import End, Following, Wait, ending_line, exit_status, follow_other, is_over
from orch8_local.cli.invocation import Invocation
from orch8_local.cli.printer import Printer
from orch8_local.cli.runs import make_display
from orch8_local.cli.screen import command_line, is_terminal, show_lines, state_cell
from orch8_local.cli.signals import Stop, stop_signals
from orch8_local.world import World, real_world

if TYPE_CHECKING:
    from orch8_local.engine.api import EngineApi
    from orch8_local.settings import Settings

TICK_S = 0.2


async def watch_run(
    invocation: Invocation, settings: Settings, api: EngineApi, instance_id: str, *, timeout_s: float | None
) -> int:
    """Follow to the end and return the exit status."""
    from orch8_local.app import find_owner

    world, printer = real_world(), Printer()

    def has_owner() -> bool:
        return find_owner(settings) is not None

    with stop_signals() as stop:
        if invocation.is_json:
            following = await _events(api, instance_id, printer, stop, world, timeout_s, has_owner())
        else:
            display = make_display(invocation, printer, world)
            display.begin(await api.views.instance(instance_id))
            try:
                following = await follow_other(
                    api,
                    instance_id,
                    display,
                    Wait(timeout_s=timeout_s),
                    stop=stop,
                    world=world,
                    has_owner=has_owner,
                )
            finally:
                display.end()
    if not invocation.is_json:
        _tell(invocation, settings, following, printer)
    printer.check()
    return exit_status(following)


async def _events(
    api: EngineApi,
    instance_id: str,
    printer: Printer,
    stop: Stop,
    world: World,
    timeout_s: float | None,
    has_owner: bool,
) -> Following:
    """One event of this run a line, from its first, until it stops."""
    log = EventLog(api.views, printer, world, is_json=True, instance_id=instance_id)
    started_s = world.clock.monotonic_s()
    while True:
        view = await api.views.instance(instance_id)
        await log.catch_up()
        if is_over(view.instance):
            return Following(End.STOPPED, view)
        if stop.is_asked:
            return Following(End.INTERRUPTED, view)
        if not has_owner:
            return Following(End.OWNER_GONE, view)
        if timeout_s is not None and world.clock.monotonic_s() - started_s > timeout_s:
            return Following(End.TIMED_OUT, view)
        await asyncio.sleep(TICK_S)


def _tell(invocation: Invocation, settings: Settings, following: Following, printer: Printer) -> None:
    def command(*words: str) -> str:
        return command_line(settings, *words)

    key, line = ending_line(following, command=command, is_terminal=is_terminal())
    if is_terminal() and not invocation.is_plain and printer.error is None:
        show_lines([state_cell(key, line)])
    else:
        printer.line(line)
