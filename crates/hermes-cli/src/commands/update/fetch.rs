//! Where a new program comes from. What comes over the network must match a checksum.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use hermes_http::{HttpError, HttpSettings};
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use super::super::Context;
use super::install::{hash, hex};
use crate::exit::{Exit, Failure};
use crate::wiring;

const MAX_PROGRAM_BYTES: u64 = 1024 * 1024 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum UpdateSource {
    File(PathBuf),
    Web(Url),
}

/// A new program beside the installed one, gone unless it is put in place.
pub(super) struct FetchedProgram {
    pub(super) path: TempPath,
    pub(super) sha256: String,
}

impl UpdateSource {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        if !text.contains("://") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let url =
            Url::parse(text).map_err(|error| Failure::usage(format!("--from {text}: {error}")))?;
        let local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        match url.scheme() {
            "https" => Ok(Self::Web(url)),
            "http" if local => Ok(Self::Web(url)),
            "file" => url
                .to_file_path()
                .map(Self::File)
                .map_err(|()| Failure::usage(format!("--from {text}: not a path on this machine"))),
            _ => Err(Failure::usage(format!(
                "--from {text}: programs are fetched over https only"
            ))),
        }
    }
}

/// A SHA-256 as people write it: the sum alone, or the line of `sha256sum`.
pub(super) fn digest(text: &str) -> Result<String, Failure> {
    let sum = text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let sum = sum.strip_prefix("sha256:").unwrap_or(&sum);
    if sum.len() == 64 && sum.chars().all(|ch| ch.is_ascii_hexdigit()) {
        Ok(sum.to_owned())
    } else {
        Err(Failure::usage(format!(
            "{sum:?} is not a SHA-256: 64 hexadecimal digits"
        )))
    }
}

/// Brings the program into `dir` and compares its sum.
pub(super) fn fetch(
    source: &UpdateSource,
    expected: Option<String>,
    dir: &Path,
    cx: &Context,
) -> Result<FetchedProgram, Failure> {
    let mut file = tempfile::Builder::new()
        .prefix(".hermes-update-")
        .tempfile_in(dir)
        .map_err(|error| Failure::failed(format!("cannot write to {}: {error}", dir.display())))?;
    let (expected, actual) = match source {
        UpdateSource::File(path) => {
            let expected = match expected {
                Some(sum) => Some(sum),
                None => beside(path)?,
            };
            (expected, copy(path, file.as_file_mut())?)
        }
        UpdateSource::Web(url) => {
            let (expected, actual) =
                wiring::runtime()?.block_on(download(url, expected, file.as_file_mut(), cx))?;
            (Some(expected), actual)
        }
    };
    if let Some(expected) = expected
        && expected != actual
    {
        return Err(Failure::failed(format!(
            "the checksum does not match, nothing was installed:\n  expected {expected}\n  got      {actual}"
        )));
    }
    file.as_file()
        .sync_all()
        .map_err(|error| Failure::failed(format!("writing the new program: {error}")))?;
    // Closed: a file that is open for writing cannot be run.
    Ok(FetchedProgram {
        path: file.into_temp_path(),
        sha256: actual,
    })
}

fn copy(path: &Path, into: &mut File) -> Result<String, Failure> {
    let fail = |error: std::io::Error| {
        let text = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::not_found(text),
            _ => Failure::failed(text),
        }
    };
    let mut source = File::open(path).map_err(fail)?;
    std::io::copy(&mut source, into).map_err(fail)?;
    File::open(path).and_then(hash).map_err(fail)
}

/// `FILE.sha256`, where there is one.
fn beside(path: &Path) -> Result<Option<String>, Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".sha256");
    match std::fs::read_to_string(&name) {
        Ok(text) => digest(&text).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::failed(format!(
            "cannot read {}: {error}",
            PathBuf::from(name).display()
        ))),
    }
}

async fn download(
    url: &Url,
    expected: Option<String>,
    file: &mut File,
    cx: &Context,
) -> Result<(String, String), Failure> {
    let settings = HttpSettings::from_env(|name| cx.env.get(name).map(str::to_owned));
    // No key travels with this request: it may go where releases are kept, but not out of TLS.
    let redirects = reqwest::redirect::Policy::custom(|attempt| {
        let first = attempt
            .previous()
            .first()
            .map(|first| first.scheme().to_owned());
        if attempt.previous().len() < 5 && first.as_deref() == Some(attempt.url().scheme()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let client = hermes_http::builder(&settings)
        .and_then(|builder| {
            builder
                .redirect(redirects)
                .build()
                .map_err(HttpError::Build)
        })
        .map_err(|error| Failure::failed(error.to_string()))?;
    let expected = match expected {
        Some(sum) => sum,
        None => published_sum(&client, url).await?,
    };
    let mut response = get(&client, url).await?;
    cx.out.remark(format!("downloading {url} …"));
    let mut hasher = Sha256::new();
    let mut length = 0_u64;
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unreachable(url, &error))?
    {
        length += chunk.len() as u64;
        if length > MAX_PROGRAM_BYTES {
            return Err(Failure::failed(format!(
                "{url} is larger than 1 GB: this is not hermes"
            )));
        }
        hasher.update(&chunk);
        file.write_all(&chunk)
            .map_err(|error| Failure::failed(format!("writing the new program: {error}")))?;
    }
    Ok((expected, hex(&hasher.finalize())))
}

async fn published_sum(client: &reqwest::Client, url: &Url) -> Result<String, Failure> {
    let mut beside = url.clone();
    beside.set_path(&format!("{}.sha256", url.path()));
    let missing = |why: String| {
        Failure::usage(format!(
            "a program from the network needs its checksum: pass --sha256 HEX, or publish {beside} ({why})"
        ))
    };
    let mut response = match get(client, &beside).await {
        Ok(response) => response,
        Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
        Err(failure) => return Err(missing(failure.message)),
    };
    let mut text = Vec::new();
    while text.len() < 4096
        && let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| unreachable(&beside, &error))?
    {
        text.extend_from_slice(&chunk);
    }
    digest(&String::from_utf8_lossy(&text)).map_err(|failure| missing(failure.message))
}

async fn get(client: &reqwest::Client, url: &Url) -> Result<reqwest::Response, Failure> {
    let response = client
        .get(url.clone())
        .send()
        .await
        .map_err(|error| unreachable(url, &error))?;
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(Failure::failed(format!("{url}: {}", response.status())))
    }
}

fn unreachable(url: &Url, error: &reqwest::Error) -> Failure {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Failure::new(Exit::Unreachable, format!("cannot fetch {url}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_come_from_files_and_safe_addresses() {
        assert!(matches!(
            UpdateSource::parse("./hermes"),
            Ok(UpdateSource::File(_))
        ));
        assert!(matches!(
            UpdateSource::parse("file:///tmp/hermes"),
            Ok(UpdateSource::File(_))
        ));
        assert!(matches!(
            UpdateSource::parse("https://example.org/h"),
            Ok(UpdateSource::Web(_))
        ));
        assert!(matches!(
            UpdateSource::parse("http://127.0.0.1:1/h"),
            Ok(UpdateSource::Web(_))
        ));
        for bad in ["http://example.org/h", "ftp://example.org/h", "https://"] {
            assert!(UpdateSource::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sums_are_read_as_people_write_them() {
        let sum = "AB".repeat(32);
        let low = "ab".repeat(32);
        for text in [
            sum.clone(),
            format!("{sum}  hermes\n"),
            format!("sha256:{low}"),
        ] {
            assert_eq!(digest(&text).unwrap(), low);
        }
        for bad in ["", "abc", &"g".repeat(64)] {
            assert!(digest(bad).is_err());
        }
    }
}
