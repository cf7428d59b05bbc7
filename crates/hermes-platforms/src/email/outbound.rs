//! Sends answers: attachments, retries, lookup of sent messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Clock;
use mail_parser::MimeHeaders as _;
use sha2::{Digest as _, Sha256};

use super::account::EmailAccount;
use super::imap::{ImapError, ImapMailbox};
use super::state::EmailState;
use super::{OWN_ID, compose, message, smtp};
use crate::platform::{
    Capabilities, DeliveryLookup, Markup, MediaRef, OutboundAdapter, OutgoingMessage,
    PlatformLimits, Recourse, SendError, SendFuture, TextUnit,
};

/// Maximum file size of large providers, minus the encoding overhead of a third.
const MAX_FILE_BYTES: u64 = 18 * 1024 * 1024;

pub(super) struct EmailSender {
    account: Arc<EmailAccount>,
    state: EmailState,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
}

impl EmailSender {
    pub(super) fn new(
        account: Arc<EmailAccount>,
        state: EmailState,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let capabilities = Capabilities {
            edit: false,
            typing: false,
            threads: false,
            buttons: false,
            reactions: false,
            drafts: false,
            // Unchanged: both parts of a mail are generated from it.
            markup: Markup::Discord,
            limits: PlatformLimits {
                text: 50_000,
                unit: TextUnit::Chars,
                file_bytes: MAX_FILE_BYTES,
            },
            recourse: Recourse::History {
                grace: Duration::from_secs(45),
            },
        };
        Self {
            account,
            state,
            clock,
            capabilities,
        }
    }

    async fn post(&self, message: &OutgoingMessage) -> Result<Option<String>, SendError> {
        if let Some(media) = &message.media {
            let bytes = tokio::fs::metadata(&media.path)
                .await
                .map(|meta| meta.len());
            match bytes {
                Ok(bytes) if bytes > MAX_FILE_BYTES => {
                    return Err(SendError::Refused(format!(
                        "{} is larger than a mail may be ({} MB)",
                        media.path.display(),
                        MAX_FILE_BYTES / 1024 / 1024
                    )));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(SendError::Refused(format!(
                        "{}: {error}",
                        media.path.display()
                    )));
                }
            }
        }
        let (account, outgoing) = (Arc::clone(&self.account), message.clone());
        let thread = self.state.thread(&message.target.chat_id);
        let now = self.clock.epoch_seconds();
        // A file is read on the way.
        let composed = tokio::task::spawn_blocking(move || {
            compose::compose(&account, &outgoing, thread.as_ref(), now)
        });
        let (to, mail) = composed
            .await
            .map_err(|error| SendError::Refused(error.to_string()))?
            .map_err(SendError::Refused)?;
        smtp::send(&self.account, &to, &mail).await?;
        Ok(Some(compose::message_id(&self.account, &message.key)))
    }

    /// The provider's copies of sent mail tell whether a mail was sent, if it stores any.
    async fn find(&self, message: &OutgoingMessage) -> Result<DeliveryLookup, ImapError> {
        let id = compose::message_id(&self.account, &message.key);
        let mut mail = ImapMailbox::connect(&self.account).await?;
        let Some(folder) = mail.sent_folder().await? else {
            mail.close().await;
            return Ok(DeliveryLookup::Unknown);
        };
        mail.open(&folder, false).await?;
        let found_messages = mail.search(&format!("HEADER Message-ID \"{id}\"")).await?;
        let found = if found_messages.is_empty() {
            // The provider stores sent mail if another mail of ours is there.
            let others = mail
                .search(&format!("HEADER Message-ID \"<{OWN_ID}\""))
                .await?;
            if others.is_empty() {
                DeliveryLookup::Unknown
            } else {
                DeliveryLookup::No
            }
        } else {
            DeliveryLookup::Yes(Some(id))
        };
        mail.close().await;
        Ok(found)
    }

    async fn fetch(
        &self,
        media: &MediaRef,
        into: &Path,
        max_bytes: u64,
    ) -> Result<PathBuf, SendError> {
        let refused =
            |why: &str| SendError::Refused(format!("the attachment is not to be had: {why}"));
        let mut parts = media.id.splitn(4, ':');
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
        let (Some(validity), Some(uid), Some(at)) = (number(), number(), number()) else {
            return Err(refused("its id is not one of ours"));
        };
        let message_id = parts.next().unwrap_or_default();
        let broken = |error: ImapError| SendError::NotSent {
            error: error.to_string(),
            retry_after: None,
        };
        let raw = self.raw(validity, uid, message_id).await.map_err(broken)?;
        let Some(raw) = raw else {
            return Err(refused("the mail is no longer in the inbox"));
        };
        let parsed = message::parse(&raw);
        let Some(part) = parsed.as_ref().and_then(|message| message.attachment(at)) else {
            return Err(refused("the mail has no such part"));
        };
        let bytes = part.contents();
        if bytes.len() as u64 > max_bytes {
            return Err(refused(&format!(
                "{} bytes exceed the limit of {max_bytes}",
                bytes.len()
            )));
        }
        let path = into.join(file_name(&media.id, part.attachment_name()));
        let written = async {
            tokio::fs::create_dir_all(into).await?;
            tokio::fs::write(&path, bytes).await
        };
        written
            .await
            .map_err(|error| refused(&format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    async fn raw(
        &self,
        validity: u32,
        uid: u32,
        message_id: &str,
    ) -> Result<Option<Vec<u8>>, ImapError> {
        let mut mail = ImapMailbox::connect(&self.account).await?;
        let selected = mail.open("INBOX", false).await?;
        let uid = if selected.validity == validity {
            Some(uid)
        } else {
            let quoted = message_id.replace(['"', '\\', '\r', '\n'], "");
            mail.search(&format!("HEADER Message-ID \"{quoted}\""))
                .await?
                .pop()
        };
        let mut raw = None;
        if let Some(uid) = uid
            && let Some(described) = mail.describe(uid).await?
        {
            raw = mail
                .read(uid, described.bytes, self.account.max_bytes)
                .await?;
        }
        mail.close().await;
        Ok(raw)
    }
}

/// A name that stays in its directory and meets no other.
fn file_name(id: &str, name: Option<&str>) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let name: String = name
        .unwrap_or("attachment")
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or_default()
        .chars()
        .map(|ch| {
            if ch.is_alphanumeric() || "._- ".contains(ch) {
                ch
            } else {
                '_'
            }
        })
        .collect();
    let name = name.trim_matches(['.', ' ']);
    // The ending matters most, and names may be long.
    format!(
        "{:02x}{:02x}{:02x}{:02x}-{}",
        digest[0],
        digest[1],
        digest[2],
        digest[3],
        hermes_core::text::last_bytes(name, 80)
    )
}

impl OutboundAdapter for EmailSender {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(self.post(message))
    }

    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a Path,
        max_bytes: u64,
    ) -> SendFuture<'a, PathBuf> {
        Box::pin(self.fetch(media, into, max_bytes))
    }

    fn look_up<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        Box::pin(async move {
            self.find(message)
                .await
                .map_err(|error| SendError::NotSent {
                    error: error.to_string(),
                    retry_after: None,
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_are_put() {
        for (given, end) in [
            (Some("../../etc/passwd"), "-passwd"),
            (Some("C:\\x\\report.pdf"), "-report.pdf"),
            (Some("..."), "-"),
            (Some("a\nb?.txt"), "-a_b_.txt"),
            (None, "-attachment"),
        ] {
            let name = file_name("1:2:0:x", given);
            assert!(name.ends_with(end), "{name}");
            assert!(!name.contains(['/', '\\']), "{name}");
        }
        assert!(file_name("x", Some(&"ä".repeat(300))).len() < 120);
    }
}
