"""Standard output for a run: a reader that goes away, or a full disk, never stops the run.

Owns what is said after the output broke: nothing; the exit status is then that of the run, or 9 if
the output could not be written (case C55). The easy mistake: an exception of `print` inside the loop
that drives the engine.
"""

from __future__ import annotations

import sys

from orch8_local.cli.streams import silence


class Printer:
    """Writes lines to standard output until that breaks, then keeps quiet."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def line(self, text: str) -> None:
        """One line, at once."""
        if self.error is not None:
            return
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except OSError as error:
            self.broke(error)

    def broke(self, error: OSError) -> None:
        """Remember that the output broke; what is still buffered goes nowhere."""
        self.error = error
        silence(sys.stdout)

    def check(self) -> None:
        """Raise what went wrong with the output, unless its reader just went away."""
        if self.error is not None and not isinstance(self.error, BrokenPipeError):
            raise self.error
