"""Power loss, proved on the product: its own system calls, cut anywhere, on any disk the cut may leave.

One run of the real engine is recorded. For each cut the disk may have kept any part of what was not
synced, in sectors; every such disk must hold a sound ledger that knows of all that was sent and of
all that was acknowledged, and the next start must be able to go on. Source: reliability 4c.
ORCH8_POWER_STATES raises the number of disks that are judged.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orch8_local.engine.engine import Engine
from orch8_local.testing.invariants import Acknowledged, Phase, Seen, Violation, check, connect
from tests.conftest import FIGURE, RecordProperty
from tests.power.recorder import ROOT, record
from tests.power.replay import Known, Verdict, replay

N_STATES = int(os.environ.get("ORCH8_POWER_STATES", "20000"))
N_PARTS = 4
ONE_IN = 97
"""How many disks are judged for one that the real engine is also started on."""

_KEY = re.compile(rb"idempotency-key: ([0-9a-f-]{36})\r\n", re.IGNORECASE)


@contextmanager
def provider(folder: Path) -> Iterator[str]:
    """The shipped provider in a process of its own, untraced: the second charge loses its answer."""
    script = folder / "script.json"
    script.write_text(json.dumps(["answer", "apply_then_drop"]))
    command = [sys.executable, "-m", "orch8_local.testing.provider", "--script", str(script)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


class Judge:
    """What is wrong with the disk that a cut left."""

    def __init__(self) -> None:
        self.n_judged = 0
        self.n_started = 0

    def __call__(self, folder: Path, known: Known) -> Sequence[Violation]:
        """See `replay`."""
        self.n_judged += 1
        try:
            return self._judged(folder / "run.db", known)
        except sqlite3.DatabaseError as error:
            return [Violation("CORRUPT", str(error))]

    def _judged(self, database: Path, known: Known) -> Sequence[Violation]:
        seen = [Seen(key) for key in map(_key_of, known.sent) if key is not None]
        said = [line.split() for line in known.said.decode().splitlines()]
        acknowledged = [Acknowledged(words[0], words[1], *words[2:]) for words in said if words[0] != "completed"]
        if not _has_ledger(database):
            is_lost = bool(seen or acknowledged)
            return [Violation("LOST", "something was sent or said, and there is no ledger")] if is_lost else []
        found = check(database, seen, phase=Phase.CRASHED, acknowledged=acknowledged)
        found += _not_completed(database, [words[1] for words in said if words[0] == "completed"])
        if not found and self.n_judged % ONE_IN == 0:
            self.n_started += 1
            asyncio.run(_start(database))
            found = check(database, seen, phase=Phase.CLOSED, acknowledged=acknowledged)
        return found


def _key_of(stream: bytes) -> str | None:
    found = _KEY.search(stream)
    return found.group(1).decode() if found else None


def _has_ledger(database: Path) -> bool:
    if not database.exists() or database.stat().st_size == 0:
        return False
    with closing(sqlite3.connect(database)) as connection:  # may write: it takes a half-done step back
        return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone())


def _not_completed(database: Path, instance_ids: Sequence[str]) -> list[Violation]:
    with closing(connect(database)) as connection:
        states = dict(connection.execute("SELECT id, state FROM instances").fetchall())
    return [
        Violation("I5", f"run {one} was told to be completed and is {states.get(one)}")
        for one in instance_ids
        if states.get(one) != "completed"
    ]


async def _start(database: Path) -> None:
    """Open and close the real engine: its sweep settles what the cut left."""
    engine = await Engine.open(database)
    await engine.close()


def verdict(folder: Path, n_states: int, seed: int, *synchronous: str) -> tuple[Verdict, Judge]:
    """Record one run and judge `n_states` disks of it."""
    root = folder / "root"
    root.mkdir()
    with provider(folder) as url:
        command = [sys.executable, "-m", "tests.power.program", "run.db", url, *synchronous]
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        operations = record(command, root, trace=folder / "trace", environment=environment)
    judge = Judge()
    return replay(operations, root, judge, n_states=n_states, seed=seed), judge


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(N_PARTS))
def test_no_cut_loses_what_was_sent_or_said(tmp_path: Path, part: int, record_property: RecordProperty) -> None:
    """Whatever the disk kept at a power loss: the ledger is sound and knows of all that was sent or said."""
    result, judge = verdict(tmp_path, N_STATES // N_PARTS, part)
    assert result.n_bad == 0, "\n".join(result.examples)
    assert result.n_states >= N_STATES // N_PARTS
    record_property(FIGURE, f"{result}; started on {judge.n_started}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_a_weaker_setting_is_found_out(tmp_path: Path, synchronous: str) -> None:
    """With less than FULL the same cuts lose what was sent: the proof notices."""
    result, _ = verdict(tmp_path, 1000, 7, synchronous)
    assert result.n_bad > 50, str(result)
