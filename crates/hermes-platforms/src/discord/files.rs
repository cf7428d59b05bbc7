//! Receives and sends files; the size limit for received ones.

use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::DiscordShared;
use super::api::plain;
use crate::platform::{MediaRef, SendError};

/// Discord's file hosts.
const HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];

/// Fetches a file into a directory.
pub(super) async fn fetch(
    shared: &DiscordShared,
    media: &MediaRef,
    into: &Path,
    max_bytes: u64,
) -> Result<PathBuf, SendError> {
    let max = max_bytes.min(shared.settings.max_attachment);
    let too_large = || SendError::Refused(format!("the file is larger than {max} bytes"));
    if media.bytes.is_some_and(|bytes| bytes > max) {
        return Err(too_large());
    }
    let url = checked(&media.id, shared.api.base()).ok_or_else(|| {
        SendError::Refused("the file is not where Discord keeps files".to_owned())
    })?;
    let request = shared.api.client().get(url).timeout(shared.timing.transfer);
    let unclear = |error: &reqwest::Error| SendError::NotSent {
        error: plain(error),
        retry_after: None,
    };
    let mut answer = request.send().await.map_err(|error| unclear(&error))?;
    let status = answer.status();
    if status.is_server_error() || status.as_u16() == 429 {
        return Err(SendError::NotSent {
            error: status.to_string(),
            retry_after: None,
        });
    }
    if !status.is_success() {
        return Err(SendError::Refused(format!("the file is gone ({status})")));
    }
    let failed = |error: std::io::Error| SendError::Refused(format!("{}: {error}", into.display()));
    let path = into.join(name(media));
    let mut file = tokio::fs::File::create(&path).await.map_err(failed)?;
    let mut written = 0;
    loop {
        let piece = match answer.chunk().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => return Err(unclear(&error)),
        };
        written += piece.len() as u64;
        if written > max {
            drop(file);
            // If removing fails, the partial file stays; nothing more can be done.
            let _ = tokio::fs::remove_file(&path).await;
            return Err(too_large());
        }
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    Ok(path)
}

/// Only Discord's own hosts, or the configured server.
fn checked(url: &str, base: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let base = Url::parse(base).ok()?;
    let theirs = url.scheme() == "https" && HOSTS.contains(&url.host_str()?);
    let same = url.origin() == base.origin();
    (theirs || same).then_some(url)
}

/// The file's id in front: two files of a message may have the same name.
fn name(media: &MediaRef) -> String {
    let id = Url::parse(&media.id).ok().and_then(|url| {
        let mut parts = url.path_segments()?.rev();
        parts.nth(1).map(str::to_owned)
    });
    let id = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
    let given = media.name.as_deref().unwrap_or("file");
    let safe: String = given
        .chars()
        .map(|ch| {
            if ch.is_alphanumeric() || ".-_ ".contains(ch) {
                ch
            } else {
                '_'
            }
        })
        .collect();
    // The end has the kind of the file in it.
    let keep = safe.chars().count().saturating_sub(100);
    let safe: String = safe.chars().skip(keep).collect();
    let safe = safe.trim_start_matches('.');
    match id {
        Some(id) => format!("{id}_{safe}"),
        None => format!("_{safe}"),
    }
}

/// The kind of a file, by its name.
pub(super) fn mime(path: &Path) -> &'static str {
    let end = path.extension().unwrap_or_default().to_string_lossy();
    match end.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/quicktime",
        "mp3" => "audio/mpeg",
        "ogg" | "opus" | "oga" => "audio/ogg",
        "wav" => "audio/wav",
        "m4a" => "audio/mp4",
        "pdf" => "application/pdf",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::MediaKind;

    #[test]
    fn files_come_from_discord_and_stay_in_their_directory() {
        let api = "https://discord.com/api/v10";
        for (url, fine) in [
            (
                "https://cdn.discordapp.com/attachments/1/2/a.png?ex=1",
                true,
            ),
            ("http://cdn.discordapp.com/attachments/1/2/a.png", false),
            ("https://cdn.discordapp.com.evil.test/a.png", false),
            ("http://169.254.169.254/latest", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(checked(url, api).is_some(), fine, "{url}");
        }
        let media = |name: &str| MediaRef {
            kind: MediaKind::Document,
            id: "https://cdn.discordapp.com/attachments/1/22/x".to_owned(),
            name: Some(name.to_owned()),
            mime: None,
            bytes: None,
        };
        assert_eq!(name(&media("../../etc/passwd")), "22__.._etc_passwd");
        assert_eq!(name(&media("a b.png")), "22_a b.png");
    }
}
