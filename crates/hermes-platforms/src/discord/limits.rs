//! Rate limits, from Discord's response headers.
//!
//! A request over the limit is not made: the caller gets the waiting time. Buckets are Discord's;
//! until one is known, each route is its own bucket.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use tokio::time::Instant;

/// Maximum number of buckets; expired ones are removed first.
const MAX_BUCKETS: usize = 2048;

/// A route and its major parameter: requests with the same pair share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RateLimitRoute {
    shape: String,
    /// Of the channel, server or webhook.
    major: String,
}

impl RateLimitRoute {
    pub(super) fn new(method: &str, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        let mut shape = method.to_owned();
        let mut major = String::new();
        let mut before = "";
        for (at, part) in path.trim_matches('/').split('/').enumerate() {
            let id = at > 0 && part.bytes().all(|byte| byte.is_ascii_digit());
            let about = at == 1 && matches!(before, "channels" | "guilds" | "webhooks");
            if about {
                part.clone_into(&mut major);
            }
            shape.push('/');
            shape.push_str(if before == "reactions" || id {
                "{}"
            } else {
                part
            });
            before = part;
        }
        Self { shape, major }
    }
}

#[derive(Default)]
struct RateLimitState {
    /// The bucket of a route shape, once known.
    buckets: HashMap<String, String>,
    /// By bucket and major parameter.
    left: HashMap<(String, String), RemainingRequests>,
    everything: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct RemainingRequests {
    requests: u32,
    until: Instant,
}

#[derive(Default)]
pub(super) struct DiscordRateLimits(Mutex<RateLimitState>);

impl DiscordRateLimits {
    fn state(&self) -> std::sync::MutexGuard<'_, RateLimitState> {
        // A panic while holding this lock cannot leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request from its bucket. `Err`: the time to wait.
    pub(super) fn acquire(&self, route: &RateLimitRoute) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(until) = state.everything.filter(|until| *until > now) {
            return Err(until - now);
        }
        let key = state.key(route);
        match state.left.get_mut(&key) {
            Some(left) if left.until <= now => {
                state.left.remove(&key);
                Ok(())
            }
            Some(left) if left.requests == 0 => Err(left.until - now),
            Some(left) => {
                left.requests -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Updates the limits from a response.
    pub(super) fn update_from_headers(&self, route: &RateLimitRoute, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut state = self.state();
        if let Some(bucket) = text("x-ratelimit-bucket") {
            if state.buckets.len() >= MAX_BUCKETS {
                state.buckets.clear();
            }
            state.buckets.insert(route.shape.clone(), bucket.to_owned());
        }
        let requests = text("x-ratelimit-remaining").and_then(|text| text.parse().ok());
        let after = text("x-ratelimit-reset-after").and_then(|text| text.parse().ok());
        if let (Some(requests), Some(after)) = (requests, after) {
            state.set(route, requests, after);
        }
    }

    /// A request was rate-limited.
    pub(super) fn refused(&self, route: &RateLimitRoute, pause: Duration, everything: bool) {
        let mut state = self.state();
        if everything {
            state.everything = Some(Instant::now() + pause);
        } else {
            state.set(route, 0, pause.as_secs_f64());
        }
    }
}

impl RateLimitState {
    fn key(&self, route: &RateLimitRoute) -> (String, String) {
        let bucket = self.buckets.get(&route.shape).unwrap_or(&route.shape);
        (bucket.clone(), route.major.clone())
    }

    fn set(&mut self, route: &RateLimitRoute, requests: u32, after: f64) {
        let now = Instant::now();
        if self.left.len() >= MAX_BUCKETS {
            self.left.retain(|_, left| left.until > now);
            if self.left.len() >= MAX_BUCKETS {
                self.left.clear();
            }
        }
        // An upper bound against wrong values.
        let after = Duration::try_from_secs_f64(after).unwrap_or_default();
        let until = now + after.min(Duration::from_hours(1));
        let key = self.key(route);
        self.left.insert(key, RemainingRequests { requests, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(remaining: &str, after: &str, bucket: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset-after", after),
            ("x-ratelimit-bucket", bucket),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_says_when_it_is_full_again() {
        let limits = DiscordRateLimits::default();
        let here = RateLimitRoute::new("POST", "/channels/1/messages");
        let there = RateLimitRoute::new("POST", "/channels/2/messages");
        assert_eq!(limits.acquire(&here), Ok(()));
        limits.update_from_headers(&here, &headers("1", "2.5", "abc"));
        assert_eq!(limits.acquire(&here), Ok(()));
        assert_eq!(limits.acquire(&here), Err(Duration::from_millis(2500)));
        assert_eq!(limits.acquire(&there), Ok(()));
        tokio::time::advance(Duration::from_millis(2500)).await;
        assert_eq!(limits.acquire(&here), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn routes_share_the_bucket_that_discord_names() {
        let limits = DiscordRateLimits::default();
        let post = RateLimitRoute::new("POST", "/channels/1/messages");
        let edit = RateLimitRoute::new("PATCH", "/channels/1/messages/9");
        limits.update_from_headers(&edit, &headers("5", "1", "abc"));
        limits.update_from_headers(&post, &headers("0", "1", "abc"));
        assert!(limits.acquire(&edit).is_err());
        limits.refused(&post, Duration::from_secs(9), true);
        let other = RateLimitRoute::new("GET", "/users/@me");
        assert_eq!(limits.acquire(&other), Err(Duration::from_secs(9)));
    }

    #[test]
    fn ids_are_not_part_of_a_route() {
        let route = |path| RateLimitRoute::new("PUT", path);
        assert_eq!(
            route("/channels/1/messages/2/reactions/%F0%9F%91%80/@me"),
            route("/channels/1/messages/3/reactions/x/@me?a=b")
        );
        assert_ne!(
            route("/channels/1/messages/2"),
            route("/channels/2/messages/2")
        );
    }
}
