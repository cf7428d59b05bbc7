//! The platform as data.

use crate::definition::{
    Batching, PlatformDef, SetupDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
};

pub static DEFINITION: PlatformDef = PlatformDef {
    name: super::NAME,
    short_name: "hook",
    writers: Writers::Programs,
    token_var: None,
    switched_on: SwitchedOn::ByFlag("WEBHOOK_ENABLED"),
    home_var: "WEBHOOK_HOME_CHANNEL",
    job_thread_var: None,
    setup: SetupDef {
        hint: "for services that call when something happens; routes are set in config.yaml (docs/webhook.md)",
        fields: &[
            SetupField {
                var: "WEBHOOK_SECRET",
                flag: "secret",
                question: "secret that callers sign with (empty: generate one)",
                secret: true,
                required: false,
            },
            SetupField {
                var: "WEBHOOK_PORT",
                flag: "port",
                question: "port (empty: 8644)",
                secret: false,
                required: false,
            },
        ],
        switch: Some("WEBHOOK_ENABLED"),
    },
    prompt_hint: None,
    batching: Batching::NONE,
    shows_tools: false,
    bang_commands: false,
    threads: ThreadSyntax::AfterNumber,
    strangers: StrangerRules {
        checked_by_platform: true,
        group_list: None,
        chats_among_users: false,
        bots: false,
        pairs: true,
    },
    private_ids: false,
};
