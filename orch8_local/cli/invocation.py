"""What one call of the command line was given, and the options that every command takes.

Owns `--db`, `-v`, `-q`, `--json` and `--plain`, which may stand before or after the verb. The easy
mistake: writing a note to standard output; only results go there, everything else goes to standard
error and is silenced by `-q`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from orch8_local.settings import Settings

Json = Any
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Invocation:
    """The options that every command has.

    verbosity: -1 quiet, 0 normal, 1 with `-v`, 2 with `-vv`.
    """

    database: str | None = None
    verbosity: int = 0
    is_json: bool = False
    is_plain: bool = False

    def settings(self) -> Settings:
        """The settings of this call: flags over environment over project file; SettingsError if wrong."""
        from orch8_local.settings import load_settings

        return load_settings(database=self.database)

    def note(self, text: str) -> None:
        """Say something to the person: standard error, not with `-q` or `--json`."""
        if self.verbosity >= 0 and not self.is_json:
            sys.stderr.write(text + "\n")

    def detail(self, text: str) -> None:
        """Say something that only `-v` wants to know."""
        if self.verbosity >= 1:
            sys.stderr.write(text + "\n")

    def start_logging(self) -> None:
        """Send the program's log to standard error: warnings, with `-v` more, with `-q` errors only."""
        import logging

        level = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(self.verbosity, logging.DEBUG)
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        root = logging.getLogger("orch8_local")
        root.handlers[:] = [handler]
        root.propagate = False
        root.setLevel(level)

    def write(self, text: str) -> None:
        """One line, or several, of the result."""
        sys.stdout.write(text + "\n")

    def write_json(self, value: Json) -> None:
        """The result as one JSON value, indented on a terminal; see `json_text`."""
        sys.stdout.write(json_text(value, indent=2 if sys.stdout.isatty() else None) + "\n")


def json_text(value: Json, *, indent: int | None = None) -> str:
    """JSON in pure ASCII, so that no locale can spoil it; integers keep all their digits."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)


class Group(click.Group):
    """A group of commands that names the nearest one when there is none of that name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with a suggestion."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=1)
            way_out = f"did you mean {near[0]!r}?" if near else f"`{ctx.command_path} --help` lists them"
            raise click.UsageError(f"there is no command {name!r}; {way_out}", ctx=ctx)
        return super().resolve_command(ctx, args)


def common_options(function: F) -> F:
    """Give a command `--json`, `--plain`, `--db`, `-v`, `-q` and the Invocation as first argument."""
    return _database_options(_form_options(_pass_invocation(function)))


def database_options(function: F) -> F:
    """The same without `--json` and `--plain`, for commands that show nothing."""
    return _database_options(_pass_invocation(function))


def _pass_invocation(function: F) -> F:
    def call(*arguments: Any, **options: Any) -> Any:
        return function(click.get_current_context().ensure_object(Invocation), *arguments, **options)

    return update_wrapper(call, function)  # type: ignore[return-value]


def _form_options(function: F) -> F:
    function = click.option(
        "--plain",
        is_flag=True,
        expose_value=False,
        callback=_set_plain,
        help="No box drawing, no colour, one fact a line.",
    )(function)
    return click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help="The result as JSON.")(
        function
    )


def _database_options(function: F) -> F:
    function = click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet, help="Say less.")(
        function
    )
    function = click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_add_verbosity,
        help="Say more; twice for traces.",
    )(function)
    return click.option(
        "--db",
        "database",
        metavar="PATH",
        type=click.Path(),
        expose_value=False,
        callback=_set_database,
        help="The database file; also ORCH8_LOCAL_DB.",
    )(function)


root_options = _database_options


def _invocation(ctx: click.Context) -> Invocation:
    return ctx.ensure_object(Invocation)


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _invocation(ctx).is_json = True


def _set_plain(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _invocation(ctx).is_plain = True


def _set_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _invocation(ctx).verbosity = -1


def _add_verbosity(ctx: click.Context, _: click.Parameter, value: int) -> None:
    if value:
        _invocation(ctx).verbosity += value


def _set_database(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        _invocation(ctx).database = value
