"""One run as it happens: a table that changes on a terminal, a line per change elsewhere.

rich is loaded here, when a table is really shown. The easy mistake: an endless step list pushing the
line that matters off the screen; only as many rows as fit are shown, the busy ones first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from orch8_local.cli.board import Board, Row
from orch8_local.cli.printer import Printer
from orch8_local.cli.render import clock_text, cut, elapsed_text, one_line, short_effect
from orch8_local.cli.wording import place

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from orch8_local.engine.api import InstanceView, StepProgress

Json = Any
FRAMES_PER_SECOND = 8
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPARE_LINES = 4


class Display(Protocol):
    """Shows one run while it goes on."""

    def begin(self, view: InstanceView) -> None:
        """The run is followed from here."""

    def progress(self, progress: StepProgress) -> None:
        """A step moved, in this process."""

    def refresh(self, view: InstanceView) -> None:
        """The run was read again."""

    def end(self) -> None:
        """No more is shown."""


class NoDisplay:
    """Shows nothing."""

    def begin(self, view: InstanceView) -> None:
        """Nothing."""

    def progress(self, progress: StepProgress) -> None:
        """Nothing."""

    def refresh(self, view: InstanceView) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def row_words(row: Row) -> str:
    """What is said of a step beside its state."""
    parts = []
    if row.effect_id or row.mode not in ("", "none"):
        parts.append(row.mode.replace("_", "-"))
    if row.effect_id:
        parts.append(f"effect {short_effect(row.effect_id)}")
    if row.message:
        parts.append(one_line(row.message))
    return " · ".join(part for part in parts if part)


def state_words(row: Row, now_us: int) -> str:
    """The state of a step, with the time it waits."""
    words = {"completed": "done", "running": "running", "dispatched": "request sent", "retry": "tries again"}
    text = words.get(row.key, row.key)
    if row.until_us is not None and row.key in ("retry", "waiting"):
        text += f" in {elapsed_text(now_us, max(row.until_us, now_us))}"
    return text


class LineDisplay:
    """A line per change, for pipes, log files and `--plain`."""

    def __init__(self, printer: Printer, now_us: Callable[[], int]) -> None:
        self._printer = printer
        self._now_us = now_us
        self._board: Board | None = None

    def begin(self, view: InstanceView) -> None:
        """Name the run, and say where its steps stand already."""
        instance = view.instance
        self._printer.line(f"run {instance.id} {one_line(instance.sequence_name)} v{instance.sequence_version}")
        self._board = Board(view.document)
        self.refresh(view)

    def progress(self, progress: StepProgress) -> None:
        """One line."""
        if self._board is not None:
            row = self._board.apply(progress, self._now_us())
            if row is not None:
                self._line(row, is_message=progress.phase == "log")

    def refresh(self, view: InstanceView) -> None:
        """A line for each step that moved since."""
        if self._board is not None:
            for row in self._board.load(view, self._now_us()):
                self._line(row, is_message=False)

    def end(self) -> None:
        """Nothing more to say."""
        self._board = None

    def _line(self, row: Row, *, is_message: bool) -> None:
        now_us = self._now_us()
        words = one_line(row.message) if is_message else state_words(row, now_us)
        parts = [clock_text(now_us, now_us=now_us), place(row.scope, row.block_id), words]
        if row.attempt > 1 and not is_message:
            parts.append(f"(attempt {row.attempt})")
        if row.is_over and row.since_us is not None:
            parts.append(elapsed_text(row.since_us, row.ended_us or now_us))
        said = "" if is_message else row_words(row)
        self._printer.line("  ".join(parts) + (f"  {said}" if said else ""))


class LiveDisplay:
    """A table on a terminal, drawn again several times a second until the run stops."""

    def __init__(self, printer: Printer, now_us: Callable[[], int], *, to_stderr: bool = False) -> None:
        from rich.live import Live

        from orch8_local.cli.screen import console

        self._printer = printer
        self._now_us = now_us
        self._console = console(to_stderr=to_stderr)
        self._board: Board | None = None
        self._title = ""
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def begin(self, view: InstanceView) -> None:
        """Draw it for the first time."""
        from orch8_local.cli.render import short_run

        instance = view.instance
        name = f"{one_line(instance.sequence_name)} v{instance.sequence_version}"
        self._title = f"{name}  run {short_run(instance.id)}"
        if instance.start_key is not None:
            self._title += f"  key {one_line(instance.start_key)}"
        self._board = Board(view.document)
        self._board.load(view, self._now_us())
        self._guarded(self._live.start)

    def progress(self, progress: StepProgress) -> None:
        """Take it in; the next tick draws it."""
        if self._board is not None:
            self._board.apply(progress, self._now_us())

    def refresh(self, view: InstanceView) -> None:
        """Take in what was read."""
        if self._board is not None:
            self._board.load(view, self._now_us())
            self.tick()

    def tick(self) -> None:
        """Draw it again."""
        if self._board is not None:
            self._guarded(self._live.refresh)

    def end(self) -> None:
        """Leave the last state on the screen."""
        if self._board is not None:
            self._guarded(self._live.refresh)
            self._guarded(self._live.stop)
            self._board = None

    def _guarded(self, draw: Callable[[], None]) -> None:
        if self._printer.error is None:
            try:
                draw()
            except OSError as error:
                self._printer.broke(error)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        if self._board is None:
            return Text("")
        rows = list(self._board.rows.values())
        room = max(3, self._console.size.height - SPARE_LINES)
        shown = fitting_rows(rows, room)
        n_left = len(rows) - len(shown)
        parts: list[RenderableType] = [Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")]
        parts.append(self._table(shown))
        if n_left:
            n_done = sum(row.key == "completed" for row in rows)
            parts.append(Text(f"  and {n_left} more; {n_done} of {len(rows)} done", style="bright_black"))
        return Group(*parts)

    def _table(self, rows: list[Row]) -> Table:
        from rich.table import Table
        from rich.text import Text

        now_us = self._now_us()
        width = self._console.size.width
        name_width = min(max([len(place(r.scope, r.block_id)) for r in rows], default=8), max(width // 3, 12))
        cells = [self._cells(row, name_width, now_us) for row in rows]
        widths = [max((len(line[n]) for line in cells), default=0) for n in range(4)]
        room = max(width - sum(widths) - 2 * len(widths) - 1, 8)
        table = Table.grid(padding=(0, 2, 0, 0))
        for column_width in widths:
            table.add_column(no_wrap=True, min_width=column_width)
        table.add_column(no_wrap=True)
        for row, (mark, name, state, took, words) in zip(rows, cells, strict=True):
            style = _style(row)
            table.add_row(
                Text(mark, style=style),
                Text(name),
                Text(state, style=style),
                Text(took, style="bright_black"),
                Text(cut(words, room), style="bright_black" if not row.message else style),
            )
        return table

    def _cells(self, row: Row, name_width: int, now_us: int) -> tuple[str, str, str, str, str]:
        """Mark, name, state, time, and the rest, which alone is cut where there is no room."""
        attempt = f", attempt {row.attempt}" if row.attempt > 1 else ""
        took = "" if row.since_us is None else elapsed_text(row.since_us, row.ended_us or now_us)
        return (
            f"  {self._mark(row, now_us)}",
            cut(place(row.scope, row.block_id), name_width),
            state_words(row, now_us) + attempt,
            took if row.key != "pending" else "",
            row_words(row),
        )

    def _mark(self, row: Row, now_us: int) -> str:
        from orch8_local.cli.screen import can_show, mark

        if row.key in ("running", "dispatched") and can_show(SPINNER):
            return SPINNER[now_us * FRAMES_PER_SECOND // 1_000_000 % len(SPINNER)]
        return mark(row.key)


def fitting_rows(rows: list[Row], room: int) -> list[Row]:
    """At most `room` rows in their order: the busy and troubled ones, the latest done, the next to come."""
    if len(rows) <= room:
        return rows
    rank = {"completed": 2, "skipped": 2, "cancelled": 2, "pending": 1}
    by_need = sorted(
        range(len(rows)),
        key=lambda i: (rank.get(rows[i].key, 0), -i if rows[i].key != "pending" else i),
    )
    kept = sorted(by_need[:room])
    return [rows[i] for i in kept]


def _style(row: Row) -> str:
    from orch8_local.cli.screen import STYLES

    return STYLES.get(row.key, "")
