//! Settings of the mail account.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::PlatformSettings;

/// A mail account with its credentials.
#[derive(Clone)]
pub(crate) struct EmailAccount {
    /// Our address, in lower case.
    pub address: String,
    pub user: String,
    pub password: String,
    /// Our display name.
    pub display_name: Option<String>,
    pub imap: MailHost,
    pub smtp: MailHost,
    /// Poll interval if the server does not support IDLE.
    pub poll: Duration,
    /// Maximum duration of one IDLE.
    pub idle: Duration,
    /// Received mail is marked as read.
    pub mark_seen: bool,
    pub attachments: bool,
    /// Whether and how senders are authenticated.
    pub proof: Option<SenderProof>,
    /// Larger mails are read up to here.
    pub max_bytes: u32,
    /// Roots to trust besides the system's.
    pub ca_file: Option<PathBuf>,
}

/// Senders must be authenticated by our own mail server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderProof {
    /// The name or domain of our server in `Authentication-Results`. `None`: unknown, so no sender
    /// is authenticated, because the topmost header may be the sender's.
    pub authserv_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MailHost {
    pub host: String,
    pub port: u16,
    pub security: MailSecurity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailSecurity {
    /// TLS from the first byte.
    Implicit,
    StartTls,
    /// Only to this machine: a bridge or a test.
    Off,
}

/// The password stays out of logs.
impl fmt::Debug for EmailAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("address", &self.address)
            .field("imap", &self.imap)
            .field("smtp", &self.smtp)
            .finish_non_exhaustive()
    }
}

const MAX_BYTES: u64 = 40 * 1024 * 1024;

impl EmailAccount {
    /// `Err`: what is missing or invalid, and where to set it.
    pub(crate) fn new(settings: &PlatformSettings) -> Result<Self, String> {
        let names = ["address", "password", "imap_host", "smtp_host"];
        let values = names.map(|name| settings.text(name));
        let missing: Vec<String> = names
            .iter()
            .zip(&values)
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| format!("EMAIL_{}", name.to_uppercase()))
            .collect();
        let [
            Some(address),
            Some(password),
            Some(imap_host),
            Some(smtp_host),
        ] = values
        else {
            return Err(format!(
                "{} not set: write it to .env, or run `hermes gateway setup`",
                missing.join(", ")
            ));
        };
        if !address.contains('@') {
            return Err(format!("EMAIL_ADDRESS: {address:?} is not an address"));
        }
        let (allow_all, trust) = (
            ["EMAIL_ALLOW_ALL_USERS", "GATEWAY_ALLOW_ALL_USERS"]
                .iter()
                .any(|name| settings.var(name).is_some_and(is_on)),
            match settings.extra.get("require_authenticated_sender") {
                Some(value) => value.as_bool() == Some(false),
                None => flag(settings, "trust_from_header")?.unwrap_or(false),
            },
        );
        let authserv_id = match settings.text("authserv_id") {
            Some(id) => Some(id.to_lowercase()),
            None => witness(&imap_host),
        };
        Ok(Self {
            address: address.to_lowercase(),
            user: settings.text("username").unwrap_or(address),
            password,
            display_name: settings.text("display_name"),
            imap: server(settings, "imap", imap_host, 993)?,
            smtp: server(settings, "smtp", smtp_host, 587)?,
            poll: Duration::from_secs(number(settings, "poll_interval", 15, 1, 86_400)?),
            idle: Duration::from_secs(number(settings, "idle_seconds", 240, 1, 1_740)?),
            mark_seen: flag(settings, "mark_seen")?.unwrap_or(true),
            attachments: !flag(settings, "skip_attachments")?.unwrap_or(false),
            proof: (!allow_all && !trust).then_some(SenderProof { authserv_id }),
            max_bytes: u32::try_from(number(
                settings,
                "max_message_bytes",
                MAX_BYTES,
                10_000,
                u64::from(u32::MAX),
            )?)
            .unwrap_or(u32::MAX),
            ca_file: ["HERMES_CA_BUNDLE", "SSL_CERT_FILE"]
                .iter()
                .find_map(|name| settings.var(name).map(str::to_owned))
                .filter(|_| settings.text("ca_file").is_none())
                .or_else(|| settings.text("ca_file"))
                .map(PathBuf::from),
        })
    }

    /// The domain of our address.
    pub(crate) fn domain(&self) -> &str {
        self.address
            .rsplit_once('@')
            .map_or("localhost", |(_, domain)| domain)
    }

    /// A remark about sender authentication, for the start.
    pub(super) fn caution(&self) -> Option<String> {
        let Some(proof) = &self.proof else {
            return Some("senders are trusted as written: anyone can pretend to be one".to_owned());
        };
        let host = &self.imap.host;
        proof.authserv_id.is_none().then(|| {
            format!(
                "every mail is ignored: {host} does not say which mail server confirms senders. \
                 Set EMAIL_AUTHSERV_ID to the name with which Authentication-Results begins in mail that you get"
            )
        })
    }

    /// The identity that only one process may use at a time.
    pub(crate) fn key(&self) -> String {
        format!("{}@{}", self.user, self.imap.host)
    }
}

fn server(
    settings: &PlatformSettings,
    kind: &str,
    host: String,
    port: u16,
) -> Result<MailHost, String> {
    let number = number(
        settings,
        &format!("{kind}_port"),
        u64::from(port),
        1,
        65_535,
    )?;
    let port = u16::try_from(number).unwrap_or(port);
    let var = format!("EMAIL_{}_TLS", kind.to_uppercase());
    let security = match settings.text(&format!("{kind}_tls")).as_deref() {
        None if matches!((kind, port), ("smtp", 465)) => MailSecurity::Implicit,
        None if kind == "smtp" || port == 143 => MailSecurity::StartTls,
        None | Some("implicit" | "ssl" | "tls") => MailSecurity::Implicit,
        Some("starttls") => MailSecurity::StartTls,
        Some("none" | "off") if is_loopback(&host) => MailSecurity::Off,
        Some("none" | "off") => {
            return Err(format!(
                "{var}: without TLS the password would cross the network to {host} for everybody to read; \
                 only this machine can be reached that way"
            ));
        }
        Some(other) => {
            return Err(format!(
                "{var}: {other:?} is not one of implicit, starttls, none"
            ));
        }
    };
    Ok(MailHost {
        host,
        port,
        security,
    })
}

/// The domain of the authenticating mail server, derived from the IMAP server.
fn witness(imap_host: &str) -> Option<String> {
    let host = imap_host.trim_end_matches('.').to_lowercase();
    let labels: Vec<&str> = host.split('.').collect();
    if labels.len() < 2 || labels.contains(&"") || host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    // `example.co.uk` is a registered domain, `co.uk` is not.
    let shared = ["co", "com", "net", "org", "ac", "edu", "gov", "or", "ne"];
    let wide = match labels.as_slice() {
        [.., second, top] => top.len() == 2 && shared.contains(second),
        _ => false,
    };
    let count = if wide { 3 } else { 2 };
    let domain = labels.get(labels.len().checked_sub(count)?..)?.join(".");
    Some(match domain.as_str() {
        "gmail.com" | "googlemail.com" => "google.com".to_owned(),
        "fastmail.com" => "messagingengine.com".to_owned(),
        _ => domain,
    })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_on(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "on"
    )
}

fn flag(settings: &PlatformSettings, name: &str) -> Result<Option<bool>, String> {
    match (settings.text(name), settings.flag(name)) {
        (Some(text), None) => Err(format!(
            "EMAIL_{}: {text:?} is neither true nor false",
            name.to_uppercase()
        )),
        (_, flag) => Ok(flag),
    }
}

fn number(
    settings: &PlatformSettings,
    name: &str,
    default: u64,
    least: u64,
    max: u64,
) -> Result<u64, String> {
    let Some(text) = settings.text(name) else {
        return Ok(default);
    };
    match text.parse() {
        Ok(value) if (least..=max).contains(&value) => Ok(value),
        _ => Err(format!(
            "EMAIL_{}: {text:?} is not a number from {least} to {max}",
            name.to_uppercase()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> PlatformSettings {
        let base = [
            ("EMAIL_ADDRESS", "Hermes@Example.test"),
            ("EMAIL_PASSWORD", "pw"),
            ("EMAIL_IMAP_HOST", "imap.example.test"),
            ("EMAIL_SMTP_HOST", "smtp.example.test"),
        ];
        PlatformSettings {
            name: "email".to_owned(),
            env: base
                .iter()
                .chain(vars)
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..PlatformSettings::default()
        }
    }

    #[test]
    fn ports_decide_how_tls_begins() {
        let account = EmailAccount::new(&settings(&[])).unwrap();
        assert_eq!(account.address, "hermes@example.test");
        assert_eq!(
            (account.imap.port, account.imap.security),
            (993, MailSecurity::Implicit)
        );
        assert_eq!(
            (account.smtp.port, account.smtp.security),
            (587, MailSecurity::StartTls)
        );
        let proof = SenderProof {
            authserv_id: Some("example.test".to_owned()),
        };
        assert_eq!(
            (account.proof.as_ref(), account.caution()),
            (Some(&proof), None)
        );
        let other = EmailAccount::new(&settings(&[
            ("EMAIL_SMTP_PORT", "465"),
            ("EMAIL_IMAP_PORT", "143"),
            ("EMAIL_TRUST_FROM_HEADER", "yes"),
        ]))
        .unwrap();
        assert_eq!(other.smtp.security, MailSecurity::Implicit);
        assert_eq!(other.imap.security, MailSecurity::StartTls);
        assert_eq!(other.proof, None);
        assert!(other.caution().unwrap().contains("as written"));
        assert!(!format!("{other:?}").contains("pw"));
    }

    #[test]
    fn who_confirms_senders_is_in_the_domain_of_the_server_or_is_named() {
        for (host, domain) in [
            ("imap.example.test", Some("example.test")),
            ("Imap.Mail.Example.com.", Some("example.com")),
            ("example.com", Some("example.com")),
            ("imap.example.co.uk", Some("example.co.uk")),
            ("imap.gmx.de", Some("gmx.de")),
            ("imap.gmail.com", Some("google.com")),
            ("co.uk", None),
            ("localhost", None),
            ("127.0.0.1", None),
            ("::1", None),
            ("a..b", None),
        ] {
            assert_eq!(witness(host).as_deref(), domain, "{host}");
        }
        let bridge = [("EMAIL_IMAP_HOST", "127.0.0.1")];
        let account = EmailAccount::new(&settings(&bridge)).unwrap();
        assert_eq!(account.proof, Some(SenderProof { authserv_id: None }));
        let caution = account.caution().unwrap();
        assert!(caution.contains("EMAIL_AUTHSERV_ID"), "{caution}");
        let named = [bridge[0], ("EMAIL_AUTHSERV_ID", "MX.example.org")];
        let account = EmailAccount::new(&settings(&named)).unwrap();
        let id = account.proof.as_ref().unwrap().authserv_id.as_deref();
        assert_eq!((id, account.caution()), (Some("mx.example.org"), None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (name, value, about) in [
            ("EMAIL_IMAP_PORT", "imap", "EMAIL_IMAP_PORT"),
            ("EMAIL_POLL_INTERVAL", "0", "EMAIL_POLL_INTERVAL"),
            ("EMAIL_SMTP_TLS", "none", "only this machine"),
            ("EMAIL_IMAP_TLS", "maybe", "EMAIL_IMAP_TLS"),
            ("EMAIL_MARK_SEEN", "perhaps", "EMAIL_MARK_SEEN"),
            ("EMAIL_ADDRESS", "hermes", "EMAIL_ADDRESS"),
            ("EMAIL_PASSWORD", "  ", "EMAIL_PASSWORD not set"),
        ] {
            let error = EmailAccount::new(&settings(&[(name, value)])).unwrap_err();
            assert!(error.contains(about), "{error}");
        }
        let loopback = settings(&[("EMAIL_SMTP_TLS", "none"), ("EMAIL_SMTP_HOST", "127.0.0.1")]);
        assert_eq!(
            EmailAccount::new(&loopback).unwrap().smtp.security,
            MailSecurity::Off
        );
    }
}
