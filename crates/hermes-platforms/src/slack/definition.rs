//! The platform as data.

use crate::definition::{
    Batching, PlatformDef, SetupDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
};

pub(crate) static DEFINITION: PlatformDef = PlatformDef {
    name: super::NAME,
    short_name: "sl",
    writers: Writers::People,
    token_var: Some("SLACK_BOT_TOKEN"),
    switched_on: SwitchedOn::ByToken,
    home_var: "SLACK_HOME_CHANNEL",
    job_thread_var: None,
    setup: SetupDef {
        hint: "create an app with Socket Mode at https://api.slack.com/apps",
        fields: &[
            SetupField {
                var: "SLACK_BOT_TOKEN",
                flag: "token",
                question: "bot token (xoxb-…)",
                secret: true,
                required: true,
            },
            SetupField {
                var: "SLACK_APP_TOKEN",
                flag: "app-token",
                question: "app token (xapp-…)",
                secret: true,
                required: true,
            },
        ],
        switch: None,
    },
    prompt_hint: Some(
        "You are in a team chat: be brief, use simple Markdown. To send a file, write \
         MEDIA:/absolute/path on a line of its own.",
    ),
    batching: Batching::USUAL,
    shows_tools: false,
    bang_commands: true,
    threads: ThreadSyntax::Timestamp,
    strangers: StrangerRules {
        checked_by_platform: false,
        group_list: None,
        chats_among_users: false,
        bots: true,
        pairs: true,
    },
    private_ids: false,
};
