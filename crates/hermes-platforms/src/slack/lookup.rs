//! Looks up whether one of our messages arrived.

use serde_json::{Value, json};

use super::SlackShared;
use super::api::{SlackCallError, failure, retry_after};
use super::blocks::KEY;
use super::team::ChannelAccess;
use crate::platform::{DeliveryLookup, OutgoingMessage};

/// How far back to search. Older messages are marked as possible duplicates.
const LOOKUP_SECONDS: f64 = 26.0 * 3600.0;

/// Messages on a page, and pages.
const PAGE_SIZE: usize = 200;
const MAX_PAGES: usize = 10;

/// Maximum number and lifetime of response addresses of slash commands.
const MAX_RESPONSES: usize = 200;
const RESPONSE_URL_LIFETIME: f64 = 25.0 * 60.0;

impl SlackShared {
    /// Reads the conversation, or the thread, newest messages included, for the key.
    pub(super) async fn find_message(
        &self,
        message: &OutgoingMessage,
    ) -> Result<DeliveryLookup, SlackCallError> {
        let ChannelAccess { token, channel } = self.desk(&message.target.chat_id).await?;
        let oldest = self.clock.epoch_seconds() - LOOKUP_SECONDS;
        let mut args = json!({
            "channel": channel, "oldest": format!("{oldest:.6}"), "limit": PAGE_SIZE,
            "include_all_metadata": true,
        });
        let method = match &message.target.thread_id {
            Some(thread) => {
                args["ts"] = json!(thread);
                "conversations.replies"
            }
            None => "conversations.history",
        };
        let file = wanted_file(message).await;
        let mut similar = false;
        for _ in 0..MAX_PAGES {
            let page = self.api.call(&token, method, &args).await?;
            for one in page["messages"].as_array().into_iter().flatten() {
                if carries(one, &message.key) {
                    return Ok(DeliveryLookup::Yes(one["ts"].as_str().map(str::to_owned)));
                }
                similar |= file.as_ref().is_some_and(|file| shares(one, file));
            }
            let next = page["response_metadata"]["next_cursor"].as_str();
            match next.filter(|next| !next.is_empty()) {
                Some(next) => args["cursor"] = json!(next),
                // The same file without the key may be from this or an earlier attempt.
                None if similar => return Ok(DeliveryLookup::Unknown),
                None => return Ok(DeliveryLookup::No),
            }
        }
        Ok(DeliveryLookup::Unknown)
    }

    /// Stores the response address of a slash command.
    pub(super) fn offer_response(&self, channel: &str, url: &str) {
        if !self.is_slack(url) {
            return;
        }
        let mut responses = self.responses();
        if responses.len() >= MAX_RESPONSES {
            responses.clear();
        }
        let until = self.clock.epoch_seconds() + RESPONSE_URL_LIFETIME;
        responses.insert(channel.to_owned(), (url.to_owned(), until));
    }

    /// The address, once.
    pub(super) fn take_response(&self, channel: &str) -> Option<String> {
        let (url, until) = self.responses().remove(channel)?;
        (self.clock.epoch_seconds() < until).then_some(url)
    }

    pub(super) async fn post_response(
        &self,
        url: &str,
        body: &Value,
    ) -> Result<(), SlackCallError> {
        if !self.is_slack(url) {
            return Err(SlackCallError::Refused(
                "an address that is not Slack's".to_owned(),
            ));
        }
        let request = self
            .api
            .client()
            .post(url)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .timeout(self.timing.call)
            .body(body.to_string());
        let answer = request.send().await.map_err(|error| failure(&error))?;
        match answer.status().as_u16() {
            200..300 => Ok(()),
            429 => Err(SlackCallError::NotDone {
                error: "too many requests".to_owned(),
                retry_after: Some(retry_after(&answer)),
            }),
            status @ 400..500 => Err(SlackCallError::Refused(format!("status {status}"))),
            status => Err(SlackCallError::Unclear(format!("status {status}"))),
        }
    }

    /// Whether an address may receive our tokens and texts.
    pub(super) fn is_slack(&self, url: &str) -> bool {
        let (Ok(url), Ok(base)) = (url::Url::parse(url), url::Url::parse(self.api.base())) else {
            return false;
        };
        if url.origin() == base.origin() {
            return true;
        }
        let host = url.host_str().unwrap_or_default();
        url.scheme() == "https"
            && ["slack.com", "slack-files.com", "slack-edge.com"]
                .iter()
                .any(|domain| host == *domain || host.ends_with(&format!(".{domain}")))
    }
}

fn carries(message: &Value, key: &str) -> bool {
    if message["metadata"]["event_payload"]["key"] == key {
        return true;
    }
    let id = format!("{KEY}{key}");
    let blocks = message["blocks"].as_array().into_iter().flatten();
    blocks
        .into_iter()
        .any(|block| block["block_id"] == id.as_str())
}

async fn wanted_file(message: &OutgoingMessage) -> Option<(String, u64)> {
    let media = message.media.as_ref()?;
    let size = tokio::fs::metadata(&media.path).await.ok()?.len();
    Some((media.path.file_name()?.to_string_lossy().into_owned(), size))
}

fn shares(message: &Value, (name, size): &(String, u64)) -> bool {
    let files = message["files"].as_array().into_iter().flatten();
    files
        .into_iter()
        .any(|file| file["name"] == name.as_str() && file["size"] == *size)
        && message.get("bot_id").is_some()
}
