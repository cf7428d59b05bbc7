//! Conversations that end after one answer.

use chrono::{Local, TimeDelta};
use hermes_core::ids::SessionId;
use hermes_core::store::{SessionStore as _, SessionUpdate, StoreError};

use super::MessagePoster;
use crate::session::SessionIndexError;

/// A conversation unused for this long has no pending work.
const IDLE_BEFORE_CLOSE: TimeDelta = TimeDelta::minutes(10);

impl MessagePoster {
    /// Ends answered conversations of a platform with one conversation per message (webhooks),
    /// which would otherwise accumulate. Returns their number.
    pub async fn close_answered(&self, platform: &str) -> Result<usize, SessionIndexError> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let since = now.with_timezone(&Local).naive_local() - IDLE_BEFORE_CLOSE;
        let mut over = Vec::new();
        for entry in shared.index.entries() {
            if entry.platform.as_deref() != Some(platform) || entry.updated_at > since {
                continue;
            }
            let waiting = shared
                .delivery
                .waiting_of(entry.session_key.as_str(), 0, 1)
                .await?;
            if !waiting.is_empty() {
                continue;
            }
            let end = SessionUpdate::End {
                reason: format!("{platform}_complete"),
                at: shared.clock.epoch_seconds(),
            };
            match shared
                .store
                .update(&SessionId::new(entry.session_id), end)
                .await
            {
                Ok(()) | Err(StoreError::NotFound(_)) => over.push(entry.session_key),
                Err(error) => return Err(error.into()),
            }
        }
        if !over.is_empty() {
            shared.index.forget(&over).await?;
        }
        Ok(over.len())
    }
}
