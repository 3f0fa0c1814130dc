"""The events of all runs as lines: what `up` writes, for people or as JSON.

Owns the place up to which has been written. The easy mistake: reading on while a batch is full and
forgetting the rest; `catch_up` reads until there is no more.
"""

from __future__ import annotations

from orch8_local.cli.invocation import json_text
from orch8_local.cli.printer import Printer
from orch8_local.cli.render import clock_text, one_line, short_effect, short_run
from orch8_local.cli.wording import event_detail, event_dict, event_standing, place
from orch8_local.engine.api import Views
from orch8_local.model.records import Event, rfc3339
from orch8_local.world import World

BATCH = 500


class EventLog:
    """Writes every event once, in order: of one run, or of all from the moment it began."""

    def __init__(
        self, views: Views, printer: Printer, world: World, *, is_json: bool, instance_id: str | None = None
    ) -> None:
        self._views = views
        self._printer = printer
        self._world = world
        self._is_json = is_json
        self._instance_id = instance_id
        self._seq = 0

    async def begin(self) -> None:
        """Write nothing that happened before now."""
        self._seq = await self._views.last_seq()

    async def catch_up(self) -> None:
        """Write what has happened since."""
        while True:
            events = await self._views.events(instance_id=self._instance_id, after_seq=self._seq, limit=BATCH)
            for event in events:
                self._printer.line(self._text(event))
                self._seq = event.seq
            if len(events) < BATCH:
                return

    def _text(self, event: Event) -> str:
        if self._is_json:
            return json_text(event_dict(event, rfc3339(event.at_us)))
        return event_text(event, now_us=self._world.clock.now_us())


def event_text(event: Event, *, now_us: int) -> str:
    """One event on one line: time, run, step, what happened, why."""
    parts = [clock_text(event.at_us, now_us=now_us), short_run(event.instance_id)]
    if event.block_id is not None:
        parts.append(place(event.scope, event.block_id))
    what = event_standing(event).text
    if event.effect_id is not None:
        what += f" ({short_effect(event.effect_id)})"
    parts.append(what)
    detail = event_detail(event)
    if detail:
        parts.append(detail)
    return one_line("  ".join(parts))
