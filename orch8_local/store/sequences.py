"""Stored revisions of sequences, by content: a revision never changes (product D13).

The easy mistake: looking a run's document up by name; a run is pinned to the revision it began with.
"""

from __future__ import annotations

from orch8_local.errors import AlreadyExists, NotFound
from orch8_local.model.reading import SequenceRow
from orch8_local.store.writer import Tx

SEQUENCE_COLUMNS = "sha256, name, version, source, is_deprecated, created_at_us, document"

SQL_GET = f"SELECT {SEQUENCE_COLUMNS} FROM sequences WHERE sha256 = ?"
SQL_LATEST = (
    f"SELECT {SEQUENCE_COLUMNS} FROM sequences WHERE name = ? AND is_deprecated = 0"
    " ORDER BY version DESC, seq DESC LIMIT 1"
)
SQL_VERSION = f"SELECT {SEQUENCE_COLUMNS} FROM sequences WHERE name = ? AND version = ? ORDER BY seq DESC LIMIT 1"
SQL_PUT = (
    "INSERT INTO sequences (sha256, tenant_id, namespace, name, version, document, source, created_at_us)"
    " VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (sha256) DO NOTHING"
)
SQL_OTHER = "SELECT sha256 FROM sequences WHERE name = ? AND version = ? AND sha256 != ? LIMIT 1"


def put(
    tx: Tx,
    document: str,
    *,
    sha256: str,
    name: str,
    version: int,
    tenant_id: str,
    namespace: str,
    source: str,
    now_us: int,
    strict: bool = False,
) -> bool:
    """Store a revision; True if it is new. strict: another content under this name and version is refused."""
    if strict and (row := tx.one(SQL_OTHER, (name, version, sha256))) is not None:
        raise AlreadyExists(
            f"{name} v{version} exists with other content ({row[0][:6]})",
            hint="raise the version, or add it without --strict",
        )
    cursor = tx.execute(SQL_PUT, (sha256, tenant_id, namespace, name, version, document, source, now_us))
    return cursor.rowcount == 1


def find(tx: Tx, name: str, version: int | None) -> SequenceRow | None:
    """The newest revision of a version, or of the highest version that is not deprecated."""
    row = tx.one(SQL_LATEST, (name,)) if version is None else tx.one(SQL_VERSION, (name, version))
    return sequence_from_row(row) if row else None


def get(tx: Tx, sha256: str) -> SequenceRow:
    """One revision by content; NotFound if it is not stored."""
    row = tx.one(SQL_GET, (sha256,))
    if row is None:
        raise NotFound(f"there is no revision {sha256[:12]}")
    return sequence_from_row(row)


def sequence_from_row(row: tuple[object, ...]) -> SequenceRow:
    """A revision from SEQUENCE_COLUMNS."""
    sha256, name, version, source, is_deprecated, created_at_us, document = row
    assert isinstance(version, int)
    assert isinstance(created_at_us, int)
    return SequenceRow(str(sha256), str(name), version, str(source), bool(is_deprecated), created_at_us, str(document))
