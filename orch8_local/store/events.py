"""The timeline: one append-only, hash-chained table for runs and effects, and the change feed.

Every entry holds the hash of the one before it, so a changed or removed line shows. The easy
mistake: writing an event outside the transaction of the change that it reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orch8_local.model.ids import canonical_json, sha256_hex
from orch8_local.store.writer import Tx

Json = Any

GENESIS = "0" * 64
"""What the first entry of a ledger names as its predecessor."""

SQL_LAST_HASH = "SELECT entry_sha256 FROM events ORDER BY seq DESC LIMIT 1"
SQL_CHAIN = (
    "SELECT seq, instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state, reason,"
    " detail, prev_sha256, entry_sha256 FROM events WHERE seq > ? ORDER BY seq LIMIT 10000"
)


def append(
    tx: Tx,
    instance_id: str,
    kind: str,
    *,
    at_us: int,
    actor: str = "engine",
    scope: str = "",
    block_id: str | None = None,
    effect_id: str | None = None,
    from_state: str | None = None,
    to_state: str | None = None,
    reason: str | None = None,
    detail: Mapping[str, Json] | None = None,
) -> None:
    """Add one line. `actor` is `engine`, `probe` or `operator:<name>`."""
    detail_text = canonical_json(detail) if detail else None
    facts = (instance_id, at_us, kind, actor, scope, block_id, effect_id, from_state, to_state, reason, detail_text)
    previous = tx.chain_head
    if previous is None:
        row = tx.one(SQL_LAST_HASH)
        previous = row[0] if row else GENESIS
    entry = entry_sha256(previous, facts)
    tx.events.append((*facts, previous, entry))
    tx.chain_head = entry


def entry_sha256(previous: str, facts: tuple[Json, ...]) -> str:
    """The hash of one entry: its predecessor's hash and its own facts in column order.

    Each fact is preceded by its length in characters, so no two lists of facts have the same bytes.
    """
    parts = ["~" if fact is None else f"{len(str(fact))}:{fact}" for fact in facts]
    return sha256_hex(previous + "".join(parts))


def first_broken_link(rows: Iterable[tuple[Any, ...]], previous: str = GENESIS) -> int | None:
    """The seq of the first row that does not follow from the one before it, or None.

    Rows are those of SQL_CHAIN. Source: effect-receipts 2.4, reliability I7.
    """
    for row in rows:
        seq, facts, stored_previous, stored = row[0], row[1:12], row[12], row[13]
        if stored_previous != previous or entry_sha256(previous, tuple(facts)) != stored:
            return int(seq)
        previous = stored
    return None
