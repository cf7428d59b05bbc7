//! Downloads from the Hugging Face hub, or a mirror.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_http::{HttpSettings, Redirects};
use reqwest::header::{ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE};
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncWriteExt as _;

use super::{Pull, PullProgress, PullReporter, SourceError, check, check_plainly};
use crate::local::table::LocalModel;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Silence after which a connection counts as broken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Consecutive attempts without progress.
const MAX_ATTEMPTS: u32 = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_REDIRECTS: usize = 5;

/// What a response says about the whole file.
#[derive(Clone, Debug, Default)]
struct HubFile {
    /// Without quotes and the weak-tag prefix.
    etag: Option<String>,
    bytes: Option<u64>,
}

pub(super) async fn fetch(
    pull: &Pull<'_>,
    model: &'static LocalModel,
    part: &Path,
    report: PullReporter<'_>,
) -> Result<(), SourceError> {
    let url = format!(
        "{}/{}/resolve/main/{}",
        pull.hub.endpoint, model.repo, model.file
    );
    let settings = HttpSettings {
        connect_timeout: CONNECT_TIMEOUT,
        redirects: Redirects::Never,
        ..pull.http.clone()
    };
    let http =
        hermes_http::client(&settings).map_err(|error| SourceError::Failed(error.to_string()))?;
    let fetch = HubFetch {
        pull,
        http,
        url,
        part,
        report,
    };
    let mut nothing = 0;
    loop {
        let before = length(part);
        match fetch.once().await {
            Ok(whole) => {
                let sum = model.sha256.map(str::to_owned).or_else(|| whole.sum());
                return match sum {
                    Some(sum) => check(part, &sum, &pull.hub.endpoint).await,
                    // The hub publishes a checksum for every large file; a mirror may not.
                    None => check_plainly(part, model.bytes, &pull.hub.endpoint),
                };
            }
            Err(error @ (SourceError::Wrong(_) | SourceError::Io(_))) => return Err(error),
            Err(error) => {
                nothing = if length(part) > before {
                    1
                } else {
                    nothing + 1
                };
                if nothing >= MAX_ATTEMPTS || before == 0 && length(part) == 0 && nothing >= 2 {
                    return Err(error);
                }
                tokio::time::sleep(RETRY_PAUSE * nothing).await;
            }
        }
    }
}

struct HubFetch<'a> {
    pull: &'a Pull<'a>,
    http: reqwest::Client,
    url: String,
    part: &'a Path,
    report: PullReporter<'a>,
}

impl HubFetch<'_> {
    /// One connection, resuming where the last one ended. `Ok`: the file is complete.
    async fn once(&self) -> Result<HubFile, SourceError> {
        let marked = std::fs::read_to_string(version_path(self.part)).ok();
        let have = marked.as_ref().map_or(0, |_| length(self.part));
        let (answer, whole) = self.ask(have, marked.as_deref()).await?;
        let status = answer.status();
        let goes_on =
            status == StatusCode::PARTIAL_CONTENT && starts_at(answer.headers()) == Some(have);
        if status == StatusCode::RANGE_NOT_SATISFIABLE {
            if whole.bytes.or(total(answer.headers())) == Some(have) && have > 0 {
                return Ok(whole);
            }
            self.forget()?;
            return Err(SourceError::Failed(
                "the file on the hub changed".to_owned(),
            ));
        }
        if !status.is_success() || status == StatusCode::PARTIAL_CONTENT && !goes_on {
            return Err(self.refused(status));
        }
        let from = if goes_on { have } else { 0 };
        let bytes = whole
            .bytes
            .or_else(|| total(answer.headers()))
            .or_else(|| Some(answer.content_length()? + from));
        if let Some(etag) = &whole.etag {
            std::fs::write(version_path(self.part), etag)?;
        }
        self.take(answer, from, bytes).await?;
        match bytes {
            Some(bytes) if length(self.part) != bytes => Err(SourceError::Failed(format!(
                "the connection to {} ended early",
                self.pull.hub.endpoint
            ))),
            _ => {
                let _ = std::fs::remove_file(version_path(self.part));
                Ok(whole)
            }
        }
    }

    /// Sends the request, following redirects of the hub.
    async fn ask(&self, have: u64, etag: Option<&str>) -> Result<(Response, HubFile), SourceError> {
        let mut url = url::Url::parse(&self.url)
            .map_err(|error| SourceError::Failed(format!("{:?}: {error}", self.url)))?;
        let home = url.origin();
        let mut whole = HubFile::default();
        for _ in 0..MAX_REDIRECTS {
            let mut request = self.http.get(url.clone());
            if have > 0 {
                request = request.header(RANGE, format!("bytes={have}-"));
                if let Some(etag) = etag.filter(|_| url.origin() == home) {
                    request = request.header(IF_RANGE, format!("\"{etag}\""));
                }
            }
            if let Some(token) = self
                .pull
                .hub
                .token
                .as_ref()
                .filter(|_| url.origin() == home)
            {
                request = request.bearer_auth(token.expose_secret());
            }
            let answer = tokio::time::timeout(IDLE_TIMEOUT, request.send())
                .await
                .map_err(|_| self.silent())?
                .map_err(|error| self.broken(&error))?;
            whole = whole.or(HubFile::of(answer.headers()));
            if !answer.status().is_redirection() {
                // The partial download is of another version of the file.
                if let (Some(was), Some(is)) = (etag, &whole.etag)
                    && was != is
                    && answer.status() == StatusCode::PARTIAL_CONTENT
                {
                    self.forget()?;
                    return Err(SourceError::Failed(
                        "the file on the hub changed".to_owned(),
                    ));
                }
                return Ok((answer, whole));
            }
            let next = answer
                .headers()
                .get(LOCATION)
                .and_then(|to| to.to_str().ok());
            url = next
                .and_then(|to| url.join(to).ok())
                .filter(|to| url.scheme() != "https" || to.scheme() == "https")
                .ok_or_else(|| SourceError::Failed("the hub redirects to nowhere".to_owned()))?;
        }
        Err(SourceError::Failed(
            "the hub redirects in circles".to_owned(),
        ))
    }

    async fn take(
        &self,
        answer: Response,
        from: u64,
        total: Option<u64>,
    ) -> Result<(), SourceError> {
        let mut file = tokio::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(from == 0)
            .append(from > 0)
            .open(self.part)
            .await?;
        let mut done = from;
        (self.report)(PullProgress::Bytes { done, total });
        let mut body = answer.bytes_stream();
        loop {
            let piece = tokio::time::timeout(IDLE_TIMEOUT, body.next()).await;
            let piece = match piece {
                Ok(None) => break,
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => {
                    file.flush().await?;
                    return Err(self.broken(&error));
                }
                Err(_) => {
                    file.flush().await?;
                    return Err(self.silent());
                }
            };
            file.write_all(&piece).await?;
            done += piece.len() as u64;
            (self.report)(PullProgress::Bytes { done, total });
        }
        file.flush().await?;
        file.sync_all().await?;
        Ok(())
    }

    fn forget(&self) -> Result<(), SourceError> {
        for path in [self.part.to_owned(), version_path(self.part)] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn refused(&self, status: StatusCode) -> SourceError {
        let text = format!("{} answers {status}", self.url);
        // A retry would get the same response.
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            SourceError::Wrong(text)
        } else {
            SourceError::Failed(text)
        }
    }

    fn broken(&self, error: &reqwest::Error) -> SourceError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        SourceError::Failed(format!("{}: {cause}", self.pull.hub.endpoint))
    }

    fn silent(&self) -> SourceError {
        SourceError::Failed(format!(
            "{} sent nothing for {} s",
            self.pull.hub.endpoint,
            IDLE_TIMEOUT.as_secs()
        ))
    }
}

/// The file that records the version of a partial download.
fn version_path(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(".etag");
    name.into()
}

fn length(part: &Path) -> u64 {
    std::fs::metadata(part).map_or(0, |found| found.len())
}

impl HubFile {
    /// The hub's own headers take precedence over those of the storage server.
    fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let etag = text("x-linked-etag").or_else(|| text(ETAG.as_str()));
        Self {
            etag: etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned()),
            bytes: text("x-linked-size").and_then(|bytes| bytes.parse().ok()),
        }
    }

    fn or(self, later: Self) -> Self {
        Self {
            etag: self.etag.or(later.etag),
            bytes: self.bytes.or(later.bytes),
        }
    }

    /// For large files the tag is the checksum.
    fn sum(&self) -> Option<String> {
        let tag = self.etag.as_deref()?.to_ascii_lowercase();
        let is_sum = tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sum.then_some(tag)
    }
}

/// `bytes 10-99/100` → 10.
fn starts_at(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get("content-range")?.to_str().ok()?;
    range
        .strip_prefix("bytes ")?
        .split('-')
        .next()?
        .parse()
        .ok()
}

/// `bytes 10-99/100` or `bytes */100` → 100.
fn total(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get("content-range")?.to_str().ok()?;
    range.rsplit('/').next()?.parse().ok()
}
