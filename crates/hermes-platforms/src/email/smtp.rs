//! Sends one mail step by step, so that a failure tells whether the mail was accepted.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::account::{EmailAccount, MailSecurity};
use super::wire::{self, MailStream, PregreetedStream};
use crate::platform::SendError;

/// Timeout before the mail itself is sent; nothing can have arrived until then.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(25);
/// Timeout for the mail and its confirmation.
const DELIVER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn send(
    account: &EmailAccount,
    to: &Address,
    mail: &[u8],
) -> Result<(), SendError> {
    let prepared = tokio::time::timeout(PREPARE_TIMEOUT, prepare(account, to, mail)).await;
    let mut connection = prepared.unwrap_or_else(|_| {
        Err(not_sent(format!(
            "{}: nothing within {} s",
            account.smtp.host,
            PREPARE_TIMEOUT.as_secs()
        )))
    })?;
    let delivered = tokio::time::timeout(DELIVER_TIMEOUT, connection.message(mail)).await;
    match delivered {
        Ok(Ok(_)) => {}
        // It answered, and the answer was no.
        Ok(Err(error)) if error.status().is_some() => return Err(answered(&error)),
        Ok(Err(error)) => return Err(SendError::Unclear(error.to_string())),
        Err(_) => {
            return Err(SendError::Unclear(format!(
                "{}: no answer to the mail within {} s",
                account.smtp.host,
                DELIVER_TIMEOUT.as_secs()
            )));
        }
    }
    // The mail is accepted; errors after that do not matter.
    let _ = tokio::time::timeout(Duration::from_secs(2), connection.quit()).await;
    Ok(())
}

/// Up to the point where the server accepts the mail data.
async fn prepare(
    account: &EmailAccount,
    to: &Address,
    mail: &[u8],
) -> Result<AsyncSmtpConnection, SendError> {
    let hello = ClientId::Domain(account.domain().to_owned());
    let stream = connect(account, &hello)
        .await
        .map_err(|error| not_sent(error.to_string()))?;
    let mut connection = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello)
        .await
        .map_err(|error| not_sent(error.to_string()))?;
    let credentials = Credentials::new(account.user.clone(), account.password.clone());
    let mechanisms = [Mechanism::Plain, Mechanism::Login];
    if let Err(error) = connection.auth(&mechanisms, &credentials).await {
        // The password may be corrected while the mail waits.
        return Err(not_sent(format!(
            "{} refuses the login: {error}",
            account.smtp.host
        )));
    }
    let from: Address = account
        .address
        .parse()
        .map_err(|error| SendError::Refused(format!("{}: {error}", account.address)))?;
    let mut options = Vec::new();
    if !mail.is_ascii()
        && connection
            .server_info()
            .supports_feature(Extension::EightBitMime)
    {
        options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let step = |error: lettre::transport::smtp::Error| match error.status() {
        Some(_) => answered(&error),
        None => not_sent(error.to_string()),
    };
    connection
        .command(Mail::new(Some(from), options))
        .await
        .map_err(step)?;
    connection
        .command(Rcpt::new(to.clone(), Vec::new()))
        .await
        .map_err(step)?;
    connection.command(Data).await.map_err(step)?;
    Ok(connection)
}

/// A refusal by the server: temporary or permanent.
fn answered(error: &lettre::transport::smtp::Error) -> SendError {
    if error.is_permanent() {
        return SendError::Refused(error.to_string());
    }
    not_sent(error.to_string())
}

fn not_sent(error: String) -> SendError {
    SendError::NotSent {
        error,
        retry_after: None,
    }
}

async fn connect(account: &EmailAccount, hello: &ClientId) -> io::Result<SmtpConnection> {
    let server = &account.smtp;
    let mut tcp = wire::connect(server).await?;
    let peer = tcp.peer_addr()?;
    let stream: MailStream = match server.security {
        MailSecurity::Implicit => wire::encrypt(account, server, tcp).await?,
        MailSecurity::Off => Box::new(tcp),
        MailSecurity::StartTls => {
            start_tls(&mut tcp, hello).await?;
            let encrypted = wire::encrypt(account, server, tcp).await?;
            // After STARTTLS the server does not greet again, and the rest expects that it does.
            Box::new(PregreetedStream::new(b"220 encrypted\r\n", encrypted))
        }
    };
    Ok(SmtpConnection { stream, peer })
}

/// Requests STARTTLS. Read byte by byte, so that data sent before the encryption is not mistaken
/// for data after it.
async fn start_tls(stream: &mut TcpStream, hello: &ClientId) -> io::Result<()> {
    reply(stream, "220").await?;
    stream
        .write_all(format!("EHLO {hello}\r\n").as_bytes())
        .await?;
    let offered = reply(stream, "250").await?;
    if !offered.lines().any(|line| {
        line.get(4..)
            .is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"))
    }) {
        return Err(io::Error::other(
            "the mail server offers no STARTTLS on this port; port 465 (EMAIL_SMTP_PORT) is encrypted from the start",
        ));
    }
    stream.write_all(b"STARTTLS\r\n").await?;
    reply(stream, "220").await?;
    Ok(())
}

async fn reply(stream: &mut TcpStream, code: &str) -> io::Result<String> {
    const MAX_REPLY_BYTES: usize = 16 * 1024;
    let mut text = String::new();
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        line.push(byte);
        if text.len() + line.len() > MAX_REPLY_BYTES {
            return Err(io::Error::other("the mail server does not stop talking"));
        }
        if byte != b'\n' {
            continue;
        }
        text.push_str(&String::from_utf8_lossy(&line));
        if line.get(3) != Some(&b'-') {
            break;
        }
        line.clear();
    }
    if !text.starts_with(code) {
        return Err(io::Error::other(text.trim().to_owned()));
    }
    Ok(text)
}

/// Adapts our connection to the SMTP library.
#[derive(Debug)]
struct SmtpConnection {
    stream: MailStream,
    peer: SocketAddr,
}

impl AsyncTokioStream for SmtpConnection {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for SmtpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SmtpConnection {
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
