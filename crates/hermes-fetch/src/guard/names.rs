//! Resolves names when connecting, only to allowed addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hermes_core::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::UrlGuard;

/// Resolves names.
pub trait NameResolver: Send + Sync {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The resolver of the HTTP client: what it returns is connected to, so nothing can change between check and
/// connection.
pub(crate) struct GuardedResolver(pub(crate) UrlGuard);

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
