//! Below HTTP: refused, unknown hosts, certificates, proxies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use hermes_core::model::{ErrorClass, WireFormat};
use hermes_http::{HttpSettings, ProxySettings};
use hermes_models::HttpModelClient;
use hermes_testkit::model_server::{ModelServer, Reply};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{answer, failure, parts};

const CHAT: WireFormat = WireFormat::ChatCompletions;

const ANSWER: &str =
    "{\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}";

fn with(base_url: &str, settings: &HttpSettings) -> HttpModelClient {
    let mut parts = parts(base_url, CHAT);
    parts.http = hermes_http::client(settings).unwrap();
    HttpModelClient::new(parts)
}

#[tokio::test]
async fn nobody_listens() {
    // Bound and closed again: nobody is there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = failure(&with(
        &format!("http://{address}/v1"),
        &HttpSettings::default(),
    ))
    .await;
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    let expected = format!("cannot connect to {address}: ");
    assert!(error.message.starts_with(&expected), "{error}");
    let error = failure(&with(
        "http://no-such-host.invalid/v1",
        &HttpSettings::default(),
    ))
    .await;
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    let error = failure(&with("no url at all", &HttpSettings::default())).await;
    assert_eq!(error.class, ErrorClass::Format, "{error}");
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../hermes-http/tests/tls", name]
        .iter()
        .collect()
}

/// Answers every TLS connection with one JSON object.
fn tls_server() -> SocketAddr {
    tls_server_with("leaf.pem", "leaf.key.pem", rustls::DEFAULT_VERSIONS)
}

fn tls_server_with(
    certificate: &str,
    key: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(file(certificate)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file(key)).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    // Not checked against each other: rustls does not read certificates of the first version.
    let own = rustls::sign::CertifiedKey::new(chain, key);
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(own)));
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = BufReader::new(rustls::StreamOwned::new(connection, socket.unwrap()));
            // A client that refuses the certificate ends here with an error.
            let _ = serve_one(&mut tls);
        }
    });
    address
}

fn serve_one<S: Read + Write>(stream: &mut BufReader<S>) -> std::io::Result<()> {
    let mut length = 0;
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let socket = stream.get_mut();
    write!(
        socket,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{ANSWER}",
        ANSWER.len()
    )?;
    socket.flush()
}

/// Self-signed certificates, as `openssl req -x509` makes them (they may sign others) and as of
/// the first version of the standard. Neither names the host that is connected to.
#[tokio::test]
async fn a_servers_own_certificate_as_ca_file_is_accepted_for_exactly_that_server() {
    let trusting = |name: &str| HttpSettings {
        ca_file: Some(file(name)),
        ..HttpSettings::default()
    };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for name in ["self.pem", "self-v1.pem"] {
            let server = tls_server_with(name, "self.key.pem", &[version]);
            let url = format!("https://localhost:{}/v1", server.port());
            let own = answer(&with(&url, &trusting(name))).await;
            assert_eq!(own.0.text, "hi", "{name} {version:?}");
            // The same key in another certificate, and another authority.
            for other in ["self-expired.pem", "root.pem"] {
                let error = failure(&with(&url, &trusting(other))).await;
                assert_eq!(
                    error.class,
                    ErrorClass::TlsCertificate,
                    "{name} {other} {version:?}: {error}"
                );
            }
        }
    }
    let expired = tls_server_with("self-expired.pem", "self.key.pem", rustls::DEFAULT_VERSIONS);
    let url = format!("https://localhost:{}/v1", expired.port());
    let error = failure(&with(&url, &trusting("self-expired.pem"))).await;
    assert_eq!(error.class, ErrorClass::TlsCertificate, "{error}");
    // Without the private key the certificate is worth nothing.
    let thief = tls_server_with("self.pem", "leaf.key.pem", rustls::DEFAULT_VERSIONS);
    let url = format!("https://localhost:{}/v1", thief.port());
    failure(&with(&url, &trusting("self.pem"))).await;
    let thief = tls_server_with("self-v1.pem", "leaf.key.pem", &[&rustls::version::TLS12]);
    let url = format!("https://localhost:{}/v1", thief.port());
    failure(&with(&url, &trusting("self-v1.pem"))).await;
}

/// An authority in the file vouches only for the names in the certificates it signed.
#[tokio::test]
async fn a_name_that_does_not_fit_is_refused_where_an_authority_vouches() {
    let settings = HttpSettings {
        ca_file: Some(file("root.pem")),
        ..HttpSettings::default()
    };
    let server = tls_server();
    let url = format!("https://other.test:{}/v1", server.port());
    let mut parts = parts(&url, CHAT);
    let builder = hermes_http::builder(&settings).unwrap();
    parts.http = builder.resolve("other.test", server).build().unwrap();
    let error = failure(&HttpModelClient::new(parts)).await;
    assert_eq!(error.class, ErrorClass::TlsCertificate, "{error}");
}

#[tokio::test]
async fn certificates_are_checked_against_the_roots_in_force() {
    let url = format!("https://localhost:{}/v1", tls_server().port());
    let error = failure(&with(&url, &HttpSettings::default())).await;
    assert_eq!(error.class, ErrorClass::TlsCertificate, "{error}");
    assert!(error.message.contains("SSL_CERT_FILE"), "{error}");

    let own_root = HttpSettings {
        ca_file: Some(file("root.pem")),
        ..HttpSettings::default()
    };
    assert_eq!(answer(&with(&url, &own_root)).await.0.text, "hi");

    let unchecked = HttpSettings {
        accept_any_certificate: true,
        ..HttpSettings::default()
    };
    assert_eq!(answer(&with(&url, &unchecked)).await.0.text, "hi");

    let no_roots = tempfile::NamedTempFile::new().unwrap();
    let empty = HttpSettings {
        ca_file: Some(no_roots.path().to_owned()),
        ..HttpSettings::default()
    };
    let error = failure(&with(&url, &empty)).await;
    assert_eq!(error.class, ErrorClass::TlsCertificate, "{error}");
    assert!(error.message.contains("no usable certificate"), "{error}");
}

#[tokio::test]
async fn proxies_are_used_but_not_for_loopback() {
    let server = ModelServer::start();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let settings = HttpSettings {
        proxy: ProxySettings {
            all: Some(format!("http://{address}")),
            ..ProxySettings::default()
        },
        ..HttpSettings::default()
    };
    server.push(Reply::text("direct"));
    assert_eq!(
        answer(&with(&server.base_url(), &settings)).await.0.text,
        "direct"
    );

    let proxied = std::thread::spawn(move || {
        let (socket, _) = proxy.accept().unwrap();
        let mut stream = BufReader::new(socket);
        let mut first = String::new();
        stream.read_line(&mut first).unwrap();
        serve_one(&mut stream).unwrap();
        first
    });
    assert_eq!(
        answer(&with("http://model.invalid/v1", &settings))
            .await
            .0
            .text,
        "hi"
    );
    let first = proxied.join().unwrap();
    assert_eq!(
        first.trim(),
        "POST http://model.invalid/v1/chat/completions HTTP/1.1"
    );
}
