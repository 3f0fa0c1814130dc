"""One run from its start to its end through any number of deaths, with the invariants after each.

The parent plays the operator: it asks the provider what really happened and says so. The easy mistake:
an operator that guesses; what is resolved comes from the provider's own count.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orch8_local.testing.invariants import Acknowledged, Phase, Seen, Snapshot, check, check_end, connect, snapshot
from orch8_local.testing.provider import Provider
from tests.crash.zygote import Ended, Zygote

Json = Any
Crash = tuple[str, int]
MOST_SESSIONS = 12
EVIDENCE = {"note": "asked the provider by the key of the request", "searched_for": ["key"]}


def document(n_steps: int) -> str:
    """A sequence of charges that may each be tried a few times."""
    blocks = [
        {
            "type": "step",
            "id": f"charge_{n}",
            "handler": "http_request",
            "params": {"method": "POST", "url": "{{ config.url }}/charges", "body": {"n": n}},
            "timeout": 20000,
            "retry": {"max_attempts": 6, "initial_backoff": 1, "max_backoff": 2},
        }
        for n in range(n_steps)
    ]
    return json.dumps({"name": "charges", "blocks": blocks})


@dataclass(slots=True)
class Life:
    """A run and all that is known of it from outside."""

    zygote: Zygote
    provider: Provider
    database: Path
    n_steps: int
    mutant: str | None = None
    is_by_inbox: bool = False
    instance_id: str | None = None
    acknowledged: list[Acknowledged] = field(default_factory=list)
    before: Snapshot | None = None
    n_kills: int = 0
    n_sessions: int = 0
    problems: list[str] = field(default_factory=list)

    async def session(self, crash: Crash | str | float | None, resolutions: Sequence[Json] = ()) -> Ended:
        """One process from its start to its end or death; then everything is checked.

        crash: a point and a passage, `count`, or the seconds after which it is killed wherever it is.
        """
        text = document(self.n_steps).replace("{{ config.url }}", self.provider.url)
        ended = await self.zygote.run(
            {
                "database": str(self.database),
                "document": text,
                "data": None,
                "crash": list(crash) if isinstance(crash, tuple) else crash if isinstance(crash, str) else None,
                "resolutions": list(resolutions),
                "mutant": self.mutant,
                "is_by_inbox": self.is_by_inbox,
                "instance_id": self.instance_id,
            },
            kill_after_s=crash if isinstance(crash, float) else None,
        )
        self.n_sessions += 1
        self.n_kills += ended.was_killed
        if not ended.was_killed and ended.status != 0:
            self.problems.append(f"the process ended with status {ended.status}")
        await self.provider.settle()
        for self.instance_id in ended.facts("started"):
            self.acknowledged.append(Acknowledged("start", self.instance_id or ""))
        self.acknowledged += [Acknowledged("resolve", one, state) for one, state in ended.facts("resolved")]
        self._check(Phase.CRASHED if ended.was_killed else Phase.CLOSED)
        return ended

    def seen(self) -> list[Seen]:
        """What the provider saw, in order."""
        applied = {event["request"] for event in self.provider.events if event["event"] == "applied"}
        return [Seen(request.key, request.number in applied) for request in self.provider.received]

    def _check(self, phase: Phase) -> None:
        if not self.database.exists() or self.database.stat().st_size == 0 or not _has_tables(self.database):
            if self.provider.received:
                self.problems.append("something was sent, and there is no ledger")
            return
        found = check(self.database, self.seen(), phase=phase, acknowledged=self.acknowledged, before=self.before)
        self.problems += [str(violation) for violation in found]
        self.before = snapshot(self.database)

    async def to_its_end(self, crashes: Iterable[Crash | float] = ()) -> None:
        """Sessions until the run has completed, each with its own death, the operator being truthful."""
        deaths = list(crashes)
        resolutions: list[Json] = []
        for _ in range(MOST_SESSIONS):
            ended = await self.session(deaths[0] if deaths else None, resolutions)
            resolutions = []
            if self.problems:
                return
            if ended.was_killed:
                del deaths[0]  # a place that this session did not come to waits for the next one
                continue
            stopped = ended.facts("ended")[-1]
            if stopped["state"] == "completed":
                break
            if not stopped["is_blocked"]:
                self.problems.append(f"the run ended {stopped}")
                return
            resolutions = [self._truth(effect_id, key) for effect_id, key in stopped["unknown"]]
        wanted = {f"charge_{n}": (lambda output: output is not None) for n in range(self.n_steps)}
        self.problems += [str(violation) for violation in check_end(self.database, self.seen(), wanted)]
        keys = {request.key for request in self.provider.requests()}
        if len(keys) != self.n_steps:
            self.problems.append(f"{self.n_steps} actions were sent under {len(keys)} keys")
        if self.provider.applied() != self.n_steps:
            self.problems.append(f"{self.n_steps} charges were meant, the provider made {self.provider.applied()}")

    def _truth(self, effect_id: str, key: str) -> Json:
        """What an operator records who has asked the provider."""
        if self.provider.applied(key):
            output = {"status": 200, "body": "found at the provider"}
            return {
                "effect_id": effect_id,
                "target": "committed",
                "evidence": EVIDENCE,
                "output": output,
                "has_output": True,
            }
        return {"effect_id": effect_id, "target": "abandoned", "evidence": EVIDENCE, "then": "retry"}


def _has_tables(database: Path) -> bool:
    """False for a file whose making was cut off: its journal waits for the next start, which may write."""
    with closing(connect(database)) as connection:
        try:
            return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone())
        except sqlite3.OperationalError:
            return False
