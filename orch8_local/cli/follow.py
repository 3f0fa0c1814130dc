"""Following one run until it stops, whoever executes it, and the words for how it stopped.

Owns the wait: for an engine in this process, or for changes in a database that another process
owns. The easy mistake: waiting for the run's state alone; a blocked run whose request may still be
answered is listened to, and that is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orch8_local.cli.live import Display, LiveDisplay
from orch8_local.cli.render import elapsed_text, one_line, short_effect, short_run
from orch8_local.cli.signals import Stop
from orch8_local.cli.wording import failure_sentence
from orch8_local.engine.api import EngineApi, InstanceView, StepProgress
from orch8_local.model.records import Instance, rfc3339
from orch8_local.model.states import ENDED_INSTANCES, InstanceState
from orch8_local.world import World

if TYPE_CHECKING:
    from orch8_local.engine.engine import Engine

Json = Any

TICK_S = 0.125
"""How often a display is drawn and a foreign database is asked for changes."""


class End(StrEnum):
    """Why following came to its end."""

    STOPPED = "stopped"
    WAITS = "waits"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    OWNER_GONE = "owner_gone"


@dataclass(frozen=True, slots=True)
class Following:
    """What was seen of a run in the end."""

    end: End
    view: InstanceView


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to follow. timeout_s: None for as long as it takes. is_patient: through timers too."""

    timeout_s: float | None = None
    is_patient: bool = True


async def follow_own(
    engine: Engine, instance_id: str, display: Display, wait: Wait, *, stop: Stop, world: World
) -> Following:
    """Follow a run of this process's own, started engine."""
    moved = asyncio.Event()
    early: list[StepProgress] = []
    has_looked = False

    def take(progress: StepProgress) -> None:
        if progress.instance_id != instance_id:
            return
        moved.set()
        if has_looked:
            display.progress(progress)
        else:
            early.append(progress)

    async def look() -> InstanceView:
        """What is on the disk, shown too: progress before the first look was nobody's."""
        view = await engine.views.instance(instance_id)
        display.refresh(view)
        return view

    unsubscribe = engine.subscribe(take)
    await look()  # what happened before anybody listened; then what has happened meanwhile
    has_looked = True
    for progress in early:
        display.progress(progress)
    stopped = world.nursery.start(engine.wait_until_stopped(instance_id), name="wait until stopped")
    told = world.nursery.start(stop.first.wait(), name="wait for a signal")
    started_s = world.clock.monotonic_s()
    try:
        while True:
            await asyncio.wait({stopped, told}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            if isinstance(display, LiveDisplay):
                display.tick()
            if stopped.done():
                stopped.result()
                return Following(End.STOPPED, await look())
            if stop.is_asked:
                return Following(End.INTERRUPTED, await look())
            if wait.timeout_s is not None and world.clock.monotonic_s() - started_s > wait.timeout_s:
                return Following(End.TIMED_OUT, await look())
            if not wait.is_patient and moved.is_set():
                moved.clear()
                view = await engine.views.instance(instance_id)
                if waits_for_time(view):
                    return Following(End.WAITS, view)
    finally:
        unsubscribe()
        for task in (stopped, told):
            task.cancel()


async def follow_other(
    api: EngineApi,
    instance_id: str,
    display: Display,
    wait: Wait,
    *,
    stop: Stop,
    world: World,
    has_owner: Callable[[], bool],
) -> Following:
    """Follow a run that another process executes, through the change feed."""
    seq = await api.views.last_seq()
    view = await api.views.instance(instance_id)
    started_s = asked_s = world.clock.monotonic_s()
    while True:
        display.refresh(view)
        now_s = world.clock.monotonic_s()
        if is_over(view.instance):
            return Following(End.STOPPED, view)
        if stop.is_asked:
            return Following(End.INTERRUPTED, view)
        if not wait.is_patient and waits_for_time(view):
            return Following(End.WAITS, view)
        if wait.timeout_s is not None and now_s - started_s > wait.timeout_s:
            return Following(End.TIMED_OUT, view)
        if now_s - asked_s > 1:
            asked_s = now_s
            if not has_owner():
                return Following(End.OWNER_GONE, await api.views.instance(instance_id))
        await asyncio.sleep(TICK_S)
        changes = await api.views.changes_since(seq)
        if changes:
            seq = changes[-1].seq
        if any(change.instance_id == instance_id for change in changes):
            view = await api.views.instance(instance_id)


def is_over(instance: Instance) -> bool:
    """True if nothing more happens to a run by itself."""
    return instance.state in ENDED_INSTANCES or instance.state is InstanceState.PAUSED


def waits_for_time(view: InstanceView) -> bool:
    """True if the run waits for something that is no retry: a time, an event, an answer."""
    if view.instance.state is not InstanceState.WAITING:
        return False
    return any(node.waiting_for not in (None, "retry", "effect") for node in view.nodes)


def exit_status(following: Following) -> int:
    """The exit status of a command that followed a run (product section 3)."""
    instance = following.view.instance
    if instance.is_blocked:
        return 3
    if following.end is End.INTERRUPTED and not is_over(instance):
        return 130
    if following.end is End.OWNER_GONE and not is_over(instance):
        return 8
    by_state = {InstanceState.COMPLETED: 0, InstanceState.FAILED: 1, InstanceState.CANCELLED: 5}
    return by_state.get(instance.state, 4)


def run_json(view: InstanceView, *, is_replayed: bool) -> dict[str, Json]:
    """The shape of `run --json` (product section 3)."""
    instance, failure = view.instance, view.instance.failure
    found = None
    if failure is not None:
        found = {
            "kind": failure.kind,
            "block_id": failure.block_id,
            "message": failure.message,
            "effect_ids": list(failure.effect_ids),
        }
    return {
        "instance_id": instance.id,
        "sequence": {"name": instance.sequence_name, "version": instance.sequence_version},
        "state": str(instance.state),
        "blocked": instance.is_blocked,
        "failure": found,
        "outputs": latest_outputs(view),
        "started_at": None if instance.started_at_us is None else rfc3339(instance.started_at_us),
        "ended_at": None if instance.ended_at_us is None else rfc3339(instance.ended_at_us),
        "replayed": is_replayed,
    }


def latest_outputs(view: InstanceView) -> dict[str, Json]:
    """The latest output of every block that has one."""
    kinds = ("result", "error", "gate", "marker")
    rows = sorted((row for row in view.outputs if row.kind in kinds), key=lambda row: row.seq)
    return {row.block_id: row.output for row in rows}


def ending_line(following: Following, *, command: Callable[..., str], is_terminal: bool) -> tuple[str, str]:
    """(state for mark and colour, one line): what happened and, if there is one, what to do next.

    command: makes a command line for this database out of words.
    """
    instance = following.view.instance
    name, run = one_line(instance.sequence_name), short_run(instance.id)
    took = _took(instance)
    if instance.is_blocked:
        return "blocked", _blocked_line(following.view, command, is_terminal)
    if instance.state is InstanceState.COMPLETED:
        n_done = sum(node.state == "completed" for node in following.view.nodes)
        return (
            "completed",
            f"{name} completed{took}, {n_done} block{'' if n_done == 1 else 's'} done, run {run}",
        )
    if instance.state is InstanceState.FAILED:
        why = failure_sentence(instance.failure)
        return "failed", f"{name} failed{took}: {why}; see: {command('instances', 'show', run)}"
    if instance.state is InstanceState.CANCELLED:
        return "cancelled", f"{name} was cancelled{took}, run {run}"
    if following.end is End.OWNER_GONE:
        return "paused", f"the engine went away; the run is kept and goes on with: {command('up')}"
    if instance.state is InstanceState.PAUSED:
        why = f" ({one_line(instance.paused_reason)})" if instance.paused_reason else ""
        return "paused", f"{name} is paused{why}; see: {command('instances', 'show', run)}"
    what = {End.INTERRUPTED: "stopped", End.TIMED_OUT: "not finished in time", End.WAITS: "waits"}
    why = what.get(following.end, "is not finished")
    return "waiting", f"{name}: {why}; run {run} is kept and goes on with: {command('up')}"


def _took(instance: Instance) -> str:
    if instance.started_at_us is None or instance.ended_at_us is None:
        return ""
    return f" in {elapsed_text(instance.started_at_us, instance.ended_at_us)}"


def _blocked_line(view: InstanceView, command: Callable[..., str], is_terminal: bool) -> str:
    failure = view.instance.failure
    assert failure is not None
    name = one_line(view.instance.sequence_name)
    why = one_line(failure.message).rstrip(".")
    n_more = len(failure.effect_ids) - 1
    more = f" (and {n_more} more)" if n_more > 0 else ""
    if not failure.effect_ids:
        return f"{name} is blocked: {why}; see: {command('instances', 'show', short_run(view.instance.id))}"
    effect = short_effect(failure.effect_ids[0])
    words = command("effects", "resolve", effect)
    if not is_terminal:
        words += " --as committed|verified|abandoned|compensated --evidence TEXT"
    step = f"step {one_line(failure.block_id)!r}" if failure.block_id else "a step"
    what = f"{name} is blocked: the outcome of {step} is not known{more} ({why})"
    return f"{what}; find out what happened, then: {words}"
