//! The tables of delivery, created when a gateway first runs on a home.
//!
//! `delivery_obligations` is exactly the original's. What it has no column for is in tables of our
//! own, which the original never reads; nothing of its own is changed.

use rusqlite::Connection;

use crate::db::connection::DbError;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS delivery_obligations (
            obligation_id TEXT PRIMARY KEY,
            session_key TEXT NOT NULL,
            platform TEXT NOT NULL,
            chat_id TEXT NOT NULL,
            thread_id TEXT,
            content TEXT NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            owner_pid INTEGER,
            owner_started_at INTEGER,
            last_error TEXT
        );
CREATE TABLE IF NOT EXISTS hermes_delivery_owner (
    name TEXT PRIMARY KEY,
    instance TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at INTEGER,
    heartbeat_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS hermes_inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    chat_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    turn TEXT,
    claims INTEGER NOT NULL DEFAULT 0,
    received_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (platform, account, chat_id, message_id)
);
CREATE INDEX IF NOT EXISTS idx_hermes_inbox_open ON hermes_inbox(id) WHERE state <> 'done';
CREATE INDEX IF NOT EXISTS idx_hermes_inbox_key ON hermes_inbox(session_key, id)
    WHERE state <> 'done';
CREATE TABLE IF NOT EXISTS hermes_inbox_notes (
    message INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (message, name)
);
CREATE TABLE IF NOT EXISTS hermes_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    obligation_id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL DEFAULT '',
    turn TEXT NOT NULL,
    part INTEGER NOT NULL,
    extra TEXT,
    open INTEGER NOT NULL DEFAULT 1,
    ambiguous INTEGER NOT NULL DEFAULT 0,
    marked INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    unclear INTEGER NOT NULL DEFAULT 0,
    first_attempt_at REAL,
    last_attempt_at REAL,
    due_at REAL NOT NULL,
    platform_message_id TEXT
);
CREATE INDEX IF NOT EXISTS idx_hermes_outbox_open ON hermes_outbox(seq) WHERE open = 1;
CREATE TABLE IF NOT EXISTS hermes_questions (
    id TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    message INTEGER NOT NULL,
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    chat_id TEXT NOT NULL,
    thread_id TEXT,
    asked TEXT NOT NULL,
    state TEXT NOT NULL,
    answer TEXT,
    expires_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_hermes_questions_open ON hermes_questions(session_key)
    WHERE state <> 'closed';
";

pub(super) fn create(conn: &Connection) -> Result<(), DbError> {
    conn.execute_batch(TABLES)?;
    // Tables of an earlier version lack this column.
    let counts = conn
        .prepare("SELECT 1 FROM pragma_table_info('hermes_outbox') WHERE name = 'unclear'")?
        .exists([])?;
    if !counts {
        conn.execute_batch(
            "ALTER TABLE hermes_outbox ADD COLUMN unclear INTEGER NOT NULL DEFAULT 0",
        )?;
    }
    Ok(())
}
