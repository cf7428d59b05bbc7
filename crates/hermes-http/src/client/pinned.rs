//! The few fields of a certificate that are needed to trust it for itself.
//!
//! A server's own certificate, given as CA file, is often one that the usual check refuses: it
//! says that it may sign others (`openssl req -x509` makes such), or it is of the first version of
//! the standard. Whoever names exactly this certificate means exactly this server, so it is
//! compared byte by byte; what is left to check are its dates and that the server has its key.

use chrono::NaiveDate;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`: the version, missing in certificates of the first one.
const VERSION: u8 = 0xa0;

#[derive(Debug, PartialEq)]
pub(super) struct Fields<'a> {
    /// Seconds since the epoch.
    not_before: i64,
    not_after: i64,
    /// The public key with its algorithm, as DER.
    pub(super) spki: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn read(certificate: &'a CertificateDer<'_>) -> Result<Self, Error> {
        let bad = Error::InvalidCertificate(CertificateError::BadEncoding);
        read(certificate).ok_or(bad)
    }

    /// Whether it is valid at this time, in seconds since the epoch.
    pub(super) fn check_dates(&self, now: u64) -> Result<(), Error> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        if now < self.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > self.not_after {
            return Err(CertificateError::Expired.into());
        }
        Ok(())
    }

    /// Whether this key signed the handshake of TLS 1.2.
    pub(super) fn check_signature(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let bad = Error::InvalidCertificate(CertificateError::BadEncoding);
        let (algorithm, key) = key_parts(self.spki).ok_or(bad)?;
        let named = |scheme: &SignatureScheme| *scheme == signed.scheme;
        let possible = algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| named(scheme))
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let fitting = possible
            .1
            .iter()
            .filter(|one| one.public_key_alg_id().as_ref() == algorithm);
        for one in fitting {
            if one
                .verify_signature(key, message, signed.signature())
                .is_ok()
            {
                return Ok(());
            }
        }
        Err(CertificateError::BadSignature.into())
    }
}

fn read(certificate: &[u8]) -> Option<Fields<'_>> {
    let certificate = Element::read(certificate)?.tagged(SEQUENCE)?;
    let mut rest = Element::read(certificate.content)?
        .tagged(SEQUENCE)?
        .content;
    let mut next = || {
        let element = Element::read(rest)?;
        rest = element.rest;
        Some(element)
    };
    // Version if there is one, serial number, algorithm, issuer.
    let first = next()?;
    if first.tag == VERSION {
        next()?;
    }
    next()?.tagged(SEQUENCE)?;
    next()?.tagged(SEQUENCE)?;
    let validity = next()?.tagged(SEQUENCE)?.content;
    let _subject = next()?.tagged(SEQUENCE)?;
    let key = next()?.tagged(SEQUENCE)?;
    let not_before = Element::read(validity)?;
    let not_after = Element::read(not_before.rest)?;
    Some(Fields {
        not_before: time(&not_before)?,
        not_after: time(&not_after)?,
        spki: key.whole,
    })
}

/// The algorithm (without its frame) and the bits of a public key.
fn key_parts(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let spki = Element::read(spki)?.tagged(SEQUENCE)?;
    let algorithm = Element::read(spki.content)?.tagged(SEQUENCE)?;
    let bits = Element::read(algorithm.rest)?.tagged(BIT_STRING)?;
    // The first byte counts unused bits at the end, and keys have none.
    Some((algorithm.content, bits.content.strip_prefix(&[0])?))
}

fn time(element: &Element<'_>) -> Option<i64> {
    let text = std::str::from_utf8(element.content).ok()?;
    let digits = text.strip_suffix('Z')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (element.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year: i32 = year.parse().ok()?;
            // RFC 5280: 50 and more are of the last century.
            (year + if year < 50 { 2000 } else { 1900 }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at(4);
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u32>().ok();
    let day = NaiveDate::from_ymd_opt(year, part(0)?, part(2)?)?;
    let at = day.and_hms_opt(part(4)?, part(6)?, part(8)?)?;
    Some(at.and_utc().timestamp())
}

/// One element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// With tag and length.
    whole: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn read(input: &'a [u8]) -> Option<Self> {
        let (&tag, after) = input.split_first()?;
        let (&first, mut after) = after.split_first()?;
        let mut length = usize::from(first);
        if first & 0x80 != 0 {
            let count = usize::from(first & 0x7f);
            if !(1..=4).contains(&count) {
                return None;
            }
            let (bytes, rest) = after.split_at_checked(count)?;
            length = bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            after = rest;
        }
        let (content, rest) = after.split_at_checked(length)?;
        Some(Self {
            tag,
            content,
            whole: input.get(..input.len() - rest.len())?,
            rest,
        })
    }

    fn tagged(self, tag: u8) -> Option<Self> {
        (self.tag == tag).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
        CertificateDer::from_pem_file(format!("{folder}/{name}")).unwrap()
    }

    #[test]
    fn dates_are_read_in_both_spellings_and_both_versions() {
        // From 2026 on UTCTime, after 2049 GeneralizedTime.
        for name in ["self.pem", "self-v1.pem"] {
            let certificate = certificate(name);
            let fields = Fields::read(&certificate).unwrap();
            assert!(fields.check_dates(4_000_000_000).is_ok(), "{name}");
            assert_eq!(
                fields.check_dates(1_000_000_000),
                Err(CertificateError::NotValidYet.into())
            );
            assert!(fields.check_dates(u64::MAX).is_err());
            assert!(key_parts(fields.spki).is_some());
        }
        let old = certificate("self-expired.pem");
        let fields = Fields::read(&old).unwrap();
        assert_eq!(
            fields.check_dates(1_700_000_000),
            Err(CertificateError::Expired.into())
        );
    }

    #[test]
    fn whatever_is_cut_is_an_error_and_no_panic() {
        let whole = certificate("self.pem");
        let fields = Fields::read(&whole).unwrap();
        let key_end = fields.spki.as_ptr() as usize - whole.as_ptr() as usize + fields.spki.len();
        for end in 0..key_end {
            let cut = CertificateDer::from(whole[..end].to_vec());
            assert!(Fields::read(&cut).is_err(), "{end}");
        }
    }
}
