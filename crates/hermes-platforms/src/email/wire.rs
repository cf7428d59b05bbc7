//! Connections to mail servers: implicit TLS, STARTTLS, or none (only to this machine).

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::account::{EmailAccount, MailHost};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) trait MailIo: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug> MailIo for T {}

/// A connection, independent of its transport.
pub(super) type MailStream = Box<dyn MailIo>;

pub(super) async fn connect(server: &MailHost) -> io::Result<TcpStream> {
    let what = || format!("{}:{}", server.host, server.port);
    let connected = tokio::time::timeout(
        CONNECT_TIMEOUT,
        TcpStream::connect((server.host.as_str(), server.port)),
    )
    .await;
    let stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) async fn encrypt(
    account: &EmailAccount,
    server: &MailHost,
    stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug + 'static,
) -> io::Result<MailStream> {
    let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config(account).map_err(io::Error::other)?));
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(name, stream))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| {
            io::Error::new(error.kind(), format!("TLS with {}: {error}", server.host))
        })?;
    Ok(Box::new(stream))
}

fn config(account: &EmailAccount) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match &account.ca_file {
        None => rustls_platform_verifier::Verifier::new(Arc::clone(&provider)),
        Some(path) => {
            let read = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let roots = read.map_err(|error| format!("{}: {error}", path.display()))?;
            rustls_platform_verifier::Verifier::new_with_extra_roots(roots, Arc::clone(&provider))
        }
    }
    .map_err(|error| error.to_string())?;
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(config)
}

/// A connection with a greeting that was read already.
#[derive(Debug)]
pub(super) struct PregreetedStream<S> {
    greeting: &'static [u8],
    stream: S,
}

impl<S> PregreetedStream<S> {
    pub(super) fn new(greeting: &'static [u8], stream: S) -> Self {
        Self { greeting, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PregreetedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.greeting.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let (now, later) = self
            .greeting
            .split_at(self.greeting.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.greeting = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PregreetedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
