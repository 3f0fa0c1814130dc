"""A ledger in miniature over plain SQLite, to test the harness without the product.

`python toy.py DATABASE SYNCHRONOUS CHECKPOINT_PAGES N`: N effects, each T1 (dispatched), a send, and
T3 (committed).
"""

from __future__ import annotations

import socket
import sqlite3
import sys


def main(database: str, synchronous: str, checkpoint_pages: str, n_effects: str) -> None:
    """Write the effects one after the other."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint={checkpoint_pages}")
    connection.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY, state TEXT NOT NULL, note TEXT) STRICT")
    ours, theirs = socket.socketpair()
    for number in range(int(n_effects)):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO effects VALUES (?, 'dispatched', ?)", (number, "x" * 700))
        connection.execute("COMMIT")
        ours.sendall(b"%d\n" % number)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE effects SET state = 'committed' WHERE id = ?", (number,))
        connection.execute("COMMIT")
        print(f"ack {number}", flush=True)
    ours.close()
    theirs.close()
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
