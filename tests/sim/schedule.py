"""One schedule: a seed decides documents, provider, order, crashes and the operator; everything else is real.

The engine, the SQL and the triggers are the product's own; time is virtual and the process dies by
`SimulatedCrash`. Between two lives nothing survives but the database and the provider. The easy
mistake: an operator who speaks before a request has had its last byte; nobody could know yet.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from orch8_local.engine.api import Command
from orch8_local.engine.engine import Engine
from orch8_local.engine.shared import EngineLimits
from orch8_local.errors import Orch8Error
from orch8_local.handlers.base import Registry
from orch8_local.handlers.builtins import builtin_specs
from orch8_local.store import migrate
from orch8_local.store.database import SQL_BOOT, SQL_CLEAN, SQL_META, SQL_NEW_META
from orch8_local.store.writer import Tx
from orch8_local.testing.inline_writer import InlineWriter
from orch8_local.testing.invariants import Acknowledged, Phase, check_connection
from orch8_local.testing.world import START_US, SimulatedCrash, SimWorld
from orch8_local.world import NoCrash, World
from tests.sim.provider import MODES, PLAIN_MODES, SimProvider
from tests.sim.workload import EFFECTS, document

Json = Any
EVIDENCE = {"note": "asked the provider by the key of the request", "searched_for": ["key"]}
MOST_LIVES = 5
MOST_POINTS = 70
"""A life dies within so many crash points, if it is to die at all."""

SQL_UNKNOWN = (
    "SELECT id, coalesce(sent_key, idempotency_key, intent_id), instance_id FROM effect_receipts"
    " WHERE state = 'unknown'"
)
SQL_RUNS = "SELECT id, state, is_blocked FROM instances ORDER BY seq"
SQL_OPEN = "SELECT count(*) FROM instances WHERE state IN ('scheduled','running','waiting')"


@lru_cache(maxsize=1)
def _template() -> bytes:
    """A migrated, empty database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate.migrate(connection, migrate.steps(), NoCrash())
        return connection.serialize()


@dataclass(slots=True)
class Schedule:
    """One seed, from its first life to the end of all runs."""

    seed: int
    problems: list[str] = field(default_factory=list)
    n_crashes: int = 0
    n_lives: int = 0

    def play(self) -> list[str]:
        """Everything that went wrong; empty for a sound product."""
        chance = random.Random(f"schedule {self.seed}")
        stage = _Stage(self.seed, chance)
        try:
            for life in range(MOST_LIVES):
                self._live(stage, life, is_fair=False)
                if self.problems:
                    return self.problems
            for life in range(MOST_LIVES, MOST_LIVES + 8):
                stage.provider.is_fair = True
                self._live(stage, life, is_fair=True)
                if self.problems or stage.is_over():
                    break
            else:
                self.problems.append(f"runs are still open: {stage.runs()}")
            self.problems += stage.ledger_against_provider()
        finally:
            stage.connection.close()
        return self.problems

    def _live(self, stage: _Stage, life: int, *, is_fair: bool) -> None:
        self.n_lives += 1
        stage.provider.life = life
        sim = SimWorld(
            self.seed * 100 + life,
            disorder=0.0 if is_fair else stage.chance.choice((0.0, 0.3, 0.9)),
            start_us=stage.now_us,
            should_strike=None if is_fair else stage.strike(),
        )
        phase = Phase.CLOSED
        try:
            sim.run(stage.life(sim, is_fair=is_fair))
        except SimulatedCrash:
            phase = Phase.CRASHED
            self.n_crashes += 1
        finally:
            stage.now_us = sim.clock.now_us() + 1
            self.problems += [f"life {life}: {text}" for text in sim.loop.unhandled]
            sim.close()
        if stage.connection.in_transaction:
            stage.connection.execute("ROLLBACK")
        found = check_connection(stage.connection, stage.provider.seen(), phase=phase, acknowledged=stage.acknowledged)
        self.problems += [f"life {life}, {phase}: {violation}" for violation in found]


class _Stage:
    """What survives a crash, and the script of one life."""

    def __init__(self, seed: int, chance: random.Random) -> None:
        self.chance = chance
        self.now_us = START_US
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.deserialize(_template())
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("PRAGMA recursive_triggers = ON")
        self.provider = SimProvider(seed, chance.choice((MODES, PLAIN_MODES)))
        effects = chance.choice((EFFECTS, ("charge",), ("charge", "look_up")))
        n_runs = chance.choice((1, 1, 2, 3))
        self.documents = [document(chance, f"sequence-{n}", effects=effects) for n in range(n_runs)]
        self.acknowledged: list[Acknowledged] = []
        self._n_commands = 0

    def strike(self) -> Callable[[str, int], bool] | None:
        """Where this life ends: nowhere, or at the n-th crash point that it passes."""
        if self.chance.random() < 0.25:
            return None
        left = [self.chance.randint(1, MOST_POINTS)]

        def should_strike(_: str, __: int) -> bool:
            left[0] -= 1
            return left[0] == 0

        return should_strike

    async def life(self, sim: SimWorld, *, is_fair: bool) -> None:
        """One process: boot, sweep, work and commands, drain."""
        world = sim.world
        writer = InlineWriter(self.connection, world.crash)
        boot_id = world.ids.token()

        def boot(tx: Tx) -> None:
            if tx.one(SQL_META) is None:
                tx.execute(SQL_NEW_META, (world.ids.uuid7(), world.clock.now_us()))
            tx.execute(SQL_BOOT, (boot_id,))

        await writer.transact(boot, name="boot")
        engine = Engine(
            writer,
            Registry([*builtin_specs(), *self.provider.specs()]),
            boot_id=boot_id,
            world=world,
            limits=EngineLimits(max_concurrent=3, settle_s=60.0, max_recoveries=1000),
        )
        await engine.sweep()
        await engine.start()
        operator = world.nursery.start(self._operate(engine, world, is_fair=is_fair), name="operator")
        await operator
        await engine.drain(None if is_fair else self.chance.choice((0.0, 0.1, 30.0)))
        await engine.close()
        await writer.transact(lambda tx: tx.execute(SQL_CLEAN) and None, name="close")

    async def _operate(self, engine: Engine, world: World, *, is_fair: bool) -> None:
        """Start what is not started, interfere now and then, and settle what is unknown, by the truth."""
        for n, text in enumerate(self.documents):
            arguments = {"document": text, "data": {"n": n}, "config": None, "key": f"key-{n}", "source": "sim"}
            result = await self._submit(engine, "start", arguments)
            if result is not None:
                self.acknowledged.append(Acknowledged("start", result["instance_id"]))
        for _ in range(40 if is_fair else self.chance.randint(1, 6)):
            await asyncio.sleep(5.0 if is_fair else self.chance.choice((0.0, 0.01, 1.0, 10.0, 100.0)))
            if is_fair or self.chance.random() < 0.5:
                await self._settle(engine)
            if not is_fair and self.chance.random() < 0.3:
                await self._interfere(engine)
            if is_fair and self.is_over():
                return

    async def _settle(self, engine: Engine) -> None:
        for effect_id, key, _ in self.connection.execute(SQL_UNKNOWN).fetchall():
            if not self.provider.is_settled(key):
                continue
            arguments: dict[str, Json] = {"effect_id": effect_id, "evidence": EVIDENCE}
            if self.provider.has_applied(key):
                output = self.provider.applied_output(key)
                arguments |= {"target": "committed", "output": output, "has_output": True}
            else:
                arguments |= {"target": "abandoned", "then": self.chance.choice(("resume", "retry", "retry"))}
            if await self._submit(engine, "resolve", arguments) is not None:
                self.acknowledged.append(Acknowledged("resolve", effect_id, arguments["target"]))

    async def _interfere(self, engine: Engine) -> None:
        runs = self.runs()
        if not runs:
            return
        instance_id = self.chance.choice(runs)[0]
        kind = self.chance.choice(("cancel", "retry", "retry"))
        if kind == "retry":  # it takes an earlier cancel back, also if we die before we are told
            self.acknowledged = [a for a in self.acknowledged if (a.kind, a.id) != ("cancel", instance_id)]
        result = await self._submit(engine, kind, {"instance_id": instance_id})
        if result is not None and kind == "cancel":
            self.acknowledged.append(Acknowledged("cancel", instance_id))

    async def _submit(self, engine: Engine, kind: str, arguments: dict[str, Json]) -> dict[str, Json] | None:
        """The result, or None if the command was refused, which is a fine answer."""
        self._n_commands += 1
        try:
            return dict(await engine.submit(Command(f"c{self._n_commands}", kind, arguments, actor="operator:sim")))
        except Orch8Error as error:
            if error.exit_status in (9, 70):
                raise
            return None

    def runs(self) -> list[tuple[Any, ...]]:
        """(id, state, blocked) of every run."""
        return self.connection.execute(SQL_RUNS).fetchall()

    def is_over(self) -> bool:
        """True if nothing is under way and nothing is unknown."""
        is_open = self.connection.execute(SQL_OPEN).fetchone()[0]
        return not is_open and not self.connection.execute(SQL_UNKNOWN).fetchall()

    def ledger_against_provider(self) -> list[str]:
        """At the end the ledger says of every action what the provider says."""
        problems = []
        rows = self.connection.execute(
            "SELECT coalesce(sent_key, idempotency_key, intent_id), mode, group_concat(state) FROM effect_receipts"
            " GROUP BY intent_id"
        ).fetchall()
        for key, mode, states in rows:
            happened = any(state in ("committed", "verified") for state in states.split(","))
            n_applied = sum(request.is_applied for request in self.provider.requests if request.key == key)
            if mode == "at_most_once" and n_applied != int(happened):
                problems.append(f"key {key} is {states} and was applied {n_applied} times")
            if mode == "repeatable" and happened and not n_applied:
                problems.append(f"key {key} is {states} and was never applied")
        return problems
