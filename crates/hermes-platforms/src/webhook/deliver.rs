//! Answers that do not go to a chat: to the log, or as a comment on GitHub.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use hermes_core::programs::own_program;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::platform::{
    Capabilities, Markup, OutboundAdapter, OutgoingMessage, PlatformLimits, Recourse, SendError,
    SendFuture, TextUnit,
};

/// The target of answers that are only logged.
pub(super) const LOG: &str = "log";
const GITHUB: &str = "github:";
const DELIVER_TIMEOUT: Duration = Duration::from_secs(30);

/// The target of a comment, as a chat. `Err`: not a valid GitHub target.
pub(super) fn github(repository: &str, number: &str) -> Result<String, String> {
    let part = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text
                .chars()
                .all(|ch| ch.is_ascii_alphanumeric() || "._-".contains(ch))
    };
    match (repository.split_once('/'), number.trim().parse::<u64>()) {
        (Some((owner, name)), Ok(number @ 1..)) if part(owner) && part(name) => {
            Ok(format!("{GITHUB}{repository}#{number}"))
        }
        _ => Err(format!(
            "deliver_extra for github_comment needs repo (owner/name) and pr_number, not {repository:?} and {number:?}"
        )),
    }
}

pub(super) struct WebhookSender {
    capabilities: Capabilities,
    /// GitHub's command line program, which is authenticated.
    program: PathBuf,
}

impl Default for WebhookSender {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                edit: false,
                typing: false,
                threads: false,
                buttons: false,
                reactions: false,
                drafts: false,
                // GitHub reads markdown.
                markup: Markup::Discord,
                limits: PlatformLimits {
                    text: 60_000,
                    unit: TextUnit::Chars,
                    file_bytes: 0,
                },
                recourse: Recourse::Mark,
            },
            program: PathBuf::from("gh"),
        }
    }
}

impl WebhookSender {
    async fn deliver(&self, message: &OutgoingMessage) -> Result<Option<String>, SendError> {
        let destination = &message.target.chat_id;
        if let Some((repository, number)) = destination
            .strip_prefix(GITHUB)
            .and_then(|rest| rest.split_once('#'))
        {
            return self
                .comment(repository, number, &message.text)
                .await
                .map(|()| None);
        }
        let start: String = message.text.chars().take(200).collect();
        tracing::info!(
            destination,
            "webhook: an answer: {}",
            hermes_core::redact::secrets(&start)
        );
        Ok(None)
    }

    async fn comment(&self, repository: &str, number: &str, text: &str) -> Result<(), SendError> {
        let not_sent = |error: String| SendError::NotSent {
            error,
            retry_after: Some(Duration::from_mins(1)),
        };
        let mut child = Command::from(own_program(&self.program))
            .args([
                "pr",
                "comment",
                number,
                "--repo",
                repository,
                "--body-file",
                "-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_sent(format!("GitHub's program gh cannot be started: {error}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        let ended = tokio::time::timeout(DELIVER_TIMEOUT, child.wait_with_output()).await;
        match ended {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            // It may have failed before or after the comment was created.
            Ok(Ok(output)) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let stderr: String = stderr.trim().chars().take(300).collect();
                if stderr.contains("HTTP 4")
                    || stderr.contains("auth login")
                    || stderr.contains("Could not resolve")
                {
                    return Err(SendError::Refused(stderr));
                }
                Err(SendError::Unclear(stderr))
            }
            Ok(Err(error)) => Err(SendError::Unclear(error.to_string())),
            Err(_) => Err(SendError::Unclear(format!(
                "gh: nothing within {} s",
                DELIVER_TIMEOUT.as_secs()
            ))),
        }
    }
}

impl OutboundAdapter for WebhookSender {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(self.deliver(message))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use hermes_store::delivery::Target;

    use super::*;

    fn outgoing(chat: &str) -> OutgoingMessage {
        OutgoingMessage {
            key: "k".to_owned(),
            target: Target {
                platform: "webhook".to_owned(),
                account: String::new(),
                chat_id: chat.to_owned(),
                thread_id: None,
            },
            text: "Looks good".to_owned(),
            markup: Markup::Discord,
            reply_to: None,
            media: None,
            buttons: Vec::new(),
        }
    }

    #[tokio::test]
    async fn comments_go_through_gh() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("gh");
        let write = |text: &str| {
            let _ = std::fs::remove_file(&program);
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let deliver = WebhookSender {
            program: program.clone(),
            ..WebhookSender::default()
        };
        let chat = github("own-er/na.me", " 7 ").unwrap();
        write(&format!(
            "{{ echo \"$@\"; cat; }} > {}/said",
            dir.path().display()
        ));
        deliver.send(&outgoing(&chat)).await.unwrap();
        let stderr = std::fs::read_to_string(dir.path().join("said")).unwrap();
        assert_eq!(
            stderr,
            "pr comment 7 --repo own-er/na.me --body-file -\nLooks good"
        );
        write("echo 'HTTP 404: Not Found' >&2; exit 1");
        assert!(matches!(
            deliver.send(&outgoing(&chat)).await,
            Err(SendError::Refused(_))
        ));
        write("echo 'connection reset' >&2; exit 1");
        assert!(matches!(
            deliver.send(&outgoing(&chat)).await,
            Err(SendError::Unclear(_))
        ));
        std::fs::remove_file(&program).unwrap();
        assert!(matches!(
            deliver.send(&outgoing(&chat)).await,
            Err(SendError::NotSent { .. })
        ));
        deliver.send(&outgoing("log")).await.unwrap();
        for (repository, number) in [
            ("x", "1"),
            ("a/b", "0"),
            ("a/b", "-1"),
            ("a/b c", "1"),
            ("--x/b", "1"),
            ("a/b/c", "1"),
        ] {
            assert!(github(repository, number).is_err(), "{repository} {number}");
        }
    }
}
