"""`orch8-local instances`: look at runs, follow one, cancel or retry it.

Owns the tables and facts of runs. The easy mistake: one command that shows all of a run; `show` says
where it stands and what to do, `tree`, `outputs` and `timeline` have the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.asking import ask_yes, changing, owner_is_alive, reading, submit
from orch8_local.cli.completion import complete_instances, complete_sequences
from orch8_local.cli.invocation import Group, Invocation, common_options
from orch8_local.cli.runpage import (
    STATES,
    instance_json,
    show_foot,
    show_list,
    show_next,
    show_outputs,
    show_plan,
    show_rows,
    show_run_facts,
    show_steps,
    view_json,
)
from orch8_local.errors import NotFound

if TYPE_CHECKING:
    from orch8_local.engine.api import EngineApi
    from orch8_local.settings import Settings

Json = Any
instance_argument = click.argument("instance", metavar="ID", shell_complete=complete_instances)


@click.group(cls=Group)
def instances() -> None:
    """Look at runs; cancel or retry them. A unique beginning of an id is enough."""


# --- list ------------------------------------------------------------------------------------------


@instances.command("list")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only these; repeatable.")
@click.option("--sequence", metavar="NAME", shell_complete=complete_sequences, help="Only runs of this sequence.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@common_options
def list_(invocation: Invocation, states: tuple[str, ...], sequence: str | None, limit: int) -> int:
    """List runs, newest first."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> None:
        from orch8_local.engine.api import InstanceFilter

        chosen = tuple(state for state in states if state != "blocked")
        is_blocked = True if states == ("blocked",) else None
        wanted = InstanceFilter(
            states=(*chosen, "failed") if "blocked" in states and chosen else chosen,
            sequence_name=sequence,
            is_blocked=is_blocked,
            limit=limit,
        )
        rows = await api.views.instances(wanted)
        if "blocked" in states and "failed" not in states:
            rows = [row for row in rows if str(row.state) != "failed" or row.is_blocked]
        has_owner = owner_is_alive(settings)
        if invocation.is_json:
            invocation.write_json([instance_json(row, has_owner=has_owner) for row in rows])
            return
        show_list(invocation, settings, rows, has_owner=has_owner, now_us=now_us)
        await show_foot(invocation, settings, api, n_shown=len(rows), has_owner=has_owner)

    return reading(invocation, look)


# --- show ------------------------------------------------------------------------------------------


@instances.command()
@instance_argument
@common_options
def show(invocation: Invocation, instance: str) -> int:
    """Show where one run stands, step by step, and what to do next."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> None:
        view = await api.views.instance(await api.views.instance_id(instance))
        has_owner = owner_is_alive(settings)
        if invocation.is_json:
            invocation.write_json(view_json(view, has_owner=has_owner, now_us=now_us))
            return
        show_run_facts(invocation, view, has_owner=has_owner, now_us=now_us)
        show_steps(invocation, view, now_us)
        show_next(invocation, settings, view, has_owner=has_owner)

    return reading(invocation, look)


# --- tree, outputs, timeline -------------------------------------------------------------------------


@instances.command()
@instance_argument
@common_options
def tree(invocation: Invocation, instance: str) -> int:
    """Show the blocks of one run as a tree, each with its state."""

    async def look(api: EngineApi, _: Settings, now_us: int) -> None:
        from orch8_local.cli.tree import show_tree, tree_json

        view = await api.views.instance(await api.views.instance_id(instance))
        if invocation.is_json:
            invocation.write_json(tree_json(view))
            return
        show_tree(invocation, view, now_us)

    return reading(invocation, look)


@instances.command()
@instance_argument
@click.argument("block", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every row: retries, errors, each loop position.")
@common_options
def outputs(invocation: Invocation, instance: str, block: str | None, is_all: bool) -> int:
    """Show the outputs of one run, or only that of one BLOCK as JSON."""

    async def look(api: EngineApi, _: Settings, now_us: int) -> None:
        from orch8_local.cli.follow import latest_outputs

        del now_us
        view = await api.views.instance(await api.views.instance_id(instance))
        if is_all:
            show_rows(invocation, view, block)
            return
        latest = latest_outputs(view)
        if block is not None:
            if block not in latest:
                known = ", ".join(latest) or "none yet"
                raise NotFound(f"block {block!r} has no output", hint=f"blocks with output: {known}")
            invocation.write_json(latest[block])
            return
        if invocation.is_json:
            invocation.write_json(latest)
            return
        show_outputs(invocation, latest)

    return reading(invocation, look)


@instances.command()
@instance_argument
@common_options
def timeline(invocation: Invocation, instance: str) -> int:
    """Show everything that happened to one run, in order."""

    async def look(api: EngineApi, _: Settings, now_us: int) -> None:
        from orch8_local.cli.timeline import show_timeline

        instance_id = await api.views.instance_id(instance)
        await show_timeline(invocation, api.views, now_us=now_us, instance_id=instance_id)

    return reading(invocation, look)


# --- watch, cancel, retry ----------------------------------------------------------------------------


@instances.command()
@instance_argument
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Watch no longer.")
@common_options
def watch(invocation: Invocation, instance: str, timeout_s: float | None) -> int:
    """Follow one run until it stops; exit status as of `run`. With --json one event a line."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> int:
        from orch8_local.cli.watch import watch_run

        del now_us
        instance_id = await api.views.instance_id(instance)
        return await watch_run(invocation, settings, api, instance_id, timeout_s=timeout_s)

    return reading(invocation, look)


@instances.command()
@instance_argument
@click.option("--reason", metavar="TEXT", default="", help="Kept in the timeline.")
@click.option("--by", metavar="NAME", help="Who decides; default the user's name.")
@common_options
def cancel(invocation: Invocation, instance: str, reason: str, by: str | None) -> int:
    """Cancel a run: no further step starts; what is under way is settled as it ends."""

    async def change(api: EngineApi, _: Settings) -> int:
        instance_id = await api.views.instance_id(instance)
        result = await submit(api, "cancel", {"instance_id": instance_id, "reason": reason}, by)
        if invocation.is_json:
            invocation.write_json(result)
        elif result.get("state") == "running":
            invocation.write(f"run {instance_id} is being cancelled; its step under way ends first")
        else:
            invocation.write(f"run {instance_id} is cancelled")
        return 0

    return asyncio.run(changing(invocation, change))


@instances.command()
@instance_argument
@click.option("--detach", is_flag=True, help="Only make it due; an engine carries it out.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--by", metavar="NAME", help="Who decides; default the user's name.")
@common_options
def retry(invocation: Invocation, instance: str, detach: bool, yes: bool, by: str | None) -> int:
    """Run the failed steps of a run again, with a fresh retry budget.

    What is done stays done: completed steps are not run again, and an action whose outcome is not known
    is not sent again.
    """

    async def change(api: EngineApi, _: Settings) -> int:
        instance_id = await api.views.instance_id(instance)
        view = await api.views.instance(instance_id)
        show_plan(invocation, view)
        if not yes and not ask_yes(invocation, "go on?"):
            invocation.note("nothing was changed")
            return 0
        result = await submit(api, "retry", {"instance_id": instance_id}, by)
        if invocation.is_json and detach:
            invocation.write_json(result)
        elif detach:
            invocation.write(f"run {instance_id} is {result.get('state')}")
        retried.append(instance_id)
        return 0

    retried: list[str] = []
    status = asyncio.run(changing(invocation, change))
    if detach or not retried:
        return status
    from orch8_local.cli.runs import carry_on

    return asyncio.run(carry_on(invocation, invocation.settings(), retried[0]))
