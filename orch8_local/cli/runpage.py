"""Runs as tables, facts and JSON: the list, and the page of one run.

Owns which facts of a run are shown and in which order. The easy mistake: a stored `running` shown as
it stands; every state goes through `wording`, which knows whether anybody runs the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orch8_local.cli.invocation import Invocation

if TYPE_CHECKING:
    from orch8_local.cli.screen import Cell
    from orch8_local.engine.api import EngineApi, InstanceView
    from orch8_local.model.records import Instance
    from orch8_local.settings import Settings

Json = Any
STATES = ("scheduled", "running", "waiting", "paused", "completed", "failed", "cancelled", "blocked")


def instance_json(instance: Instance, *, has_owner: bool) -> dict[str, Json]:
    """One run as JSON. `standing` is the state, `blocked`, or `owner_gone`."""
    from orch8_local.cli.wording import run_word
    from orch8_local.model.records import rfc3339

    def at(at_us: int | None) -> str | None:
        return None if at_us is None else rfc3339(at_us)

    return {
        "id": instance.id,
        "sequence": {
            "name": instance.sequence_name,
            "version": instance.sequence_version,
            "sha256": instance.sequence_sha256,
        },
        "state": str(instance.state),
        "standing": run_word(instance, has_owner=has_owner),
        "blocked": instance.is_blocked,
        "key": instance.start_key,
        "priority": instance.priority,
        "failure": instance.failure.as_dict() if instance.failure else None,
        "paused_reason": instance.paused_reason,
        "n_steps": instance.n_steps,
        "n_recoveries": instance.n_recoveries,
        "due_at": at(instance.due_at_us),
        "cancel_requested_at": at(instance.cancel_requested_at_us),
        "created_at": at(instance.created_at_us),
        "started_at": at(instance.started_at_us),
        "updated_at": at(instance.updated_at_us),
        "ended_at": at(instance.ended_at_us),
    }


def show_list(
    invocation: Invocation, settings: Settings, rows: list[Instance], *, has_owner: bool, now_us: int
) -> None:
    from orch8_local.cli.render import clock_text, short_run
    from orch8_local.cli.screen import Cell, command_line, show_table
    from orch8_local.cli.wording import run_standing, run_took
    from orch8_local.model.records import rfc3339

    if not rows:
        invocation.note(f"no runs; start one with: {command_line(settings, 'run', 'hello')}")
        return
    has_keys = any(row.start_key for row in rows)
    table: list[list[Cell | str]] = []
    for row in rows:
        standing = run_standing(row, has_owner=has_owner, now_us=now_us)
        is_plain = invocation.is_plain
        cells: list[Cell | str] = [
            row.id if is_plain else short_run(row.id),
            Cell(standing.text, standing.key, is_state=True),
            rfc3339(row.created_at_us) if is_plain else clock_text(row.created_at_us, now_us=now_us),
            run_took(row, now_us),
            f"{row.sequence_name} v{row.sequence_version}",
        ]
        table.append([*cells, row.start_key or ""] if has_keys or is_plain else cells)
    headers = [
        "RUN",
        "STATE",
        "CREATED",
        "TOOK",
        "SEQUENCE",
        *(["KEY"] if has_keys or invocation.is_plain else []),
    ]
    show_table(invocation, headers, table, wide=4)


async def show_foot(
    invocation: Invocation, settings: Settings, api: EngineApi, *, n_shown: int, has_owner: bool
) -> None:
    from orch8_local.cli.render import count_text
    from orch8_local.cli.screen import command_line

    counts = await api.views.instance_counts()
    backlog = await api.views.backlog()
    total = sum(counts.get(state, 0) for state in STATES)
    if total > n_shown > 0:
        invocation.note(f"{n_shown} of {count_text(total, 'run')}")
    if backlog.n_unresolved:
        words = command_line(settings, "effects", "list", "--unresolved")
        invocation.note(f"{count_text(backlog.n_unresolved, 'effect')} not resolved; see: {words}")
    n_left = sum(counts.get(state, 0) for state in ("scheduled", "running", "waiting"))
    if n_left and not has_owner:
        is_are = "is" if n_left == 1 else "are"
        words = command_line(settings, "up")
        invocation.note(f"no engine is running, and {count_text(n_left, 'run')} {is_are} not finished; go on: {words}")


def view_json(view: InstanceView, *, has_owner: bool, now_us: int) -> dict[str, Json]:
    """One run with all that belongs to it, as JSON."""
    from orch8_local.cli.follow import latest_outputs
    from orch8_local.model.records import rfc3339

    return {
        **instance_json(view.instance, has_owner=has_owner),
        "data": view.instance.data,
        "config": view.instance.config,
        "nodes": [
            {
                "block_id": node.block_id,
                "scope": node.scope,
                "state": str(node.state),
                "attempt": node.attempt,
                "waiting_for": node.waiting_for,
                "wake_at": None if node.wake_at_us is None else rfc3339(node.wake_at_us),
                "error": node.error,
                "started_at": None if node.started_at_us is None else rfc3339(node.started_at_us),
                "ended_at": None if node.ended_at_us is None else rfc3339(node.ended_at_us),
            }
            for node in view.nodes
        ],
        "outputs": latest_outputs(view),
        "run_state": dict(view.state),
        "effects": [receipt.as_wire(now_us=now_us) for receipt in view.receipts],
    }


def show_run_facts(invocation: Invocation, view: InstanceView, *, has_owner: bool, now_us: int) -> None:
    from orch8_local.cli.render import clock_text, count_text, json_line
    from orch8_local.cli.screen import Cell, heading, show_facts
    from orch8_local.cli.wording import failure_sentence, run_standing, run_took

    instance = view.instance
    standing = run_standing(instance, has_owner=has_owner, now_us=now_us)
    took = run_took(instance, now_us)
    is_ended = instance.ended_at_us is not None
    facts: list[tuple[str, Cell | str]] = [
        ("run", instance.id),
        ("sequence", f"{instance.sequence_name} v{instance.sequence_version} {instance.sequence_sha256[:6]}"),
        ("state", Cell(standing.text, standing.key, is_state=True)),
    ]
    if instance.failure is not None:
        facts.append(("why", failure_sentence(instance.failure)))
    if instance.paused_reason:
        facts.append(("why", instance.paused_reason))
    if instance.start_key is not None:
        facts.append(("key", instance.start_key))
    facts.append(("created", clock_text(instance.created_at_us, now_us=now_us)))
    if took:
        facts.append(("took" if is_ended else "for", took))
    if instance.n_recoveries:
        facts.append(("recovered", f"{count_text(instance.n_recoveries, 'time')} after a crash"))
    limit = None if invocation.is_plain else 300
    for name, value in (("data", instance.data), ("config", instance.config), ("kept", dict(view.state))):
        if value not in (None, {}):
            facts.append((name, json_line(value, limit)))
    if not invocation.is_plain:
        heading(invocation, f"{instance.sequence_name} v{instance.sequence_version}")
    show_facts(invocation, facts)


def show_steps(invocation: Invocation, view: InstanceView, now_us: int) -> None:
    from orch8_local.cli.board import steps_of
    from orch8_local.cli.render import elapsed_text
    from orch8_local.cli.screen import Cell, heading, show_table
    from orch8_local.cli.wording import latest_of, node_standing, place, receipt_words
    from orch8_local.model.records import Node
    from orch8_local.model.states import NodeState

    handlers = dict(steps_of(view.document))
    reached = [node for node in view.nodes if node.block_id in handlers]
    seen = {node.block_id for node in reached}
    coming = [Node("", block_id, NodeState.PENDING) for block_id in handlers if block_id not in seen]
    order = {block_id: index for index, block_id in enumerate(handlers)}
    table: list[list[Cell | str]] = []
    for node in sorted([*reached, *coming], key=lambda node: (order[node.block_id], node.scope)):
        standing = node_standing(node, now_us)
        receipt = latest_of(view.receipts, node)
        took = ""
        if node.started_at_us is not None and node.ended_at_us is not None:
            took = elapsed_text(node.started_at_us, node.ended_at_us)
        table.append(
            [
                place(node.scope, node.block_id),
                Cell(standing.text, standing.key, is_state=True),
                str(node.attempt or ""),
                took,
                handlers[node.block_id],
                receipt_words(receipt) if receipt else "",
            ]
        )
    heading(invocation, "steps")
    show_table(invocation, ["STEP", "STATE", "TRIES", "TOOK", "HANDLER", "EFFECT"], table)


def show_next(invocation: Invocation, settings: Settings, view: InstanceView, *, has_owner: bool) -> None:
    from orch8_local.cli.screen import Cell, command_line, show_lines

    lines = next_steps(settings, view, has_owner=has_owner)
    if invocation.is_plain:
        for line in lines:
            invocation.write(f"next: {line}")
    elif lines:
        show_lines(["", Cell("next", "bold"), *(f"  {line}" for line in lines)])
        words = command_line(settings, "instances", "timeline", view.instance.id[:13])
        show_lines([Cell(f"  {words}", "bright_black")])


def next_steps(settings: Settings, view: InstanceView, *, has_owner: bool) -> list[str]:
    """Commands that carry a stopped run on."""
    from orch8_local.cli.render import short_effect, short_run
    from orch8_local.cli.screen import command_line

    instance = view.instance
    if instance.is_blocked and instance.failure is not None:
        return [command_line(settings, "effects", "resolve", short_effect(i)) for i in instance.failure.effect_ids]
    if str(instance.state) in ("failed", "paused"):
        return [command_line(settings, "instances", "retry", short_run(instance.id))]
    if instance.ended_at_us is None and not has_owner:
        return [command_line(settings, "up")]
    return []


def show_outputs(invocation: Invocation, latest: dict[str, Json]) -> None:
    from orch8_local.cli.render import json_block, json_line, one_line
    from orch8_local.cli.screen import Cell, show_lines

    if not latest:
        invocation.note("no outputs yet")
    for block_id, value in latest.items():
        if invocation.is_plain:
            invocation.write(f"{one_line(block_id)}: {json_line(value)}")
        else:
            show_lines([Cell(one_line(block_id), "bold"), *(f"  {line}" for line in json_block(value).split("\n"))])


def show_rows(invocation: Invocation, view: InstanceView, block: str | None) -> None:
    from orch8_local.cli.render import json_line
    from orch8_local.cli.screen import show_table
    from orch8_local.cli.wording import place
    from orch8_local.model.records import rfc3339

    rows = [row for row in view.outputs if block in (None, row.block_id)]
    if invocation.is_json:
        invocation.write_json(
            [
                {
                    "block_id": row.block_id,
                    "scope": row.scope,
                    "kind": row.kind,
                    "attempt": row.attempt,
                    "output": row.output,
                    "effect_id": row.effect_id,
                    "at": rfc3339(row.created_at_us),
                }
                for row in rows
            ]
        )
        return
    table = [[place(r.scope, r.block_id), r.kind, str(r.attempt), json_line(r.output, 2000)] for r in rows]
    show_table(invocation, ["BLOCK", "KIND", "TRY", "OUTPUT"], table)


def show_plan(invocation: Invocation, view: InstanceView) -> None:
    """What a retry would do, step by step."""
    done = [node.block_id for node in view.nodes if str(node.state) == "completed"]
    again = [node.block_id for node in view.nodes if str(node.state) in ("failed", "cancelled")]
    blocked = [node.block_id for node in view.nodes if node.waiting_for == "effect"]
    for words, names in (("stay done", done), ("run again", again), ("stay blocked", blocked)):
        if names:
            from orch8_local.cli.render import list_text, one_line

            invocation.note(f"{words}: {list_text(one_line(name) for name in names)}")
