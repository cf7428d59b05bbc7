//! Fetching over real sockets, and services against fakes made from their vendors' documentation.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end them loudly")]

mod attacks;
mod pages;
mod proxies;
mod sdks;
mod services;
mod vendors;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_fetch::guard::NameResolver;
use hermes_fetch::{FetchOptions, Fetcher, GuardPolicy, HttpBuilder, UrlGuard};

pub(crate) const WANT: FetchOptions = FetchOptions {
    accept: "*/*",
    max_bytes: 1 << 20,
    timeout: Duration::from_secs(20),
};

/// A client without proxies. Tests speak no TLS.
pub(crate) fn http() -> HttpBuilder {
    Arc::new(|| {
        // Another test of this process may have been first.
        drop(rustls::crypto::ring::default_provider().install_default());
        Ok(reqwest::Client::builder().no_proxy())
    })
}

/// Lets everything through but metadata, as `security.allow_private_urls` does.
pub(crate) fn open() -> Fetcher {
    Fetcher::new(
        UrlGuard::new(GuardPolicy {
            allow_private: true,
            ..GuardPolicy::default()
        }),
        http(),
    )
}

/// Answers for names: a list for each, whose last entry stays.
#[derive(Default)]
pub(crate) struct Directory {
    answers: Mutex<Vec<(String, VecDeque<Vec<IpAddr>>)>>,
    asked: Mutex<Vec<String>>,
}

impl Directory {
    /// `name` stands for these addresses, one answer after the other; `+` joins several.
    pub(crate) fn with(self, name: &str, answers: &[&str]) -> Self {
        let answers = answers
            .iter()
            .map(|answer| answer.split('+').map(|ip| ip.parse().unwrap()).collect())
            .collect();
        self.answers
            .lock()
            .unwrap()
            .push((name.to_owned(), answers));
        self
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl NameResolver for Directory {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut answers = self.answers.lock().unwrap();
        let found = answers.iter_mut().find(|(name, _)| *name == host);
        let answer = found.and_then(|(_, queue)| {
            if queue.len() > 1 {
                queue.pop_front()
            } else {
                queue.front().cloned()
            }
        });
        self.asked.lock().unwrap().push(host);
        let answer = answer.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name"));
        Box::pin(std::future::ready(answer))
    }
}

/// A guard as people have it, except that names may lead to 127.0.0.1: there the test's server
/// stands for the open internet, and every other private address is the inside.
pub(crate) fn internet(names: Arc<Directory>) -> UrlGuard {
    let policy = GuardPolicy {
        fake_ranges: vec!["127.0.0.1/32".parse().unwrap()],
        ..GuardPolicy::default()
    };
    UrlGuard::with_names(policy, names)
}
