//! The platform as data.

use crate::definition::{
    Batching, PlatformDef, SetupDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
};

pub(crate) static DEFINITION: PlatformDef = PlatformDef {
    name: super::NAME,
    short_name: "ds",
    writers: Writers::People,
    token_var: Some("DISCORD_BOT_TOKEN"),
    switched_on: SwitchedOn::ByToken,
    home_var: "DISCORD_HOME_CHANNEL",
    job_thread_var: None,
    setup: SetupDef {
        hint: "create an application with a bot at https://discord.com/developers (with the Message Content intent)",
        fields: &[SetupField {
            var: "DISCORD_BOT_TOKEN",
            flag: "token",
            question: "bot token",
            secret: true,
            required: true,
        }],
        switch: None,
    },
    prompt_hint: Some(
        "You are on Discord: Markdown is rendered, tables are not; long answers are split. To send a \
         file, write MEDIA:/absolute/path on a line of its own.",
    ),
    batching: Batching {
        short: 300,
        split: 2000,
        album: 800,
    },
    shows_tools: true,
    bang_commands: false,
    threads: ThreadSyntax::AfterNumber,
    strangers: StrangerRules {
        checked_by_platform: false,
        group_list: None,
        chats_among_users: false,
        bots: true,
        pairs: true,
    },
    private_ids: false,
};
