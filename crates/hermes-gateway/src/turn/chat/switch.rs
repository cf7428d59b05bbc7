//! Switches the chat to another conversation. An open conversation never becomes another one.

use hermes_core::ids::SessionId;
use hermes_core::store::{SessionStore as _, SessionUpdate, StoreError};
use hermes_store::ListFilter;
use serde_json::json;

use super::ChatTask;
use super::state::OpenConversation;
use crate::authorize::admin::Tier;
use crate::session::{SessionEntry, SessionKey};
use crate::turn::message::InboxMessage;
use crate::turn::session::note_account;

/// The target of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::turn) enum SessionSwitch {
    New { title: Option<String> },
    Resume { session: String },
    Branch { title: Option<String> },
}

impl ChatTask {
    /// Routes the next message to another conversation.
    pub(super) async fn switch(&mut self, msg: InboxMessage, switch: SessionSwitch) {
        self.release_conversation();
        let text = match self.perform(&msg, &switch).await {
            Ok(text) => text,
            Err(error) => format!("⚠️ {error}"),
        };
        self.answer(&msg, "cmd", Some(&text)).await;
    }

    async fn perform(
        &mut self,
        msg: &InboxMessage,
        switch: &SessionSwitch,
    ) -> Result<String, String> {
        let before = self.shared.index.get(&self.key);
        let (id, text) = match switch {
            SessionSwitch::New { title } => {
                let id = self.shared.new_session_id();
                if let Some(before) = &before {
                    self.end(&before.session_id).await;
                }
                let named = title.as_ref().map(|title| format!(": {title}"));
                (
                    id,
                    format!("🆕 A new conversation{}.", named.unwrap_or_default()),
                )
            }
            SessionSwitch::Resume { session } => (
                session.clone(),
                format!("↩️ Back in the conversation {session}."),
            ),
            SessionSwitch::Branch { .. } => {
                let before = before
                    .as_ref()
                    .ok_or("There is nothing to branch from yet.")?;
                let id = self.branch(msg, &before.session_id).await?;
                (
                    id,
                    "🌿 You are in a copy of the conversation now; /resume goes back.".to_owned(),
                )
            }
        };
        let key = SessionKey::new(self.key.clone());
        let now = self.shared.local_now();
        let mut entry = SessionEntry::new(key, id.clone(), msg.source().clone(), now);
        note_account(&mut entry, &msg.incoming.account);
        entry.is_fresh_reset = matches!(switch, SessionSwitch::New { .. });
        if let (Some(before), SessionSwitch::Branch { .. }) = (&before, switch) {
            entry.model_override.clone_from(&before.model_override);
        }
        let put = self.shared.index.put(&entry).await;
        put.map_err(|error| error.to_string())?;
        if let Some(before) = before.filter(|before| before.session_id != id) {
            let left = before.session_id.as_str();
            self.shared.left(&self.key, left, msg.source());
        }
        if let SessionSwitch::New { title: Some(title) }
        | SessionSwitch::Branch { title: Some(title) } = switch
        {
            let session = SessionId::new(id.clone());
            match self.shared.store.set_title(&session, title, false).await {
                // A conversation without a row gets its title with the first message.
                Ok(_) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Ok(format!("{text}\n⚠️ {error}")),
            }
        }
        (self.shared.callbacks.on_event)(
            "session:reset",
            json!({"session_key": self.key, "session_id": id}),
        );
        Ok(text)
    }

    async fn end(&self, session: &str) {
        let update = SessionUpdate::End {
            reason: "new_session".to_owned(),
            at: self.shared.clock.epoch_seconds(),
        };
        let ended = self
            .shared
            .store
            .update(&SessionId::new(session), update)
            .await;
        match ended {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) => tracing::warn!("ending {session}: {error}"),
        }
    }

    /// A copy of a conversation under a new id.
    async fn branch(&mut self, msg: &InboxMessage, from: &str) -> Result<String, String> {
        let stored = self.shared.store.load(&SessionId::new(from)).await;
        let stored = stored.map_err(|error| error.to_string())?;
        let stored = stored.filter(|stored| !stored.items.is_empty());
        let stored = stored.ok_or("There is nothing to branch from yet.")?;
        let id = self.shared.new_session_id();
        let key = SessionKey::new(self.key.clone());
        let entry = SessionEntry::new(
            key,
            id.clone(),
            msg.source().clone(),
            self.shared.local_now(),
        );
        let mut opening = self.opening_of(msg, &entry);
        opening.history = stored.items.into_iter().map(|item| item.message).collect();
        let pooled = self.shared.pool.acquire(opening).await;
        let pooled = pooled.map_err(|refusal| refusal.to_string())?;
        self.conversation = Some(OpenConversation::new(pooled));
        self.start_linger();
        Ok(id)
    }

    /// The program moved the conversation anyway: the chat follows.
    pub(super) async fn moved(&mut self, id: String) {
        tracing::warn!("{}: the conversation moved to {id}", self.key);
        if let Some(mut entry) = self.shared.index.get(&self.key) {
            entry.session_id = id;
            if let Err(error) = self.shared.index.put(&entry).await {
                tracing::error!("{error}");
            }
        }
        if self.activity.turn().is_none() && self.commands.running.is_none() {
            self.release_conversation();
        }
    }

    /// The conversation for `/resume`. Conversations of other people are not found.
    pub(super) async fn resumable(
        &self,
        msg: &InboxMessage,
        reference: &str,
    ) -> Result<String, String> {
        let store = &self.shared.store;
        let text = |error: StoreError| error.to_string();
        let id = store.resolve_for_resume(reference).await.map_err(text)?;
        let record = store.get(id.as_str()).await.map_err(text)?;
        let owner = record.text("user_id");
        let source = msg.source();
        let mine = record.text("source") == Some(source.platform.as_str())
            && owner.is_some()
            && owner == source.user_id.as_deref();
        let current = self.shared.index.get(&self.key);
        let mine = mine || current.is_some_and(|entry| entry.session_id == id.as_str());
        // Being admitted is not enough: access to all conversations requires an explicit admin.
        let admin = self.shared.tier(msg) == Tier::Admin && source.chat_type == "dm";
        if mine || admin {
            Ok(id.as_str().to_owned())
        } else {
            Err(format!("no session {reference}"))
        }
    }

    /// The latest conversations of the person, for a list.
    pub(super) async fn list(&self, msg: &InboxMessage) -> Result<String, String> {
        let filter = ListFilter {
            source: Some(msg.source().platform.clone()),
            min_messages: 1,
            limit: 40,
            ..ListFilter::default()
        };
        let found = self.shared.store.list(filter).await;
        let found = found.map_err(|error| error.to_string())?;
        let current = self
            .shared
            .index
            .get(&self.key)
            .map(|entry| entry.session_id);
        let mut lines = Vec::new();
        for one in found {
            if lines.len() >= 10 || self.resumable(msg, &one.id).await.is_err() {
                continue;
            }
            let current_mark = if Some(&one.id) == current.as_ref() {
                " ← here"
            } else {
                ""
            };
            let name = one.title.unwrap_or(one.preview);
            let name: String = name.chars().take(60).collect();
            lines.push(format!("• `{}` {name}{current_mark}", one.id));
        }
        if lines.is_empty() {
            return Ok("No conversations yet.".to_owned());
        }
        Ok(format!(
            "{}\n\n/resume <id or title> resumes one.",
            lines.join("\n")
        ))
    }
}
