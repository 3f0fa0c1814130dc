"""The command table, the loading of one command, and the way from an error to an exit status.

Owns the list of commands: name, where it lives, one line of help. A command's module is imported
when that command is called, never for `--help` of the whole. The easy mistake: an import at the top
of this file that every command then pays for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from orch8_local import __version__
from orch8_local.cli.invocation import Group, Invocation, root_options
from orch8_local.cli.streams import complain, is_output_error
from orch8_local.errors import InputError, Orch8Error

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("orch8_local.cli.project:init", "Make a project folder."),
    "validate": ("orch8_local.cli.author:validate", "Find every problem of a sequence file."),
    "run": ("orch8_local.cli.runs:run", "Run one sequence to its end."),
    "up": ("orch8_local.cli.runs:up", "Run the engine until it is told to stop."),
    "demo": ("orch8_local.cli.demo:demo", "See the whole point in a minute, without a network."),
    "sequences": ("orch8_local.cli.author:sequences", "List, show and add sequences."),
    "instances": ("orch8_local.cli.instances:instances", "Look at runs; cancel or retry them."),
    "effects": ("orch8_local.cli.effects:effects", "Look at effects; say what really happened."),
    "handlers": ("orch8_local.cli.author:handlers", "List and show what steps can call."),
    "db": ("orch8_local.cli.data:db", "Check, back up and describe the database."),
    "doctor": ("orch8_local.cli.doctor:doctor", "Check this machine, with one next step per finding."),
    "completion": ("orch8_local.cli.completion:completion", "Print the completion script of a shell."),
    "version": ("orch8_local.cli.main:version", "Print the version."),
}
ENDED_INPUT_STATUS = 2
INTERRUPTED_STATUS = 130
COMPLETE_VARIABLE = "_ORCH8_LOCAL_COMPLETE"


class LazyGroup(Group):
    """The top level: commands come from the table and are imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{cmd_name} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="orch8-local", message="%(prog)s %(version)s")
@root_options
def cli() -> None:
    """Run workflows on this machine; an action on somebody else's system is never sent twice unknowingly."""


@click.command()
@click.option("--json", "is_json", is_flag=True, help="The result as JSON.")
def version(is_json: bool) -> None:
    """Print the version."""
    line = json.dumps({"name": "orch8-local", "version": __version__}) if is_json else f"orch8-local {__version__}"
    sys.stdout.write(line + "\n")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of this process) and return its exit status.

    Prints the error, if any; raises only the OSError of a broken output, for `streams.guarded`.
    """
    given = [_as_utf8(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    invocation = Invocation()
    is_json = "--json" in (given[: given.index("--")] if "--" in given else given)
    try:
        return _invoke(given, invocation)
    except Orch8Error as error:
        return _report(error, invocation, is_json=is_json)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        return error.exit_code
    except click.ClickException as error:
        return _report(_usage_error(error), invocation, is_json=is_json)
    except click.Abort:
        complain("")
        return INTERRUPTED_STATUS
    except EOFError:
        complain("error: the input ended before the question was answered; give the answers as options")
        return ENDED_INPUT_STATUS
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED_STATUS
    except Exception as error:  # noqa: BLE001, RUF100 - the last line of defence: one line, status 70
        if isinstance(error, OSError) and is_output_error(error):
            raise
        return _report_bug(error, invocation, is_json=is_json)


def _as_utf8(word: str) -> str:
    """A word of the command line as it was typed, also where the locale does not know its letters."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return word


def _invoke(arguments: list[str], invocation: Invocation) -> int:
    if COMPLETE_VARIABLE in os.environ:
        cli.main(args=arguments, prog_name="orch8-local", obj=invocation)
    with cli.make_context("orch8-local", arguments, obj=invocation) as context:
        status = cli.invoke(context)
    return status if isinstance(status, int) else 0


def error_line(error: Orch8Error) -> str:
    """`error: what; why; what to do`, on one line whatever the texts hold."""
    from orch8_local.cli.render import one_line

    parts = [error.message.rstrip("."), (error.hint or "").rstrip(".")]
    return "error: " + "; ".join(one_line(part) for part in parts if part)


def error_object(error: Orch8Error) -> dict[str, Any]:
    """The error as `--json` prints it."""
    return {"error": {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details}}


def _report(error: Orch8Error, invocation: Invocation, *, is_json: bool) -> int:
    if is_json:
        sys.stdout.write(json.dumps(error_object(error), default=str) + "\n")
    else:
        sys.stdout.flush()
        complain(error_line(error))
    if invocation.verbosity >= 2:
        _print_trace(error)
    return error.exit_status


def _report_bug(error: Exception, invocation: Invocation, *, is_json: bool) -> int:
    from orch8_local.errors import Bug

    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    bug = Bug(
        f"this program did not expect {what}",
        hint="nothing acknowledged is lost; run it again with -vv for the trace and report it",
    )
    bug.__cause__ = error
    return _report(bug, invocation, is_json=is_json)


def _usage_error(error: click.ClickException) -> InputError:
    """A usage error of the parser in our own form."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "orch8-local"
    message = " ".join(error.format_message().split())
    has_way_out = "did you mean" in message.lower() or " --help" in message
    usage = InputError(message, hint=None if has_way_out else f"`{path} --help` shows how")
    usage.code = "usage"
    return usage


def _print_trace(error: BaseException) -> None:
    import traceback

    complain("".join(traceback.format_exception(error)).rstrip())
