//! Multipart forms for uploads.

use std::io;
use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio_util::io::ReaderStream;

type FormChunks = stream::BoxStream<'static, io::Result<bytes::Bytes>>;

/// A form with files (`multipart/form-data`), which are read while they are sent.
pub struct MultipartForm {
    boundary: String,
    parts: Vec<FormChunks>,
    length: u64,
}

impl MultipartForm {
    /// `random` makes the boundary unique.
    pub fn new(random: u128) -> Self {
        Self {
            boundary: format!("hermes-{random:032x}"),
            parts: Vec::new(),
            length: 0,
        }
    }

    #[must_use]
    pub fn text(self, name: &str, value: impl Into<String>) -> Self {
        let head = self.head(name, "");
        self.bytes(head + &value.into() + "\r\n")
    }

    /// A file, from the disk.
    pub async fn file(self, name: &str, path: &Path, mime: &str) -> io::Result<Self> {
        let file = tokio::fs::File::open(path).await?;
        let length = file.metadata().await?.len();
        let shown = path.file_name().unwrap_or_default().to_string_lossy();
        let about = format!("; filename=\"{}\"\r\nContent-Type: {mime}", quoted(&shown));
        let head = self.head(name, &about);
        let mut form = self.bytes(head);
        form.length += length;
        // A growing file would violate the announced length.
        let limited = tokio::io::AsyncReadExt::take(file, length);
        form.parts.push(ReaderStream::new(limited).boxed());
        Ok(form.bytes("\r\n".to_owned()))
    }

    /// Adds the form to a request.
    pub fn into_request(self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let kind = format!("multipart/form-data; boundary={}", self.boundary);
        let end = format!("--{}--\r\n", self.boundary);
        let form = self.bytes(end);
        let body = stream::iter(form.parts).flatten().into_stream();
        request
            .header(reqwest::header::CONTENT_TYPE, kind)
            .header(reqwest::header::CONTENT_LENGTH, form.length)
            .body(reqwest::Body::wrap_stream(body))
    }

    fn head(&self, name: &str, about: &str) -> String {
        format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{}\"{about}\r\n\r\n",
            self.boundary,
            quoted(name)
        )
    }

    fn bytes(mut self, text: String) -> Self {
        self.length += text.len() as u64;
        let once = stream::once(std::future::ready(Ok(bytes::Bytes::from(text))));
        self.parts.push(once.boxed());
        self
    }
}

/// Names in quotes, as browsers write them.
fn quoted(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}
