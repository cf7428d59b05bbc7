//! Converts a server's config to the settings of its actor.

use super::{Retry, ServerConfig, ServerTransport};
use crate::actor::ServerSettings;
use crate::failure::retry::{RetryMode, RetryPolicy};
use crate::transport::link::TransportKind;

impl ServerConfig {
    pub fn kind(&self) -> TransportKind {
        match self.transport {
            ServerTransport::Stdio { .. } => TransportKind::Stdio,
            ServerTransport::Http { .. } => TransportKind::Http,
            ServerTransport::Sse { .. } => TransportKind::Sse,
        }
    }

    pub fn settings(&self) -> ServerSettings {
        let mode = |retry: Retry| match retry {
            Retry::Safe => None,
            Retry::ReadOnly => Some(RetryMode::ReadOnly),
            Retry::Always => Some(RetryMode::Always),
            Retry::Never => Some(RetryMode::Never),
        };
        ServerSettings {
            enabled: self.enabled,
            timeout: self.timeout,
            max_timeout: self.max_timeout,
            connect_timeout: self.connect_timeout,
            keepalive_interval: self.keepalive.unwrap_or_default(),
            max_concurrency: self.concurrency(),
            retry: RetryPolicy {
                trusted: self.trusted,
                server: mode(self.retry),
                tools: self
                    .retry_tools
                    .iter()
                    .filter_map(|(tool, retry)| Some((tool.clone(), mode(*retry)?)))
                    .collect(),
            },
            idle_timeout: self.idle_timeout,
            max_lifetime: self.max_lifetime,
            lazy: self.lazy,
            ..ServerSettings::new(
                self.name.clone(),
                self.kind(),
                self.connection_fingerprint.clone(),
            )
        }
    }
}
