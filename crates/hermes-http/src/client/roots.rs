//! Trusted roots that are read when the first certificate arrives.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::pinned::Fields;
use super::{CaFileRole, HttpSettings};

type Verifier = Arc<dyn ServerCertVerifier>;

/// The system's roots are read once per process.
static SYSTEM: OnceLock<Result<Verifier, Error>> = OnceLock::new();

#[derive(Debug)]
pub(super) struct LazyRoots {
    provider: Arc<CryptoProvider>,
    source: Source,
    loaded: OnceLock<Result<Loaded, Error>>,
}

/// What a file of trusted certificates holds.
#[derive(Debug)]
struct Loaded {
    /// `None`: none of them can vouch for others.
    roots: Option<Verifier>,
    /// All of them. A server that shows one of these is the server that was meant.
    pinned: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
enum Source {
    System,
    File(PathBuf, CaFileRole),
    AcceptAny,
}

impl LazyRoots {
    pub(super) fn new(provider: Arc<CryptoProvider>, settings: &HttpSettings) -> Self {
        let source = match &settings.ca_file {
            _ if settings.accept_any_certificate => Source::AcceptAny,
            Some(path) => Source::File(path.clone(), settings.ca_file_role),
            None => Source::System,
        };
        Self {
            provider,
            source,
            loaded: OnceLock::new(),
        }
    }

    /// Reads them, unless that is done. The error is that of every handshake.
    pub(super) fn read(&self) -> Result<(), Error> {
        match &self.source {
            Source::AcceptAny => Ok(()),
            Source::System => self.system().map(drop),
            Source::File(path, role) => self.loaded(path, *role).map(drop),
        }
    }

    fn system(&self) -> Result<&'static Verifier, Error> {
        let system = SYSTEM.get_or_init(|| system(&self.provider));
        system.as_ref().map_err(Clone::clone)
    }

    fn loaded(&self, path: &Path, role: CaFileRole) -> Result<&Loaded, Error> {
        let loaded = self.loaded.get_or_init(|| match role {
            CaFileRole::Replaces => from_file(path, &self.provider),
            CaFileRole::Adds => system_and_file(path, &self.provider),
        });
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Whether a server is trusted because its very certificate is in the file.
    fn is_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        match &self.source {
            Source::File(path, role) => self
                .loaded(path, *role)
                .is_ok_and(|loaded| loaded.pinned.iter().any(|one| one == certificate)),
            Source::System | Source::AcceptAny => false,
        }
    }
}

fn system(provider: &Arc<CryptoProvider>) -> Result<Verifier, Error> {
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(provider))?;
    Ok(Arc::new(verifier))
}

fn from_file(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Loaded, Error> {
    let unusable = |why: String| Error::General(format!("CA file {}: {why}", path.display()));
    let mut store = RootCertStore::empty();
    let mut pinned = Vec::new();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        pinned.push(certificate.clone());
        // Bundles of distributions hold a few certificates that webpki cannot read.
        if let Err(error) = store.add(certificate) {
            tracing::debug!(path = %path.display(), %error, "a certificate of the CA file is skipped");
        }
    }
    if pinned.is_empty() {
        return Err(unusable("no usable certificate in it".to_owned()));
    }
    if store.is_empty() {
        return Ok(Loaded {
            roots: None,
            pinned,
        });
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
    Ok(Loaded {
        roots: Some(verifier),
        pinned,
    })
}

/// The certificates of the file, besides the system's roots.
fn system_and_file(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Loaded, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<_, _>>);
    let pinned: Vec<CertificateDer<'static>> =
        read.map_err(|error| Error::General(format!("CA file {}: {error}", path.display())))?;
    let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(
        pinned.iter().cloned(),
        Arc::clone(provider),
    )?;
    Ok(Loaded {
        roots: Some(Arc::new(verifier)),
        pinned,
    })
}

impl ServerCertVerifier for LazyRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let roots = match &self.source {
            Source::AcceptAny => return Ok(ServerCertVerified::assertion()),
            Source::System => Some(self.system()?),
            Source::File(path, role) => self.loaded(path, *role)?.roots.as_ref(),
        };
        let checked = roots.map_or_else(
            || Err(CertificateError::UnknownIssuer.into()),
            |roots| {
                roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            },
        );
        match checked {
            // The name in it does not matter: nobody else has its key.
            Err(_) if self.is_pinned(end_entity) => {
                Fields::read(end_entity)?.check_dates(now.as_secs())?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match verify_tls12_signature(message, cert, dss, algorithms) {
            // webpki does not read a certificate of the first version, not even for its key.
            Err(Error::InvalidCertificate(_)) if self.is_pinned(cert) => {
                Fields::read(cert)?.check_signature(message, dss, algorithms)?;
                Ok(HandshakeSignatureValid::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match verify_tls13_signature(message, cert, dss, algorithms) {
            Err(Error::InvalidCertificate(_)) if self.is_pinned(cert) => {
                let key = SubjectPublicKeyInfoDer::from(Fields::read(cert)?.spki);
                verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
            }
            checked => checked,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn an_unusable_ca_file_is_explained_at_the_handshake() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"no certificate here\n").unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = HttpSettings {
            ca_file: Some(file.path().to_owned()),
            ..HttpSettings::default()
        };
        let roots = LazyRoots::new(provider, &settings);
        let error = roots.read().unwrap_err().to_string();
        assert!(error.contains("no usable certificate"), "{error}");
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
    }
}
