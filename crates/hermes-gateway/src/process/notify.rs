//! Notifications to systemd (sd_notify).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends the state of the process to systemd, if it asked for it.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// From `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Self {
        let socket = var("NOTIFY_SOCKET")
            .filter(|path| !path.is_empty())
            .and_then(|path| {
                let address = match path.strip_prefix('@') {
                    Some(name) => SocketAddr::from_abstract_name(name.as_bytes()),
                    None => SocketAddr::from_pathname(&path),
                };
                let socket = UnixDatagram::unbound().ok()?;
                // A slow reader must not block us.
                socket.set_nonblocking(true).ok()?;
                Some((socket, address.ok()?))
            });
        let ours = var("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let micros = var("WATCHDOG_USEC").and_then(|text| text.trim().parse().ok());
        let watchdog = micros
            .filter(|micros| *micros > 0 && ours && socket.is_some())
            .map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// The watchdog interval: half of systemd's timeout.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}\n"));
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    /// `monotonic`: microseconds since boot.
    pub fn reloading(&self, monotonic: u64) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={monotonic}\n"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    fn send(&self, words: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(words.as_bytes(), address)
        {
            tracing::debug!("systemd was not told {words:?}: {error}");
        }
    }
}
