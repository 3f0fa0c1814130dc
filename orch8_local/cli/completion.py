"""Completion for bash, zsh and fish: the script, and the names and ids that the script asks for.

The asking runs in a process of its own each time TAB is pressed, so everything that reads a database
is loaded late. The easy mistake: an error message; a completion that fails offers nothing, silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from orch8_local.cli.invocation import Invocation, common_options
from orch8_local.errors import Orch8Error

if TYPE_CHECKING:
    from orch8_local.engine.api import Views

PROGRAM = "orch8-local"
COMPLETE_VARIABLE = "_ORCH8_LOCAL_COMPLETE"
MOST = 200
"""More candidates than this help nobody."""

HOW_TO = {
    "bash": 'eval "$(orch8-local completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(orch8-local completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "orch8-local completion fish > ~/.config/fish/completions/orch8-local.fish",
}


@click.command()
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(list(HOW_TO)))
@common_options
def completion(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell; commands, names and ids then complete with TAB."""
    script = completion_script(shell)
    if invocation.is_json:
        invocation.write_json({"shell": shell, "script": script, "use": HOW_TO[shell]})
        return
    invocation.write(script.rstrip("\n"))


def completion_script(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`; a bash that is too old for it is named on standard error."""
    from orch8_local.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, f"click completes for {shell}"
    return kind(cli, {}, PROGRAM, COMPLETE_VARIABLE).source().strip() + "\n"


Items = list[CompletionItem]


def complete_instances(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Ids of runs, newest first, each with its sequence and state."""

    async def find(views: Views) -> Items:
        from orch8_local.engine.api import InstanceFilter

        rows = await views.instances(InstanceFilter(limit=MOST))
        return [CompletionItem(row.id, help=f"{row.sequence_name}, {row.state}") for row in rows]

    return _matching(_from_views(ctx, find), incomplete)


def complete_effects(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Ids of receipts, newest first, each with its state and block."""

    async def find(views: Views) -> Items:
        from orch8_local.engine.api import EffectFilter

        rows = await views.effects(EffectFilter(limit=MOST))
        return [CompletionItem(row.id, help=f"{row.state}, {row.block_id}, {row.handler}") for row in rows]

    return _matching(_from_views(ctx, find), incomplete)


def complete_sequences(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Names of sequences, those of the project's folders, of the database and the bundled ones; else files."""

    def find() -> Items:
        from orch8_local.cli.catalogue import available

        settings = ctx.ensure_object(Invocation).settings()
        return [CompletionItem(entry.name, help=entry.origin) for entry in available(settings) if entry.name]

    async def stored(views: Views) -> Items:
        return [CompletionItem(row.name, help="added") for row in await views.sequences()]

    found = {item.value: item for item in [*_from_views(ctx, stored), *_silently(find)]}
    return _matching([found[name] for name in sorted(found)], incomplete) or complete_files(ctx, _, incomplete)


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Leave it to the shell to complete files."""
    return [CompletionItem(incomplete, type="file")]


def complete_handlers(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Names of handlers, each with what it does."""

    def find() -> Items:
        from orch8_local.app import build_registry

        registry = build_registry(ctx.ensure_object(Invocation).settings())
        return [CompletionItem(spec.name, help=spec.summary) for spec in registry.specs()]

    return _matching(_silently(find), incomplete)


def _from_views(ctx: click.Context, find: Callable[[Views], Awaitable[Items]]) -> Items:
    """Ask the database, if there is one, without becoming its owner."""

    async def ask() -> Items:
        from orch8_local.app import Need, connect

        async with connect(ctx.ensure_object(Invocation).settings(), need=Need.READ) as api:
            return await find(api.views)

    return _silently(lambda: asyncio.run(ask()))


def _silently(find: Callable[[], Items]) -> Items:
    try:
        return find()
    except (Orch8Error, OSError):
        return []


def _matching(items: Items, incomplete: str) -> Items:
    return [item for item in items if str(item.value).startswith(incomplete)]
