//! Trusted roots that are read when the first certificate arrives.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

type Verifier = Arc<dyn ServerCertVerifier>;

/// The system's roots are read once per process.
static SYSTEM: OnceLock<Result<Verifier, Error>> = OnceLock::new();

#[derive(Debug)]
pub(super) struct LazyRoots {
    provider: Arc<CryptoProvider>,
    source: Source,
    loaded: OnceLock<Result<Verifier, Error>>,
}

#[derive(Debug)]
enum Source {
    System,
    File(PathBuf),
    AcceptAny,
}

impl LazyRoots {
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        file: Option<PathBuf>,
        accept_any: bool,
    ) -> Self {
        let source = match file {
            _ if accept_any => Source::AcceptAny,
            Some(path) => Source::File(path),
            None => Source::System,
        };
        Self {
            provider,
            source,
            loaded: OnceLock::new(),
        }
    }

    fn verifier(&self) -> Result<Option<&Verifier>, Error> {
        let loaded = match &self.source {
            Source::AcceptAny => return Ok(None),
            Source::System => SYSTEM.get_or_init(|| system(&self.provider)),
            Source::File(path) => self.loaded.get_or_init(|| from_file(path, &self.provider)),
        };
        loaded.as_ref().map(Some).map_err(Clone::clone)
    }
}

fn system(provider: &Arc<CryptoProvider>) -> Result<Verifier, Error> {
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(provider))?;
    Ok(Arc::new(verifier))
}

fn from_file(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Verifier, Error> {
    let unusable = |why: String| Error::General(format!("CA file {}: {why}", path.display()));
    let mut store = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        // Bundles of distributions hold a few certificates that webpki cannot read.
        if let Err(error) = store.add(certificate) {
            tracing::debug!(path = %path.display(), %error, "a certificate of the CA file is skipped");
        }
    }
    if store.is_empty() {
        return Err(unusable("no usable certificate in it".to_owned()));
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
    Ok(verifier)
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
        match self.verifier()? {
            Some(inner) => {
                inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
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
        let roots = LazyRoots::new(provider, Some(file.path().to_owned()), false);
        let error = roots.verifier().unwrap_err().to_string();
        assert!(error.contains("no usable certificate"), "{error}");
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
    }
}
