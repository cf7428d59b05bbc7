//! Downloads received files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::api::{TelegramCallError, failed};
use super::outbound::TelegramSender;
use super::polling::CALL_TIMEOUT;
use super::wire::RemoteFile;
use crate::platform::{MediaRef, SendError};

/// Silence that ends a download.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of the original file name.
const MAX_NAME_CHARS: usize = 80;

impl TelegramSender {
    pub(super) async fn fetch(
        &self,
        media: &MediaRef,
        into: &Path,
        max_bytes: u64,
    ) -> Result<PathBuf, SendError> {
        let too_large = || {
            let max = max_bytes >> 20;
            SendError::Refused(format!("the file is larger than the limit of {max} MB"))
        };
        if media.bytes.is_some_and(|bytes| bytes > max_bytes) {
            return Err(too_large());
        }
        let api = self.api();
        let about = api
            .call::<RemoteFile>("getFile", &json!({"file_id": media.id}), CALL_TIMEOUT)
            .await;
        self.look_at(&about);
        let about = about.map_err(|error| {
            if error.says("file is too big") {
                return SendError::Refused(
                    "Telegram gives bots no files over 20 MB (a Bot API server of one's own does: \
                     telegram.base_url, telegram.local_mode)"
                        .to_owned(),
                );
            }
            of_read(error)
        })?;
        if about.file_size.is_some_and(|bytes| bytes > max_bytes) {
            return Err(too_large());
        }
        let remote = about
            .file_path
            .ok_or_else(|| SendError::Refused("Telegram no longer has the file".to_owned()))?;
        let path = into.join(file_name(media, &remote));
        tokio::fs::create_dir_all(into)
            .await
            .map_err(|error| disk(into, &error))?;
        let partial = path.with_extension("part");
        let written = if self.parts.settings.local && Path::new(&remote).is_absolute() {
            copy(Path::new(&remote), &partial, max_bytes).await
        } else {
            self.download(&remote, &partial, max_bytes).await
        };
        match written {
            Ok(true) => {
                let moved = tokio::fs::rename(&partial, &path).await;
                moved.map_err(|error| disk(&path, &error))?;
                Ok(path)
            }
            Ok(false) => {
                discard(&partial).await;
                Err(too_large())
            }
            Err(error) => {
                discard(&partial).await;
                Err(error)
            }
        }
    }

    /// `false`: it is too large.
    async fn download(&self, remote: &str, to: &Path, max: u64) -> Result<bool, SendError> {
        let url = format!("{}/{remote}", self.parts.settings.files);
        let answer = within(self.api().get(&url)).await?;
        let mut answer = answer.map_err(of_read)?;
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            return Err(not_sent(format!("the download was answered with {status}")));
        }
        let file = tokio::fs::File::create(to).await;
        let mut file = file.map_err(|error| disk(to, &error))?;
        let mut bytes = 0;
        loop {
            let chunk = within(answer.chunk()).await?;
            let Some(chunk) = chunk.map_err(|error| of_read(failed(&error)))? else {
                break;
            };
            bytes += chunk.len() as u64;
            if bytes > max {
                return Ok(false);
            }
            let written = file.write_all(&chunk).await;
            written.map_err(|error| disk(to, &error))?;
        }
        file.flush().await.map_err(|error| disk(to, &error))?;
        Ok(true)
    }
}

async fn copy(from: &Path, to: &Path, max: u64) -> Result<bool, SendError> {
    let about = tokio::fs::metadata(from).await;
    if about.map_err(|error| disk(from, &error))?.len() > max {
        return Ok(false);
    }
    let copied = tokio::fs::copy(from, to).await;
    copied.map(|_| true).map_err(|error| disk(from, &error))
}

async fn discard(path: &Path) {
    // The file may not exist yet.
    let _ = tokio::fs::remove_file(path).await;
}

async fn within<T>(work: impl Future<Output = T>) -> Result<T, SendError> {
    let waited = tokio::time::timeout(IDLE_TIMEOUT, work).await;
    waited.map_err(|_| not_sent("the download stalled".to_owned()))
}

/// Reading has no side effects, so it can always be retried.
fn of_read(error: TelegramCallError) -> SendError {
    match error.of_send() {
        SendError::Unclear(error) => not_sent(error),
        other => other,
    }
}

fn not_sent(error: String) -> SendError {
    SendError::NotSent {
        error,
        retry_after: None,
    }
}

fn disk(path: &Path, error: &std::io::Error) -> SendError {
    SendError::Refused(format!("{}: {error}", path.display()))
}

/// A stable name for the file, with the safe part of the original name.
fn file_name(media: &MediaRef, remote: &str) -> String {
    let digest = Sha256::digest(media.id.as_bytes());
    let id = digest.iter().take(8);
    let id = id.fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
    let given = media.name.as_deref().unwrap_or(remote);
    let given = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let harmless: String = given
        .chars()
        .map(|ch| {
            if ch.is_alphanumeric() || "._-".contains(ch) {
                ch
            } else {
                '_'
            }
        })
        .collect();
    let length = harmless.chars().count();
    // The end has the extension.
    let short_name: String = harmless
        .chars()
        .skip(length.saturating_sub(MAX_NAME_CHARS))
        .collect();
    format!("{id:016x}_{}", short_name.trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::MediaKind;

    #[test]
    fn names_lead_nowhere_else() {
        let named = |name: Option<&str>, remote: &str| {
            let media = MediaRef {
                kind: MediaKind::Document,
                id: "x".to_owned(),
                name: name.map(str::to_owned),
                mime: None,
                bytes: None,
            };
            file_name(&media, remote)
        };
        assert!(named(Some("../../etc/passwd"), "a").ends_with("_passwd"));
        assert!(named(None, "voice/file_7.oga").ends_with("_file_7.oga"));
        assert!(named(Some("a b\n.txt"), "x").ends_with("_a_b_.txt"));
        assert!(named(Some(&format!("{}.pdf", "x".repeat(300))), "x").len() < 120);
        assert_eq!(named(Some("a"), "x"), named(Some("a"), "x"));
    }
}
