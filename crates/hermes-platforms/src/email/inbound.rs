//! Receives mail.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};

use super::account::EmailAccount;
use super::imap::{IdleEnd, ImapError, ImapMailbox, SelectedMailbox};
use super::message::{self, IgnoreReason, MailPosition};
use super::state::{EmailState, MailboxCursor};
use crate::platform::{AdapterLink, FatalPlatformError, InboundAdapter, PlatformState};

/// The first pause after a broken connection; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_mins(5);
/// Timeout for the logout of a cancelled connection.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(3);
/// Refused logins in a row after which the password is wrong, if no login ever worked.
const MAX_REFUSALS: u32 = 2;
/// More mails of one sender within [`LOOP_WINDOW`] indicate a mail loop.
const LOOP_MAILS: usize = 30;
const LOOP_WINDOW: f64 = 600.0;
/// Senders that are counted.
const MAX_COUNTED_SENDERS: usize = 1_000;
/// After a change of UIDVALIDITY, mail from this long before our last check is read again; known
/// mail is recognised by its id.
const OVERLAP_SECONDS: f64 = 3_600.0;

pub(super) struct EmailInbox {
    account: Arc<EmailAccount>,
    state: EmailState,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Times of the latest mails by sender.
    senders: HashMap<String, VecDeque<f64>>,
}

/// Why a connection ended.
enum MailConnectionEnd {
    Cancelled,
    Broken(String),
    Refused(String),
    /// The state cannot be stored.
    NotKept(String),
}

impl From<ImapError> for MailConnectionEnd {
    fn from(error: ImapError) -> Self {
        match error {
            ImapError::Login { .. } => Self::Refused(error.to_string()),
            other => Self::Broken(other.to_string()),
        }
    }
}

impl InboundAdapter for EmailInbox {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move { self.supervise(link).await })
    }
}

impl EmailInbox {
    pub(super) fn new(
        account: Arc<EmailAccount>,
        state: EmailState,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self {
            account,
            state,
            clock,
            rng,
            senders: HashMap::new(),
        }
    }

    /// Runs and reconnects until cancelled.
    async fn supervise(mut self, link: AdapterLink) -> Result<(), FatalPlatformError> {
        if let Some(caution) = self.account.caution() {
            tracing::warn!("email: {caution}");
        }
        let (mut failures, mut refusals, mut was_in) = (0_u32, 0_u32, false);
        loop {
            let mut connected = false;
            let ended = self.connection(&link, &mut connected).await;
            was_in |= connected;
            failures = if connected {
                0
            } else {
                failures.saturating_add(1)
            };
            let error = match ended {
                MailConnectionEnd::Cancelled => return Ok(()),
                MailConnectionEnd::Broken(error) | MailConnectionEnd::NotKept(error) => error,
                MailConnectionEnd::Refused(error) => {
                    refusals += 1;
                    if !was_in && refusals >= MAX_REFUSALS {
                        return Err(FatalPlatformError(format!(
                            "{error}. Check EMAIL_ADDRESS and EMAIL_PASSWORD"
                        )));
                    }
                    error
                }
            };
            tracing::warn!("email: {error}");
            link.health.is(PlatformState::Retrying, Some(error));
            let doubled = FIRST_PAUSE
                .saturating_mul(1 << failures.saturating_sub(1).min(12))
                .min(MAX_PAUSE);
            tokio::select! {
                () = link.cancel.cancelled() => return Ok(()),
                () = tokio::time::sleep(doubled.mul_f64(0.5 + self.rng.unit() / 2.0)) => {}
            }
        }
    }

    /// One connection, from login to end. Cancellation does not wait for the server: interrupted
    /// work is repeated by the next process.
    async fn connection(&mut self, link: &AdapterLink, connected: &mut bool) -> MailConnectionEnd {
        let cancel = link.cancel.clone();
        let cut = async {
            cancel.cancelled().await;
            tokio::time::sleep(LOGOUT_TIMEOUT).await;
        };
        tokio::select! {
            ended = self.converse(link, connected) => match ended {
                Ok(()) => MailConnectionEnd::Cancelled,
                Err(end) => end,
            },
            () = cut => MailConnectionEnd::Cancelled,
        }
    }

    async fn converse(
        &mut self,
        link: &AdapterLink,
        connected: &mut bool,
    ) -> Result<(), MailConnectionEnd> {
        let account = Arc::clone(&self.account);
        let mut mail = tokio::select! {
            () = link.cancel.cancelled() => return Ok(()),
            mail = ImapMailbox::connect(&account) => mail?,
        };
        let selected = mail.open("INBOX", account.mark_seen).await?;
        let mut cursor = self.start(&mut mail, selected).await?;
        *connected = true;
        loop {
            link.health.received(self.clock.epoch_seconds());
            self.catch_up(&mut mail, &mut cursor, link).await?;
            let (open, woken) = mail.wait(&account, &link.cancel).await?;
            mail = open;
            if matches!(woken, IdleEnd::Cancelled) {
                mail.close().await;
                return Ok(());
            }
        }
    }

    /// The initial position.
    async fn start(
        &self,
        mail: &mut ImapMailbox,
        selected: SelectedMailbox,
    ) -> Result<MailboxCursor, MailConnectionEnd> {
        let now = self.clock.epoch_seconds();
        let cursor = match self.state.cursor() {
            Some(known) if known.validity == selected.validity => return Ok(known),
            Some(known) => {
                tracing::warn!(
                    "email: the mailbox renumbered its mails; mail since the last check is read"
                );
                MailboxCursor {
                    validity: selected.validity,
                    uid: 0,
                    not_before: known.not_before.max(known.looked_at - OVERLAP_SECONDS),
                    looked_at: known.looked_at,
                }
            }
            None => {
                let newest = match selected.next {
                    Some(next) => next.saturating_sub(1),
                    None if selected.exists == 0 => 0,
                    None => mail.search("ALL").await?.last().copied().unwrap_or(0),
                };
                MailboxCursor {
                    validity: selected.validity,
                    uid: newest,
                    not_before: 0.0,
                    looked_at: now,
                }
            }
        };
        self.keep(cursor).await?;
        Ok(cursor)
    }

    /// Handles all new mails.
    async fn catch_up(
        &mut self,
        mail: &mut ImapMailbox,
        cursor: &mut MailboxCursor,
        link: &AdapterLink,
    ) -> Result<(), MailConnectionEnd> {
        let looked_at = self.clock.epoch_seconds();
        let query = if cursor.uid == 0 && cursor.not_before > 0.0 {
            // Dates are in the server's time zone, so one extra day is read.
            let day = DateTime::<Utc>::from_timestamp(cursor.not_before as i64 - 86_400, 0)
                .unwrap_or_default();
            format!("SINCE {}", day.format("%-d-%b-%Y"))
        } else {
            format!("UID {}:*", cursor.uid.saturating_add(1))
        };
        for uid in mail.search(&query).await? {
            // `*` is the last mail, even if it is old.
            if uid <= cursor.uid {
                continue;
            }
            if link.cancel.is_cancelled() {
                return Ok(());
            }
            self.deal_with(mail, *cursor, uid, link).await?;
            cursor.uid = uid;
            self.keep(*cursor).await?;
            link.health.received(self.clock.epoch_seconds());
        }
        // Stored occasionally only: needed when UIDVALIDITY changes, where hours are precise
        // enough.
        if looked_at - cursor.looked_at > OVERLAP_SECONDS / 4.0 {
            cursor.looked_at = looked_at;
            self.keep(*cursor).await?;
        }
        Ok(())
    }

    async fn keep(&self, cursor: MailboxCursor) -> Result<(), MailConnectionEnd> {
        self.state
            .set_cursor(cursor)
            .await
            .map_err(MailConnectionEnd::NotKept)
    }

    /// Handles or ignores a mail. After `Ok`, it is never read again.
    async fn deal_with(
        &mut self,
        mail: &mut ImapMailbox,
        cursor: MailboxCursor,
        uid: u32,
        link: &AdapterLink,
    ) -> Result<(), MailConnectionEnd> {
        let account = Arc::clone(&self.account);
        let Some(described) = mail.describe(uid).await? else {
            return Ok(());
        };
        let arrived = described.arrived.map(|at| at.timestamp() as f64);
        if arrived.is_some_and(|at| at < cursor.not_before) {
            return Ok(());
        }
        let from = match message::sender(&account, &described.header) {
            Ok(from) => from,
            Err(why @ IgnoreReason::Unproven(_)) => {
                tracing::warn!(uid, "email: a mail is left alone: {why}");
                return Ok(());
            }
            Err(why) => {
                tracing::info!(uid, "email: a mail is left alone: {why}");
                return Ok(());
            }
        };
        let Some(raw) = mail.read(uid, described.bytes, account.max_bytes).await? else {
            return Ok(());
        };
        let whole = described.bytes <= account.max_bytes;
        let position = MailPosition {
            validity: cursor.validity,
            uid,
        };
        let Some((mut message, thread)) = message::read(&account, position, &from, &raw, whole)
        else {
            tracing::warn!(uid, from, "email: a mail is left alone: it cannot be read");
            return Ok(());
        };
        if message.sent_at == 0.0 {
            message.sent_at = arrived.unwrap_or_else(|| self.clock.epoch_seconds());
        }
        if self.is_loop(&from, arrived.unwrap_or(message.sent_at)) {
            tracing::error!(
                uid,
                from,
                "email: a mail is left alone: more than {LOOP_MAILS} came from there within ten minutes, which looks like a loop"
            );
            return Ok(());
        }
        self.state
            .set_thread(&from, thread)
            .await
            .map_err(MailConnectionEnd::NotKept)?;
        if !link.deliver(message).await {
            if link.cancel.is_cancelled() {
                return Err(MailConnectionEnd::Cancelled);
            }
            return Err(MailConnectionEnd::NotKept(
                "a mail could not be stored; it comes again".to_owned(),
            ));
        }
        if account.mark_seen {
            mail.mark_seen(uid).await?;
        }
        Ok(())
    }

    /// Counts by arrival in the mailbox, so that a backlog is not mistaken for a loop.
    fn is_loop(&mut self, from: &str, arrived: f64) -> bool {
        if self.senders.len() >= MAX_COUNTED_SENDERS && !self.senders.contains_key(from) {
            let newest = |times: &VecDeque<f64>| times.back().copied().unwrap_or(0.0);
            let oldest = self
                .senders
                .iter()
                .min_by(|a, b| newest(a.1).total_cmp(&newest(b.1)));
            if let Some(oldest) = oldest.map(|(from, _)| from.clone()) {
                self.senders.remove(&oldest);
            }
        }
        let times = self.senders.entry(from.to_owned()).or_default();
        times.push_back(arrived);
        while times
            .front()
            .is_some_and(|first| arrived - first > LOOP_WINDOW)
            || times.len() > LOOP_MAILS + 1
        {
            times.pop_front();
        }
        times.len() > LOOP_MAILS
    }
}
