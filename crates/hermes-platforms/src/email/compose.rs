//! Builds an email from a reply: text, HTML, headers of the thread.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, Message, MultiPart, SinglePart};
use lettre::{Address, address::AddressError};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use super::account::EmailAccount;
use super::message::is_answer;
use super::state::MailThread;
use crate::markup::render;
use crate::platform::{Markup, OutgoingMessage};

/// Of a mail that answers none.
const SUBJECT: &str = "Hermes";

/// Identical for every attempt, so that duplicates are recognisable.
pub(super) fn message_id(account: &EmailAccount, key: &str) -> String {
    format!("{}{key}@{}", super::OWN_ID, account.domain())
}

/// `now`: seconds since the epoch. `Err`: it cannot be sent as mail at all.
pub(super) fn compose(
    account: &EmailAccount,
    outgoing: &OutgoingMessage,
    thread: Option<&MailThread>,
    now: f64,
) -> Result<(Address, Vec<u8>), String> {
    let address = |text: &str| {
        let parsed: Result<Address, AddressError> = text.parse();
        parsed.map_err(|error| format!("{text:?} is not an address: {error}"))
    };
    let to = address(&outgoing.target.chat_id)?;
    let date: SystemTime = UNIX_EPOCH + Duration::from_secs_f64(now.max(0.0));
    let from = Mailbox::new(account.display_name.clone(), address(&account.address)?);
    let mut builder = Message::builder()
        .from(from)
        .to(Mailbox::new(None, to.clone()))
        .subject(subject(thread))
        .date(date)
        .message_id(Some(format!("<{}>", message_id(account, &outgoing.key))))
        // Machines that answer machines stop here (RFC 3834).
        .raw_header(header(
            "Auto-Submitted",
            if thread.is_some() {
                "auto-replied"
            } else {
                "auto-generated"
            },
        )?)
        .raw_header(header("X-Auto-Response-Suppress", "All")?);
    // The mail to reply to: as given, else the last mail of the person.
    let answered = match (&outgoing.reply_to, thread) {
        (Some(id), _) => Some(id.clone()),
        (None, thread) => thread.map(|thread| thread.message_id.clone()),
    };
    if let Some(answered) = answered {
        let mut chain: Vec<String> = match thread {
            Some(thread) if thread.message_id == answered => thread.references.clone(),
            _ => Vec::new(),
        };
        chain.push(answered.clone());
        let chain: Vec<String> = chain.iter().map(|id| format!("<{id}>")).collect();
        builder = builder
            .in_reply_to(format!("<{answered}>"))
            .references(chain.join(" "));
    }
    let plain = match outgoing.markup {
        Markup::Plain => outgoing.text.clone(),
        _ => render(Markup::Plain, &outgoing.text),
    };
    let text = MultiPart::alternative_plain_html(plain, page(&outgoing.text));
    let message = match &outgoing.media {
        None => builder.multipart(text),
        Some(media) => builder.multipart(
            MultiPart::mixed()
                .multipart(text)
                .singlepart(attachment(&media.path)?),
        ),
    };
    Ok((to, message.map_err(|error| error.to_string())?.formatted()))
}

fn header(name: &'static str, value: &str) -> Result<HeaderValue, String> {
    let name = HeaderName::new_from_ascii(name.to_owned()).map_err(|error| error.to_string())?;
    Ok(HeaderValue::new(name, value.to_owned()))
}

fn subject(thread: Option<&MailThread>) -> String {
    match thread.map(|thread| thread.subject.trim()) {
        None | Some("") => SUBJECT.to_owned(),
        Some(subject) if is_answer(subject) => subject.to_owned(),
        Some(subject) => format!("Re: {subject}"),
    }
}

fn attachment(path: &Path) -> Result<SinglePart, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_name().map_or_else(
        || "file".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let kind = ContentType::parse(mime(&name)).map_err(|error| error.to_string())?;
    Ok(Attachment::new(name).body(bytes, kind))
}

/// MIME types of common extensions; mail programs handle the others.
fn mime(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "zip" => "application/zip",
        "mp3" => "audio/mpeg",
        "ogg" | "opus" => "audio/ogg",
        "wav" => "audio/wav",
        "m4a" => "audio/mp4",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

/// Markdown as HTML. Embedded HTML is escaped; remote images become links, so that opening a mail
/// does not reveal anything; only common link schemes are allowed.
fn page(markdown: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(markdown, options).map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::SoftBreak => Event::HardBreak,
        Event::Start(
            Tag::Image {
                link_type,
                dest_url,
                title,
                id,
            }
            | Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            },
        ) => Event::Start(Tag::Link {
            link_type,
            dest_url: safe(dest_url),
            title,
            id,
        }),
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        event => event,
    });
    let mut body = String::new();
    html::push_html(&mut body, events);
    format!(
        "<!DOCTYPE html><html><head><meta charset=\"utf-8\"></head>\
         <body style=\"font-family:sans-serif;line-height:1.45\">{body}</body></html>"
    )
}

fn safe(url: CowStr<'_>) -> CowStr<'_> {
    let scheme = url
        .split_once(':')
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    if matches!(scheme.as_deref(), Some("http" | "https" | "mailto")) {
        return url;
    }
    CowStr::Borrowed("#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_shown_and_nothing_is_loaded() {
        let page = page(
            "**b** <script>x</script>\n\n![p](https://x.org/a.png) [l](javascript:1) [m](https://y.org)\n\n| a |\n|---|\n| 1 |",
        );
        for there in [
            "<strong>b</strong>",
            "&lt;script&gt;",
            "<a href=\"https://x.org/a.png\">p</a>",
            "<a href=\"#\">l</a>",
            "href=\"https://y.org\"",
            "<td>1</td>",
        ] {
            assert!(page.contains(there), "{there} in {page}");
        }
        for missing in ["<script", "<img", "javascript:"] {
            assert!(!page.contains(missing), "{missing} in {page}");
        }
    }

    #[test]
    fn a_thread_keeps_its_subject() {
        let thread = |subject: &str| MailThread {
            subject: subject.to_owned(),
            ..MailThread::default()
        };
        for (given, answer) in [
            ("Hi", "Re: Hi"),
            ("RE: Hi", "RE: Hi"),
            ("AW: Hi", "AW: Hi"),
            ("", SUBJECT),
        ] {
            assert_eq!(subject(Some(&thread(given))), answer);
        }
        assert_eq!(subject(None), SUBJECT);
    }
}
