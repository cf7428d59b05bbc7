//! Cookies of one connection, by which load balancers route the requests of a session to one process;
//! a new connection starts without any, so that it is not routed to a process that is gone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, SystemClock};
use reqwest::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use url::Url;

/// More than any load balancer sets.
const MAX_COOKIES: usize = 50;
const MAX_LINE_BYTES: usize = 4096;

#[derive(Default)]
pub(crate) struct Cookies(Mutex<Vec<Cookie>>);

#[derive(Debug, PartialEq)]
struct Cookie {
    name: String,
    value: String,
    path: String,
}

impl Cookies {
    /// Stores the cookies of a response from the server's own origin.
    pub(crate) fn store(&self, from: &Url, response: &HeaderMap) {
        let now = SystemClock.now();
        for line in response.get_all(SET_COOKIE) {
            let Some((cookie, is_over)) = line.to_str().ok().and_then(|line| read(line, from, now))
            else {
                continue;
            };
            let mut all = self.all();
            all.retain(|old| old.name != cookie.name || old.path != cookie.path);
            if !is_over && all.len() < MAX_COOKIES {
                all.push(cookie);
            }
        }
    }

    /// Adds those for this address to the header that the config may have set.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, to: &Url) {
        let all = self.all();
        let ours = all.iter().filter(|cookie| cookie.is_for(to.path()));
        let ours = ours.map(|cookie| format!("{}={}", cookie.name, cookie.value));
        let configured = headers.get(COOKIE).and_then(|value| value.to_str().ok());
        let pairs: Vec<String> = configured
            .map(str::to_owned)
            .into_iter()
            .chain(ours)
            .collect();
        if let Ok(mut value) = HeaderValue::from_str(&pairs.join("; "))
            && !value.is_empty()
        {
            value.set_sensitive(true);
            headers.insert(COOKIE, value);
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Cookie>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cookie {
    fn is_for(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/')
        })
    }
}

/// Parses a `Set-Cookie` line; the flag says that it deletes the cookie. The domain is ignored: cookies are sent
/// only to the origin that set them.
fn read(line: &str, from: &Url, now: DateTime<Utc>) -> Option<(Cookie, bool)> {
    let mut parts = line.split(';').map(str::trim);
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || line.len() > MAX_LINE_BYTES {
        return None;
    }
    let mut path = None;
    let mut max_age = None;
    let mut expires = None;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key.trim().to_ascii_lowercase().as_str() {
            "path" => path = Some(value.trim()).filter(|path| path.starts_with('/')),
            "max-age" => max_age = value.trim().parse::<i64>().ok(),
            "expires" => expires = DateTime::parse_from_rfc2822(value.trim()).ok(),
            _ => {}
        }
    }
    let is_over = match (max_age, expires) {
        (Some(seconds), _) => seconds <= 0,
        (None, Some(at)) => at <= now,
        (None, None) => false,
    };
    let path = path.map_or_else(|| directory(from.path()), str::to_owned);
    let cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        path,
    };
    Some((cookie, is_over))
}

/// The path that a cookie without one is for.
fn directory(path: &str) -> String {
    match path.rfind('/') {
        None | Some(0) => "/".to_owned(),
        Some(end) => path[..end].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookies: &Cookies, configured: Option<&'static str>, to: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        if let Some(configured) = configured {
            headers.insert(COOKIE, HeaderValue::from_static(configured));
        }
        cookies.add_to(&mut headers, &to.parse().unwrap());
        let value = headers.get(COOKIE)?;
        Some(value.to_str().unwrap().to_owned())
    }

    fn store(cookies: &Cookies, line: &'static str) {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_static(line));
        cookies.store(&"http://h/a/mcp".parse().unwrap(), &headers);
    }

    #[test]
    fn what_the_server_sets_is_sent_back_until_it_is_taken_back() {
        let cookies = Cookies::default();
        assert_eq!(sent(&cookies, None, "http://h/a/mcp"), None);
        store(
            &cookies,
            "pod=1; Path=/; Expires=Wed, 18 Nov 2099 10:00:00 GMT; HttpOnly",
        );
        store(&cookies, "pod=2; Path=/; Secure; SameSite=None");
        store(&cookies, "here=x");
        let both = Some("pod=2; here=x".to_owned());
        assert_eq!(sent(&cookies, None, "http://h/a/mcp"), both);
        let elsewhere = Some("own=1; pod=2".to_owned());
        assert_eq!(sent(&cookies, Some("own=1"), "http://h/ab"), elsewhere);
        store(&cookies, "pod=; Path=/; Max-Age=0");
        store(&cookies, "here=; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(sent(&cookies, None, "http://h/a/mcp"), None);
    }

    #[test]
    fn nonsense_and_floods_are_ignored() {
        let cookies = Cookies::default();
        for line in ["", "=x", "no value", ";;;"] {
            store(&cookies, line);
        }
        assert_eq!(sent(&cookies, None, "http://h/a/mcp"), None);
        for number in 0..200 {
            let mut headers = HeaderMap::new();
            let line = format!("c{number}=1; Path=/");
            headers.append(SET_COOKIE, line.parse().unwrap());
            cookies.store(&"http://h/".parse().unwrap(), &headers);
        }
        assert_eq!(cookies.all().len(), MAX_COOKIES);
    }
}
