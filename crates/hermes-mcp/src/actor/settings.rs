//! The settings of a server's actor.

use std::sync::Arc;
use std::time::Duration;

use crate::failure::retry::RetryPolicy;
use crate::transport::link::{Connector, TransportKind};

/// Settings of one server. The config module maps YAML to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    pub name: String,
    pub enabled: bool,
    pub transport: TransportKind,
    /// Identifies all parameters of a link (URL, command, headers, environment, …). Only a change
    /// of these requires a new link.
    pub fingerprint: String,
    /// Timeout of a call without progress.
    pub timeout: Duration,
    /// Maximum duration of a call, regardless of progress.
    pub max_timeout: Duration,
    pub connect_timeout: Duration,
    /// Zero turns it off.
    pub keepalive_interval: Duration,
    pub max_concurrency: usize,
    pub retry: RetryPolicy,
    /// Close after this long without a call; the next call restarts it.
    pub idle_timeout: Option<Duration>,
    /// Close at this age once no call is running.
    pub max_lifetime: Option<Duration>,
    /// Whether resources and prompts are listed as well, if offered.
    pub list_resources: bool,
    pub list_prompts: bool,
    /// Do not start before the first call if its lists are cached.
    pub lazy: bool,
}

impl ServerSettings {
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
    pub const DEFAULT_KEEPALIVE: Duration = Duration::from_mins(3);
    /// Default number of concurrent calls over all conversations. A server that supports fewer
    /// throttles, or handles them one after the other.
    pub const DEFAULT_CONCURRENCY: usize = 32;
    const MAX_CALL_TIMEOUT: Duration = Duration::from_hours(1);

    /// Settings with defaults.
    pub fn new(name: impl Into<String>, transport: TransportKind, fingerprint: String) -> Self {
        Self {
            name: name.into(),
            enabled: true,
            transport,
            fingerprint,
            timeout: Self::DEFAULT_TIMEOUT,
            max_timeout: Self::max_timeout(Self::DEFAULT_TIMEOUT),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            keepalive_interval: Self::DEFAULT_KEEPALIVE,
            max_concurrency: Self::DEFAULT_CONCURRENCY,
            retry: RetryPolicy::default(),
            idle_timeout: None,
            max_lifetime: None,
            list_resources: false,
            list_prompts: false,
            lazy: false,
        }
    }

    /// Four times `timeout`, at most an hour, but never less than `timeout`.
    pub fn max_timeout(timeout: Duration) -> Duration {
        timeout
            .saturating_mul(4)
            .min(Self::MAX_CALL_TIMEOUT)
            .max(timeout)
    }

    /// Whether a link made with `other` can be reused.
    pub(crate) fn same_link(&self, other: &Self) -> bool {
        self.transport == other.transport && self.fingerprint == other.fingerprint
    }
}

/// A server and its connector. Creating a connector must be cheap: unneeded ones are dropped.
#[derive(Clone)]
pub struct ServerSpec {
    pub settings: ServerSettings,
    pub connector: Arc<dyn Connector>,
}
