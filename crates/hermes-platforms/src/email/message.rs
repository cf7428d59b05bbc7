//! Converts an email to an incoming message.

use mail_parser::{Address, HeaderValue, Message, MessageParser, MimeHeaders as _};

use super::account::EmailAccount;
use super::state::{MAX_REFERENCES, MailThread};
use super::{automated, proof, quote};
use crate::platform::{IncomingMessage, MediaKind, MediaRef, ReplyTo};
use crate::source::MessageSource;

/// Maximum lengths of a mail's text and of its quoted context.
const MAX_TEXT_BYTES: usize = 100_000;
const MAX_QUOTE_BYTES: usize = 8_000;

/// The position of a mail in the mailbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct MailPosition {
    pub validity: u32,
    pub uid: u32,
}

/// Why a mail is ignored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IgnoreReason {
    Own,
    Automated(String),
    Unproven(String),
    Unreadable(&'static str),
}

impl std::fmt::Display for IgnoreReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own => f.write_str("it is from us"),
            Self::Automated(why) => write!(f, "it is automated: {why}"),
            Self::Unproven(why) => write!(
                f,
                "{why}. If your mail server writes no Authentication-Results, EMAIL_TRUST_FROM_HEADER=true accepts that anyone can pretend to be the sender"
            ),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

pub(super) fn parse(raw: &[u8]) -> Option<Message<'_>> {
    MessageParser::default().parse(raw)
}

/// Decides by the header alone, before anything else is read. `Ok`: the sender's address.
pub(super) fn sender(account: &EmailAccount, header: &[u8]) -> Result<String, IgnoreReason> {
    let Some(message) = parse(header) else {
        return Err(IgnoreReason::Unreadable("its header cannot be read"));
    };
    let froms = message
        .header_values("From")
        .filter_map(HeaderValue::as_address);
    let addresses: Vec<String> = froms
        .flat_map(Address::iter)
        .filter_map(|address| address.address())
        .map(|address| address.trim().to_lowercase())
        .collect();
    // With several senders it is unclear which one was authenticated.
    let [from] = addresses.as_slice() else {
        return Err(IgnoreReason::Unreadable(
            "it does not have exactly one sender",
        ));
    };
    if *from == account.address {
        return Err(IgnoreReason::Own);
    }
    if let Some(why) = automated::reason(&message, from) {
        return Err(IgnoreReason::Automated(why));
    }
    if let Some(wanted) = &account.proof {
        let results: Vec<String> = message
            .headers_raw()
            .filter(|(name, _)| name.eq_ignore_ascii_case("Authentication-Results"))
            .map(|(_, value)| value.to_owned())
            .collect();
        proof::check(wanted, from, &results).map_err(IgnoreReason::Unproven)?;
    }
    Ok(from.clone())
}

/// A mail whose sender is decided, as a message, and the thread that an answer continues.
pub(super) fn read(
    account: &EmailAccount,
    position: MailPosition,
    from: &str,
    raw: &[u8],
    whole: bool,
) -> Option<(IncomingMessage, MailThread)> {
    let message = parse(raw)?;
    let name = message
        .from()
        .and_then(Address::first)
        .and_then(|address| address.name())
        .map_or(from, str::trim)
        .to_owned();
    let message_id = message.message_id().map_or_else(
        || format!("{}.{}@imap", position.validity, position.uid),
        str::to_owned,
    );
    let answered = ids(message.in_reply_to());
    let subject = message.subject().unwrap_or_default().trim().to_owned();
    let mail_parts = quote::split(&body(&message));
    let media = media(account, &message, position, &message_id);
    let incoming = IncomingMessage {
        account: String::new(),
        message_id: message_id.clone(),
        source: MessageSource {
            platform: super::NAME.to_owned(),
            chat_id: from.to_owned(),
            chat_name: Some(name.clone()),
            chat_type: "dm".to_owned(),
            user_id: Some(from.to_owned()),
            user_name: Some(name),
            ..MessageSource::default()
        },
        text: text(&subject, &mail_parts.text, !media.is_empty(), whole),
        media,
        reply_to: answered.last().map(|id| ReplyTo {
            message_id: id.clone(),
            text: None,
            own: id.starts_with(super::OWN_ID) && id.ends_with(account.domain()),
        }),
        pressed: None,
        context: Some(cut(&mail_parts.around, MAX_QUOTE_BYTES).to_owned())
            .filter(|around| !around.is_empty()),
        sent_at: message
            .date()
            .map_or(0.0, |date| date.to_timestamp() as f64),
        native: serde_json::Value::Null,
    };
    let mut references = ids(message.references());
    for id in answered {
        if !references.contains(&id) {
            references.push(id);
        }
    }
    references.drain(..references.len().saturating_sub(MAX_REFERENCES));
    let thread = MailThread {
        message_id,
        subject,
        references,
        ..MailThread::default()
    };
    Some((incoming, thread))
}

/// A new subject is part of the text; that of a reply is known. A command has no subject.
fn text(subject: &str, body: &str, media: bool, whole: bool) -> String {
    let body = cut(body, MAX_TEXT_BYTES);
    let mut text = match body {
        "" if media || !subject.is_empty() => String::new(),
        "" => "(an empty mail)".to_owned(),
        body => body.to_owned(),
    };
    if !subject.is_empty() && !is_answer(subject) && !text.starts_with('/') {
        text = format!("[Subject: {subject}]\n\n{text}");
        text.truncate(text.trim_end().len());
    }
    if !whole {
        text.push_str("\n\n[The mail is larger than the limit; its end is missing.]");
    }
    text
}

/// `Re:` and its like in other languages.
pub(super) fn is_answer(subject: &str) -> bool {
    let beginning = subject
        .split_once(':')
        .map(|(beginning, _)| beginning.trim().to_lowercase());
    let words = ["re", "aw", "sv", "antw", "rif", "ref", "odp", "res"];
    beginning.is_some_and(|beginning| words.contains(&beginning.as_str()))
}

fn body(message: &Message<'_>) -> String {
    let parts = (0..message.text_body_count()).filter_map(|at| message.body_text(at));
    parts.collect::<Vec<_>>().join("\n\n")
}

fn media(
    account: &EmailAccount,
    message: &Message<'_>,
    position: MailPosition,
    message_id: &str,
) -> Vec<MediaRef> {
    if !account.attachments {
        return Vec::new();
    }
    let parts = message.attachments().enumerate();
    parts
        .map(|(at, part)| {
            let mime = part.content_type().map(|kind| match kind.subtype() {
                Some(subtype) => format!("{}/{subtype}", kind.ctype()),
                None => kind.ctype().to_owned(),
            });
            MediaRef {
                kind: mime
                    .as_deref()
                    .map_or(MediaKind::Document, MediaKind::of_mime),
                id: format!("{}:{}:{at}:{message_id}", position.validity, position.uid),
                name: part.attachment_name().map(str::to_owned),
                mime,
                bytes: Some(part.contents().len() as u64),
            }
        })
        .collect()
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    match value {
        HeaderValue::Text(id) => vec![id.to_string()],
        HeaderValue::TextList(ids) => ids.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
