"""Tables, facts and marks on a terminal, a pipe or as plain lines.

Owns the choice between them: rich tables where colours or columns help, tab-separated lines with
`--plain`. rich is loaded here and in `live`, only when something is shown. The easy mistake: giving
rich a string; it would read square brackets as markup, so everything is a `Text`.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orch8_local.cli.invocation import Invocation
from orch8_local.cli.render import cut, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from orch8_local.settings import Settings

PIPE_WIDTH = 240

STYLES = {
    "completed": "green",
    "committed": "green",
    "verified": "green",
    "running": "cyan",
    "dispatched": "cyan",
    "waiting": "blue",
    "retry": "blue",
    "scheduled": "blue",
    "prepared": "blue",
    "planned": "blue",
    "pending": "bright_black",
    "skipped": "bright_black",
    "abandoned": "bright_black",
    "paused": "magenta",
    "compensated": "magenta",
    "failed": "red",
    "blocked": "bold yellow",
    "unknown": "bold yellow",
    "cancelled": "magenta",
}
MARKS = {
    "completed": ("✓", "+"),
    "committed": ("✓", "+"),
    "verified": ("✓", "+"),
    "running": ("●", "*"),
    "dispatched": ("●", "*"),
    "waiting": ("◔", "~"),
    "retry": ("◔", "~"),
    "scheduled": ("◔", "~"),
    "prepared": ("○", "."),
    "planned": ("○", "."),
    "pending": ("○", "."),
    "skipped": ("○", "."),
    "abandoned": ("○", "."),
    "paused": ("‖", "="),
    "compensated": ("↺", "<"),
    "failed": ("✗", "x"),
    "blocked": ("▲", "!"),
    "unknown": ("▲", "!"),
    "cancelled": ("⊘", "-"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table. style: a rich style, or a state whose style and mark it gets."""

    text: str
    style: str = ""
    is_state: bool = False


def state_cell(state: str, text: str | None = None) -> Cell:
    """A state with its colour and mark; `text` says more than the bare word."""
    return Cell(text or state, state, is_state=True)


def is_terminal() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def can_show(text: str) -> bool:
    """True if standard output's encoding has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def mark(state: str) -> str:
    """The sign of a state, in what the output can show."""
    sign, plain = MARKS.get(state, ("·", "."))
    return sign if can_show(sign) else plain


def console(*, to_stderr: bool = False) -> Console:
    """A rich console for one of our streams; no colour unless it is a terminal without NO_COLOR."""
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `streams`, which knows what a reader that has gone means."""
            raise BrokenPipeError(errno.EPIPE, "the reader has gone")

    stream = sys.stderr if to_stderr else sys.stdout
    is_tty = stream.isatty()
    return OurConsole(
        file=stream,
        width=None if is_tty else PIPE_WIDTH,
        no_color="NO_COLOR" in os.environ or not is_tty,
        force_terminal=is_tty,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def show_table(
    invocation: Invocation, headers: Sequence[str], rows: Iterable[Sequence[Cell | str]], *, wide: int = -1
) -> None:
    """Columns for people; with `--plain` one row a line, cells separated by tabs, no header.

    wide: the column that may be cut when the terminal is narrow; default the last.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    if invocation.is_plain:
        for row in cells:
            invocation.write("\t".join(one_line(cell.text) for cell in row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    wide %= len(headers)
    out = console()
    widths = [max([len(h), *(len(_shown(row[n])) for row in cells)]) for n, h in enumerate(headers)]
    if is_terminal():
        room = out.size.width - sum(widths) + widths[wide] - 2 * len(widths)
        widths[wide] = min(widths[wide], max(room, len(headers[wide]), 8))
    for header, width in zip(headers, widths, strict=True):
        table.add_column(Text(header), no_wrap=True, overflow="ellipsis", min_width=width)
    for row in cells:
        texts = [cut(_shown(cell), width) for cell, width in zip(row, widths, strict=True)]
        table.add_row(*(Text(text, style=_style(cell), no_wrap=True) for text, cell in zip(texts, row, strict=True)))
    out.print(table, soft_wrap=not is_terminal(), no_wrap=True, overflow="ellipsis", crop=is_terminal())


def _shown(cell: Cell) -> str:
    text = one_line(cell.text)
    return f"{mark(cell.style)} {text}" if cell.is_state else text


def _style(cell: Cell) -> str:
    return STYLES.get(cell.style, "") if cell.is_state else cell.style


def show_facts(invocation: Invocation, facts: Iterable[tuple[str, Cell | str]]) -> None:
    """Named facts, one a line; long ones are wrapped beside their name on a terminal."""
    pairs = [(name, cell if isinstance(cell, Cell) else Cell(cell)) for name, cell in facts]
    if invocation.is_plain:
        for name, cell in pairs:
            invocation.write(f"{name}: {one_line(cell.text)}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in pairs:
        table.add_row(Text(f"  {name}"), Text(_shown(cell), style=_style(cell)))
    console().print(table)


def show_lines(lines: Iterable[Cell | str]) -> None:
    """Lines as they are, in colour where there is one."""
    from rich.text import Text

    out = console()
    for line in lines:
        cell = line if isinstance(line, Cell) else Cell(line)
        out.print(Text(_shown(cell), style=_style(cell)), soft_wrap=True)


def heading(invocation: Invocation, text: str) -> None:
    """A line above a table; nothing with `--plain`."""
    if invocation.is_plain:
        return
    show_lines(["", Cell(text, "bold")])


def command_line(settings: Settings, *words: str) -> str:
    """A command to type next; it names the database if this call did."""
    parts = ["orch8-local", *words]
    if settings.source_of("db") == "--db":
        parts += ["--db", str(settings.database)]
    return shlex.join(parts)
