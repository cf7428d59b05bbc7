//! Where a message came from.

use serde::{Deserialize, Serialize};

/// The origin of a message, in the original's format and key order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSource {
    pub platform: String,
    pub chat_id: String,
    #[serde(default)]
    pub chat_name: Option<String>,
    /// `dm`, `group`, `channel`, `thread`, …
    #[serde(default = "dm")]
    pub chat_type: String,
    #[serde(default)]
    pub user_id: Option<String>,
    #[serde(default)]
    pub user_name: Option<String>,
    #[serde(default)]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub chat_topic: Option<String>,
    /// A second id of the same person that changes less often.
    #[serde(default, skip_serializing_if = "empty")]
    pub user_id_alt: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub chat_id_alt: Option<String>,
    /// Server or workspace.
    #[serde(default, skip_serializing_if = "empty")]
    pub scope_id: Option<String>,
    /// The old name of `scope_id`; written beside it.
    #[serde(default, skip_serializing_if = "empty")]
    pub guild_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub parent_chat_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_thread_created: bool,
    #[serde(default, skip_serializing_if = "empty")]
    pub auto_thread_initial_name: Option<String>,
}

fn dm() -> String {
    "dm".to_owned()
}

#[expect(clippy::ref_option, reason = "serde calls it with the field")]
fn empty(text: &Option<String>) -> bool {
    text.as_deref().is_none_or(str::is_empty)
}

impl MessageSource {
    /// Server and workspace have two names in stored sources; both are kept in sync.
    pub fn mirror_scope(&mut self) {
        self.scope_id = self.scope_id.take().or_else(|| self.guild_id.take());
        self.guild_id = self.scope_id.clone();
    }
}
