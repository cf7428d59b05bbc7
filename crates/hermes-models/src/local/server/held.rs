//! A server that this process uses.

use futures_util::StreamExt as _;
use hermes_core::task;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::AbortHandle;

use super::REQUEST_TIMEOUT;
use super::run_file::ServerRunFile;

/// The address of a server, and the lease that keeps it running. Dropping it releases the lease.
pub struct ServerLease {
    pub base_url: String,
    pub token: SecretString,
    pub pid: i32,
    lease: AbortHandle,
}

impl ServerLease {
    /// Takes a lease. `None`: no server answers, or a different one.
    pub(super) async fn take(http: &reqwest::Client, written: &ServerRunFile) -> Option<Self> {
        let asked = http
            .get(written.url("/lease"))
            .bearer_auth(written.token().expose_secret())
            .send();
        // Only the response head must arrive in time: the body is what is waited for.
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, asked)
            .await
            .ok()?
            .ok()?;
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

    /// Whether the server was alive a moment ago: the connection ends with it.
    pub fn lives(&self) -> bool {
        !self.lease.is_finished()
    }
}

impl Drop for ServerLease {
    fn drop(&mut self) {
        self.lease.abort();
    }
}
