"""The invariants I1 to I10: what must hold of a database, whatever was done to its process.

Owns the checks that every proof shares: kills, simulation, power loss. It reads the tables with a
connection of its own, opened `mode=ro`, and never asks the engine, so a fault of the engine cannot
hide itself. The easy mistake: judging a dead process like a living one. A receipt that is
`dispatched` is right after a kill and wrong after the next start; `Phase` says which it is.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orch8_local.model.ids import effect_id, intent_id, parse_scope

Json = Any
Row = sqlite3.Row


class Phase(StrEnum):
    """What the last process on the file is doing."""

    CRASHED = "crashed"
    """Dead, and nobody has started since: receipts may be dispatched, runs may be running."""
    LIVE = "live"
    """Started and swept: what is dispatched or running belongs to this boot."""
    CLOSED = "closed"
    """Ended in order: nothing is dispatched, nothing runs."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the provider saw it, in the order of arrival.

    key: the idempotency key; None if the request was cut short before it. is_applied: the provider
    acted on it, which needs the whole body.
    """

    key: str | None
    is_applied: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One thing that the product said was done: it must be there from then on (I5).

    kind: `start` (id: the instance), `cancel` (id: the instance), `resolve` (id: the effect, state:
    the target), `command` (id: the command).
    """

    kind: str
    id: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its code, `I1` to `I10`, and the facts."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was there once, to be compared with later: receipts by id, and the last event."""

    receipts: Mapping[str, tuple[int, int]]
    last_event: tuple[int, str] | None


@dataclass(slots=True)
class Facts:
    """All rows that the checks look at, read in one transaction."""

    boot_id: str | None
    instances: dict[str, Row]
    blocks: dict[str, dict[str, str]]
    """Step blocks by sequence hash: block id to handler."""
    nodes: list[Row]
    outputs: list[Row]
    receipts: list[Row]
    events: list[Row]
    outbox: list[Row]
    counts: dict[str, int]
    commands: dict[str, str]
    damage: list[str]
    seen: list[Seen] = field(default_factory=list)

    def receipts_by_key(self) -> dict[str, list[Row]]:
        """Receipts under each key that their request may carry."""
        found: dict[str, list[Row]] = defaultdict(list)
        for receipt in self.receipts:
            for key in {receipt["sent_key"] or receipt["idempotency_key"] or receipt["intent_id"]}:
                found[key].append(receipt)
        return found


_TABLES = {
    "nodes": "SELECT * FROM nodes",
    "outputs": "SELECT * FROM outputs ORDER BY seq",
    "receipts": "SELECT * FROM effect_receipts ORDER BY seq",
    "events": "SELECT * FROM events ORDER BY seq",
    "outbox": "SELECT * FROM outbox ORDER BY seq",
}
_MAY_HAVE_BEEN_SENT = ("dispatched", "committed", "unknown", "verified", "compensated", "abandoned")
_IT_HAPPENED = ("committed", "verified")


def connect(database: Path) -> sqlite3.Connection:
    """A connection that cannot write, to a living or a dead database."""
    connection = sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def check(
    database: Path,
    seen: Iterable[Seen] = (),
    *,
    phase: Phase = Phase.CRASHED,
    acknowledged: Iterable[Acknowledged] = (),
    before: Snapshot | None = None,
) -> list[Violation]:
    """All violations of I1 to I9 in a database file; an empty list is what everybody hopes for."""
    with closing(connect(database)) as connection:
        return check_connection(connection, seen, phase=phase, acknowledged=acknowledged, before=before)


def check_connection(
    connection: sqlite3.Connection,
    seen: Iterable[Seen] = (),
    *,
    phase: Phase = Phase.CRASHED,
    acknowledged: Iterable[Acknowledged] = (),
    before: Snapshot | None = None,
) -> list[Violation]:
    """As `check`, over a connection the caller owns (a simulation in memory, a replayed disk)."""
    facts = read_facts(connection)
    facts.seen = list(seen)
    return [
        *_at_most_once(facts),
        *_every_request_has_its_receipt(facts),
        *_nothing_dispatched_without_owner(facts, phase),
        *_complete_iff_output(facts),
        *_acknowledged_is_there(facts, acknowledged),
        *_every_run_ends_or_waits(facts, phase),
        *_history_only_grows(facts, before),
        *(Violation("I8", text) for text in facts.damage),
        *_unresolved_is_asked_about(facts),
    ]


def read_facts(connection: sqlite3.Connection) -> Facts:
    """Read every table in one transaction; sqlite3.DatabaseError if the file is beyond reading."""
    old_factory = connection.row_factory
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    try:
        meta = connection.execute("SELECT last_boot_id FROM ledger_meta").fetchone()
        tables = {name: connection.execute(text).fetchall() for name, text in _TABLES.items()}
        documents = connection.execute("SELECT sha256, document FROM sequences").fetchall()
        return Facts(
            boot_id=meta[0] if meta else None,
            instances={row["id"]: row for row in connection.execute("SELECT * FROM instances").fetchall()},
            blocks={sha256: dict(_steps(json.loads(document))) for sha256, document in documents},
            counts=dict(connection.execute("SELECT state, n FROM instance_counts").fetchall()),
            commands=dict(connection.execute("SELECT id, status FROM operator_commands").fetchall()),
            damage=list(_damage(connection)),
            **tables,
        )
    finally:
        connection.execute("ROLLBACK")
        connection.row_factory = old_factory


def snapshot(database: Path) -> Snapshot:
    """Remember what is there, for the `before` of a later check."""
    with closing(connect(database)) as connection:
        facts = read_facts(connection)
    last = facts.events[-1] if facts.events else None
    return Snapshot(
        receipts={row["id"]: (row["seq"], row["version"]) for row in facts.receipts},
        last_event=(last["seq"], last["entry_sha256"]) if last else None,
    )


def _steps(block: Json) -> Iterator[tuple[str, str]]:
    if isinstance(block, list):
        for child in block:
            yield from _steps(child)
    elif isinstance(block, dict):
        if block.get("type") == "step" and isinstance(block.get("handler"), str):
            yield block["id"], block["handler"]
            return
        for child in block.values():
            yield from _steps(child)


def _damage(connection: sqlite3.Connection) -> Iterator[str]:
    for (answer,) in connection.execute("PRAGMA integrity_check").fetchall():
        if answer != "ok":
            yield f"integrity_check says {answer}"
    for row in connection.execute("PRAGMA foreign_key_check").fetchall():
        yield f"foreign_key_check names table {row[0]}, row {row[1]}"


def _name(receipt: Row) -> str:
    where = f"{receipt['block_id']}, attempt {receipt['attempt']}"
    return f"receipt {receipt['id']} ({where}, {receipt['state']})"


def _at_most_once(facts: Facts) -> Iterator[Violation]:
    """I1: requests of an at-most-once intent ≤ 1 + its abandoned receipts; applied at most once."""
    receipts = facts.receipts_by_key()
    received = Counter(one.key for one in facts.seen if one.key is not None)
    applied = Counter(one.key for one in facts.seen if one.key is not None and one.is_applied)
    for key, n_received in received.items():
        known = receipts.get(key, [])
        if any(r["mode"] != "at_most_once" for r in known):
            continue
        n_allowed = 1 + sum(r["state"] == "abandoned" for r in known)
        if n_received > n_allowed:
            yield Violation("I1", f"key {key} was sent {n_received} times, allowed are {n_allowed}")
        if applied[key] > 1:
            yield Violation("I1", f"key {key} was applied {applied[key]} times")


def _every_request_has_its_receipt(facts: Facts) -> Iterator[Violation]:
    """I2: whatever the provider received was dispatched on record, each request by its own receipt."""
    receipts = facts.receipts_by_key()
    received = Counter(one.key for one in facts.seen)
    n_nameless = received.pop(None, 0)
    dispatched = {key: sum(map(_was_dispatched, known)) for key, known in receipts.items()}
    n_spare = sum(max(0, n - received.get(key, 0)) for key, n in dispatched.items())
    for key, n_received in received.items():
        if n_received > dispatched.get(key or "", 0):
            states = [r["state"] for r in receipts.get(key or "", [])] or "no receipt at all"
            yield Violation("I2", f"key {key} was sent {n_received} times, on record: {states}")
    if n_nameless > n_spare:
        text = f"{n_nameless} requests without a key, {n_spare} receipts without a request"
        yield Violation("I2", text)


def _was_dispatched(receipt: Row) -> bool:
    return receipt["state"] in _MAY_HAVE_BEEN_SENT and receipt["dispatched_at_us"] is not None


def _nothing_dispatched_without_owner(facts: Facts, phase: Phase) -> Iterator[Violation]:
    """I3: after the sweep nothing is dispatched under another boot."""
    if phase is Phase.CRASHED:
        return
    for receipt in facts.receipts:
        is_own = phase is Phase.LIVE and receipt["boot_id"] == facts.boot_id
        if receipt["state"] == "dispatched" and not is_own:
            yield Violation("I3", f"{_name(receipt)} has no living owner")


def _complete_iff_output(facts: Facts) -> Iterator[Violation]:
    """I4: a step is complete iff its output row exists, and its receipt holds the same output."""
    receipts = {r["id"]: r for r in facts.receipts}
    results = {
        (o["instance_id"], o["scope"], o["block_id"]): o for o in facts.outputs if o["kind"] == "result"
    }
    effect_ids_of_outputs = {o["effect_id"] for o in facts.outputs if o["effect_id"]}
    effect_steps = {(r["instance_id"], r["scope"], r["block_id"]) for r in facts.receipts}
    for node in facts.nodes:
        place = (node["instance_id"], node["scope"], node["block_id"])
        steps = facts.blocks[facts.instances[node["instance_id"]]["sequence_sha256"]]
        if node["block_id"] in steps and (node["state"] == "completed") != (place in results):
            output = "an output" if place in results else "no output"
            yield Violation("I4", f"step {place} is {node['state']} and has {output}")
    for place, result in results.items():
        receipt = receipts.get(result["effect_id"] or "")
        if receipt is None:
            if place in effect_steps:
                yield Violation("I4", f"the output of {place} names no receipt")
        elif receipt["state"] not in (*_IT_HAPPENED, "compensated"):
            yield Violation("I4", f"{_name(receipt)} has an output row")
        elif receipt["output"] is None or json.loads(receipt["output"]) != json.loads(result["output"]):
            yield Violation("I4", f"{_name(receipt)} and its output row differ")
    for receipt in facts.receipts:
        is_wanted = facts.instances[receipt["instance_id"]]["state"] != "cancelled"
        if is_wanted and receipt["state"] in _IT_HAPPENED and receipt["id"] not in effect_ids_of_outputs:
            yield Violation("I4", f"{_name(receipt)} has no output row")


def _acknowledged_is_there(facts: Facts, acknowledged: Iterable[Acknowledged]) -> Iterator[Violation]:
    """I5: whatever was acknowledged is there."""
    receipts = {r["id"]: r for r in facts.receipts}
    for fact in acknowledged:
        instance = facts.instances.get(fact.id)
        if fact.kind == "start":
            is_there = instance is not None
        elif fact.kind == "cancel":
            is_there = instance is not None and (
                instance["state"] == "cancelled" or instance["cancel_requested_at_us"] is not None
            )
        elif fact.kind == "resolve":
            is_there = fact.id in receipts and receipts[fact.id]["state"] in (fact.state, "compensated")
        else:
            is_there = fact.id in facts.commands
        if not is_there:
            yield Violation("I5", f"{fact.kind} {fact.id} {fact.state} was acknowledged and is not there")


def _every_run_ends_or_waits(facts: Facts, phase: Phase) -> Iterator[Violation]:
    """I6: every run is ended, waits for something, or is owned; the counters agree."""
    if phase is not Phase.CRASHED:
        for instance in facts.instances.values():
            is_own = phase is Phase.LIVE and instance["boot_id"] == facts.boot_id
            if instance["state"] == "running" and not is_own:
                yield Violation("I6", f"run {instance['id']} is running without an owner")
    awaited = {n["instance_id"] for n in facts.nodes if n["state"] == "waiting"}
    for instance in facts.instances.values():
        if instance["state"] == "waiting" and instance["due_at_us"] is None and instance["id"] not in awaited:
            yield Violation("I6", f"run {instance['id']} waits for nothing")
        if instance["state"] == "failed" and instance["failure"] is None:
            yield Violation("I6", f"run {instance['id']} failed and does not say why")
    counted = Counter(i["state"] for i in facts.instances.values())
    for state, n in facts.counts.items():
        if counted.get(state, 0) != n:
            yield Violation("I6", f"{counted.get(state, 0)} runs are {state}, the counter says {n}")


_GENESIS = "0" * 64
_ENTRY = (
    "instance_id at_us kind actor scope block_id effect_id from_state to_state reason detail".split()  # noqa: SIM905
)


def _history_only_grows(facts: Facts, before: Snapshot | None) -> Iterator[Violation]:
    """I7: no gap, an unbroken chain, every state accounted for by events, ids as derived."""
    for name, rows in (("receipt", facts.receipts), ("event", facts.events)):
        if [row["seq"] for row in rows] != list(range(1, len(rows) + 1)):
            yield Violation("I7", f"the {name}s have a gap in their numbers")
    previous = _GENESIS
    for event in facts.events:
        facts_of_entry = [event[name] for name in _ENTRY]
        text = "".join("~" if fact is None else f"{len(str(fact))}:{fact}" for fact in facts_of_entry)
        entry = hashlib.sha256((previous + text).encode()).hexdigest()
        if event["prev_sha256"] != previous or event["entry_sha256"] != entry:
            yield Violation("I7", f"the chain breaks at event {event['seq']}")
            break
        previous = entry
    yield from _moves_match(facts)
    for receipt in facts.receipts:
        if not _is_derived(receipt):
            yield Violation("I7", f"{_name(receipt)} has an id that does not follow from its place")
    if before is not None:
        yield from _nothing_was_lost(facts, before)


def _moves_match(facts: Facts) -> Iterator[Violation]:
    moves: dict[str, list[Row]] = defaultdict(list)
    for event in facts.events:
        if event["effect_id"] is not None and event["to_state"] is not None:
            moves[event["effect_id"]].append(event)
    for receipt in facts.receipts:
        state = None
        for event in moves[receipt["id"]]:
            if event["from_state"] != state:
                yield Violation("I7", f"{_name(receipt)}: event {event['seq']} does not follow from {state}")
            state = event["to_state"]
        if state != receipt["state"]:
            yield Violation("I7", f"{_name(receipt)}: its events end in {state}")


def _is_derived(receipt: Row) -> bool:
    scope = parse_scope(receipt["scope"])
    place = (receipt["instance_id"], scope, receipt["block_id"], receipt["rerun"])
    return bool(
        receipt["intent_id"] == intent_id(*place)
        and receipt["id"]
        == effect_id(
            receipt["continuity_id"],
            receipt["epoch"],
            receipt["instance_id"],
            receipt["block_id"],
            receipt["attempt"],
            scope=scope,
            rerun=receipt["rerun"],
        )
    )


def _nothing_was_lost(facts: Facts, before: Snapshot) -> Iterator[Violation]:
    now = {row["id"]: (row["seq"], row["version"]) for row in facts.receipts}
    for effect, (seq, version) in before.receipts.items():
        if effect not in now or now[effect][0] != seq or now[effect][1] < version:
            yield Violation("I7", f"receipt {effect} was {(seq, version)} and is {now.get(effect)}")
    if before.last_event is not None:
        seq, entry = before.last_event
        if seq > len(facts.events) or facts.events[seq - 1]["entry_sha256"] != entry:
            yield Violation("I7", f"event {seq} was lost or changed")


def _unresolved_is_asked_about(facts: Facts) -> Iterator[Violation]:
    """I9: what is unknown blocks its run by name and was announced once; what blocks is unknown."""
    places = {(n["instance_id"], n["scope"], n["block_id"]): n for n in facts.nodes}
    named: dict[str, set[str]] = {}
    for instance in facts.instances.values():
        failure = json.loads(instance["failure"]) if instance["failure"] else {}
        is_blocked = instance["state"] == "failed" and failure.get("kind") == "effect_blocked"
        if is_blocked != bool(instance["is_blocked"]):
            flag = instance["is_blocked"]
            yield Violation("I9", f"run {instance['id']} has the flag {flag}, failure {failure}")
        if is_blocked:
            named[instance["id"]] = set(failure["effect_ids"])
    announced = Counter(
        effect
        for row in facts.outbox
        if row["kind"] == "instance.effect_unresolved"
        for effect in json.loads(row["payload"])["effect_ids"]
    )
    unknown = {r["id"]: r for r in facts.receipts if r["state"] == "unknown"}
    for effect, receipt in unknown.items():
        instance = facts.instances[receipt["instance_id"]]
        node = places.get((receipt["instance_id"], receipt["scope"], receipt["block_id"]))
        if effect in named.get(instance["id"], ()):
            if announced[effect] != 1:
                yield Violation("I9", f"{_name(receipt)} was announced {announced[effect]} times")
        elif instance["state"] != "cancelled" and receipt["mode"] != "repeatable":
            is_parked = node is not None and node["state"] == "waiting" and node["waiting_for"] == "effect"
            if instance["state"] in ("completed", "failed") or not is_parked:
                text = f"{_name(receipt)} does not block its run, which is {instance['state']}"
                yield Violation("I9", text)
    for instance_id, effects in named.items():
        if not effects & unknown.keys():
            yield Violation("I9", f"run {instance_id} is blocked by {sorted(effects)}, which is resolved")


def check_end(
    database: Path,
    seen: Iterable[Seen],
    expected: Mapping[str, Callable[[Json], bool]],
) -> list[Violation]:
    """I10: after a truthful resolution every run completed, with the right outputs, each applied once.

    expected: for each block id, what its output must satisfy. Call it when all runs have ended.
    """
    with closing(connect(database)) as connection:
        facts = read_facts(connection)
    facts.seen = list(seen)
    return [*_everything_completed(facts, expected), *_applied_as_recorded(facts)]


def _everything_completed(
    facts: Facts, expected: Mapping[str, Callable[[Json], bool]]
) -> Iterator[Violation]:
    results = {
        (o["instance_id"], o["block_id"]): json.loads(o["output"])
        for o in facts.outputs
        if o["kind"] == "result"
    }
    for instance in facts.instances.values():
        if instance["state"] != "completed":
            yield Violation("I10", f"run {instance['id']} ended {instance['state']}: {instance['failure']}")
            continue
        for block, is_right in expected.items():
            output = results.get((instance["id"], block))
            if not is_right(output):
                yield Violation("I10", f"run {instance['id']}: the output of {block} is {output!r}")


def _applied_as_recorded(facts: Facts) -> Iterator[Violation]:
    applied = Counter(one.key for one in facts.seen if one.is_applied)
    for key, receipts in facts.receipts_by_key().items():
        states = [r["state"] for r in receipts]
        if any(state not in ("committed", "verified", "abandoned") for state in states):
            yield Violation("I10", f"key {key} is still {states} after the end")
        n_right = 1 if any(state in _IT_HAPPENED for state in states) else 0
        if applied[key] != n_right:
            yield Violation("I10", f"key {key} is {states} and was applied {applied[key]} times")
