"""The yardstick: the three commits of a guarded step in bare SQLite, on one writer thread.

No engine, no receipts, no JSON: three small updates a step, each its own durable transaction, with
group commit (whatever has queued up while the disk was busy is one transaction). What the engine
reaches is given as a ratio of this, on the same disk in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import threading
import time
from collections import deque
from pathlib import Path

from benchmarks.marks import mark


class Writer:
    """One thread, one connection, one commit for all that has queued up."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[int, asyncio.Future[None]] | None] = deque()
        self._condition = threading.Condition()
        self._path = path
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def write(self, run: int) -> asyncio.Future[None]:
        """A future that is done when this run's row is on disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        with self._condition:
            self._queue.append((run, future))
            self._condition.notify()
        return future

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._queue.append(None)
            self._condition.notify()
        self._thread.join()

    def _main(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE steps (run INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT")
        while True:
            with self._condition:
                while not self._queue:
                    self._condition.wait()
                batch = list(self._queue)
                self._queue.clear()
            futures = []
            connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                if job is not None:
                    connection.execute(
                        "INSERT INTO steps VALUES (?, 1) ON CONFLICT (run) DO UPDATE SET n = n + 1", (job[0],)
                    )
                    futures.append(job[1])
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, futures)
            if None in batch:
                connection.close()
                return


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def measure(folder: Path, *, n_runs: int, n_steps: int, per_step: int) -> dict[str, float]:
    """Steps per second of `n_runs` loops of `n_steps`, each step `per_step` commits."""
    writer = Writer(folder / "bare.db")

    async def one(run: int) -> None:
        for _ in range(n_steps * per_step):
            await writer.write(run)

    await one(n_runs)
    mark("begin")
    began_s = time.perf_counter()
    await asyncio.gather(*(one(run) for run in range(n_runs)))
    elapsed_s = time.perf_counter() - began_s
    mark("end")
    writer.close()
    return {"n_steps": n_runs * n_steps, "elapsed_s": elapsed_s, "steps_per_s": n_runs * n_steps / elapsed_s}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--per-step", type=int, default=3)
    given = parser.parse_args()
    found = asyncio.run(measure(given.folder, n_runs=given.runs, n_steps=given.steps, per_step=given.per_step))
    json.dump(found, sys.stdout)
