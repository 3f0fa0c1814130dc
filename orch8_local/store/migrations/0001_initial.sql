-- The whole database. Times are microseconds UTC (*_at_us), JSON is canonical text, ids are lower-case text.
-- Everything a run did is in `events`, append-only and hash-chained; its seq is also the change feed.
-- Receipts and events are never deleted and events never changed: triggers refuse, and the writer sets
-- recursive_triggers so that INSERT OR REPLACE cannot walk around them.

CREATE TABLE ledger_meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    db_id TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    created_at_us INTEGER NOT NULL,
    last_boot_id TEXT,
    is_clean INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE TABLE receipt_moves (from_state TEXT NOT NULL, to_state TEXT NOT NULL, PRIMARY KEY (from_state, to_state)) STRICT, WITHOUT ROWID;
INSERT INTO receipt_moves VALUES
    ('planned','prepared'), ('planned','abandoned'),
    ('prepared','dispatched'), ('prepared','abandoned'),
    ('dispatched','committed'), ('dispatched','unknown'),
    ('unknown','committed'), ('unknown','verified'), ('unknown','compensated'), ('unknown','abandoned'),
    ('committed','compensated'), ('verified','compensated');

CREATE TABLE instance_moves (from_state TEXT NOT NULL, to_state TEXT NOT NULL, PRIMARY KEY (from_state, to_state)) STRICT, WITHOUT ROWID;
INSERT INTO instance_moves VALUES
    ('scheduled','running'), ('scheduled','paused'), ('scheduled','cancelled'),
    ('running','scheduled'), ('running','waiting'), ('running','paused'), ('running','completed'), ('running','failed'), ('running','cancelled'),
    ('waiting','scheduled'), ('waiting','running'), ('waiting','paused'), ('waiting','failed'), ('waiting','cancelled'),
    ('paused','scheduled'), ('paused','waiting'), ('paused','cancelled'),
    ('completed','scheduled'), ('failed','scheduled'), ('cancelled','scheduled');

CREATE TABLE node_moves (from_state TEXT NOT NULL, to_state TEXT NOT NULL, PRIMARY KEY (from_state, to_state)) STRICT, WITHOUT ROWID;
INSERT INTO node_moves VALUES
    ('pending','running'), ('pending','waiting'), ('pending','completed'), ('pending','failed'), ('pending','skipped'), ('pending','cancelled'),
    ('running','waiting'), ('running','completed'), ('running','failed'), ('running','skipped'), ('running','cancelled'), ('running','pending'),
    ('waiting','running'), ('waiting','completed'), ('waiting','failed'), ('waiting','cancelled'), ('waiting','pending'),
    ('completed','pending'), ('failed','pending'), ('cancelled','pending'), ('skipped','pending');

CREATE TABLE sequences (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT NOT NULL UNIQUE,
    tenant_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    source TEXT NOT NULL,
    is_deprecated INTEGER NOT NULL DEFAULT 0,
    created_at_us INTEGER NOT NULL
) STRICT;
CREATE INDEX sequences_name ON sequences (name, version, seq);

CREATE TABLE instances (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    sequence_sha256 TEXT NOT NULL REFERENCES sequences (sha256),
    sequence_name TEXT NOT NULL,
    sequence_version INTEGER NOT NULL,
    tenant_id TEXT NOT NULL DEFAULT 'local',
    namespace TEXT NOT NULL DEFAULT 'default',
    state TEXT NOT NULL CHECK (state IN ('scheduled','running','waiting','paused','completed','failed','cancelled')),
    priority INTEGER NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 3),
    due_at_us INTEGER CHECK (due_at_us IS NULL OR state IN ('scheduled','waiting')),
    boot_id TEXT CHECK ((boot_id IS NOT NULL) = (state = 'running')),
    claim_epoch INTEGER NOT NULL DEFAULT 0,
    n_recoveries INTEGER NOT NULL DEFAULT 0,
    n_steps INTEGER NOT NULL DEFAULT 0,
    data TEXT NOT NULL,
    config TEXT NOT NULL,
    run_id TEXT NOT NULL,
    start_key TEXT,
    input_sha256 TEXT NOT NULL,
    failure TEXT,
    is_blocked INTEGER NOT NULL DEFAULT 0,
    paused_reason TEXT,
    cancel_requested_at_us INTEGER,
    created_at_us INTEGER NOT NULL,
    started_at_us INTEGER,
    updated_at_us INTEGER NOT NULL,
    ended_at_us INTEGER,
    CHECK (state != 'scheduled' OR due_at_us IS NOT NULL)
) STRICT;
-- Exactly the claim's range and order: one priority, due before now, oldest first.
CREATE INDEX instances_due ON instances (priority, due_at_us, seq) WHERE due_at_us IS NOT NULL;
CREATE UNIQUE INDEX instances_start_key ON instances (tenant_id, start_key) WHERE start_key IS NOT NULL;
CREATE INDEX instances_state ON instances (state, seq);

CREATE TABLE instance_counts (state TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO instance_counts VALUES
    ('scheduled',0), ('running',0), ('waiting',0), ('paused',0), ('completed',0), ('failed',0), ('cancelled',0);

CREATE TABLE nodes (
    instance_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    block_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending','running','waiting','completed','failed','cancelled','skipped')),
    attempt INTEGER NOT NULL DEFAULT 0,
    wake_at_us INTEGER,
    waiting_for TEXT,
    memo TEXT,
    error TEXT,
    started_at_us INTEGER,
    ended_at_us INTEGER,
    PRIMARY KEY (instance_id, scope, block_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE outputs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    block_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('result','error','retry','gate','marker','breach','trace')),
    rerun INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL,
    output TEXT NOT NULL,
    effect_id TEXT,
    created_at_us INTEGER NOT NULL
) STRICT;
CREATE INDEX outputs_instance ON outputs (instance_id, seq);
-- A step is complete if and only if its intent has a result row, so there can be only one.
CREATE UNIQUE INDEX outputs_one_result ON outputs (instance_id, scope, block_id, rerun) WHERE kind = 'result';

CREATE TABLE instance_state (
    instance_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (instance_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_receipts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    intent_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    continuity_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    instance_id TEXT NOT NULL,
    block_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    rerun INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('http','worker','webhook','message','storage','model','human_decision','custom')),
    mode TEXT NOT NULL CHECK (mode IN ('at_most_once','idempotent','repeatable','transactional')),
    handler TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned','prepared','dispatched','committed','unknown','verified','compensated','abandoned')),
    destination_fingerprint TEXT NOT NULL,
    request_sha256 TEXT NOT NULL,
    idempotency_key TEXT,
    sent_key TEXT,
    provider_receipt_id TEXT,
    method TEXT,
    destination TEXT,
    boot_id TEXT,
    request_started INTEGER NOT NULL DEFAULT 0,
    output TEXT,
    outcome_class TEXT,
    reason TEXT,
    version INTEGER NOT NULL DEFAULT 0,
    created_at_us INTEGER NOT NULL,
    updated_at_us INTEGER NOT NULL,
    dispatched_at_us INTEGER,
    UNIQUE (intent_id, attempt)
) STRICT;
CREATE INDEX effect_receipts_instance ON effect_receipts (instance_id, seq);
CREATE INDEX effect_receipts_unresolved ON effect_receipts (state, seq) WHERE state IN ('dispatched','unknown');

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    scope TEXT NOT NULL DEFAULT '',
    block_id TEXT,
    effect_id TEXT,
    from_state TEXT,
    to_state TEXT,
    reason TEXT,
    detail TEXT,
    prev_sha256 TEXT NOT NULL,
    entry_sha256 TEXT NOT NULL
) STRICT;
CREATE INDEX events_instance ON events (instance_id, seq);
CREATE VIEW effect_events AS SELECT * FROM events WHERE effect_id IS NOT NULL;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at_us INTEGER NOT NULL,
    delivered_at_us INTEGER
) STRICT;

CREATE TABLE operator_commands (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    arguments TEXT NOT NULL,
    actor TEXT NOT NULL,
    received_at_us INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done','refused')),
    result TEXT NOT NULL
) STRICT;

CREATE TRIGGER receipts_move BEFORE UPDATE OF state ON effect_receipts
WHEN NOT EXISTS (SELECT 1 FROM receipt_moves WHERE from_state = OLD.state AND to_state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal move of a receipt'); END;
CREATE TRIGGER receipts_begin BEFORE INSERT ON effect_receipts WHEN NEW.state NOT IN ('planned','prepared')
BEGIN SELECT RAISE(ABORT, 'a receipt begins planned or prepared'); END;
CREATE TRIGGER receipts_keep BEFORE DELETE ON effect_receipts
BEGIN SELECT RAISE(ABORT, 'a receipt is never deleted'); END;
CREATE TRIGGER receipts_identity BEFORE UPDATE OF id, intent_id, instance_id, block_id, scope, rerun, attempt, request_sha256, handler ON effect_receipts
BEGIN SELECT RAISE(ABORT, 'the identity of a receipt never changes'); END;
CREATE TRIGGER events_keep BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never deleted'); END;
CREATE TRIGGER events_fixed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER instances_move BEFORE UPDATE OF state ON instances
WHEN NOT EXISTS (SELECT 1 FROM instance_moves WHERE from_state = OLD.state AND to_state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal move of an instance'); END;
CREATE TRIGGER nodes_move BEFORE UPDATE OF state ON nodes
WHEN OLD.state != NEW.state AND NOT EXISTS (SELECT 1 FROM node_moves WHERE from_state = OLD.state AND to_state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal move of a node'); END;

CREATE TRIGGER instance_counts_insert AFTER INSERT ON instances
BEGIN UPDATE instance_counts SET n = n + 1 WHERE state = NEW.state; END;
CREATE TRIGGER instance_counts_move AFTER UPDATE OF state ON instances
BEGIN
    UPDATE instance_counts SET n = n - 1 WHERE state = OLD.state;
    UPDATE instance_counts SET n = n + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER instance_counts_delete AFTER DELETE ON instances
BEGIN UPDATE instance_counts SET n = n - 1 WHERE state = OLD.state; END;
