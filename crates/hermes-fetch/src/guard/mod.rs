//! Decides what may be fetched.
//!
//! Every request is checked three times: [`UrlGuard::check`] checks the address as text, the resolver checks
//! what its name stands for *when connecting* (so that a name which resolves differently the second time gains
//! nothing), and [`crate::Fetcher`] checks every redirect.

mod address;
mod blocklist;
mod names;
mod secret;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use hermes_config::{Config, Env};
use hermes_core::redact;
use url::{Host, Url};

pub use address::{AddressRange, AddressReach, reach};
pub use blocklist::Blocklist;
pub(crate) use names::GuardedResolver;
pub use names::{NameResolver, SystemResolver};

/// Why something is not fetched. The text tells the model what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockedUrl {
    #[error("{url:?} is not a web address ({why}); give a full one like https://example.org/page")]
    NotAnAddress { url: String, why: String },
    #[error("only http and https are fetched, not {0}:")]
    Scheme(String),
    #[error("the address carries a user name or password; leave them out")]
    Credentials,
    #[error("port {0} belongs to another protocol than the web's")]
    Port(u16),
    #[error(
        "{host} is not on the public internet ({address} is {what}); \
         the person can allow such addresses with security.allow_private_urls"
    )]
    Private {
        host: String,
        address: IpAddr,
        what: &'static str,
    },
    #[error("{host} is a metadata service of the machine; it is never read")]
    Metadata { host: String },
    #[error(
        "the address contains what looks like an API key or token; secrets are not sent in addresses"
    )]
    KeyInAddress,
    #[error(
        "the query parameter {0:?} holds a credential; remove it, \
         or ask the person to open the page themselves"
    )]
    SecretParameter(String),
    #[error("the address contains a secret of this installation; it is not sent anywhere")]
    KnownSecret,
    #[error("{host} is on the website blocklist (rule {rule:?} from {list})")]
    Website {
        host: String,
        rule: String,
        list: String,
    },
    #[error(
        "the website blocklist is switched on but its file {} cannot be read ({why}); \
         the person must repair security.website_blocklist.shared_files before pages are fetched",
        path.display()
    )]
    Blocklist { path: PathBuf, why: String },
}

/// What a guard allows.
#[derive(Clone, Default)]
pub struct GuardPolicy {
    /// Also private, loopback and reserved addresses. Metadata services stay blocked.
    pub allow_private: bool,
    /// Ranges that the network's own DNS uses for public names (VPNs and transparent proxies, mostly
    /// 198.18.0.0/15). Only names may resolve there; literal addresses are refused.
    pub fake_ranges: Vec<AddressRange>,
    /// Values that no address may contain.
    pub secrets: Arc<[String]>,
    /// Proxies by name: they may be anywhere.
    pub proxies: Vec<String>,
}

/// Shorter values are words, not secrets.
const MIN_SECRET: usize = 12;

impl GuardPolicy {
    /// The settings of a home. Invalid ranges are reported and ignored.
    pub fn from_config(config: &Config, env: &Env) -> Self {
        let fake_ranges = config.security.fake_ip_ranges.iter().flatten();
        let fake_ranges = fake_ranges
            .filter_map(|text| {
                text.parse()
                    .inspect_err(|error| tracing::warn!("security.fake_ip_ranges: {error}"))
                    .ok()
            })
            .collect();
        let secrets = env
            .iter()
            .filter(|(name, value)| redact::is_secret_name(name) && value.len() >= MIN_SECRET)
            .map(|(_, value)| value.to_owned())
            .collect();
        let configured = env.get("HERMES_ALLOW_PRIVATE_URLS").map(str::trim);
        let allow_private = match configured.map(str::to_ascii_lowercase).as_deref() {
            Some("1" | "true" | "yes") => true,
            Some("0" | "false" | "no") => false,
            _ => config.security.allow_private_urls,
        };
        Self {
            allow_private,
            fake_ranges,
            secrets,
            proxies: Vec::new(),
        }
    }

    /// For endpoints that the user configured: they may be anywhere except metadata services.
    #[must_use]
    pub fn for_configured_endpoints(&self) -> Self {
        Self {
            allow_private: true,
            ..self.clone()
        }
    }

    fn judge(&self, host: &str, address: IpAddr, by_name: bool) -> Result<(), BlockedUrl> {
        match reach(address) {
            AddressReach::Public => Ok(()),
            AddressReach::Metadata => Err(BlockedUrl::Metadata {
                host: host.to_owned(),
            }),
            AddressReach::Private(_) if self.allow_private => Ok(()),
            AddressReach::Private(_)
                if by_name && self.fake_ranges.iter().any(|range| range.contains(address)) =>
            {
                Ok(())
            }
            AddressReach::Private(what) => Err(BlockedUrl::Private {
                host: host.to_owned(),
                address,
                what,
            }),
        }
    }
}

/// Decides about addresses. Cheap to clone.
#[derive(Clone)]
pub struct UrlGuard {
    policy: Arc<GuardPolicy>,
    names: Arc<dyn NameResolver>,
    blocklist: Option<Arc<Blocklist>>,
}

/// Names of metadata services, which are refused without resolving.
const METADATA_NAMES: [&str; 8] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
];

impl UrlGuard {
    pub fn new(policy: GuardPolicy) -> Self {
        Self::with_names(policy, Arc::new(SystemResolver))
    }

    /// A guard that uses `names` instead of the system's resolver.
    pub fn with_names(policy: GuardPolicy, names: Arc<dyn NameResolver>) -> Self {
        Self {
            policy: Arc::new(policy),
            names,
            blocklist: None,
        }
    }

    #[must_use]
    pub fn with_blocklist(self, blocklist: Arc<Blocklist>) -> Self {
        Self {
            blocklist: Some(blocklist),
            ..self
        }
    }

    pub fn policy(&self) -> &GuardPolicy {
        &self.policy
    }

    /// Parses a given address and checks everything that can be checked without the network.
    pub fn check(&self, text: &str) -> Result<Url, BlockedUrl> {
        let url = parse(text)?;
        if self.leaks(text) || self.leaks(url.as_str()) {
            return Err(BlockedUrl::KnownSecret);
        }
        if secret::looks_like_key(text) || secret::looks_like_key(url.as_str()) {
            return Err(BlockedUrl::KeyInAddress);
        }
        if let Some(name) = secret::secret_parameter(&url) {
            return Err(BlockedUrl::SecretParameter(name));
        }
        self.check_target(&url)?;
        Ok(url)
    }

    /// The same for the target of a redirect, which the server chose: signed addresses are normal there.
    pub fn check_redirect(&self, url: &Url) -> Result<(), BlockedUrl> {
        if self.leaks(url.as_str()) {
            return Err(BlockedUrl::KnownSecret);
        }
        self.check_target(url)
    }

    fn check_target(&self, url: &Url) -> Result<(), BlockedUrl> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BlockedUrl::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BlockedUrl::Credentials);
        }
        if let Some(port) = url.port()
            && BAD_PORTS.contains(&port)
        {
            return Err(BlockedUrl::Port(port));
        }
        let host = url.host_str().unwrap_or_default();
        match url.host() {
            Some(Host::Ipv4(address)) => self.policy.judge(host, address.into(), false)?,
            Some(Host::Ipv6(address)) => self.policy.judge(host, address.into(), false)?,
            Some(Host::Domain(name)) => self.check_name(name)?,
            None => {
                return Err(BlockedUrl::NotAnAddress {
                    url: url.to_string(),
                    why: "it names no host".to_owned(),
                });
            }
        }
        match &self.blocklist {
            Some(list) => list.check(host),
            None => Ok(()),
        }
    }

    fn check_name(&self, name: &str) -> Result<(), BlockedUrl> {
        let name = name.trim_end_matches('.');
        if METADATA_NAMES.contains(&name) {
            return Err(BlockedUrl::Metadata {
                host: name.to_owned(),
            });
        }
        if name == "localhost" || name.ends_with(".localhost") {
            return self.policy.judge(name, IpAddr::from([127, 0, 0, 1]), true);
        }
        Ok(())
    }

    /// The addresses of `host`, if all of them are allowed. One forbidden address refuses the name: mixed
    /// answers are a way to trick guards.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        self.check_name(host)?;
        let addresses = self.names.lookup(host.to_owned()).await;
        let addresses = addresses.map_err(|error| ResolveError::Lookup(error.to_string()))?;
        if addresses.is_empty() {
            return Err(ResolveError::Lookup("the name has no address".to_owned()));
        }
        for &address in &addresses {
            self.policy.judge(host, address, true)?;
        }
        Ok(addresses)
    }

    /// Whether `text` contains a secret of this installation, in any encoding of addresses.
    pub fn leaks(&self, text: &str) -> bool {
        if self.policy.secrets.is_empty() {
            return false;
        }
        let forms = secret::forms(text);
        self.policy
            .secrets
            .iter()
            .any(|secret| forms.iter().any(|form| form.contains(secret.as_str())))
    }
}

/// A name could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error(transparent)]
    Blocked(#[from] BlockedUrl),
    #[error("{0}")]
    Lookup(String),
}

/// Parses an address as browsers do. Unusual forms (`http:\\`, decimal hosts, full-width digits) are
/// normalized, and exactly the result is connected to later.
fn parse(text: &str) -> Result<Url, BlockedUrl> {
    let text = text.trim();
    // Models break the line after the slashes.
    let joined = match text.split_once("://") {
        Some((scheme, rest)) if rest.starts_with(char::is_whitespace) => {
            format!("{scheme}://{}", rest.trim_start())
        }
        _ => text.to_owned(),
    };
    let shown = || {
        let short: String = text.chars().take(200).collect();
        redact::secrets(&short).into_owned()
    };
    if !joined.contains(':') {
        return Err(BlockedUrl::NotAnAddress {
            url: shown(),
            why: "it has no http:// or https://".to_owned(),
        });
    }
    Url::parse(&joined).map_err(|error| BlockedUrl::NotAnAddress {
        url: shown(),
        why: error.to_string(),
    })
}

/// Ports of other protocols, which browsers refuse as well.
const BAD_PORTS: [u16; 82] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666,
    6667, 6668, 6669, 6697,
];

#[cfg(test)]
mod tests;
