//! Sections `display`, `terminal`, `approvals`, `security`, `web`, `sessions`, `checkpoints`,
//! `logging`, `cron`, `gateway`, `session_reset`, `streaming`, `curator`, `network`.

use serde_json::{Map, Value, json};

use super::field::{ConfigWord, Named, section};

section! {
    /// `display`
    struct Display {
        compact: bool = false,
        personality: String = String::new(),
        resume_display: ConfigWord = "full".into(),
        resume_exchanges: u32 = 10,
        resume_max_user_chars: u32 = 300,
        resume_max_assistant_chars: u32 = 200,
        resume_max_assistant_lines: u32 = 3,
        resume_skip_tool_only: bool = true,
        busy_input_mode: ConfigWord = "interrupt".into(),
        busy_steer_ack_enabled: bool = true,
        interface: ConfigWord = "cli".into(),
        tui_auto_resume_recent: bool = false,
        tui_agents_nudge: bool = true,
        bell_on_complete: bool = false,
        show_reasoning: bool = true,
        reasoning_full: bool = false,
        memory_notifications: ConfigWord = "on".into(),
        streaming: bool = false,
        timestamps: bool = false,
        timestamp_format: String = "%H:%M".to_owned(),
        final_response_markdown: ConfigWord = "strip".into(),
        persistent_output: bool = true,
        persistent_output_max_lines: u32 = 200,
        persist_prompts: bool = true,
        inline_diffs: bool = true,
        file_mutation_verifier: bool = true,
        credits_notices: bool = true,
        turn_completion_explainer: bool = true,
        show_cost: bool = false,
        skin: String = "default".to_owned(),
        language: String = "en".to_owned(),
        tui_status_indicator: ConfigWord = "kaomoji".into(),
        cli_refresh_interval: f64 = 1.0,
        user_message_preview: Value = json!({"first_lines": 2, "last_lines": 2}),
        interim_assistant_messages: bool = true,
        show_commentary: bool = true,
        tool_progress_command: bool = false,
        tool_progress_overrides: Map<String, Value> = Map::new(),
        tool_preview_length: u32 = 0,
        friendly_tool_labels: bool = true,
        tool_progress_grouping: ConfigWord = "accumulate".into(),
        status_phrases: Map<String, Value> = Map::new(),
        reasoning_style: ConfigWord = "code".into(),
        ephemeral_system_ttl: u64 = 0,
        /// Platform → its own values of the fields above.
        platforms: Named<Value> = [
            ("telegram".to_owned(), json!({"streaming": true})),
            ("discord".to_owned(), json!({"streaming": false})),
        ].into_iter().collect(),
        runtime_footer: Value = json!({"enabled": false, "fields": ["model", "context_pct", "cwd"]}),
        copy_shortcut: ConfigWord = "auto".into(),
        pet: Value = json!({"enabled": false, "slug": "", "render_mode": "auto", "scale": 0.33, "unicode_cols": 0}),
    }
    optional {
        /// `off`, `new`, `all` or `verbose`.
        tool_progress: ConfigWord,
        /// Plain characters instead of symbols. Ours alone.
        ascii: bool,
        sections: Value,
        tui_statusbar: Value,
        tui_mouse: Value,
        mouse_tracking: Value,
        generic_status_phrases: Value,
        background_process_notifications: ConfigWord,
        busy_text_mode: ConfigWord,
        theme: Value,
        tui_compact: bool,
        details_mode: ConfigWord,
    }
}

section! {
    /// `terminal`: where commands run.
    struct Terminal {
        backend: ConfigWord = "local".into(),
        modal_mode: ConfigWord = "auto".into(),
        cwd: String = ".".to_owned(),
        timeout: u64 = 180,
        daemon_term_grace_seconds: f64 = 2.0,
        env_passthrough: Vec<String> = Vec::new(),
        /// Commands get every variable of the process but the keys of Hermes, not only the usual ones.
        env_inherit: bool = false,
        home_mode: ConfigWord = "auto".into(),
        shell_init_files: Vec<String> = Vec::new(),
        auto_source_bashrc: bool = true,
        docker_image: String = "nikolaik/python-nodejs:python3.11-nodejs20".to_owned(),
        docker_forward_env: Vec<String> = Vec::new(),
        docker_env: Named<String> = Named::default(),
        singularity_image: String = "docker://nikolaik/python-nodejs:python3.11-nodejs20".to_owned(),
        modal_image: String = "nikolaik/python-nodejs:python3.11-nodejs20".to_owned(),
        daytona_image: String = "nikolaik/python-nodejs:python3.11-nodejs20".to_owned(),
        container_cpu: f64 = 1.0,
        container_memory: u64 = 5120,
        container_disk: u64 = 51200,
        container_persistent: bool = true,
        docker_volumes: Vec<String> = Vec::new(),
        docker_mount_cwd_to_workspace: bool = false,
        docker_network: bool = true,
        docker_extra_args: Vec<String> = Vec::new(),
        docker_run_as_host_user: bool = false,
        persistent_shell: bool = true,
        /// What confines commands on this machine: `auto` (the kernel's Landlock, else bubblewrap, else
        /// nothing with a warning), `landlock`, `bubblewrap`, `off`. One that is named and missing
        /// refuses to run commands.
        sandbox: ConfigWord = "auto".into(),
        /// Whether confined commands reach the network.
        sandbox_network: bool = true,
        /// Directories that confined commands may write to, besides the workspace and temporary ones.
        sandbox_writable: Vec<String> = Vec::new(),
        /// Files and directories that confined commands cannot read, besides the secrets of the home.
        sandbox_unreadable: Vec<String> = Vec::new(),
        /// Private files and directories of the person (keys, credentials, histories) that confined commands
        /// and the file tools may read all the same.
        sandbox_readable: Vec<String> = Vec::new(),
        /// Sockets of other programs, or directories of such, that confined commands may connect to.
        sandbox_sockets: Vec<String> = Vec::new(),
        /// Processes a person's confined commands may bring the account to; 0: no limit.
        sandbox_max_processes: u64 = 8192,
        /// Megabytes of memory for each confined process; 0: three quarters of the machine's.
        sandbox_max_memory_mb: u64 = 0,
        /// Megabytes of the largest file a confined command can write; 0: no limit.
        sandbox_max_file_mb: u64 = 65536,
    }
    optional {
        env_type: ConfigWord,
        ssh_host: String,
        ssh_user: String,
        ssh_port: u32,
        ssh_key: String,
        lifetime_seconds: u64,
        sandbox_dir: String,
        docker_persist_across_processes: bool,
        docker_orphan_reaper: bool,
        credential_files: Vec<Value>,
        degrade_to_local: bool,
        max_foreground_timeout: u64,
    }
}

section! {
    /// `approvals`
    struct Approvals {
        /// `smart`, `manual` or `off`.
        mode: ConfigWord = "smart".into(),
        /// Seconds until an approval at a terminal counts as denied. The default is the original's
        /// and is ignored here: only an explicit value applies; 0: no limit.
        timeout: u64 = 60,
        cron_mode: ConfigWord = "deny".into(),
        /// Command patterns that are always refused.
        deny: Vec<String> = Vec::new(),
        mcp_reload_confirm: bool = true,
        destructive_slash_confirm: bool = true,
    }
    optional {
        /// What needs asking when nobody is there: `deny` (default), `allow_workspace`, `smart` or
        /// `allow`. Ours alone.
        unattended: ConfigWord,
        discord_prompt_timeout: u64,
        gateway_timeout: u64,
    }
}

section! {
    /// `security`
    struct Security {
        allow_private_urls: bool = false,
        redact_secrets: bool = true,
        tirith_enabled: bool = true,
        tirith_path: String = "tirith".to_owned(),
        tirith_timeout: u64 = 5,
        tirith_fail_open: bool = true,
        website_blocklist: WebsiteBlocklist = WebsiteBlocklist::default(),
        acked_advisories: Vec<String> = Vec::new(),
        allow_lazy_installs: bool = true,
    }
    optional {
        /// Ranges that this network's DNS answers with for public names (VPNs, transparent
        /// proxies), mostly 198.18.0.0/15: names may lead there, literal addresses may not.
        fake_ip_ranges: Vec<String>,
    }
}

section! {
    /// `web`: who searches and who reads pages.
    struct Web {
        /// For both, unless the next two say otherwise.
        backend: ConfigWord = ConfigWord::default(),
        search_backend: ConfigWord = ConfigWord::default(),
        /// `native` is the built-in reader.
        extract_backend: ConfigWord = ConfigWord::default(),
        /// Characters of a page that go into the conversation.
        extract_char_limit: u64 = 15_000,
    }
}

section! {
    /// `security.website_blocklist`
    struct WebsiteBlocklist {
        enabled: bool = false,
        domains: Vec<String> = Vec::new(),
        shared_files: Vec<String> = Vec::new(),
    }
}

section! {
    /// `sessions`: how long conversations are kept.
    struct Sessions {
        auto_prune: bool = false,
        retention_days: u32 = 90,
        vacuum_after_prune: bool = true,
        min_interval_hours: u32 = 24,
        write_json_snapshots: bool = false,
    }
    optional {
        max_message_chars: u64,
    }
}

section! {
    /// `checkpoints`: snapshots of a working directory before it is changed.
    struct Checkpoints {
        enabled: bool = false,
        max_snapshots: u32 = 20,
        max_total_size_mb: u64 = 500,
        max_file_size_mb: u64 = 10,
        auto_prune: bool = true,
        retention_days: u32 = 7,
        delete_orphans: bool = true,
        min_interval_hours: u32 = 24,
    }
}

section! {
    /// `logging`
    struct Logging {
        level: String = "INFO".to_owned(),
        max_size_mb: u64 = 5,
        backup_count: u32 = 3,
    }
}

section! {
    /// `cron`
    struct Cron {
        provider: String = String::new(),
        chronos: Value = json!({
            "portal_url": "https://portal.nousresearch.com",
            "callback_url": "",
            "expected_audience": "",
            "nas_jwks_url": "",
        }),
        wrap_response: bool = true,
        mirror_delivery: bool = false,
        max_parallel_jobs: Option<u32> = None,
        output_retention: u32 = 50,
        session_db_timeout_seconds: f64 = 10.0,
    }
    optional {
        script_timeout_seconds: u64,
    }
}

section! {
    /// `gateway`
    struct Gateway {
        delivery_ledger: bool = true,
        platform_connect_timeout: u64 = 30,
        write_sessions_json: bool = true,
        scale_to_zero: Value = json!({"idle_timeout_minutes": 5}),
        restart_loop_guard: Value = json!({"max_restarts": 3, "window_seconds": 60}),
        respawn_storm: Value = json!({"max_starts": 5, "window_seconds": 120}),
        message_timestamps: Value = json!({"enabled": false}),
        max_inbound_media_bytes: u64 = 134_217_728,
        strict: bool = false,
        media_delivery_allow_dirs: Vec<String> = Vec::new(),
        trust_recent_files: bool = true,
        trust_recent_files_seconds: u64 = 600,
        api_server: Value = json!({"max_concurrent_runs": 10}),
    }
    optional {
        platforms: Map<String, Value>,
        streaming: Value,
        session_reset: Value,
        stt: Value,
        quick_commands: Map<String, Value>,
        profile_routes: Value,
        multiplex_profiles: Value,
        unauthorized_dm_behavior: ConfigWord,
        max_concurrent_sessions: u32,
        max_live_sessions: u32,
        busy_input_mode: ConfigWord,
        group_sessions_per_user: bool,
        thread_sessions_per_user: bool,
        reset_triggers: Value,
        always_log_local: bool,
        filter_silence_narration: bool,
        relay: Value,
        proxy_url: String,
        default_platform: String,
        home_channels: Value,
        /// Megabytes of memory that idle conversations may keep.
        session_cache_mb: u64,
        /// Idle conversations that are kept open.
        session_cache_count: u64,
        /// Seconds without a sign of life after which systemd restarts the gateway; 0: never.
        systemd_watchdog_seconds: u64,
    }
}

section! {
    /// `session_reset`: when a chat starts afresh.
    struct SessionReset {
        mode: ConfigWord = "none".into(),
        at_hour: u32 = 4,
        idle_minutes: u64 = 1440,
        notify: bool = true,
    }
    optional {
        bg_process_max_age_hours: u32,
        notify_exclude_platforms: Vec<String>,
    }
}

section! {
    /// `streaming`: edits of a message while the answer arrives.
    struct Streaming {
        enabled: bool = false,
        transport: ConfigWord = "auto".into(),
        edit_interval: f64 = 0.8,
        buffer_threshold: u32 = 24,
        cursor: String = " ▉".to_owned(),
        fresh_final_after_seconds: f64 = 0.0,
    }
}

section! {
    /// `curator`: upkeep of the skills library.
    struct Curator {
        enabled: bool = true,
        interval_hours: u32 = 168,
        min_idle_hours: u32 = 2,
        stale_after_days: u32 = 30,
        archive_after_days: u32 = 90,
        consolidate: bool = false,
        prune_builtins: bool = true,
        backup: CuratorBackup = CuratorBackup::default(),
    }
}

section! {
    /// `curator.backup`
    struct CuratorBackup {
        enabled: bool = true,
        keep: u32 = 5,
    }
}

section! {
    /// `network`
    struct Network {
        force_ipv4: bool = false,
    }
    optional {
        proxy: String,
        ca_bundle: String,
    }
}
