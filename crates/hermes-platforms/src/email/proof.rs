//! Verifies senders by `Authentication-Results`.
//!
//! `From` is chosen by the sender. The only trusted source is our own mail server, which writes its
//! results (SPF, DKIM, DMARC) to `Authentication-Results` (RFC 8601) above everything from outside,
//! with its own name. Headers with any other name may have arrived with the mail. The header is
//! parsed, not searched, because parts of it are controlled by the sender.

use super::account::SenderProof;

/// Whether `from` (one address) is authenticated. `headers`: the values of all
/// `Authentication-Results`, topmost first. `Err`: why not.
pub(super) fn check(wanted: &SenderProof, from: &str, headers: &[String]) -> Result<(), String> {
    let from = domain_of(from);
    if from.is_empty() {
        return Err("the sender has no domain".to_owned());
    }
    let Some(id) = &wanted.authserv_id else {
        return Err("the name of our mail server is unknown (EMAIL_AUTHSERV_ID)".to_owned());
    };
    let mut parsed = headers.iter().filter_map(|header| parse(header));
    let Some(results) = parsed.find(|results| is_under(&results.server, id)) else {
        return Err(format!(
            "our mail server says nothing about the sender (no Authentication-Results of {id}; \
             EMAIL_AUTHSERV_ID if it calls itself otherwise)"
        ));
    };
    let pass = |method: &str| {
        let method = method.to_owned();
        results
            .results
            .iter()
            .filter(move |result| result.method == method && result.result == "pass")
    };
    let aligned = |result: &AuthenticationResult, names: &[&str]| {
        names.iter().any(|name| {
            result
                .property(name)
                .is_some_and(|value| are_aligned(domain_of(value), from))
        })
    };
    let dmarc = pass("dmarc").any(|result| match result.property("header.from") {
        // DMARC applies to the From domain; if the server names one, it must be this one.
        Some(domain) => domain_of(domain) == from,
        None => true,
    });
    if dmarc
        || pass("dkim").any(|result| aligned(result, &["header.d", "header.i"]))
        || pass("spf").any(|result| aligned(result, &["smtp.mailfrom"]))
    {
        return Ok(());
    }
    let results_found: Vec<String> = results
        .results
        .iter()
        .map(|result| format!("{}={}", result.method, result.result))
        .collect();
    Err(format!(
        "our mail server does not confirm the sender ({})",
        results_found.join(", ")
    ))
}

#[derive(Debug, PartialEq, Eq)]
struct AuthenticationResults {
    server: String,
    results: Vec<AuthenticationResult>,
}

#[derive(Debug, PartialEq, Eq)]
struct AuthenticationResult {
    method: String,
    result: String,
    properties: Vec<(String, String)>,
}

impl AuthenticationResult {
    fn property(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// `None`: not readable, and then nothing in it counts.
fn parse(header: &str) -> Option<AuthenticationResults> {
    let mut parts = split(header)?.into_iter();
    let server = parts.next()?.first()?.clone();
    if server.contains('=') {
        return None;
    }
    let mut results = Vec::new();
    for words in parts {
        let Some((first, rest)) = words.split_first() else {
            continue;
        };
        if first == "none" {
            continue;
        }
        let (method, result) = first.split_once('=')?;
        // A version of the method may follow it: `dkim/1`.
        let method = method.split('/').next().unwrap_or_default();
        let properties = rest
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        results.push(AuthenticationResult {
            method: method.to_owned(),
            result: result.to_owned(),
            properties,
        });
    }
    Some(AuthenticationResults { server, results })
}

/// The tokens of each part between semicolons, in lower case, without comments or spaces around
/// `=`.
fn split(header: &str) -> Option<Vec<Vec<String>>> {
    let mut parts = vec![vec![]];
    let mut word = String::new();
    let mut chars = header.chars().peekable();
    let mut depth = 0_usize;
    while let Some(ch) = chars.next() {
        match ch {
            '\\' if depth > 0 => drop(chars.next()),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            // Inside quotes nothing has a meaning, a semicolon and `=` least of all.
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => word.push(plain(chars.next()?)),
                    quoted => word.push(plain(quoted)),
                }
            },
            ';' => {
                flush(&mut word, parts.last_mut()?);
                parts.push(vec![]);
            }
            ch if ch.is_whitespace() => {
                // `spf = pass` is `spf=pass`.
                let next = chars.clone().find(|ch| !ch.is_whitespace());
                if next != Some('=') && !word.ends_with('=') {
                    flush(&mut word, parts.last_mut()?);
                }
            }
            ch => word.extend(ch.to_lowercase()),
        }
    }
    flush(&mut word, parts.last_mut()?);
    (depth == 0).then_some(parts)
}

/// Quoted text cannot imitate the surrounding grammar.
fn plain(ch: char) -> char {
    if matches!(ch, '=' | ';') || ch.is_whitespace() {
        return '_';
    }
    ch.to_ascii_lowercase()
}

fn flush(word: &mut String, words: &mut Vec<String>) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

fn domain_of(address: &str) -> &str {
    let domain = address
        .rsplit_once('@')
        .map_or(address, |(_, domain)| domain);
    domain.trim_end_matches('.')
}

/// Relaxed alignment: one domain equals the other or is below it. Top-level domains do not count.
fn are_aligned(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let upper = if a.len() < b.len() { &a } else { &b };
    upper.contains('.') && (is_under(&a, &b) || is_under(&b, &a))
}

fn is_under(domain: &str, upper: &str) -> bool {
    domain == upper
        || domain
            .strip_suffix(upper)
            .is_some_and(|rest| rest.ends_with('.') && !upper.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(id: &str) -> SenderProof {
        SenderProof {
            authserv_id: Some(id.to_owned()),
        }
    }

    fn proven(from: &str, headers: &[&str]) -> bool {
        let headers: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
        check(&ours("mx.test"), from, &headers).is_ok()
    }

    #[test]
    fn what_our_server_found_out_counts() {
        for header in [
            "mx.test; dmarc=pass header.from=example.com",
            "mx.test 1; spf=fail smtp.mailfrom=x@other.org; dmarc=pass (p=REJECT dis=none) header.from=example.com",
            "mx.test; dkim=pass header.i=@example.com header.s=sel header.b=\"a;b\"",
            "mx.test; dkim=fail header.d=other.org; dkim=pass header.d=mail.example.com",
            "mx.test; spf=pass (sender ip is 1.2.3.4) smtp.mailfrom=bounce@example.com",
            "mx.test; SPF = Pass smtp.mailfrom=example.com",
            "mx.test; dkim/1=pass header.d=example.com",
        ] {
            assert!(proven("ann@example.com", &[header]), "{header}");
        }
    }

    #[test]
    fn what_the_sender_wrote_does_not() {
        let ours = "mx.test; spf=fail smtp.mailfrom=a@evil.org; dmarc=fail header.from=example.com";
        let forged = "mx.test; dmarc=pass header.from=example.com";
        for headers in [
            &[][..],
            &[ours],
            // Below our own header: it arrived with the mail.
            &[ours, forged],
            &["mx.test; none", forged],
            &["mx.test; spf=pass smtp.mailfrom=a@evil.org"],
            &["mx.test; dkim=pass header.d=evil.org"],
            &["mx.test; dmarc=pass header.from=evil.org"],
            &["mx.test; spf=fail reason=\"dmarc=pass\""],
            &["mx.test; spf=fail reason=\"x; dmarc=pass header.from=example.com\""],
            &["mx.test; spf=fail (dmarc=pass) smtp.mailfrom=\"a; dmarc=pass\"@evil.org"],
            &["mx.test; dkim=pass header.d=com"],
            &["mx.test; dkim=pass header.d=notexample.com"],
            &["mx.test; dkim=pass (unclosed header.d=example.com"],
            &["dmarc=pass header.from=example.com"],
            // Our server writes none, but the sender does.
            &["mx.evil.org; dmarc=pass header.from=example.com"],
            &["mx.test.evil.org; dmarc=pass header.from=example.com"],
            &[""],
        ] {
            assert!(!proven("ann@example.com", headers), "{headers:?}");
        }
        assert!(!proven("ann", &[forged]));
        let nobody = SenderProof { authserv_id: None };
        assert!(check(&nobody, "ann@example.com", &[forged.to_owned()]).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..proptest::prelude::ProptestConfig::default()
        })]

        /// Nothing in sender-controlled values, quotes and comments authenticates a sender.
        #[test]
        fn words_of_the_sender_never_prove(
            quoted in "[ -~&&[^\"\\\\]]{0,40}", commented in "[ -~&&[^()\\\\]]{0,40}", value in "[a-z=.;@]{0,20}",
        ) {
            let value = value.replace(';', "");
            let header = format!(
                "mx.test; spf=fail reason=\"{quoted}\" ({commented}) smtp.mailfrom={value}; dmarc=fail"
            );
            proptest::prop_assert!(!proven("ann@example.com", &[&header]));
        }
    }

    #[test]
    fn a_named_server_is_the_only_witness() {
        let headers = [
            "store.test; none".to_owned(),
            "mx2.google.com; dmarc=pass header.from=example.com".to_owned(),
        ];
        assert!(check(&ours("google.com"), "ann@example.com", &headers).is_ok());
        assert!(check(&ours("mx2.google.com"), "ann@example.com", &headers).is_ok());
        for other in [
            "com.mx2.google.com",
            "oogle.com",
            "store.test",
            "elsewhere.test",
        ] {
            assert!(
                check(&ours(other), "ann@example.com", &headers).is_err(),
                "{other}"
            );
        }
    }
}
