//! What the actor needs to know of a server's config.

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
    /// Stands for everything that a link is made from (URL, command, headers, environment, …). A
    /// change means a new link; a change of anything else does not.
    pub fingerprint: String,
    /// Budget of a call without progress.
    pub timeout: Duration,
    /// Longest duration of a call, whatever its progress.
    pub max_timeout: Duration,
    pub connect_timeout: Duration,
    /// Zero turns it off.
    pub keepalive_interval: Duration,
    pub max_concurrency: usize,
    pub retry: RetryPolicy,
    /// Close after this long without a call; the next call starts it again.
    pub idle_timeout: Option<Duration>,
    /// Close at this age, when no call runs.
    pub max_lifetime: Option<Duration>,
    /// Whether the lists of resources and prompts are kept as well, where offered.
    pub list_resources: bool,
    pub list_prompts: bool,
    /// Not started before the first call, where its lists are remembered.
    pub lazy: bool,
}

impl ServerSettings {
    pub const TIMEOUT: Duration = Duration::from_mins(5);
    pub const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
    pub const KEEPALIVE: Duration = Duration::from_mins(3);
    /// Calls at once, of all conversations together, unless the config says. A server that takes fewer says
    /// so, or works through them one after the other.
    pub const CONCURRENCY: usize = 32;
    const LONGEST_CALL: Duration = Duration::from_hours(1);

    /// The defaults.
    pub fn new(name: impl Into<String>, transport: TransportKind, fingerprint: String) -> Self {
        Self {
            name: name.into(),
            enabled: true,
            transport,
            fingerprint,
            timeout: Self::TIMEOUT,
            max_timeout: Self::max_timeout(Self::TIMEOUT),
            connect_timeout: Self::CONNECT_TIMEOUT,
            keepalive_interval: Self::KEEPALIVE,
            max_concurrency: Self::CONCURRENCY,
            retry: RetryPolicy::default(),
            idle_timeout: None,
            max_lifetime: None,
            list_resources: false,
            list_prompts: false,
            lazy: false,
        }
    }

    /// Four times the idle budget, at most an hour (but never less than the budget itself).
    pub fn max_timeout(timeout: Duration) -> Duration {
        timeout
            .saturating_mul(4)
            .min(Self::LONGEST_CALL)
            .max(timeout)
    }

    /// Whether a link made from `other` can be kept.
    pub(crate) fn same_link(&self, other: &Self) -> bool {
        self.transport == other.transport && self.fingerprint == other.fingerprint
    }
}

/// A server and how to reach it. Making a connector must cost nothing: one that is not needed is
/// dropped.
#[derive(Clone)]
pub struct ServerSpec {
    pub settings: ServerSettings,
    pub connector: Arc<dyn Connector>,
}
