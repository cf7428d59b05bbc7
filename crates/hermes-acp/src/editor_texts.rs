//! Files in the editor: reads unsaved texts and writes through its buffers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ReadTextFileRequest, WriteTextFileRequest,
};
use hermes_core::BoxFuture;
use hermes_core::open_texts::{OpenTexts, SaveOutcome};

use crate::wire::OutputBacklog;

/// Timeout for one file operation of the editor.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The editor's side of a conversation's files.
pub(crate) struct EditorTexts {
    connection: ConnectionTo<Client>,
    gauge: Arc<OutputBacklog>,
    reads: bool,
    writes: bool,
    /// The workspace as the editor names it, and where that really is.
    cwd: PathBuf,
    real: PathBuf,
    /// Set once the conversation is open.
    session: OnceLock<String>,
}

impl EditorTexts {
    /// `None`: the editor offers neither.
    pub(crate) fn new(
        (connection, gauge): (ConnectionTo<Client>, Arc<OutputBacklog>),
        client: &ClientCapabilities,
        cwd: &Path,
    ) -> Option<Arc<Self>> {
        let (reads, writes) = (client.fs.read_text_file, client.fs.write_text_file);
        (reads || writes).then(|| {
            Arc::new(Self {
                connection,
                gauge,
                reads,
                writes,
                cwd: cwd.to_owned(),
                real: cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()),
                session: OnceLock::new(),
            })
        })
    }

    pub(crate) fn opened(&self, session: &str) {
        // Set once: a conversation keeps the id known to its editor.
        let _ = self.session.set(session.to_owned());
    }

    /// The editor's path of the file. Files outside of its workspace are excluded.
    fn known_as(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.real).ok()?;
        Some(self.cwd.join(below))
    }

    async fn read(&self, path: &Path) -> Option<String> {
        let (session, path) = (self.session.get()?.clone(), self.known_as(path)?);
        if !self.reads {
            return None;
        }
        self.gauge.room().await;
        let request = ReadTextFileRequest::new(session, path.clone());
        let asked = self.connection.send_request(request).block_task();
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(response)) => Some(response.content),
            Ok(Err(error)) => {
                tracing::debug!(path = %path.display(), "the editor does not have it: {error}");
                None
            }
            Err(_) => {
                tracing::warn!(path = %path.display(), "the editor does not answer; the disk is read");
                None
            }
        }
    }

    async fn write(&self, path: &Path, text: String) -> SaveOutcome {
        let (Some(session), Some(path)) = (self.session.get(), self.known_as(path)) else {
            return SaveOutcome::Declined;
        };
        if !self.writes {
            return SaveOutcome::Declined;
        }
        self.gauge.room().await;
        let request = WriteTextFileRequest::new(session.clone(), path.clone(), text);
        let asked = self.connection.send_request(request).block_task();
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(_)) => SaveOutcome::Done,
            Ok(Err(error)) => {
                tracing::debug!(path = %path.display(), "the editor does not save it: {error}");
                SaveOutcome::Declined
            }
            Err(_) => SaveOutcome::Unknown(
                "the editor did not answer; whether it saved the file is not known, so read it again"
                    .to_owned(),
            ),
        }
    }
}

impl OpenTexts for EditorTexts {
    fn text<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.read(path))
    }

    fn save<'a>(&'a self, path: &'a Path, text: String) -> BoxFuture<'a, SaveOutcome> {
        Box::pin(self.write(path, text))
    }
}
