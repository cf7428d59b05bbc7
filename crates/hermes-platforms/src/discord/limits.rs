//! Rate limits, as the answers of Discord tell them.
//!
//! A request that would be refused is not made: who wanted it hears when it can be. Buckets are
//! Discord's; until one is known, a route is its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use tokio::time::Instant;

/// Buckets that are remembered. What is over is forgotten first.
const MOST: usize = 2048;

/// A route and what it is about: requests that share both share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RateLimitRoute {
    shape: String,
    /// Of the channel, server or webhook.
    major: String,
}

impl RateLimitRoute {
    pub(super) fn of(method: &str, path: &str) -> Self {
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
    /// The bucket of a shape, once an answer told it.
    buckets: HashMap<String, String>,
    /// By bucket and what it is about.
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

    /// Takes one request out of its bucket. `Err`: so long there is none.
    pub(super) fn take(&self, route: &RateLimitRoute) -> Result<(), Duration> {
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

    /// What an answer says.
    pub(super) fn told(&self, route: &RateLimitRoute, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut state = self.state();
        if let Some(bucket) = text("x-ratelimit-bucket") {
            if state.buckets.len() >= MOST {
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

    /// A request was one too many.
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
        if self.left.len() >= MOST {
            self.left.retain(|_, left| left.until > now);
            if self.left.len() >= MOST {
                self.left.clear();
            }
        }
        // Nobody is told to wait longer than that by mistake.
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
        let here = RateLimitRoute::of("POST", "/channels/1/messages");
        let there = RateLimitRoute::of("POST", "/channels/2/messages");
        assert_eq!(limits.take(&here), Ok(()));
        limits.told(&here, &headers("1", "2.5", "abc"));
        assert_eq!(limits.take(&here), Ok(()));
        assert_eq!(limits.take(&here), Err(Duration::from_millis(2500)));
        assert_eq!(limits.take(&there), Ok(()));
        tokio::time::advance(Duration::from_millis(2500)).await;
        assert_eq!(limits.take(&here), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn routes_share_the_bucket_that_discord_names() {
        let limits = DiscordRateLimits::default();
        let post = RateLimitRoute::of("POST", "/channels/1/messages");
        let edit = RateLimitRoute::of("PATCH", "/channels/1/messages/9");
        limits.told(&edit, &headers("5", "1", "abc"));
        limits.told(&post, &headers("0", "1", "abc"));
        assert!(limits.take(&edit).is_err());
        limits.refused(&post, Duration::from_secs(9), true);
        let other = RateLimitRoute::of("GET", "/users/@me");
        assert_eq!(limits.take(&other), Err(Duration::from_secs(9)));
    }

    #[test]
    fn ids_are_not_part_of_a_route() {
        let route = |path| RateLimitRoute::of("PUT", path);
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
