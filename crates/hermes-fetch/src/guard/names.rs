//! Names become addresses in the moment of connecting, and only addresses that may be reached.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hermes_core::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::Guard;

/// Whoever knows what a name stands for.
pub trait Names: Send + Sync {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The resolver of the HTTP client: what it returns is what is connected to, so nothing can change
/// between the check and the connection.
pub(crate) struct GuardedResolver(pub(crate) Guard);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let proxy = guard
                .policy
                .proxies
                .iter()
                .any(|proxy| proxy.eq_ignore_ascii_case(host));
            let addresses = if proxy {
                guard.names.lookup(host.to_owned()).await?
            } else {
                guard.resolve(host).await?
            };
            let sockets = addresses
                .into_iter()
                .map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(sockets) as Addrs)
        })
    }
}
