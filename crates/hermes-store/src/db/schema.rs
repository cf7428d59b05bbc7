//! The tables of state.db (schema 22) as data, used to create them and to find columns that an
//! older database lacks.

pub(crate) const SCHEMA_VERSION: i64 = 22;
/// The oldest schema that can be upgraded.
pub(crate) const OLDEST_SCHEMA_VERSION: i64 = 11;

pub(crate) struct TableDef {
    pub name: &'static str,
    /// Name and declaration. The declaration is valid for `ALTER TABLE ADD COLUMN` too, except
    /// for keys, which no table ever lacks.
    pub columns: &'static [(&'static str, &'static str)],
    pub constraint: &'static str,
}

impl TableDef {
    pub(crate) fn create(&self) -> String {
        let mut parts: Vec<String> = self
            .columns
            .iter()
            .map(|(name, declaration)| format!("{name} {declaration}"))
            .collect();
        if !self.constraint.is_empty() {
            parts.push(self.constraint.to_owned());
        }
        format!(
            "CREATE TABLE IF NOT EXISTS {} (\n    {}\n);",
            self.name,
            parts.join(",\n    ")
        )
    }
}

const COUNTER: &str = "INTEGER DEFAULT 0";
const TOTAL: &str = "INTEGER NOT NULL DEFAULT 0";
const TEXT: &str = "TEXT NOT NULL DEFAULT ''";

pub(crate) const USAGE: TableDef = TableDef {
    name: "session_model_usage",
    columns: &[
        (
            "session_id",
            "TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE",
        ),
        ("model", "TEXT NOT NULL"),
        ("billing_provider", TEXT),
        ("billing_base_url", TEXT),
        ("billing_mode", TEXT),
        ("task", TEXT),
        ("api_call_count", TOTAL),
        ("input_tokens", TOTAL),
        ("output_tokens", TOTAL),
        ("cache_read_tokens", TOTAL),
        ("cache_write_tokens", TOTAL),
        ("reasoning_tokens", TOTAL),
        ("estimated_cost_usd", "REAL NOT NULL DEFAULT 0"),
        ("actual_cost_usd", "REAL NOT NULL DEFAULT 0"),
        ("cost_status", "TEXT"),
        ("cost_source", "TEXT"),
        ("first_seen", "REAL"),
        ("last_seen", "REAL"),
    ],
    constraint: "PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)",
};

pub(crate) const TABLES: &[TableDef] = &[
    TableDef {
        name: "schema_version",
        columns: &[("version", "INTEGER NOT NULL")],
        constraint: "",
    },
    SESSIONS,
    MESSAGES,
    USAGE,
    TableDef {
        name: "state_meta",
        columns: &[("key", "TEXT PRIMARY KEY"), ("value", "TEXT")],
        constraint: "",
    },
    TableDef {
        name: "gateway_routing",
        columns: &[
            ("scope", TEXT),
            ("session_key", "TEXT NOT NULL"),
            ("entry_json", "TEXT NOT NULL"),
            ("updated_at", "REAL NOT NULL"),
        ],
        constraint: "PRIMARY KEY (scope, session_key)",
    },
    TableDef {
        name: "compression_locks",
        columns: &[
            ("session_id", "TEXT PRIMARY KEY"),
            ("holder", "TEXT NOT NULL"),
            ("acquired_at", "REAL NOT NULL"),
            ("expires_at", "REAL NOT NULL"),
        ],
        constraint: "",
    },
    ASYNC_DELEGATIONS,
];

const SESSIONS: TableDef = TableDef {
    name: "sessions",
    columns: &[
        ("id", "TEXT PRIMARY KEY"),
        ("source", "TEXT NOT NULL"),
        ("user_id", "TEXT"),
        ("session_key", "TEXT"),
        ("chat_id", "TEXT"),
        ("chat_type", "TEXT"),
        ("thread_id", "TEXT"),
        ("display_name", "TEXT"),
        ("origin_json", "TEXT"),
        ("expiry_finalized", COUNTER),
        ("model", "TEXT"),
        ("model_config", "TEXT"),
        ("system_prompt", "TEXT"),
        ("parent_session_id", "TEXT"),
        ("started_at", "REAL NOT NULL"),
        ("ended_at", "REAL"),
        ("end_reason", "TEXT"),
        ("message_count", COUNTER),
        ("tool_call_count", COUNTER),
        ("input_tokens", COUNTER),
        ("output_tokens", COUNTER),
        ("cache_read_tokens", COUNTER),
        ("cache_write_tokens", COUNTER),
        ("reasoning_tokens", COUNTER),
        ("cwd", "TEXT"),
        ("git_branch", "TEXT"),
        ("git_repo_root", "TEXT"),
        ("billing_provider", "TEXT"),
        ("billing_base_url", "TEXT"),
        ("billing_mode", "TEXT"),
        ("estimated_cost_usd", "REAL"),
        ("actual_cost_usd", "REAL"),
        ("cost_status", "TEXT"),
        ("cost_source", "TEXT"),
        ("pricing_version", "TEXT"),
        ("title", "TEXT"),
        ("api_call_count", COUNTER),
        ("handoff_state", "TEXT"),
        ("handoff_platform", "TEXT"),
        ("handoff_error", "TEXT"),
        ("compression_failure_cooldown_until", "REAL"),
        ("compression_failure_error", "TEXT"),
        ("compression_fallback_streak", TOTAL),
        ("profile_name", "TEXT"),
        ("rewind_count", TOTAL),
        ("archived", TOTAL),
    ],
    constraint: "FOREIGN KEY (parent_session_id) REFERENCES sessions(id)",
};

const MESSAGES: TableDef = TableDef {
    name: "messages",
    columns: &[
        ("id", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        ("session_id", "TEXT NOT NULL REFERENCES sessions(id)"),
        ("role", "TEXT NOT NULL"),
        ("content", "TEXT"),
        ("tool_call_id", "TEXT"),
        ("tool_calls", "TEXT"),
        ("tool_name", "TEXT"),
        ("effect_disposition", "TEXT"),
        ("timestamp", "REAL NOT NULL"),
        ("token_count", "INTEGER"),
        ("finish_reason", "TEXT"),
        ("reasoning", "TEXT"),
        ("reasoning_content", "TEXT"),
        ("reasoning_details", "TEXT"),
        ("codex_reasoning_items", "TEXT"),
        ("codex_message_items", "TEXT"),
        ("platform_message_id", "TEXT"),
        ("observed", COUNTER),
        ("active", "INTEGER NOT NULL DEFAULT 1"),
        ("compacted", TOTAL),
        ("api_content", "TEXT"),
    ],
    constraint: "",
};

const ASYNC_DELEGATIONS: TableDef = TableDef {
    name: "async_delegations",
    columns: &[
        ("delegation_id", "TEXT PRIMARY KEY"),
        ("origin_session", "TEXT NOT NULL"),
        ("origin_ui_session_id", TEXT),
        ("parent_session_id", "TEXT"),
        ("state", "TEXT NOT NULL"),
        ("dispatched_at", "REAL NOT NULL"),
        ("completed_at", "REAL"),
        ("updated_at", "REAL NOT NULL"),
        ("event_json", "TEXT"),
        ("result_json", "TEXT"),
        ("delivery_state", "TEXT NOT NULL DEFAULT 'pending'"),
        ("delivery_attempts", TOTAL),
        ("delivered_at", "REAL"),
        ("owner_pid", "INTEGER"),
        ("owner_started_at", "INTEGER"),
        ("task_json", "TEXT"),
        ("delivery_claim", "TEXT"),
        ("delivery_claimed_at", "REAL"),
    ],
    constraint: "",
};

/// Name, and the text that follows `ON`.
pub(crate) const INDEXES: &[(&str, &str)] = &[
    ("idx_sessions_source", "sessions(source)"),
    ("idx_sessions_source_id", "sessions(source, id)"),
    ("idx_sessions_parent", "sessions(parent_session_id)"),
    ("idx_sessions_started", "sessions(started_at DESC)"),
    ("idx_messages_session", "messages(session_id, timestamp)"),
    (
        "idx_compression_locks_expires",
        "compression_locks(expires_at)",
    ),
    (
        "idx_session_model_usage_session",
        "session_model_usage(session_id)",
    ),
    (
        "idx_session_model_usage_model",
        "session_model_usage(model)",
    ),
    (
        "idx_async_delegations_delivery",
        "async_delegations(delivery_state, completed_at)",
    ),
    (
        "idx_messages_platform_msg_id",
        "messages(session_id, platform_message_id) WHERE platform_message_id IS NOT NULL",
    ),
    (
        "idx_messages_session_active",
        "messages(session_id, active, timestamp)",
    ),
    (
        "idx_messages_active_null",
        "messages(active) WHERE active IS NULL",
    ),
    (
        "idx_sessions_session_key",
        "sessions(session_key, started_at DESC)",
    ),
    (
        "idx_sessions_gateway_peer",
        "sessions(source, user_id, chat_id, chat_type, thread_id, started_at DESC)",
    ),
    (
        "idx_sessions_handoff_state",
        "sessions(handoff_state, started_at)",
    ),
];

/// Titles are unique where set. Separate, because old databases may contain duplicates.
pub(crate) const TITLE_INDEX: &str = "idx_sessions_title_unique";
pub(crate) const CREATE_TITLE_INDEX: &str = "CREATE UNIQUE INDEX IF NOT EXISTS \
     idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL";

/// The two full-text indexes: words, and trigrams for scripts without spaces.
pub(crate) const FTS: &[(&str, &str)] = &[
    ("messages_fts", "content"),
    ("messages_fts_trigram", "content, tokenize='trigram'"),
];

/// The indexed text of a message; `row` is `new.` inside a trigger.
pub(crate) fn document(row: &str) -> String {
    format!(
        "COALESCE({row}content, '') || ' ' || COALESCE({row}tool_name, '') || ' ' || \
         COALESCE({row}tool_calls, '')"
    )
}

pub(crate) fn fts_trigger_names() -> Vec<String> {
    FTS.iter()
        .flat_map(|(table, _)| {
            ["insert", "delete", "update"].map(|event| format!("{table}_{event}"))
        })
        .collect()
}

/// The index table and the triggers that maintain it.
pub(crate) fn create_fts(table: &str, arguments: &str) -> String {
    let add = format!(
        "INSERT INTO {table}(rowid, content) VALUES (new.id, {});",
        document("new.")
    );
    let drop = format!("DELETE FROM {table} WHERE rowid = old.id;");
    format!(
        "CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5({arguments});
         CREATE TRIGGER IF NOT EXISTS {table}_insert AFTER INSERT ON messages BEGIN {add} END;
         CREATE TRIGGER IF NOT EXISTS {table}_delete AFTER DELETE ON messages BEGIN {drop} END;
         CREATE TRIGGER IF NOT EXISTS {table}_update AFTER UPDATE ON messages BEGIN {drop} {add} END;"
    )
}

/// Fills an index from the messages.
pub(crate) fn refill_fts(table: &str) -> String {
    format!(
        "DELETE FROM {table};
         INSERT INTO {table}(rowid, content) SELECT id, {} FROM messages;",
        document("")
    )
}
