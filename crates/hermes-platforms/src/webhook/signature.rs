//! Verifies signatures: five schemes in a fixed order. The first whose header exists decides, so
//! that a call cannot choose a weaker scheme by omitting parts.

use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

pub(super) use hermes_core::bytes::hex;
use hermes_core::bytes::{same, unhex};

/// Tolerated clock difference of a sender.
pub(super) const MAX_CLOCK_SKEW: i64 = 300;

/// How a call was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureScheme {
    Svix,
    GitHub,
    GitLab,
    /// With a time.
    V2,
    /// Without a time a call could be replayed forever.
    V1,
}

/// `now`: seconds since the epoch. `Err`: why not, for the log only.
pub(super) fn verify(
    headers: &HeaderMap,
    body: &[u8],
    secret: &str,
    now: i64,
) -> Result<SignatureScheme, &'static str> {
    let header = |name: &str| {
        let value = headers.get(name)?.to_str().unwrap_or("\u{fffd}");
        Some(value).filter(|value| !value.is_empty())
    };
    for prefix in ["svix", "webhook"] {
        let part = |name: &str| header(&format!("{prefix}-{name}"));
        let parts = (part("id"), part("timestamp"), part("signature"));
        match parts {
            (None, None, None) => {}
            (Some(id), Some(timestamp), Some(signatures)) => {
                return svix(secret, (id, timestamp, signatures), body, now);
            }
            _ => return Err("a Svix signature is not whole"),
        }
    }
    if let Some(signature) = header("x-hub-signature-256") {
        let hex = signature
            .strip_prefix("sha256=")
            .ok_or("not a sha256 signature")?;
        return keyed(secret.as_bytes(), &[body], hex).map(|()| SignatureScheme::GitHub);
    }
    if let Some(token) = header("x-gitlab-token") {
        return same(token.as_bytes(), secret.as_bytes())
            .then_some(SignatureScheme::GitLab)
            .ok_or("another token");
    }
    if let Some(signature) = header("x-webhook-signature-v2") {
        // Never the weaker V1 instead: who repeats a call would only have to leave the time out.
        let timestamp = header("x-webhook-timestamp").ok_or("a V2 signature without its time")?;
        fresh(timestamp, now)?;
        return keyed(
            secret.as_bytes(),
            &[timestamp.as_bytes(), b".", body],
            signature,
        )
        .map(|()| SignatureScheme::V2);
    }
    if let Some(signature) = header("x-webhook-signature") {
        return keyed(secret.as_bytes(), &[body], signature).map(|()| SignatureScheme::V1);
    }
    Err("no signature")
}

/// The signed content with its time: identical content is the same call. `None`: the scheme has no
/// time, and a sender may legitimately send the same content twice.
pub(super) fn timed(scheme: SignatureScheme, headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    let header = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    match scheme {
        SignatureScheme::Svix => {
            // The headers that were checked.
            let prefix = ["svix", "webhook"]
                .into_iter()
                .find(|prefix| headers.contains_key(format!("{prefix}-signature")))?;
            let part = |name: &str| header(&format!("{prefix}-{name}"));
            Some([part("id")?, b".", part("timestamp")?, b".", body].concat())
        }
        SignatureScheme::V2 => Some([header("x-webhook-timestamp")?, b".", body].concat()),
        SignatureScheme::GitHub | SignatureScheme::GitLab | SignatureScheme::V1 => None,
    }
}

/// The header that GitHub would send, for tests of a route.
pub fn sign_github(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("sha256={}", hex(hmac::sign(&key, body).as_ref()))
}

fn svix(
    secret: &str,
    parts: (&str, &str, &str),
    body: &[u8],
    now: i64,
) -> Result<SignatureScheme, &'static str> {
    let (id, timestamp, signatures) = parts;
    fresh(timestamp, now)?;
    let key = match secret.strip_prefix("whsec_") {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| "the secret after whsec_ is not base64")?,
        // Some services hand out plain secrets with these headers.
        None => secret.as_bytes().to_vec(),
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    // Several while a secret is being changed.
    let fits = |signature: &str| {
        let coded = signature.strip_prefix("v1,")?;
        let tag = STANDARD.decode(coded).ok()?;
        hmac::verify(&key, &signed, &tag).ok()
    };
    signatures
        .split_whitespace()
        .find_map(fits)
        .map(|()| SignatureScheme::Svix)
        .ok_or("another signature")
}

fn fresh(timestamp: &str, now: i64) -> Result<(), &'static str> {
    let sent: i64 = timestamp
        .trim()
        .parse()
        .map_err(|_| "its time is not a number")?;
    if now.abs_diff(sent) > MAX_CLOCK_SKEW.unsigned_abs() {
        return Err("its time is more than five minutes from ours");
    }
    Ok(())
}

fn keyed(secret: &[u8], parts: &[&[u8]], hex: &str) -> Result<(), &'static str> {
    let tag = unhex(hex.trim()).ok_or("the signature is not a hexadecimal number")?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, &parts.concat(), &tag).map_err(|_| "another signature")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    /// The example of Svix and of Standard Webhooks.
    const SVIX: (&str, &str, i64) = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
    );
    const SVIX_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const SVIX_BODY: &[u8] = b"{\"test\": 2432232314}";

    #[test]
    fn svix_as_published() {
        let (secret, id, now) = SVIX;
        let with = |signature: &str| {
            headers(&[
                ("svix-id", id),
                ("svix-timestamp", "1614265330"),
                ("svix-signature", signature),
            ])
        };
        assert_eq!(
            verify(&with(SVIX_SIGNATURE), SVIX_BODY, secret, now),
            Ok(SignatureScheme::Svix)
        );
        let rotated = format!("v1,AAAA v2,xyz {SVIX_SIGNATURE}");
        assert_eq!(
            verify(&with(&rotated), SVIX_BODY, secret, now + 300),
            Ok(SignatureScheme::Svix)
        );
        let white = headers(&[
            ("webhook-id", id),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", SVIX_SIGNATURE),
        ]);
        assert_eq!(
            verify(&white, SVIX_BODY, secret, now),
            Ok(SignatureScheme::Svix)
        );
        for (body, at, secret) in [
            (&b"{\"test\":2432232314}"[..], now, secret),
            (SVIX_BODY, now + 301, secret),
            (SVIX_BODY, now - 301, secret),
            (SVIX_BODY, now, "whsec_AAAA"),
            (SVIX_BODY, now, "whsec_%"),
        ] {
            assert!(verify(&with(SVIX_SIGNATURE), body, secret, at).is_err());
        }
        // A part that is missing is not an invitation to try another way.
        let half = headers(&[("svix-id", id), ("x-gitlab-token", secret)]);
        assert!(verify(&half, SVIX_BODY, secret, now).is_err());
    }

    #[test]
    fn github_as_published() {
        let secret = "It's a Secret to Everybody";
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let given = headers(&[("x-hub-signature-256", signature)]);
        assert_eq!(
            verify(&given, b"Hello, World!", secret, 0),
            Ok(SignatureScheme::GitHub)
        );
        assert_eq!(sign_github(secret, b"Hello, World!"), signature);
        assert!(verify(&given, b"Hello, World?", secret, 0).is_err());
        for bad in [
            "",
            "sha1=00",
            "sha256=",
            "sha256=zz",
            "sha256=7",
            "sha256=\u{e9}",
        ] {
            let given = headers(&[("x-hub-signature-256", bad)]);
            assert!(
                verify(&given, b"Hello, World!", secret, 0).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn gitlab_sends_the_secret_itself() {
        let given = headers(&[("x-gitlab-token", "s3cret")]);
        assert_eq!(
            verify(&given, b"x", "s3cret", 0),
            Ok(SignatureScheme::GitLab)
        );
        assert!(verify(&given, b"x", "s3cre", 0).is_err());
    }

    /// V1 is plain HMAC-SHA256: RFC 4231, test case 2.
    #[test]
    fn generic_with_and_without_a_time() {
        let (secret, body) = ("Jefe", b"what do ya want for nothing?");
        let v1 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let plain = headers(&[("x-webhook-signature", v1)]);
        assert_eq!(verify(&plain, body, secret, 0), Ok(SignatureScheme::V1));
        // printf '1700000000.hello' | openssl dgst -sha256 -hmac topsecret
        let v2 = "30820305c565575343b1d197889906aafe58474fb21ad0ae03d1f7598d81528e";
        let timed = headers(&[
            ("x-webhook-signature-v2", v2),
            ("x-webhook-timestamp", "1700000000"),
        ]);
        assert_eq!(
            verify(&timed, b"hello", "topsecret", 1_700_000_010),
            Ok(SignatureScheme::V2)
        );
        assert!(verify(&timed, b"hello", "topsecret", 1_700_000_301).is_err());
        // Without the time, but with the old signature.
        let stripped = headers(&[("x-webhook-signature-v2", v2), ("x-webhook-signature", v1)]);
        assert!(verify(&stripped, body, secret, 0).is_err());
        assert!(verify(&HeaderMap::new(), body, secret, 0).is_err());
    }
}
