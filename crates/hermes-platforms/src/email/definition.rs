//! The platform as data.

use crate::definition::{
    Batching, PlatformDef, SetupDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
};

pub(crate) static DEFINITION: PlatformDef = PlatformDef {
    name: super::NAME,
    short_name: "mail",
    writers: Writers::People,
    token_var: None,
    switched_on: SwitchedOn::ByAll(&[
        "EMAIL_ADDRESS",
        "EMAIL_PASSWORD",
        "EMAIL_IMAP_HOST",
        "EMAIL_SMTP_HOST",
    ]),
    home_var: "EMAIL_HOME_ADDRESS",
    job_thread_var: None,
    setup: SetupDef {
        hint: "use a separate account: everything that arrives there is read",
        fields: &[
            SetupField {
                var: "EMAIL_ADDRESS",
                flag: "address",
                question: "address",
                secret: false,
                required: true,
            },
            SetupField {
                var: "EMAIL_PASSWORD",
                flag: "password",
                question: "password (an app password if the provider has them)",
                secret: true,
                required: true,
            },
            SetupField {
                var: "EMAIL_IMAP_HOST",
                flag: "imap-host",
                question: "IMAP server",
                secret: false,
                required: true,
            },
            SetupField {
                var: "EMAIL_SMTP_HOST",
                flag: "smtp-host",
                question: "SMTP server",
                secret: false,
                required: true,
            },
        ],
        switch: None,
    },
    prompt_hint: Some(
        "You answer by e-mail: plain text with a clear structure, no greeting unless it fits. To \
         attach a file, write MEDIA:/absolute/path on a line of its own.",
    ),
    batching: Batching::NONE,
    shows_tools: false,
    bang_commands: false,
    threads: ThreadSyntax::AfterNumber,
    strangers: StrangerRules {
        checked_by_platform: false,
        group_list: None,
        chats_among_users: false,
        bots: false,
        // A mailbox gets letters from anyone; strangers are not answered with codes.
        pairs: false,
    },
    private_ids: false,
};
