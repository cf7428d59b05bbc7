//! A server that this process uses.

use futures_util::StreamExt as _;
use hermes_core::task;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::AbortHandle;

use super::ASK;
use super::run_file::RunFile;

/// How a server is reached, and the lease that keeps it there. Dropping it gives the lease back.
pub struct Held {
    pub base_url: String,
    pub token: SecretString,
    pub pid: i32,
    lease: AbortHandle,
}

impl Held {
    /// Takes a lease. `None`: nobody is there, or somebody else.
    pub(super) async fn take(http: &reqwest::Client, written: &RunFile) -> Option<Self> {
        let asked = http
            .get(written.url("/lease"))
            .bearer_auth(written.token().expose_secret())
            .send();
        // Only the head of the answer must come in time: the rest is what is waited for.
        let answer = tokio::time::timeout(ASK, asked).await.ok()?.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        let mut body = answer.bytes_stream();
        let lease = task::spawn("lease of the local model", async move {
            while let Some(Ok(_)) = body.next().await {}
        });
        Some(Self {
            base_url: written.url("/v1"),
            token: written.token(),
            pid: written.pid,
            lease: lease.abort_handle(),
        })
    }

    /// Whether the server was there a moment ago: the connection ends with it.
    pub fn lives(&self) -> bool {
        !self.lease.is_finished()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lease.abort();
    }
}
