"""The harness of the power loss proof, proved on a ledger in miniature before it judges the product."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orch8_local.testing.invariants import Violation
from tests.power.recorder import record
from tests.power.replay import Known, Verdict, replay

TOY = Path(__file__).with_name("toy.py")


def judge(folder: Path, known: Known) -> Iterator[Violation]:
    """What was sent has its row; what was acknowledged is committed; the file is sound."""
    with closing(sqlite3.connect(folder / "toy.db")) as connection:
        try:
            (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.DatabaseError as error:
            answer = str(error)
        if answer != "ok":
            yield Violation("CORRUPT", answer)
            return
        has_table = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,)
        rows = dict(connection.execute("SELECT id, state FROM effects").fetchall()) if has_table else {}
    for number in (int(line) for stream in known.sent for line in stream.split()):
        if number not in rows:
            yield Violation("SENT", f"{number} was sent and has no row")
    for number in (int(line.split()[1]) for line in known.said.splitlines()):
        if rows.get(number) != "committed":
            yield Violation("LOST", f"{number} was acknowledged and is {rows.get(number)}")


def verdict(tmp_path: Path, synchronous: str, checkpoint_pages: int) -> Verdict:
    """Record and replay one configuration of the toy."""
    root = tmp_path / "root"
    root.mkdir()
    command = [sys.executable, str(TOY), "toy.db", synchronous, str(checkpoint_pages), "20"]
    operations = record(command, root, trace=tmp_path / "trace")
    return replay(operations, root, lambda *cut: list(judge(*cut)), n_states=1500, seed=1)


@pytest.mark.parametrize("checkpoint_pages", [1000, 5])
def test_full_loses_nothing(tmp_path: Path, checkpoint_pages: int) -> None:
    """With WAL and FULL no cut loses a sent effect, an acknowledged one, or the file."""
    result = verdict(tmp_path, "FULL", checkpoint_pages)
    assert result.n_bad == 0, "\n".join(result.examples)
    assert result.n_states >= 1500


def test_normal_is_found_out(tmp_path: Path) -> None:
    """With NORMAL more than a third of the cuts lose a sent effect: the harness sees lost commits."""
    result = verdict(tmp_path, "NORMAL", 20)
    assert result.kinds["SENT"] > result.n_states / 3, str(result)


def test_off_is_found_out(tmp_path: Path) -> None:
    """With OFF the cuts lose sent effects too, and tear the file while it is checkpointed."""
    result = verdict(tmp_path, "OFF", 5)
    assert result.kinds["SENT"] > result.n_states / 3, str(result)
    assert result.kinds["CORRUPT"] > 0, str(result)
