"""The database enforces what the model says, a second time and against everybody."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orch8_local import store
from orch8_local.model.states import INSTANCE, NODE, RECEIPT, Machine
from orch8_local.store import migrate
from orch8_local.store.database import SETTINGS, Database
from orch8_local.world import NoCrash, real_world


@pytest.fixture
def fresh() -> Iterator[sqlite3.Connection]:
    """A migrated database with one run, one node, one receipt and one event."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate.migrate(connection, migrate.steps(), NoCrash())
    connection.execute("PRAGMA recursive_triggers = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(
        "INSERT INTO sequences (sha256, tenant_id, namespace, name, version, document, source, created_at_us)"
        " VALUES ('h', 'local', 'default', 'n', 1, '{}', 'test', 0)"
    )
    connection.execute(
        "INSERT INTO instances (id, sequence_sha256, sequence_name, sequence_version, state, due_at_us, data, config,"
        " run_id, input_sha256, created_at_us, updated_at_us)"
        " VALUES ('i', 'h', 'n', 1, 'scheduled', 0, 'null', 'null', 'r', 'x', 0, 0)"
    )
    connection.execute("INSERT INTO nodes (instance_id, scope, block_id, state) VALUES ('i', '', 'b', 'pending')")
    connection.execute(
        "INSERT INTO effect_receipts (id, intent_id, tenant_id, continuity_id, epoch, instance_id, block_id, scope,"
        " rerun, attempt, kind, mode, handler, state, destination_fingerprint, request_sha256, created_at_us,"
        " updated_at_us) VALUES ('e', 't', 'local', 'c', 0, 'i', 'b', '', 0, 0, 'http', 'at_most_once', 'h',"
        " 'prepared', 'f', 'q', 0, 0)"
    )
    connection.execute(
        "INSERT INTO events (instance_id, at_us, kind, actor, prev_sha256, entry_sha256)"
        " VALUES ('i', 0, 'instance.started', 'engine', '0', '1')"
    )
    yield connection
    connection.close()


TABLES = {"receipt": "effect_receipts", "instance": "instances", "node": "nodes"}


@pytest.mark.parametrize("machine", [RECEIPT, INSTANCE, NODE], ids=lambda machine: machine.name)
def test_the_database_allows_exactly_the_moves_of_the_model(fresh: sqlite3.Connection, machine: Machine) -> None:
    """Every pair of states: an UPDATE succeeds if and only if the model has the move."""
    table = TABLES[machine.name]
    states = list(machine.moves)
    triggers = fresh.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (table,)
    ).fetchall()
    for old, new in itertools.product(states, states):
        for name, _ in triggers:
            fresh.execute(f"DROP TRIGGER {name}")
        _put(fresh, table, old)
        for _, sql in triggers:
            fresh.execute(sql)
        try:
            _put(fresh, table, new)
            is_allowed = True
        except sqlite3.IntegrityError:
            is_allowed = False
        is_same = old == new and table == "nodes"  # a node is written again in its state
        assert is_allowed is (new in machine.moves[old] or is_same), f"{table}: {old} to {new}"


def _put(connection: sqlite3.Connection, table: str, state: str) -> None:
    more = ""
    if table == "instances":
        more = ", boot_id = " + ("'b'" if state == "running" else "NULL")
        more += ", due_at_us = " + ("0" if state in ("scheduled", "waiting") else "NULL")
    connection.execute(f"UPDATE {table} SET state = ?{more}", (str(state),))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events",
        "UPDATE events SET kind = 'x'",
        "INSERT OR REPLACE INTO events SELECT * FROM events",
        "DELETE FROM effect_receipts",
        "INSERT OR REPLACE INTO effect_receipts SELECT * FROM effect_receipts",
        "REPLACE INTO effect_receipts SELECT * FROM effect_receipts",
        "UPDATE effect_receipts SET request_sha256 = 'other'",
        "UPDATE effect_receipts SET id = 'other'",
        "UPDATE OR REPLACE effect_receipts SET state = 'committed'",
        "UPDATE OR IGNORE effect_receipts SET state = 'committed'",
        "UPDATE effect_receipts SET state = 'gone'",
    ],
)
def test_history_cannot_be_changed_by_any_statement(fresh: sqlite3.Connection, statement: str) -> None:
    """Receipts and events are only added to and moved; no spelling walks around the triggers."""
    before = fresh.execute("SELECT * FROM events").fetchall(), fresh.execute("SELECT * FROM effect_receipts").fetchall()
    with pytest.raises(sqlite3.IntegrityError):
        fresh.execute(statement)
    after = fresh.execute("SELECT * FROM events").fetchall(), fresh.execute("SELECT * FROM effect_receipts").fetchall()
    assert before == after


def test_a_step_has_one_result(fresh: sqlite3.Connection) -> None:
    """A second result row of one step in one place is refused; retries and errors may be many."""
    insert = (
        "INSERT INTO outputs (instance_id, scope, block_id, kind, attempt, output, created_at_us)"
        " VALUES ('i', '', 'b', ?, 0, '1', 0)"
    )
    for kind in ("retry", "retry", "error", "error", "result"):
        fresh.execute(insert, (kind,))
    with pytest.raises(sqlite3.IntegrityError):
        fresh.execute(insert, ("result",))


def statements() -> list[tuple[str, str]]:
    """Every SQL constant of the store, by module and name."""
    found = []
    for module in pkgutil.iter_modules(store.__path__):
        if module.name in ("migrations", "check"):  # a check may take its time
            continue
        loaded = importlib.import_module(f"orch8_local.store.{module.name}")
        found += [(f"{module.name}.{n}", v) for n, v in vars(loaded).items() if n.startswith("SQL_")]
    return sorted(set(found))


SMALL = ("ledger_meta", "instance_counts", "sequences", "_moves")
"""Tables that may be read whole."""


@pytest.mark.parametrize(("name", "sql"), statements())
def test_no_statement_reads_a_whole_table_or_sorts(fresh: sqlite3.Connection, name: str, sql: str) -> None:
    """Each statement finds its rows by an index, in the order that it wants: no scan, no temporary b-tree."""
    n_parameters = sql.count("?")
    plan = fresh.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * n_parameters).fetchall()
    for *_, detail in plan:
        assert "TEMP B-TREE" not in detail, f"{name}: {detail}"
        is_from_an_end = "LIMIT" in sql and "WHERE" not in sql
        is_whole = detail.startswith("SCAN") and "USING" not in detail and not is_from_an_end
        assert not is_whole or any(small in detail for small in SMALL), f"{name}: {detail}"


async def test_every_setting_is_in_force(tmp_path: Path) -> None:
    """What the store relies on is read back from the open database, not only asked for."""
    database = await Database.open(tmp_path / "db", real_world())
    try:
        for name, _, wanted in SETTINGS:
            found = await database.writer.maintain(
                lambda connection, name=name: connection.execute(f"PRAGMA {name}").fetchone()[0]  # type: ignore[misc]
            )
            assert found == wanted, name
        assert {name: wanted for name, _, wanted in SETTINGS}["synchronous"] == 2
    finally:
        await database.close()


def test_a_migration_is_there_whole_or_not_at_all() -> None:
    """A step that fails leaves neither its tables nor its number; a second run changes nothing."""
    broken = [(1, "CREATE TABLE a (x INTEGER) STRICT;\nCREATE TABLE a (x INTEGER) STRICT;\n")]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate.migrate(connection, broken, NoCrash())
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)
        assert migrate.migrate(connection, migrate.steps(), NoCrash()) == len(migrate.steps())
        assert migrate.migrate(connection, migrate.steps(), NoCrash()) == 0
