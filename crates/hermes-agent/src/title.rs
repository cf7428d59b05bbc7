//! A name for a conversation, written by a helper model after the first exchange.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::model::{Collector, ModelClient, ModelRequest, ToolChoice};
use hermes_core::usage::Usage;
use tokio_util::sync::CancellationToken;

use crate::{compress, scrub};

/// How long the helper may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of each side that the helper is shown.
const EXCERPT_CHARS: usize = 500;
/// Longest title in characters.
const MAX_TITLE_CHARS: usize = 80;
/// A line of more words is an answer, not a title.
const MAX_TITLE_WORDS: usize = 16;

const TASK: &str = "\
Name the conversation that begins with the exchange below: three to seven words that say what it \
is about, so that it can be found in a list. Answer with the name alone, on one line, without \
quotation marks and without a full stop.";

/// The first exchange of a session.
#[derive(Clone, Debug)]
pub(crate) struct FirstExchange<'a> {
    pub session: SessionId,
    pub user: &'a str,
    pub answer: &'a str,
    /// `auxiliary.title_generation.language`; `None`: the user's.
    pub language: Option<&'a str>,
}

/// What came of it. The call is paid for, whether the title is of use or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TitleResult {
    pub title: Option<String>,
    pub usage: Option<Usage>,
}

/// Asks for a title. Every failure means that there is none: a conversation works without.
pub(crate) async fn generate(
    client: &dyn ModelClient,
    exchange: &FirstExchange<'_>,
    timeout: Duration,
    cancel: &CancellationToken,
) -> TitleResult {
    let scope = cancel.child_token();
    let _stop = scope.clone().drop_guard();
    let request = request(exchange);
    let work = async {
        let mut stream = client.stream(request, scope.clone());
        let mut collector = Collector::default();
        while let Some(event) = stream.next().await {
            collector.push(&event?);
        }
        Ok::<_, hermes_core::model::ModelError>(collector)
    };
    let collected = tokio::select! {
        biased;
        () = cancel.cancelled() => return TitleResult::default(),
        collected = tokio::time::timeout(timeout, work) => collected,
    };
    match collected {
        Ok(Ok(collector)) => {
            let (message, usage) = collector.finish();
            TitleResult {
                title: clean(&message.text),
                usage,
            }
        }
        Ok(Err(error)) => {
            tracing::info!(%error, "no title");
            TitleResult::default()
        }
        Err(_) => {
            tracing::info!("no title: the model took too long");
            TitleResult::default()
        }
    }
}

fn request(exchange: &FirstExchange<'_>) -> ModelRequest {
    let language = exchange
        .language
        .map(str::trim)
        .filter(|language| !language.is_empty())
        .map_or_else(
            || "Write in the language that the user writes in.".to_owned(),
            |language| format!("Write in {language}."),
        );
    let user = excerpt(compress::summary::visible(exchange.user));
    let answer = excerpt(exchange.answer);
    ModelRequest {
        session: exchange.session.clone(),
        system: Arc::from(format!("{TASK} {language}")),
        messages: vec![Arc::new(Message::user(format!(
            "User: {user}\n\nAgent: {answer}"
        )))],
        tools: Arc::from([]),
        tool_choice: ToolChoice::Auto,
        // Enough for a model that thinks before it names.
        max_tokens: Some(500),
        temperature: None,
        reasoning: None,
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

/// The title in a model's answer: its first line, without wrapping. `None`: there is none.
pub(crate) fn clean(answer: &str) -> Option<String> {
    let (shown, _) = scrub::scrub(answer);
    let line = shown.lines().map(bare).find(|line| !line.is_empty())?;
    if line.split_whitespace().count() > MAX_TITLE_WORDS {
        return None;
    }
    if line.chars().count() <= MAX_TITLE_CHARS {
        return Some(line);
    }
    let head: String = line.chars().take(MAX_TITLE_CHARS - 1).collect();
    let at_word = head.rfind(' ').filter(|at| *at > MAX_TITLE_CHARS / 2);
    let head = at_word.map_or(head.as_str(), |at| &head[..at]);
    Some(format!("{}…", head.trim_end()))
}

/// A line without labels, markup, quotation marks and control characters.
fn bare(line: &str) -> String {
    const WRAPPING: &[char] = &[
        '"', '\'', '`', '*', '_', '#', '«', '»', '“', '”', '„', '‘', '’', '「', '」', '『', '』',
        ' ', '-',
    ];
    let words: Vec<&str> = line
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    let line = line.trim_matches(WRAPPING);
    let line = match line.split_once(':') {
        Some((label, rest)) if label.trim_matches(WRAPPING).eq_ignore_ascii_case("title") => rest,
        _ => line,
    };
    line.trim_matches(WRAPPING)
        .trim_end_matches(['.', '。', ',', ';', ':'])
        .trim_end_matches(WRAPPING)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::tests::fake::{FakeModel, Reply};
    use hermes_core::model::ErrorClass;
    use pretty_assertions::assert_eq;

    #[test]
    fn titles_are_cleaned() {
        for (answer, title) in [
            ("Fixing the build", Some("Fixing the build")),
            (
                "\n\n\"Fixing the build.\"\n\nIt says…",
                Some("Fixing the build"),
            ),
            ("**Title:** Fixing  the\tbuild", Some("Fixing the build")),
            ("title: «Ça marche»", Some("Ça marche")),
            ("# 日本語の題。", Some("日本語の題")),
            ("<think>let me see</think>\nShort name", Some("Short name")),
            ("C: drive is full", Some("C: drive is full")),
            ("", None),
            ("\"\"", None),
            ("<think>only thoughts", None),
        ] {
            assert_eq!(clean(answer).as_deref(), title, "{answer:?}");
        }
    }

    #[test]
    fn a_long_title_is_cut_at_a_word_and_an_essay_is_none() {
        let long = "extraordinarily complicated considerations regarding internationalization of containers everywhere";
        let title = clean(long).unwrap();
        assert!(
            title.chars().count() <= MAX_TITLE_CHARS && title.ends_with('…'),
            "{title}"
        );
        assert!(long.starts_with(title.trim_end_matches('…')));
        assert!(clean(&"字".repeat(200)).unwrap().chars().count() <= MAX_TITLE_CHARS);
        assert_eq!(clean(&"word ".repeat(30)), None);
    }

    fn exchange<'a>(user: &'a str, language: Option<&'a str>) -> FirstExchange<'a> {
        FirstExchange {
            session: SessionId::from("s"),
            user,
            answer: "an answer",
            language,
        }
    }

    #[tokio::test]
    async fn the_helper_sees_excerpts_and_its_answer_is_the_title() {
        let model = FakeModel::new("aux", Reply::Text("\"A name\"".into()));
        let long = "x".repeat(2_000);
        let cancel = CancellationToken::new();
        let titled = generate(model.as_ref(), &exchange(&long, None), TIMEOUT, &cancel).await;
        assert_eq!(titled.title.as_deref(), Some("A name"));
        assert!(titled.usage.is_some());
        let sent = model.last_request();
        assert!(sent.starts_with("User: xxx") && sent.ends_with("Agent: an answer"));
        assert!(sent.len() < 600);
        assert!(
            request(&exchange("u", Some("French")))
                .system
                .ends_with("Write in French.")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failure_delay_and_cancellation_mean_no_title() {
        let cancel = CancellationToken::new();
        for reply in [Reply::Fail(ErrorClass::Billing), Reply::Hang] {
            let model = FakeModel::new("aux", reply);
            let titled = generate(model.as_ref(), &exchange("u", None), TIMEOUT, &cancel).await;
            assert_eq!(titled, TitleResult::default());
        }
        cancel.cancel();
        let model = FakeModel::new("aux", Reply::Hang);
        let titled = generate(model.as_ref(), &exchange("u", None), TIMEOUT, &cancel).await;
        assert_eq!(titled, TitleResult::default());
    }
}
