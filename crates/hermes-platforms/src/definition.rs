//! Data about each platform for the rest of the program: names, variables, questions of `hermes
//! gateway setup`, rules. Code outside an adapter uses this instead of comparing names.

use crate::{discord, email, slack, telegram, webhook};

/// A platform as data. It has no default, so a new platform must define every field.
#[derive(Debug)]
pub struct PlatformDef {
    /// The name in settings, sessions and files.
    pub name: &'static str,
    /// The name in the status line.
    pub short_name: &'static str,
    pub writers: Writers,
    /// The variable with the token, if any.
    pub token_var: Option<&'static str>,
    /// The variables that enable it without configuration.
    pub switched_on: SwitchedOn,
    /// The variable with the chat that gets messages without another destination.
    pub home_var: &'static str,
    /// The variable with the thread of the home channel for job reports.
    pub job_thread_var: Option<&'static str>,
    pub setup: SetupDef,
    /// What the model should know about how its answers are shown.
    pub prompt_hint: Option<&'static str>,
    pub batching: Batching,
    /// Tool calls are shown by default.
    pub shows_tools: bool,
    /// `!name` is a command like `/name`, because clients reserve the slash.
    pub bang_commands: bool,
    pub threads: ThreadSyntax,
    pub strangers: StrangerRules,
    /// `privacy.redact_pii` hides ids of people and chats: they are phone numbers or lead to people.
    pub private_ids: bool,
}

/// Who writes on a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// People, authorized by allow-lists and pairing.
    People,
    /// Programs, authorized by a key.
    Programs,
}

/// Which variables switch a platform on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedOn {
    /// The token.
    ByToken,
    /// All of these.
    ByAll(&'static [&'static str]),
    /// A boolean variable.
    ByFlag(&'static str),
    /// A boolean variable, or a key.
    ByFlagOrKey(&'static str, &'static str),
}

/// What `hermes gateway setup` asks for.
#[derive(Debug)]
pub struct SetupDef {
    /// Where to get the requested values.
    pub hint: &'static str,
    pub fields: &'static [SetupField],
    /// The variable that is set so that it runs.
    pub switch: Option<&'static str>,
}

/// One value that setup asks for.
#[derive(Debug)]
pub struct SetupField {
    pub var: &'static str,
    /// The flag that answers it in advance.
    pub flag: &'static str,
    pub question: &'static str,
    pub secret: bool,
    pub required: bool,
}

/// How long to wait for further parts of a message, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// After a short message.
    pub short: u64,
    /// After a message that a client seems to have split at the limit.
    pub split: u64,
    /// After a file: the others of an album.
    pub album: u64,
}

impl Batching {
    /// Each message is whole.
    pub const NONE: Self = Self {
        short: 0,
        split: 0,
        album: 0,
    };
    /// The default for platforms.
    pub const USUAL: Self = Self {
        short: 0,
        split: 1000,
        album: 800,
    };
}

/// The syntax of threads in a target, such as `telegram:-100:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadSyntax {
    /// A number behind any chat.
    Number,
    /// Seconds with a fraction.
    Timestamp,
    /// A number, behind a chat that is a number.
    AfterNumber,
}

/// The rules of a platform for people on no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrangerRules {
    /// The platform itself authenticates senders.
    pub checked_by_platform: bool,
    /// The suffix of the variable with groups in which everyone may write.
    pub group_list: Option<&'static str>,
    /// `…_GROUP_ALLOWED_USERS` may contain ids of chats, which begin with a minus.
    pub chats_among_users: bool,
    /// `…_ALLOW_BOTS` admits other bots.
    pub bots: bool,
    /// Unknown people get a pairing code by default.
    pub pairs: bool,
}

/// The platforms that this program can run, in the order in which they are started and shown.
pub static PLATFORMS: [&PlatformDef; 6] = [
    &telegram::DEFINITION,
    &discord::DEFINITION,
    &slack::DEFINITION,
    &email::DEFINITION,
    &API_SERVER,
    &webhook::DEFINITION,
];

/// The definition of a platform. `None`: this program cannot run it.
pub fn definition(name: &str) -> Option<&'static PlatformDef> {
    PLATFORMS.into_iter().find(|one| one.name == name)
}

/// Whether programs write there, so that nobody can be asked or reads a notice.
pub fn is_for_programs(name: &str) -> bool {
    definition(name).is_some_and(|one| one.writers == Writers::Programs)
}

/// The API server is configured like a platform, but has no adapter.
static API_SERVER: PlatformDef = PlatformDef {
    name: "api_server",
    short_name: "api",
    writers: Writers::Programs,
    token_var: None,
    switched_on: SwitchedOn::ByFlagOrKey("API_SERVER_ENABLED", "API_SERVER_KEY"),
    home_var: "API_SERVER_HOME_CHANNEL",
    job_thread_var: None,
    setup: SetupDef {
        hint: "for programs that speak OpenAI's protocol; anyone with the key can run commands on this machine",
        fields: &[
            SetupField {
                var: "API_SERVER_KEY",
                flag: "key",
                question: "key (empty: generate one)",
                secret: true,
                required: false,
            },
            SetupField {
                var: "API_SERVER_PORT",
                flag: "port",
                question: "port (empty: 8642)",
                secret: false,
                required: false,
            },
        ],
        switch: Some("API_SERVER_ENABLED"),
    },
    prompt_hint: Some(
        "Your answer goes to a program or its user through an API; how it is shown is not known.",
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
        pairs: true,
    },
    private_ids: false,
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_definition_is_complete_and_its_own() {
        let names: HashSet<&str> = PLATFORMS.iter().map(|one| one.name).collect();
        let short: HashSet<&str> = PLATFORMS.iter().map(|one| one.short_name).collect();
        assert_eq!((names.len(), short.len()), (6, 6));
        for one in PLATFORMS {
            let prefix = one.name.to_uppercase();
            let mut vars: Vec<&str> = one.setup.fields.iter().map(|field| field.var).collect();
            vars.extend(one.token_var);
            vars.extend(one.setup.switch);
            vars.extend(one.job_thread_var);
            vars.push(one.home_var);
            match one.switched_on {
                SwitchedOn::ByToken => assert!(one.token_var.is_some(), "{}", one.name),
                SwitchedOn::ByAll(all) => vars.extend(all),
                SwitchedOn::ByFlag(flag) => vars.push(flag),
                SwitchedOn::ByFlagOrKey(flag, key) => vars.extend([flag, key]),
            }
            for var in vars {
                assert!(var.starts_with(&prefix), "{}: {var}", one.name);
            }
            let setup = &one.setup;
            assert!(
                !setup.hint.is_empty() && !setup.fields.is_empty(),
                "{}: setup asks for nothing",
                one.name
            );
            for field in setup.fields {
                assert!(
                    !field.flag.is_empty() && !field.question.is_empty(),
                    "{field:?}"
                );
            }
            // Setup ends with a platform that runs.
            let switched = match one.switched_on {
                SwitchedOn::ByToken => one.token_var.into_iter().collect(),
                SwitchedOn::ByAll(all) => all.to_vec(),
                SwitchedOn::ByFlag(flag) | SwitchedOn::ByFlagOrKey(flag, _) => vec![flag],
            };
            let asked = |var: &&str| {
                setup
                    .fields
                    .iter()
                    .any(|field| field.required && field.var == *var)
            };
            for var in switched {
                assert!(
                    asked(&var) || setup.switch == Some(var),
                    "{}: {var}",
                    one.name
                );
            }
        }
        assert!(definition("telegram").is_some() && definition("signal").is_none());
    }
}
