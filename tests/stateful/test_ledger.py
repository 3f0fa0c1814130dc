"""Hypothesis plays operator, outside and power switch; after every move the ledger is what the model says.

Source: reliability 4d. The engine and its SQL are real, time is virtual, and every move is a life of
its own: open, do one thing, work until nothing moves, close or die.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.errors import Conflict, Orch8Error
from orch8_local.handlers.base import Registry
from orch8_local.handlers.builtins import builtin_specs
from orch8_local.store.database import SQL_BOOT, SQL_META, SQL_NEW_META
from orch8_local.store.writer import Tx
from orch8_local.testing.inline_writer import InlineWriter
from orch8_local.testing.invariants import Phase, check_connection
from orch8_local.testing.world import START_US, SimulatedCrash, SimWorld, strike_at
from tests.engine.outside import document, step
from tests.sim.provider import SimProvider
from tests.sim.schedule import EVIDENCE, _template
from tests.stateful.model import (
    BUDGET,
    CRASHES,
    HAPPENED_AND_TOLD,
    NOT_KNOWN,
    NOTHING_HAPPENED,
    REFUSED_FOR_GOOD,
    RunModel,
)

Json = Any
TEXT = document(
    step("a", "charge", retry={"max_attempts": BUDGET, "initial_backoff": 0, "max_backoff": 0}, params={"amount": 1})
)
WORDS = st.lists(
    st.sampled_from([*HAPPENED_AND_TOLD, *NOTHING_HAPPENED, *REFUSED_FOR_GOOD, *NOT_KNOWN]),
    min_size=BUDGET + 2,
    max_size=BUDGET + 2,
)


class Scripted(SimProvider):
    """The simulated provider, told what to do with each execution."""

    def __init__(self) -> None:
        super().__init__(0, ("answered",), is_fair=True)
        self.script: deque[str] = deque()

    def _mode(self) -> str:
        return self.script.popleft() if self.script else "answered"


class Ledger(RuleBasedStateMachine):
    """The real thing beside the model."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("orch8_local").setLevel(logging.CRITICAL)
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.deserialize(_template())
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("PRAGMA recursive_triggers = ON")
        self.provider = Scripted()
        self.models: dict[str, RunModel] = {}
        self.now_us = START_US
        self.n = 0

    # --- one life ------------------------------------------------------------------------------

    def life(self, command: Command | None, words: list[str], crash: str | None = None) -> Json:
        """Open, submit, work until nothing moves; returns the command's result or the error that refused it."""
        self.n += 1
        sim = SimWorld(self.n, start_us=self.now_us, should_strike=strike_at(crash) if crash else None)
        self.provider.script = deque(words)
        self.provider.life = self.n
        try:
            return sim.run(self._live(sim, command))
        except SimulatedCrash:
            return None
        finally:
            self.now_us = sim.clock.now_us() + 1_000_000
            sim.close()
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    async def _live(self, sim: SimWorld, command: Command | None) -> Json:
        world = sim.world
        writer = InlineWriter(self.connection, world.crash)

        def boot(tx: Tx) -> None:
            if tx.one(SQL_META) is None:
                tx.execute(SQL_NEW_META, (world.ids.uuid7(), world.clock.now_us()))
            tx.execute(SQL_BOOT, (world.ids.token(),))

        await writer.transact(boot, name="boot")
        boot_id = self.connection.execute("SELECT last_boot_id FROM ledger_meta").fetchone()[0]
        registry = Registry([*builtin_specs(), *self.provider.specs()])
        limits = EngineLimits(settle_s=0.0, max_recoveries=1000)
        engine = Engine(writer, registry, boot_id=boot_id, world=world, limits=limits)
        await engine.sweep()
        found: Json = None
        if command is not None:
            try:
                found = dict(await engine.submit(command))
            except Orch8Error as error:
                found = error
        await engine.start()
        for (instance_id,) in self.connection.execute("SELECT id FROM instances").fetchall():
            await engine.wait_until_stopped(instance_id)
        await engine.close()
        return found

    def command(self, kind: str, **arguments: Json) -> Command:
        return Command(f"c{self.n}", kind, arguments, actor="operator:test")

    # --- moves ---------------------------------------------------------------------------------

    @rule(target=runs, words=WORDS, crash=st.none() | st.sampled_from(sorted(CRASHES)))
    def start(self, words: list[str], crash: str | None) -> str:
        """A run is started, and the process may die while it is executed for the first time."""
        key = f"key-{self.n}"
        given = self.command("start", document=TEXT, data=None, config=None, key=key, source="test")
        self.life(given, ["answered"] if crash else words, crash)
        (instance_id,) = self.connection.execute("SELECT id FROM instances WHERE start_key = ?", (key,)).fetchone()
        model = self.models[instance_id] = RunModel("scheduled")
        if crash is not None:
            model.crash(crash)
            self.restart(words, model)
        else:
            model.execute(words)
        return str(instance_id)

    def restart(self, words: list[str], model: RunModel) -> None:
        """The next start: the sweep settles, and what can go on goes on."""
        self.life(None, words)
        if model.state == "crashed":
            model.execute(words)

    @rule(run=runs, words=WORDS, then=st.sampled_from(["resume", "retry", "stay"]))
    @precondition(lambda self: any(model.is_blocked for model in self.models.values()))
    def resolve(self, run: str, words: list[str], then: str) -> None:
        """The operator records the truth about an unknown effect."""
        model = self.models[run]
        if not model.is_blocked:
            return
        row = self.connection.execute(
            "SELECT id, sent_key, intent_id FROM effect_receipts WHERE instance_id = ? AND state = 'unknown'", (run,)
        ).fetchone()
        assert self.provider.has_applied(row[1] or row[2]) is model.truth
        arguments: dict[str, Json] = {"effect_id": row[0], "evidence": EVIDENCE, "then": then}
        if model.truth:
            arguments |= {"target": "committed", "output": {"ok": True}, "has_output": True}
        else:
            arguments |= {"target": "abandoned"}
        found = self.life(self.command("resolve", **arguments), words)
        assert isinstance(found, dict), found
        model.resolve(then)
        model.execute(words)

    @rule(run=runs, words=WORDS)
    def retry(self, run: str, words: list[str]) -> None:
        """An operator's retry is granted to a failed run, and refused to one that is blocked or done."""
        model = self.models[run]
        found = self.life(self.command("retry", instance_id=run), words)
        is_granted = model.retry()
        assert isinstance(found, dict) is is_granted, found
        if not is_granted:
            assert isinstance(found, Conflict)
        model.execute(words)

    @rule(run=runs)
    def cancel(self, run: str) -> None:
        """A run that has stopped cannot be cancelled; a blocked one is settled first."""
        found = self.life(self.command("cancel", instance_id=run), [])
        assert isinstance(found, Conflict), found

    @rule()
    def begin_again(self) -> None:
        """A start with nothing to do changes nothing."""
        self.life(None, [])

    # --- always --------------------------------------------------------------------------------

    @invariant()
    def is_as_the_model_says(self) -> None:
        """State, receipts and what happened outside agree, and no invariant is broken."""
        for run, model in self.models.items():
            state, is_blocked = self.connection.execute(
                "SELECT state, is_blocked FROM instances WHERE id = ?", (run,)
            ).fetchone()
            assert (state, bool(is_blocked)) == (model.state, model.is_blocked)
            rows = self.connection.execute(
                "SELECT state, intent_id FROM effect_receipts WHERE instance_id = ? ORDER BY attempt", (run,)
            ).fetchall()
            assert [row[0] for row in rows] == model.receipts
            keys = {row[1] for row in rows}
            applied = [request for request in self.provider.requests if request.key in keys and request.is_applied]
            assert len(applied) == model.n_applied <= 1
        assert not check_connection(self.connection, self.provider.seen(), phase=Phase.CLOSED)

    def teardown(self) -> None:
        """The database goes with the example."""
        self.connection.close()


TestLedger = Ledger.TestCase
TestLedger.settings = settings(
    max_examples=150, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
