//! Authorization of the sender, checked for every message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hermes_config::Env;
use hermes_config::env::ProcessEnv;
use tokio::time::Instant;

use super::message::InboxMessage;
use super::shared::GatewayShared;
use crate::authorize::admin::Tier;
use crate::authorize::limits::{MessageRateLimits, RateDecision};
use crate::authorize::pairing::PairingReply;
use crate::authorize::{self, AccessVariables, SenderIdentity, SenderPolicy, StrangerAction};
use crate::settings::GatewaySettings;

/// The decision about a message.
pub(super) enum AdmissionDecision {
    Admit,
    /// No reply, or this one.
    Reject(Option<String>),
}

/// The variables of the home, reloaded when `.env` changes, so that revoked access takes effect
/// immediately.
pub(crate) struct CurrentVariables {
    read: Mutex<ReadVariables>,
    pub(crate) limits: Mutex<MessageRateLimits>,
}

/// Modification time of the file, and the merged variables.
type ReadVariables = (Option<SystemTime>, Arc<HashMap<String, String>>);

impl CurrentVariables {
    pub(crate) fn new(settings: &GatewaySettings) -> Self {
        let stamp = changed_at(settings);
        Self {
            read: Mutex::new((stamp, Arc::clone(&settings.env))),
            limits: Mutex::default(),
        }
    }

    pub(crate) fn vars(&self, settings: &GatewaySettings) -> Arc<HashMap<String, String>> {
        let stamp = changed_at(settings);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.0 != stamp {
            match Env::load(&settings.home, &ProcessEnv::current()) {
                Ok(env) => {
                    let pairs = env.iter();
                    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                    *read = (stamp, Arc::new(pairs.collect()));
                }
                Err(error) => tracing::warn!(".env is as it was before: {error}"),
            }
        }
        Arc::clone(&read.1)
    }
}

fn changed_at(settings: &GatewaySettings) -> Option<SystemTime> {
    let data = std::fs::metadata(settings.home.env_path()).ok()?;
    data.modified().ok()
}

/// Commands that stop the agent or answer it are not rate-limited.
fn is_unlimited(msg: &InboxMessage) -> bool {
    let command = msg.command_line();
    let command = command.as_deref().and_then(|line| line.split(' ').next());
    msg.incoming.pressed.is_some() || matches!(command, Some("/stop" | "/approve" | "/deny"))
}

impl GatewayShared {
    /// Whether the sender is admitted. Blocks while small files are read.
    pub(super) fn check_sender(&self, msg: &InboxMessage) -> AdmissionDecision {
        let source = msg.source();
        if !self.admits(msg) {
            return AdmissionDecision::Reject(self.stranger_reply(msg));
        }
        if is_unlimited(msg) {
            return AdmissionDecision::Admit;
        }
        let limit = self.platform(&source.platform);
        let limit = limit.and_then(|platform| platform.number("rate_limit_per_minute"));
        let limit = limit.or_else(|| self.settings.setting("rate_limit_per_minute")?.as_u64());
        if let (Some(limit), Some(user)) = (limit.filter(|limit| *limit > 0), &source.user_id) {
            let person = format!("{}:{user}", source.platform);
            let mut limits = self
                .variables
                .limits
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            match limits.count(&person, limit, Instant::now()) {
                RateDecision::Allowed => {}
                RateDecision::Warn => {
                    let text = format!(
                        "Too many messages: the limit is {limit} per minute. This one was ignored; send it again in a minute."
                    );
                    return AdmissionDecision::Reject(Some(text));
                }
                RateDecision::Drop => return AdmissionDecision::Reject(None),
            }
        }
        AdmissionDecision::Admit
    }

    pub(super) fn admits(&self, msg: &InboxMessage) -> bool {
        let source = msg.source();
        let env = self.variables.vars(&self.settings);
        let vars = AccessVariables {
            env: &env,
            platform: self.platform(&source.platform),
        };
        let flag = |name: &str| {
            msg.incoming
                .native
                .get(name)
                .and_then(serde_json::Value::as_bool)
        };
        let visitor = SenderIdentity {
            source,
            is_bot: flag("is_bot").unwrap_or(false),
            has_role: flag("has_role").unwrap_or(false),
            policy: self.policy(msg),
            aliases: &[],
            paired: false,
        };
        if visitor.policy == SenderPolicy::Disabled {
            return false;
        }
        if authorize::admit(&visitor, &vars).is_some() {
            return true;
        }
        let Some(user) = source.user_id.as_deref().filter(|user| !user.is_empty()) else {
            return false;
        };
        match self.pairing.is_approved(&source.platform, user) {
            Ok(paired) => authorize::admit(&SenderIdentity { paired, ..visitor }, &vars).is_some(),
            Err(error) => {
                tracing::warn!("{error}");
                false
            }
        }
    }

    fn policy(&self, msg: &InboxMessage) -> SenderPolicy {
        let name = if msg.source().chat_type == "dm" {
            "dm_policy"
        } else {
            "group_policy"
        };
        let platform = self.platform(&msg.source().platform);
        let word = platform.and_then(|platform| platform.text(name));
        word.and_then(|word| SenderPolicy::parse(&word))
            .unwrap_or_default()
    }

    /// The reply to an unknown person. Only in direct messages, never in groups.
    fn stranger_reply(&self, msg: &InboxMessage) -> Option<String> {
        let source = msg.source();
        if source.chat_type != "dm" || msg.incoming.pressed.is_some() {
            return None;
        }
        let user = source.user_id.as_deref().filter(|user| !user.is_empty())?;
        let platform = self.platform(&source.platform);
        let configured = platform.and_then(|platform| platform.text("unauthorized_dm_behavior"));
        let configured = configured.and_then(|word| match word.to_ascii_lowercase().as_str() {
            "pair" => Some(StrangerAction::Pair),
            "ignore" => Some(StrangerAction::Ignore),
            _ => None,
        });
        let policy = platform.and_then(|platform| platform.text("dm_policy"));
        let policy = policy.and_then(|word| SenderPolicy::parse(&word));
        let env = self.variables.vars(&self.settings);
        let vars = AccessVariables {
            env: &env,
            platform: self.platform(&source.platform),
        };
        let done = authorize::stranger_action(
            &source.platform,
            configured,
            self.settings.strangers,
            policy,
            &vars,
        );
        if done == StrangerAction::Ignore {
            return None;
        }
        let name = source.user_name.as_deref().unwrap_or_default();
        match self.pairing.request(&source.platform, user, name) {
            Ok(PairingReply::Code(code)) => Some(format!(
                "I do not know you yet. Your code is `{code}`, valid for an hour. The owner lets you in with:\n`hermes pairing approve {} {code}`",
                source.platform
            )),
            Ok(PairingReply::Full) => Some(
                "I do not know you yet, and too many other requests are pending. Try again in an hour."
                    .to_owned(),
            ),
            Ok(PairingReply::TooSoon | PairingReply::Locked) => None,
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        }
    }

    pub(super) fn tier(&self, msg: &InboxMessage) -> Tier {
        let source = msg.source();
        Tier::new(self.platform(&source.platform), source)
    }
}
