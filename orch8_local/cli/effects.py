"""`orch8-local effects`: what was done to the outside, what is not known, and saying what really happened.

Owns the receipt's page and the questions of a resolution; the rules of evidence are the engine's. The
easy mistake: an answer in place of the person's; without flags on a terminal every question is asked,
and none has a default that settles an effect.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from orch8_local.cli.asking import changing, owner_is_alive, reading, submit
from orch8_local.cli.completion import complete_effects, complete_instances
from orch8_local.cli.invocation import Group, Invocation, common_options
from orch8_local.errors import InputError

if TYPE_CHECKING:
    from orch8_local.engine.api import EngineApi
    from orch8_local.model.records import Receipt
    from orch8_local.settings import Settings

Json = Any
BLOCKED_STATUS = 3
TARGETS = ("committed", "verified", "abandoned", "compensated")
STATES = ("planned", "prepared", "dispatched", *TARGETS[:2], "unknown", *TARGETS[2:])
KINDS = ("http", "worker", "webhook", "message", "storage", "model", "human_decision", "custom")
SEARCHABLE = ("key", "effect-id", "hash", "window")
UNRESOLVED = ("dispatched", "unknown")

effect_argument = click.argument("effect", metavar="ID", shell_complete=complete_effects)


@click.group(cls=Group)
def effects() -> None:
    """Look at effects; say what really happened. A unique beginning of an id is enough."""


# --- list, show, timeline ------------------------------------------------------------------------------


@effects.command("list")
@click.option("--unresolved", is_flag=True, help="Only those whose outcome is not known.")
@click.option("--instance", metavar="ID", shell_complete=complete_instances, help="Only those of one run.")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of this kind.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="The newest so many.")
@common_options
def list_(
    invocation: Invocation, unresolved: bool, instance: str | None, state: str | None, kind: str | None, limit: int
) -> int:
    """List receipts, newest first."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> None:
        from orch8_local.engine.api import EffectFilter

        run_id = await api.views.instance_id(instance) if instance else None
        wanted = EffectFilter(is_unresolved=unresolved, instance_id=run_id, state=state, kind=kind, limit=limit)
        found = await api.views.effects(wanted)
        if invocation.is_json:
            invocation.write_json([receipt.as_wire(now_us=now_us) for receipt in found])
            return
        _show_list(invocation, settings, found, now_us=now_us, is_unresolved=unresolved)

    return reading(invocation, look)


def _show_list(
    invocation: Invocation, settings: Settings, found: list[Receipt], *, now_us: int, is_unresolved: bool
) -> None:
    from orch8_local.cli.render import age_text, short_effect, short_run
    from orch8_local.cli.screen import Cell, command_line, show_table, state_cell
    from orch8_local.cli.wording import place, request_words
    from orch8_local.model.records import rfc3339

    if not found:
        invocation.note("every outcome is known" if is_unresolved else "no effects")
        return
    table: list[list[Cell | str]] = []
    for receipt in found:
        is_plain = invocation.is_plain
        table.append(
            [
                receipt.id if is_plain else short_effect(receipt.id),
                state_cell(str(receipt.state)),
                rfc3339(receipt.updated_at_us) if is_plain else age_text(receipt.updated_at_us, now_us),
                receipt.instance_id if is_plain else short_run(receipt.instance_id),
                place(receipt.scope, receipt.block_id),
                request_words(receipt),
            ]
        )
    show_table(invocation, ["EFFECT", "STATE", "SINCE", "RUN", "STEP", "WHAT"], table)
    unknown = [receipt for receipt in found if str(receipt.state) == "unknown"]
    if unknown:
        words = command_line(settings, "effects", "resolve", short_effect(unknown[0].id))
        invocation.note(f"find out what really happened, then: {words}")


@effects.command()
@effect_argument
@common_options
def show(invocation: Invocation, effect: str) -> int:
    """Show one receipt: what was sent, what is known, and what happened to it."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> None:
        from orch8_local.cli.timeline import all_events, show_events
        from orch8_local.cli.wording import event_dict
        from orch8_local.model.records import rfc3339

        receipt = await api.views.effect(await api.views.effect_id(effect))
        siblings = [r for r in await api.views.siblings(receipt.intent_id) if r.id != receipt.id]
        events = await all_events(api.views, effect_id=receipt.id)
        if invocation.is_json:
            invocation.write_json(
                {
                    **receipt.as_wire(now_us=now_us),
                    "output": receipt.output,
                    "events": [event_dict(event, rfc3339(event.at_us)) for event in events],
                    "siblings": [sibling.as_wire(now_us=now_us) for sibling in siblings],
                }
            )
            return
        _show_receipt(invocation, receipt, siblings, now_us=now_us)
        if not invocation.is_plain:
            invocation.write("")
        show_events(invocation, events, now_us=now_us)
        _show_next(invocation, settings, receipt)

    return reading(invocation, look)


def _show_receipt(invocation: Invocation, receipt: Receipt, siblings: list[Receipt], *, now_us: int) -> None:
    from orch8_local.cli.render import clock_text, json_line, short_effect
    from orch8_local.cli.screen import Cell, show_facts, state_cell
    from orch8_local.cli.wording import place, request_words

    facts: list[tuple[str, Cell | str]] = [
        ("effect", receipt.id),
        ("state", state_cell(str(receipt.state))),
        ("run", receipt.instance_id),
        ("step", f"{place(receipt.scope, receipt.block_id)}, attempt {receipt.attempt + 1}, {receipt.handler}"),
        ("request", request_words(receipt)),
        ("mode", str(receipt.mode).replace("_", "-")),
    ]
    if receipt.sent_key:
        facts.append(("key sent", receipt.sent_key))
    if receipt.provider_receipt_id:
        facts.append(("receipt of the provider", receipt.provider_receipt_id))
    if receipt.dispatched_at_us is not None:
        facts.append(("sent", clock_text(receipt.dispatched_at_us, now_us=now_us)))
    facts.append(("request hash", receipt.request_sha256))
    if receipt.has_output:
        facts.append(("output", json_line(receipt.output, None if invocation.is_plain else 300)))
    facts += [(f"attempt {s.attempt + 1}", f"{short_effect(s.id)} {s.state}") for s in siblings]
    show_facts(invocation, facts)


def _show_next(invocation: Invocation, settings: Settings, receipt: Receipt) -> None:
    from orch8_local.cli.render import short_effect
    from orch8_local.cli.screen import command_line

    state = str(receipt.state)
    if state == "unknown":
        words = command_line(settings, "effects", "resolve", short_effect(receipt.id))
        invocation.note(f"nobody here can know whether it happened; ask the other side, then: {words}")
    elif state == "dispatched" and not owner_is_alive(settings):
        words = command_line(settings, "up")
        invocation.note(f"the process that sent it is gone; the next start makes it unknown: {words}")


@effects.command()
@click.argument("instance", metavar="RUN", shell_complete=complete_instances)
@common_options
def timeline(invocation: Invocation, instance: str) -> int:
    """Show how the effects of one run moved, in order."""

    async def look(api: EngineApi, _: Settings, now_us: int) -> None:
        from orch8_local.cli.timeline import show_timeline

        run_id = await api.views.instance_id(instance)
        await show_timeline(invocation, api.views, now_us=now_us, instance_id=run_id, only_effects=True)

    return reading(invocation, look)


# --- check ---------------------------------------------------------------------------------------------

_AGE = re.compile(r"(\d+)\s*(s|m|min|h|d)?", re.ASCII)
_AGE_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, None: 1}


def _age_s(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = _AGE.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no length of time; write 90s, 15m, 2h or 1d")
    return int(found.group(1)) * _AGE_UNITS[found.group(2)]


@effects.command()
@click.option("--max-depth", type=click.IntRange(min=0), help="Alarm if more than so many are open.")
@click.option("--max-age", "max_age_s", callback=_age_s, metavar="15m", help="Alarm if one is older than this.")
@common_options
def check(invocation: Invocation, max_depth: int | None, max_age_s: int | None) -> int:
    """For cron and monitoring: exit 3 if effects are not resolved; without limits, any is an alarm."""

    async def look(api: EngineApi, settings: Settings, now_us: int) -> int:
        from orch8_local.cli.render import age_text, count_text
        from orch8_local.cli.screen import command_line

        backlog = await api.views.backlog()
        oldest_s = 0 if backlog.oldest_at_us is None else max(0, now_us - backlog.oldest_at_us) // 1_000_000
        is_alarm = backlog.n_unresolved > 0 if max_depth is None and max_age_s is None else False
        if max_depth is not None:
            is_alarm |= backlog.n_unresolved > max_depth
        if max_age_s is not None:
            is_alarm |= backlog.n_unresolved > 0 and oldest_s > max_age_s
        if invocation.is_json:
            invocation.write_json({"ok": not is_alarm, "n_unresolved": backlog.n_unresolved, "oldest_age_s": oldest_s})
        elif backlog.oldest_at_us is None:
            invocation.write("ok: every outcome is known")
        else:
            word = "blocked" if is_alarm else "ok"
            age = age_text(backlog.oldest_at_us, now_us)
            what = count_text(backlog.n_unresolved, "effect")
            words = command_line(settings, "effects", "list", "--unresolved")
            invocation.write(f"{word}: {what} not resolved, the oldest for {age}; see: {words}")
        return BLOCKED_STATUS if is_alarm else 0

    return reading(invocation, look)


# --- resolve -------------------------------------------------------------------------------------------


@effects.command()
@effect_argument
@click.option("--as", "target", type=click.Choice(TARGETS), help="What really happened.")
@click.option("--evidence", metavar="TEXT|@FILE", help="Where this was seen, when, and by what.")
@click.option("--provider-receipt", metavar="ID", help="The other side's own id for it.")
@click.option("--output", metavar="JSON|@FILE", help="What the step goes on with.")
@click.option("--searched", metavar="LIST", help=f"What was searched for: {','.join(SEARCHABLE)}.")
@click.option(
    "--then",
    type=click.Choice(("resume", "retry", "stay")),
    help="resume: as the retry policy says. retry: send it once more. stay: leave the run stopped.",
)
@click.option("--by", metavar="NAME", help="Who decides; default the user's name.")
@click.option("--detach", is_flag=True, help="Only record it; an engine carries the run on.")
@common_options
def resolve(invocation: Invocation, effect: str, detach: bool, by: str | None, **given: str | None) -> int:
    """Record what really happened to an effect; its run goes on from there.

    committed, verified: it happened. abandoned: it did not. compensated: it happened and was undone.
    Without --as on a terminal every question is asked.
    """
    resumed: list[str] = []

    async def change(api: EngineApi, _: Settings) -> int:
        receipt = await api.views.effect(await api.views.effect_id(effect))
        arguments = _answers(invocation, receipt, given)
        result = await submit(api, "resolve", arguments, by)
        if invocation.is_json and (detach or not _goes_on(result)):
            invocation.write_json(result)
        if not invocation.is_json:
            _say_result(invocation, receipt, result)
        if _goes_on(result):
            resumed.append(receipt.instance_id)
        return 0

    status = asyncio.run(changing(invocation, change))
    if detach or not resumed:
        return status
    from orch8_local.cli.runs import carry_on

    return asyncio.run(carry_on(invocation, invocation.settings(), resumed[0]))


def _goes_on(result: dict[str, Json]) -> bool:
    return result.get("instance_state") in ("scheduled", "running", "waiting")


def _say_result(invocation: Invocation, receipt: Receipt, result: dict[str, Json]) -> None:
    from orch8_local.cli.render import short_effect, short_run

    invocation.write(f"effect {short_effect(receipt.id)} is recorded as {result.get('state')}")
    if not _goes_on(result):
        standing = "blocked" if result.get("is_blocked") else result.get("instance_state")
        invocation.write(f"run {short_run(receipt.instance_id)} is {standing}")


def _answers(invocation: Invocation, receipt: Receipt, given: dict[str, str | None]) -> dict[str, Json]:
    """The command's arguments: from the options, or by asking."""
    if given["target"] is None:
        if invocation.is_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(
                "--as is missing: it says what really happened",
                hint=f"--as {'|'.join(TARGETS)}, with --evidence",
            )
        given = _ask(invocation, receipt, given)
    from orch8_local.cli.inputs import json_argument, text_argument

    searched = [word.strip() for word in (given["searched"] or "").split(",") if word.strip()]
    for word in searched:
        if word not in SEARCHABLE:
            raise InputError(f"--searched: {word!r} is none of {', '.join(SEARCHABLE)}")
    arguments: dict[str, Json] = {
        "effect_id": receipt.id,
        "target": given["target"],
        "version": receipt.version,
        "evidence": {
            "note": text_argument(given["evidence"] or "", "--evidence"),
            "searched_for": searched,
        },
        "provider_receipt_id": given["provider_receipt"],
        "then": given["then"],
    }
    if given["output"] is not None:
        arguments |= {"output": json_argument(given["output"], "--output"), "has_output": True}
    return arguments


def _ask(invocation: Invocation, receipt: Receipt, given: dict[str, str | None]) -> dict[str, str | None]:
    """The questions of a resolution, in the order of the UI's dialog; nothing is settled by Return."""
    from orch8_local.cli.wording import request_words

    invocation.note(f"effect {receipt.id}")
    invocation.note(f"{request_words(receipt)}, sent by step {receipt.block_id!r}, state {receipt.state}")
    if receipt.sent_key:
        invocation.note(f"key to search for: {receipt.sent_key}")
    answers = dict(given)
    answers["target"] = click.prompt("What really happened?", type=click.Choice(TARGETS), err=True)
    happened = answers["target"] in ("committed", "verified")
    if answers["evidence"] is None:
        answers["evidence"] = click.prompt("Where did you see it, when, by what?", err=True)
    if answers["provider_receipt"] is None and answers["target"] != "abandoned":
        answers["provider_receipt"] = (
            click.prompt("The other side's id for it (empty if none)", default="", show_default=False, err=True) or None
        )
    if happened and answers["output"] is None:
        answers["output"] = click.prompt("What did it answer? (JSON; null goes on without)", err=True)
    if answers["target"] == "abandoned":
        if answers["searched"] is None:
            answers["searched"] = click.prompt(f"What did you search for? ({','.join(SEARCHABLE)})", err=True)
        if answers["then"] is None:
            choice = click.Choice(("resume", "retry", "stay"))
            answers["then"] = click.prompt("And then?", type=choice, err=True)
    return answers
