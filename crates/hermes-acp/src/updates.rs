//! Converts events of a conversation to updates.

use std::path::Path;

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, ClientCapabilities,
    ContentBlock, ContentChunk, Cost, CurrentModeUpdate, InitializeRequest, Notice, NoticeSeverity,
    SessionInfoUpdate, SessionUpdate, TextContent, UnstructuredCommandInput, UsageUpdate,
};
use hermes_app::CommandInfo;
use hermes_core::event::NoticeLevel;
use hermes_core::front_end::TranscriptEntry;

use crate::calls;
use crate::mode::EditorMode;

/// Editors that support every kind of update, whatever they announce.
const KNOWN: [&str; 1] = ["zed"];

/// Whether an editor supports the kinds of [`came_later`]: it announces something that was
/// introduced with them or after them.
pub(crate) fn is_newer(request: &InitializeRequest) -> bool {
    let client = &request.client_capabilities;
    let name = request
        .client_info
        .as_ref()
        .map(|info| info.name.to_lowercase());
    client.session.is_some()
        || client.elicitation.is_some()
        || client.auth.terminal
        || name.is_some_and(|name| KNOWN.contains(&name.as_str()))
}

/// Kinds of updates that older editors refuse as unreadable.
pub(crate) fn came_later(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::UsageUpdate(_) | SessionUpdate::SessionInfoUpdate(_)
    )
}

fn chunk(text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

pub(crate) fn text(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(chunk(text))
}

pub(crate) fn thought(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(text))
}

fn user(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::UserMessageChunk(chunk(text))
}

/// A notice besides the answer. Editors without support for notices get it as a quotation.
pub(crate) fn notice(level: NoticeLevel, text: &str, client: &ClientCapabilities) -> SessionUpdate {
    let knows = client
        .session
        .as_ref()
        .is_some_and(|session| session.notices.is_some());
    let text = text.trim();
    if !knows {
        let quoted: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
        return self::text(format!("\n\n{}\n\n", quoted.join("\n")));
    }
    let severity = match level {
        NoticeLevel::Info => NoticeSeverity::Info,
        NoticeLevel::Warning => NoticeSeverity::Warning,
        NoticeLevel::Error => NoticeSeverity::Error,
    };
    let (title, more) = match text.split_once('\n') {
        Some((title, more)) => (title, Some(more.trim().to_owned())),
        None => (text, None),
    };
    SessionUpdate::Notice(Notice::new(severity, title).description(more))
}

pub(crate) fn title(title: &str) -> SessionUpdate {
    SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(title.to_owned()))
}

/// Tokens in the window, its size, and the known cost of the session.
pub(crate) fn usage(used: u64, size: u32, usd: Option<f64>) -> SessionUpdate {
    let cost = usd.map(|usd| Cost::new(usd, "USD"));
    SessionUpdate::UsageUpdate(UsageUpdate::new(used, u64::from(size)).cost(cost))
}

pub(crate) fn mode(mode: EditorMode) -> SessionUpdate {
    SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.id()))
}

pub(crate) fn commands(commands: Vec<CommandInfo>) -> SessionUpdate {
    let command = |info: CommandInfo| {
        let input = info
            .args
            .map(|args| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(args)));
        AvailableCommand::new(info.name, info.about).input(input)
    };
    let all = commands.into_iter().map(command).collect();
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(all))
}

/// Replays a stored conversation.
pub(crate) fn past(entries: &[TranscriptEntry], cwd: &Path) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let update = match entry {
            TranscriptEntry::User(text) => user(text.clone()),
            TranscriptEntry::Assistant(text) => self::text(text.clone()),
            TranscriptEntry::Reasoning(text) => thought(text.clone()),
            TranscriptEntry::Omitted(count) => {
                self::text(format!("({count} earlier entries are not shown)\n\n"))
            }
            TranscriptEntry::Tool { name, result, .. } => {
                let Some(call) = calls::past(&format!("past-{at}"), entry, cwd) else {
                    continue;
                };
                updates.extend(calls::plan(name, result).map(SessionUpdate::Plan));
                SessionUpdate::ToolCall(call)
            }
        };
        updates.push(update);
    }
    updates
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{ClientSessionCapabilities, NoticeCapabilities};

    use super::*;

    #[test]
    fn editors_without_notices_read_them_all_the_same() {
        let plain = ClientCapabilities::new();
        let SessionUpdate::AgentMessageChunk(chunk) =
            notice(NoticeLevel::Error, "one\ntwo", &plain)
        else {
            panic!("no chunk");
        };
        let ContentBlock::Text(text) = chunk.content else {
            panic!("no text");
        };
        assert_eq!(text.text, "\n\n> one\n> two\n\n");
        let knows = ClientCapabilities::new()
            .session(ClientSessionCapabilities::new().notices(NoticeCapabilities::new()));
        let SessionUpdate::Notice(notice) = notice(NoticeLevel::Error, "one\ntwo", &knows) else {
            panic!("no notice");
        };
        assert_eq!(notice.title, "one");
        assert_eq!(notice.description.as_deref(), Some("two"));
        assert_eq!(notice.severity, NoticeSeverity::Error);
    }

    #[test]
    fn the_past_is_told_in_its_order() {
        let entries = [
            TranscriptEntry::Omitted(3),
            TranscriptEntry::User("q".into()),
            TranscriptEntry::Reasoning("hm".into()),
            TranscriptEntry::Tool {
                name: "todo".into(),
                arguments: "{}".into(),
                result: r#"{"todos":[{"content":"x","status":"pending"}]}"#.into(),
                failed: false,
            },
            TranscriptEntry::Assistant("a".into()),
        ];
        let kinds: Vec<&str> = past(&entries, Path::new("/w"))
            .iter()
            .map(|update| match update {
                SessionUpdate::UserMessageChunk(_) => "user",
                SessionUpdate::AgentMessageChunk(_) => "agent",
                SessionUpdate::AgentThoughtChunk(_) => "thought",
                SessionUpdate::Plan(_) => "plan",
                SessionUpdate::ToolCall(_) => "call",
                _ => "other",
            })
            .collect();
        assert_eq!(kinds, ["agent", "user", "thought", "plan", "call", "agent"]);
    }
}
