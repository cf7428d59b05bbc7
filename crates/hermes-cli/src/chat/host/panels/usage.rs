//! `/usage` and `/insights`: what was used, with charts.

use hermes_app::CommandResult;
use hermes_core::figures;
use hermes_core::front_end::{Effect, PagedText, TextKind};

use super::page;
use crate::chat::host::ScreenConversation;
use crate::commands::insights::{self, InsightsQuery};
use crate::exit::Failure;

/// Columns of a chart: what an overlay of a usual terminal shows unbroken.
const CHART_COLUMNS: usize = 78;

/// This conversation.
pub(super) async fn session(conversation: &ScreenConversation) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    if !chat.used {
        return Ok(CommandResult::info("nothing has been used yet"));
    }
    let wanted = InsightsQuery {
        days: None,
        source: None,
        session: Some(chat.id.to_string()),
    };
    let mut text = charts(conversation, wanted).await?;
    if let Some((used, length)) = conversation.context {
        text.push('\n');
        text.push_str(&window(used, length));
    }
    Ok(shown("this conversation", text))
}

/// `/insights [days]`. `None`: the words are for someone else to refuse.
pub(super) async fn insights(
    conversation: &ScreenConversation,
    days: &str,
) -> Result<Option<CommandResult>, Failure> {
    let days = hermes_app::slash_commands::days(days);
    let days = match days.parse::<u32>() {
        _ if days.is_empty() => 30,
        Ok(days @ 1..) => days,
        _ => return Ok(None),
    };
    let wanted = InsightsQuery {
        days: Some(days),
        source: None,
        session: None,
    };
    let text = charts(conversation, wanted).await?;
    Ok(Some(shown(&format!("the last {days} days"), text)))
}

async fn charts(
    conversation: &ScreenConversation,
    wanted: InsightsQuery,
) -> Result<String, Failure> {
    let report = insights::report(&conversation.chat.store, wanted).await?;
    Ok(insights::text(&report, CHART_COLUMNS))
}

fn shown(title: &str, text: String) -> CommandResult {
    let page: PagedText = page(format!("Usage: {title}"), TextKind::Plain, text);
    CommandResult::from_effect(Effect::Page(page))
}

/// How full the window is.
fn window(used: u64, length: u32) -> String {
    const BAR_COLUMNS: u64 = 40;
    let length = u64::from(length.max(1));
    let filled = (used.min(length) * BAR_COLUMNS / length) as usize;
    let empty = BAR_COLUMNS as usize - filled;
    format!(
        "context  {}{}  {} of {} tokens ({}%)",
        "█".repeat(filled),
        "░".repeat(empty),
        figures::tokens(used),
        figures::window(length),
        used * 100 / length
    )
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn a_window_is_a_bar() {
        let half = window(50_000, 100_000);
        assert!(half.ends_with("50k of 100k tokens (50%)"), "{half}");
        assert_eq!(half.matches('█').count(), 20);
        assert_eq!(window(300, 100).matches('█').count(), 40, "never more");
        assert_eq!(window(0, 0).matches('█').count(), 0);
    }
}
