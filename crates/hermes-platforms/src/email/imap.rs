//! IMAP access. Every step has a deadline, so that a dead server is noticed.

use std::future::Future;
use std::time::Duration;

use async_imap::extensions::idle::IdleResponse;
use async_imap::types::{Fetch, NameAttribute};
use async_imap::{Client, Session};
use chrono::{DateTime, FixedOffset};
use futures_util::TryStreamExt as _;
use tokio_util::sync::CancellationToken;

use super::account::{EmailAccount, MailSecurity};
use super::wire::{self, MailStream};

/// Timeout for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum transfer rate of a mail.
const MIN_BYTES_PER_SECOND: u64 = 32 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum ImapError {
    /// The server refused the login.
    #[error("the server refuses the login of {user}: {answer}")]
    Login { user: String, answer: String },
    #[error("{what}: {error}")]
    Broken { what: &'static str, error: String },
    #[error("{what}: no answer within {seconds} s")]
    Silent { what: &'static str, seconds: u64 },
}

/// The text of a failure.
struct ImapErrorText(String);

impl From<&str> for ImapErrorText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<std::io::Error> for ImapErrorText {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<async_imap::error::Error> for ImapErrorText {
    fn from(error: async_imap::error::Error) -> Self {
        Self(error.to_string())
    }
}

impl ImapError {
    fn broken(what: &'static str, error: impl Into<ImapErrorText>) -> Self {
        Self::Broken {
            what,
            error: error.into().0,
        }
    }
}

/// An open mailbox.
pub(super) struct ImapMailbox {
    session: Session<MailStream>,
    /// The server supports IDLE.
    can_idle: bool,
}

/// The result of `SELECT`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectedMailbox {
    pub validity: u32,
    /// The UID of the next mail, if known.
    pub next: Option<u32>,
    pub exists: u32,
}

/// A mail as the server describes it.
pub(super) struct MailDescription {
    pub bytes: u32,
    pub arrived: Option<DateTime<FixedOffset>>,
    pub header: Vec<u8>,
}

pub(super) enum IdleEnd {
    /// There may be mail.
    Changed,
    Cancelled,
}

impl ImapMailbox {
    pub(super) async fn connect(account: &EmailAccount) -> Result<Self, ImapError> {
        let server = &account.imap;
        let connecting = "connecting to the IMAP server";
        let broken = |error: std::io::Error| ImapError::broken(connecting, error);
        let tcp = wire::connect(server).await.map_err(broken)?;
        let stream: MailStream = match server.security {
            MailSecurity::Implicit => wire::encrypt(account, server, tcp).await.map_err(broken)?,
            MailSecurity::StartTls | MailSecurity::Off => Box::new(tcp),
        };
        let mut client = Client::new(stream);
        let greeting = within(connecting, STEP_TIMEOUT, client.read_response()).await?;
        if greeting.map_err(broken)?.is_none() {
            return Err(ImapError::broken(connecting, "it closed the connection"));
        }
        if server.security == MailSecurity::StartTls {
            let asked = within(
                "STARTTLS",
                STEP_TIMEOUT,
                client.run_command_and_check_ok("STARTTLS", None),
            )
            .await?;
            asked.map_err(|error| ImapError::broken("STARTTLS", error))?;
            // Data sent before the encryption is discarded with the buffer.
            let stream = wire::encrypt(account, server, client.into_inner())
                .await
                .map_err(broken)?;
            client = Client::new(stream);
        }
        let login = within(
            "logging in",
            STEP_TIMEOUT,
            client.login(&account.user, &account.password),
        )
        .await?;
        let mut session = login.map_err(|(error, _)| match error {
            async_imap::error::Error::No(answer) if !is_passing(&answer) => ImapError::Login {
                user: account.user.clone(),
                answer,
            },
            error => ImapError::broken("logging in", error),
        })?;
        let capabilities = within(
            "asking for capabilities",
            STEP_TIMEOUT,
            session.capabilities(),
        )
        .await?;
        let capabilities =
            capabilities.map_err(|error| ImapError::broken("asking for capabilities", error))?;
        if capabilities.has_str("ID") {
            // Some providers require an ID command.
            let name = [
                ("name", Some("hermes")),
                ("version", Some(env!("CARGO_PKG_VERSION"))),
            ];
            let _ = within("ID", STEP_TIMEOUT, session.id(name)).await?;
        }
        let can_idle = capabilities.has_str("IDLE");
        Ok(Self { session, can_idle })
    }

    /// Opens the inbox, to change flags or only to read.
    pub(super) async fn open(
        &mut self,
        folder: &str,
        write: bool,
    ) -> Result<SelectedMailbox, ImapError> {
        let what = "opening the mailbox";
        let opened = if write {
            within(what, STEP_TIMEOUT, self.session.select(folder)).await?
        } else {
            within(what, STEP_TIMEOUT, self.session.examine(folder)).await?
        };
        let mailbox = opened.map_err(|error| ImapError::broken(what, error))?;
        let Some(validity) = mailbox.uid_validity else {
            return Err(ImapError::broken(
                what,
                "the server has no lasting numbers for mails (UIDVALIDITY)",
            ));
        };
        Ok(SelectedMailbox {
            validity,
            next: mailbox.uid_next,
            exists: mailbox.exists,
        })
    }

    /// Numbers of mails, lowest first.
    pub(super) async fn search(&mut self, query: &str) -> Result<Vec<u32>, ImapError> {
        let what = "searching the mailbox";
        let found = within(what, STEP_TIMEOUT, self.session.uid_search(query)).await?;
        let mut found: Vec<u32> = found
            .map_err(|error| ImapError::broken(what, error))?
            .into_iter()
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    /// `None`: the mail is gone.
    pub(super) async fn describe(
        &mut self,
        uid: u32,
    ) -> Result<Option<MailDescription>, ImapError> {
        let query = "(UID INTERNALDATE RFC822.SIZE BODY.PEEK[HEADER])";
        let fetched = self.fetch(uid, query, STEP_TIMEOUT).await?;
        Ok(fetched.map(|fetch| MailDescription {
            bytes: fetch.size.unwrap_or(0),
            arrived: fetch.internal_date(),
            header: fetch.header().unwrap_or_default().to_vec(),
        }))
    }

    /// Up to this many bytes of a mail, which stays unread. `None`: it is gone.
    pub(super) async fn read(
        &mut self,
        uid: u32,
        bytes: u32,
        max: u32,
    ) -> Result<Option<Vec<u8>>, ImapError> {
        let query = if bytes > max {
            format!("(UID BODY.PEEK[]<0.{max}>)")
        } else {
            "(UID BODY.PEEK[])".to_owned()
        };
        let patience =
            STEP_TIMEOUT + Duration::from_secs(u64::from(bytes.min(max)) / MIN_BYTES_PER_SECOND);
        let fetched = self.fetch(uid, &query, patience).await?;
        Ok(fetched.and_then(|fetch| fetch.body().map(<[u8]>::to_vec)))
    }

    async fn fetch(
        &mut self,
        uid: u32,
        query: &str,
        patience: Duration,
    ) -> Result<Option<Fetch>, ImapError> {
        let what = "reading a mail";
        let all = async {
            let stream = self.session.uid_fetch(uid.to_string(), query).await?;
            // The server may also report other mails.
            stream.try_collect::<Vec<Fetch>>().await
        };
        let fetched = within(what, patience, all).await?;
        let fetched = fetched.map_err(|error| ImapError::broken(what, error))?;
        Ok(fetched.into_iter().find(|fetch| fetch.uid == Some(uid)))
    }

    /// Marks a mail as read, if the mailbox allows it.
    pub(super) async fn mark_seen(&mut self, uid: u32) -> Result<(), ImapError> {
        let what = "marking a mail as read";
        let all = async {
            let stream = self
                .session
                .uid_store(uid.to_string(), "+FLAGS.SILENT (\\Seen)")
                .await?;
            stream.try_collect::<Vec<Fetch>>().await
        };
        match within(what, STEP_TIMEOUT, all).await? {
            Ok(_) => Ok(()),
            Err(async_imap::error::Error::No(answer)) => {
                tracing::debug!("{what}: {answer}");
                Ok(())
            }
            Err(error) => Err(ImapError::broken(what, error)),
        }
    }

    /// Waits until there may be new mail: by notification or timeout.
    pub(super) async fn wait(
        self,
        account: &EmailAccount,
        cancel: &CancellationToken,
    ) -> Result<(Self, IdleEnd), ImapError> {
        if !self.can_idle {
            return self.pause(account.poll, cancel).await;
        }
        let what = "waiting for mail";
        let mut idle = self.session.idle();
        let initialized = within(what, STEP_TIMEOUT, idle.init()).await?;
        initialized.map_err(|error| ImapError::broken(what, error))?;
        let woken = {
            let (news, _stop) = idle.wait_with_timeout(account.idle);
            tokio::select! {
                () = cancel.cancelled() => IdleEnd::Cancelled,
                // Keepalives of the server do not extend the timeout.
                () = tokio::time::sleep(account.idle) => IdleEnd::Changed,
                news = news => match news.map_err(|error| ImapError::broken(what, error))? {
                    IdleResponse::ManualInterrupt => {
                        return Err(ImapError::broken(what, "the server closed the connection"));
                    }
                    IdleResponse::Timeout | IdleResponse::NewData(_) => IdleEnd::Changed,
                }
            }
        };
        if matches!(woken, IdleEnd::Cancelled) {
            // The connection is dropped.
            let session = within(what, Duration::from_secs(2), idle.done()).await?;
            let session = session.map_err(|error| ImapError::broken(what, error))?;
            return Ok((
                Self {
                    session,
                    can_idle: true,
                },
                woken,
            ));
        }
        let session = within(what, STEP_TIMEOUT, idle.done()).await?;
        let session = session.map_err(|error| ImapError::broken(what, error))?;
        Ok((
            Self {
                session,
                can_idle: true,
            },
            woken,
        ))
    }

    async fn pause(
        mut self,
        pause: Duration,
        cancel: &CancellationToken,
    ) -> Result<(Self, IdleEnd), ImapError> {
        tokio::select! {
            () = cancel.cancelled() => return Ok((self, IdleEnd::Cancelled)),
            () = tokio::time::sleep(pause) => {}
        }
        let noop = within("asking for news", STEP_TIMEOUT, self.session.noop()).await?;
        noop.map_err(|error| ImapError::broken("asking for news", error))?;
        Ok((self, IdleEnd::Changed))
    }

    /// The provider's folder of sent mail.
    pub(super) async fn sent_folder(&mut self) -> Result<Option<String>, ImapError> {
        let what = "listing folders";
        let all = async {
            let stream = self.session.list(None, Some("*")).await?;
            stream.try_collect::<Vec<_>>().await
        };
        let names = within(what, STEP_TIMEOUT, all)
            .await?
            .map_err(|error| ImapError::broken(what, error))?;
        let special = names
            .iter()
            .find(|name| name.attributes().contains(&NameAttribute::Sent));
        let usual = || {
            let known = [
                "sent",
                "sent items",
                "sent messages",
                "sent mail",
                "inbox.sent",
                "[gmail]/sent mail",
            ];
            names
                .iter()
                .find(|name| known.contains(&name.name().to_ascii_lowercase().as_str()))
        };
        Ok(special.or_else(usual).map(|name| name.name().to_owned()))
    }

    pub(super) async fn close(mut self) {
        let _ = within("logging out", Duration::from_secs(2), self.session.logout()).await;
    }
}

/// Refusals that do not concern the password (RFC 5530).
fn is_passing(answer: &str) -> bool {
    let answer = answer.to_ascii_uppercase();
    [
        "[UNAVAILABLE]",
        "[INUSE]",
        "[LIMIT]",
        "[SERVERBUG]",
        "[CONTACTADMIN]",
        "TOO MANY",
    ]
    .iter()
    .any(|word| answer.contains(word))
}

async fn within<T>(
    what: &'static str,
    patience: Duration,
    work: impl Future<Output = T>,
) -> Result<T, ImapError> {
    tokio::time::timeout(patience, work)
        .await
        .map_err(|_| ImapError::Silent {
            what,
            seconds: patience.as_secs(),
        })
}
