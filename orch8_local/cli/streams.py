"""Standard output and standard error, made safe for every way they can be wrong.

Owns what happens when the reader of a pipe has gone (silence, 141), when the output cannot be
written (one clear line, 9), when a stream is closed, and when the locale cannot show a character
(it is escaped). The easy mistake: letting Python flush at exit, which prints its own complaint.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import TextIO

BROKEN_PIPE_STATUS = 141
OUTPUT_FAILED_STATUS = 9


def guarded(call: Callable[[], int]) -> int:
    """Run a command line that returns its exit status, and see its output out of the door."""
    prepare()
    try:
        status = call()
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        status = BROKEN_PIPE_STATUS
    except OSError as error:
        silence(sys.stdout)
        complain(f"error: the output could not be written: {error.strerror}; {_way_out(error)}")
        status = OUTPUT_FAILED_STATUS
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        return status
    silence(sys.stderr)
    return status


def prepare() -> None:
    """Open closed streams on the null device, and escape what the locale cannot show."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if number == 0 else "w"
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - lives as long as we do
            setattr(sys, name, stream)
        if number > 0 and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def complain(line: str) -> None:
    """Write one line to standard error, if there is anybody to read it."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")


def is_output_error(error: OSError) -> bool:
    """True for an error that only a write to a stream gives: it names no file."""
    return error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EDQUOT)


def silence(stream: TextIO) -> None:
    """Send what is still buffered, and all that follows, to the null device."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _way_out(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or send the output elsewhere"
    return "send the output elsewhere"
