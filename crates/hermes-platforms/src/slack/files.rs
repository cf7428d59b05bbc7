//! Receives and sends files.

use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::SlackShared;
use super::api::{SlackCallError, failure, retry_after};
use super::blocks::{KEY, sections};
use super::memory::ThreadRole;
use super::team::ChannelAccess;
use crate::platform::{MediaKind, MediaRef, OutMedia, OutgoingMessage, SendError};

/// Redirects that are followed, to Slack's own hosts only.
const MAX_REDIRECTS: usize = 3;

/// A file of an event. Its id combines workspace and file; the address is requested when it is
/// fetched.
pub(super) fn incoming(team: &str, file: &Value) -> MediaRef {
    let field = |name: &str| file[name].as_str().map(str::to_owned);
    let mime = field("mimetype");
    let name = field("name").or_else(|| field("title"));
    let spoken = file["subtype"] == "slack_audio"
        || name
            .as_deref()
            .is_some_and(|name| name.starts_with("audio_message"));
    MediaRef {
        kind: if spoken {
            MediaKind::Voice
        } else {
            MediaKind::of_mime(mime.as_deref().unwrap_or_default())
        },
        id: format!("{team}/{}", file["id"].as_str().unwrap_or_default()),
        name,
        mime,
        bytes: file["size"].as_u64(),
    }
}

impl SlackShared {
    /// Sends a file: upload address, bytes, then the message. Only the last step is visible, so
    /// only that one can have an uncertain outcome.
    pub(super) async fn share_file(
        &self,
        message: &OutgoingMessage,
        media: &OutMedia,
    ) -> Result<Option<String>, SlackCallError> {
        let ChannelAccess { token, channel } = self.desk(&message.target.chat_id).await?;
        let name = file_name(&media.path);
        let file = self.upload(&token, &media.path, &name).await?;
        let mut args = json!({
            "files": [{"id": file, "title": name}],
            "channel_id": channel,
            "blocks": caption(message, &name),
        });
        if let Some(thread) = &message.target.thread_id {
            args["thread_ts"] = json!(thread);
        }
        let method = "files.completeUploadExternal";
        let done = self.api.call(&token, method, &args).await?;
        let ts = shared_at(&done["files"][0], &channel);
        if let (Some(ts), None) = (&ts, &message.target.thread_id) {
            self.memory.note_thread(&channel, ts, ThreadRole::Begun);
        }
        Ok(ts)
    }

    async fn upload(&self, token: &str, path: &Path, name: &str) -> Result<String, SlackCallError> {
        let unreadable = |error: std::io::Error| {
            SlackCallError::Refused(format!("{} is not readable: {error}", path.display()))
        };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let length = file.metadata().await.map_err(unreadable)?.len();
        if length == 0 {
            return Err(SlackCallError::Refused(format!(
                "{} is empty",
                path.display()
            )));
        }
        let args = json!({"filename": name, "length": length});
        let method = "files.getUploadURLExternal";
        let upload_url = self.api.call(token, method, &args).await.map_err(unseen)?;
        let (url, id) = (
            upload_url["upload_url"].as_str(),
            upload_url["file_id"].as_str(),
        );
        let (Some(url), Some(id)) = (url, id) else {
            return Err(unseen(SlackCallError::Unclear(
                "cannot create the file".to_owned(),
            )));
        };
        if !self.is_slack(url) {
            return Err(SlackCallError::Refused(
                "an address that is not Slack's".to_owned(),
            ));
        }
        let answer = self
            .api
            .client()
            .post(url)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .timeout(self.timing.transfer)
            .body(reqwest::Body::wrap_stream(ReaderStream::new(file)))
            .send()
            .await
            .map_err(|error| unseen(failure(&error)))?;
        if !answer.status().is_success() {
            let status = answer.status();
            let error = SlackCallError::Unclear(format!("the upload: status {status}"));
            return Err(unseen(error));
        }
        Ok(id.to_owned())
    }

    /// Fetches a file of a person.
    pub(super) async fn fetch_file(
        &self,
        media: &MediaRef,
        into: &Path,
        max_bytes: u64,
    ) -> Result<PathBuf, SendError> {
        let too_large = |bytes: u64| {
            SendError::Refused(format!("a file of {bytes} bytes, more than {max_bytes}"))
        };
        if let Some(bytes) = media.bytes.filter(|bytes| *bytes > max_bytes) {
            return Err(too_large(bytes));
        }
        let (team, id) = media.id.split_once('/').unwrap_or_default();
        let Some(team) = self.teams.get(team) else {
            return Err(SendError::NotSent {
                error: "its workspace is not connected".to_owned(),
                retry_after: None,
            });
        };
        let info = self
            .api
            .call(&team.token, "files.info", &json!({"file": id}))
            .await
            .map_err(|error| match error {
                SlackCallError::Refused(word) if word == "missing_scope" => SendError::Refused(
                    "the app may not read files: add the scope files:read and reinstall it"
                        .to_owned(),
                ),
                error => unseen(error).into_send_error(),
            })?;
        let file = &info["file"];
        let url = file["url_private_download"]
            .as_str()
            .or(file["url_private"].as_str());
        let Some(url) = url else {
            return Err(SendError::Refused("the file has no address".to_owned()));
        };
        let answer = self.get(url, &team.token).await?;
        let page = answer.headers().get(CONTENT_TYPE);
        let page = page
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let html = |mime: &str| mime.starts_with("text/html");
        if html(page) && !html(file["mimetype"].as_str().unwrap_or_default()) {
            return Err(SendError::Refused(
                "Slack shows a page to log in: the app may not read this file (scope files:read)"
                    .to_owned(),
            ));
        }
        let name = media.name.as_deref().unwrap_or("file");
        let path = into.join(format!("{id}-{}", safe_name(name)));
        save(answer, &path, max_bytes)
            .await
            .map_err(|error| match error {
                SaveError::TooLarge(bytes) => too_large(bytes),
                SaveError::Broken(error) => SendError::NotSent {
                    error,
                    retry_after: None,
                },
            })?;
        Ok(path)
    }

    /// The token is sent to Slack's own hosts only.
    async fn get(&self, url: &str, token: &str) -> Result<reqwest::Response, SendError> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            if !self.is_slack(&url) {
                break;
            }
            let answer = self
                .api
                .client()
                .get(&url)
                .header(AUTHORIZATION, format!("Bearer {token}"))
                .timeout(self.timing.transfer)
                .send()
                .await
                .map_err(|error| unseen(failure(&error)).into_send_error())?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            if status.as_u16() == 429 {
                return Err(SendError::NotSent {
                    error: "too many requests".to_owned(),
                    retry_after: Some(retry_after(&answer)),
                });
            }
            let next = answer.headers().get(LOCATION);
            let next = next.and_then(|value| value.to_str().ok());
            let joined = url::Url::parse(&url).ok().zip(next);
            let Some(next) = joined.and_then(|(base, next)| base.join(next).ok()) else {
                return Err(SendError::Refused(format!("the file: status {status}")));
            };
            url = next.into();
        }
        Err(SendError::Refused("the file is not at Slack".to_owned()))
    }
}

enum SaveError {
    TooLarge(u64),
    Broken(String),
}

/// Under another name until it is whole.
async fn save(answer: reqwest::Response, path: &Path, max_bytes: u64) -> Result<(), SaveError> {
    let broken = |error: std::io::Error| SaveError::Broken(error.to_string());
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent).await.map_err(broken)?;
    }
    let partial = path.with_extension("part");
    let written = async {
        let mut file = tokio::fs::File::create(&partial).await.map_err(broken)?;
        let mut stream = answer.bytes_stream();
        let mut length = 0;
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| SaveError::Broken(super::api::plain(&error)))?;
            length += piece.len() as u64;
            if length > max_bytes {
                return Err(SaveError::TooLarge(length));
            }
            file.write_all(&piece).await.map_err(broken)?;
        }
        file.flush().await.map_err(broken)?;
        tokio::fs::rename(&partial, path).await.map_err(broken)
    };
    let written = written.await;
    if written.is_err() {
        // A partial file is useless; if it cannot be removed, it is overwritten next time.
        let _ = tokio::fs::remove_file(&partial).await;
    }
    written
}

/// Nothing was visible yet, so it can be repeated safely.
fn unseen(error: SlackCallError) -> SlackCallError {
    match error {
        SlackCallError::Unclear(error) => SlackCallError::NotDone {
            error,
            retry_after: None,
        },
        error => error,
    }
}

/// The text below a file. Files have no metadata, so the block carries the key.
fn caption(message: &OutgoingMessage, name: &str) -> Vec<Value> {
    let blocks = sections(&message.text, message.markup, &message.key);
    if !blocks.is_empty() {
        return blocks;
    }
    vec![json!({
        "type": "context", "block_id": format!("{KEY}{}", message.key),
        "elements": [{"type": "plain_text", "text": name}],
    })]
}

/// Where a file was shared, if known already.
fn shared_at(file: &Value, channel: &str) -> Option<String> {
    ["public", "private"].iter().find_map(|scope| {
        let shares = &file["shares"][scope][channel];
        shares[0]["ts"].as_str().map(str::to_owned)
    })
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.map_or_else(|| "file".to_owned(), std::borrow::Cow::into_owned)
}

/// A name that cannot lead anywhere else.
fn safe_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|ch| match ch {
            '/' | '\\' | '\0' => '_',
            ch if ch.is_control() => '_',
            ch => ch,
        })
        .collect();
    let name = name.trim_start_matches('.').trim();
    let short_name: String = name.chars().rev().take(100).collect();
    let short_name: String = short_name.chars().rev().collect();
    if short_name.is_empty() {
        "file".to_owned()
    } else {
        short_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_where_they_are() {
        assert_eq!(safe_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(safe_name("a b.txt"), "a b.txt");
        assert_eq!(safe_name("..."), "file");
        let long = format!("{}.png", "é".repeat(300));
        let short = safe_name(&long);
        assert_eq!(short.chars().count(), 100);
        assert_eq!(Path::new(&short).extension(), Some("png".as_ref()));
    }

    #[test]
    fn voice_memos_are_told_from_videos() {
        let memo =
            json!({"id": "F1", "subtype": "slack_audio", "mimetype": "video/mp4", "size": 3});
        assert_eq!(incoming("T1", &memo).kind, MediaKind::Voice);
        assert_eq!(incoming("T1", &memo).id, "T1/F1");
        let photo = json!({"id": "F2", "mimetype": "image/png", "name": "a.png"});
        assert_eq!(incoming("T1", &photo).kind, MediaKind::Image);
    }
}
