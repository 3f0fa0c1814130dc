"""The timeline of one run or one effect: every event, its time, what moved and why.

Owns the paging through all events. The easy mistake: hiding who caused a move; every line that is
not the engine's own names its actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orch8_local.cli.invocation import Invocation
from orch8_local.cli.render import clock_text, elapsed_text, short_effect
from orch8_local.cli.wording import event_detail, event_dict, event_standing, place
from orch8_local.model.records import Event, rfc3339

if TYPE_CHECKING:
    from orch8_local.cli.screen import Cell
    from orch8_local.engine.api import Views

BATCH = 1000
WIDE = 100
"""Columns from which on the timeline of a run has room for the effects' ids."""


async def all_events(views: Views, *, instance_id: str | None = None, effect_id: str | None = None) -> list[Event]:
    """Every event of a run or of an effect, oldest first."""
    found: list[Event] = []
    while True:
        after = found[-1].seq if found else 0
        batch = await views.events(instance_id=instance_id, effect_id=effect_id, after_seq=after, limit=BATCH)
        found.extend(batch)
        if len(batch) < BATCH:
            return found


async def show_timeline(
    invocation: Invocation,
    views: Views,
    *,
    now_us: int,
    instance_id: str | None = None,
    effect_id: str | None = None,
    only_effects: bool = False,
) -> None:
    """Print it; `only_effects` leaves out what did not move a receipt."""
    events = await all_events(views, instance_id=instance_id, effect_id=effect_id)
    if only_effects:
        events = [event for event in events if event.effect_id is not None]
    if invocation.is_json:
        invocation.write_json([event_dict(event, rfc3339(event.at_us)) for event in events])
        return
    if not events:
        invocation.note("nothing has happened yet")
        return
    show_events(invocation, events, now_us=now_us)


def show_events(invocation: Invocation, events: list[Event], *, now_us: int) -> None:
    """Events as a table; times count from the first."""
    from orch8_local.cli.screen import console, is_terminal, show_table, state_cell

    first_us = events[0].at_us
    places = {(event.scope, event.block_id, event.effect_id) for event in events}
    has_places = len(places) > 1 or invocation.is_plain
    has_room = not is_terminal() or console().size.width >= WIDE
    has_effects = has_places and has_room and any(event.effect_id for event in events)
    table: list[list[Cell | str]] = []
    for event in events:
        standing = event_standing(event)
        after = elapsed_text(first_us, event.at_us) if event.at_us > first_us else ""
        row: list[Cell | str] = [
            rfc3339(event.at_us) if invocation.is_plain else clock_text(event.at_us, now_us=now_us),
            f"+{after}" if after else "",
        ]
        if has_places:
            row.append(place(event.scope, event.block_id) if event.block_id else "")
        row.append(state_cell(standing.key, standing.text))
        if has_effects:
            row.append(event.effect_id or "" if invocation.is_plain else short_effect(event.effect_id or ""))
        table.append([*row, event_detail(event)])
    steps = ["STEP"] if has_places else []
    headers = ["TIME", "AFTER", *steps, "WHAT", *(["EFFECT"] if has_effects else []), "WHY"]
    show_table(invocation, headers, table)
