"""Being told to stop: the first signal drains, the second stops at once, the third ends the process.

Owns SIGINT, SIGTERM and SIGHUP while an engine or a display runs. The easy mistake: leaving SIGINT
to Python; its KeyboardInterrupt lands in the middle of anything.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED_STATUS = 130


class Stop:
    """How often this process has been told to stop, and by which signal first."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.signal: signal.Signals | None = None
        self._n_seen = 0

    @property
    def is_asked(self) -> bool:
        """True after the first signal."""
        return self.first.is_set()

    def tell(self, number: signal.Signals) -> None:
        """One more signal."""
        self._n_seen += 1
        if self._n_seen == 1:
            self.signal = number
            self.first.set()
        elif self._n_seen == 2:
            self.second.set()
        else:
            os._exit(INTERRUPTED_STATUS)  # told three times; the ledger survives any death


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn signals into a Stop for the time of a `with`; a signal that is ignored stays ignored."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    taken: list[signal.Signals] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup, or a background job
            continue
        loop.add_signal_handler(number, _telling(stop, number))
        taken.append(number)
    try:
        yield stop
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def _telling(stop: Stop, number: signal.Signals) -> Callable[[], None]:
    return lambda: stop.tell(number)
