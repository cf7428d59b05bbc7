//! The platform as data.

use crate::definition::{
    Batching, PlatformDef, SetupDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
};

pub(crate) static DEFINITION: PlatformDef = PlatformDef {
    name: super::NAME,
    short_name: "tg",
    writers: Writers::People,
    token_var: Some("TELEGRAM_BOT_TOKEN"),
    switched_on: SwitchedOn::ByToken,
    home_var: "TELEGRAM_HOME_CHANNEL",
    job_thread_var: Some("TELEGRAM_CRON_THREAD_ID"),
    setup: SetupDef {
        hint: "create a bot with @BotFather in Telegram; it gives you a token like 123456:ABC-DEF",
        fields: &[SetupField {
            var: "TELEGRAM_BOT_TOKEN",
            flag: "token",
            question: "bot token",
            secret: true,
            required: true,
        }],
        switch: None,
    },
    prompt_hint: Some(
        "You are on Telegram: Markdown is rendered, tables are not. To send a file, write \
         MEDIA:/absolute/path on a line of its own.",
    ),
    batching: Batching {
        short: 180,
        split: 1000,
        album: 800,
    },
    shows_tools: false,
    bang_commands: false,
    threads: ThreadSyntax::Number,
    strangers: StrangerRules {
        checked_by_platform: false,
        group_list: Some("GROUP_ALLOWED_CHATS"),
        chats_among_users: true,
        bots: true,
        pairs: true,
    },
    private_ids: true,
};
