"""The writer's interface on the loop's own thread, for simulation: the same SQL at seeded moments.

The easy mistake: relying on the order of two transactions; the loop of a simulation shuffles it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from orch8_local.errors import CommitUnknown
from orch8_local.store.writer import Tx, as_store_error, commit_unknown
from orch8_local.world import CrashPoints

T = TypeVar("T")


class InlineWriter:
    """The same interface on the loop's own thread, for simulation: same SQL, seeded moments.

    before_commit(name) may raise an sqlite3.Error to play a failing disk.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        crash: CrashPoints,
        *,
        before_commit: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._crash = crash
        self._before_commit = before_commit
        self._poison: BaseException | None = None

    @property
    def is_poisoned(self) -> bool:
        """True once a commit's fate is unknown."""
        return self._poison is not None

    async def transact(self, fn: Callable[[Tx], T], *, name: str) -> T:
        """See WriterApi. The transaction runs even if the caller is cancelled while it waits its turn.

        Turns come in the order of the loop, which a simulation shuffles: nothing may rely on another one.
        """
        cancelled: BaseException | None = None
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            cancelled = error
        result = self._transact(fn, name)
        if cancelled is not None:
            raise cancelled
        return result

    def _transact(self, fn: Callable[[Tx], T], name: str) -> T:
        if self._poison is not None:
            raise commit_unknown(self._poison)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._crash.reach(f"{name}.begin")
            tx = Tx(connection)
            result = fn(tx)
            tx.flush()
            self._crash.reach(f"{name}.commit")
            if self._before_commit is not None:
                self._before_commit(name)
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            found = as_store_error(error)
            if isinstance(found, CommitUnknown):
                self._poison = error
            raise found from error
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._crash.reach(f"{name}.after")
        return result

    async def close(self) -> None:
        """The connection belongs to whoever made it."""
