//! Texts for events and turn exits.

use std::time::Duration;

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};
use hermes_core::figures::{tokens, took};
use hermes_core::model::ErrorClass;

use super::NoticeCell;

pub(super) fn event_text(event: &AgentEvent) -> Option<NoticeCell> {
    match event {
        AgentEvent::Notice { level, text } => Some(NoticeCell::new(*level, text.clone())),
        AgentEvent::Retrying {
            message,
            attempt,
            delay_ms,
            ..
        } => {
            let wait = took(Duration::from_millis(*delay_ms));
            let wait = wait.map_or_else(|| "at once".to_owned(), |wait| format!("in {wait}"));
            let text = format!("{}; attempt {attempt} {wait}", stripped(message));
            Some(NoticeCell::warning(text))
        }
        AgentEvent::RouteChanged { from, to, why } => {
            let there = if from.provider == to.provider {
                to.model.clone()
            } else {
                format!("{} ({})", to.model, to.provider)
            };
            let text = format!("{} gave way to {there}: {}", from.model, stripped(why));
            Some(NoticeCell::warning(text))
        }
        AgentEvent::CompactionStarted { prompt_tokens } => Some(NoticeCell::info(format!(
            "The conversation is being shortened for the model ({} tokens)",
            tokens(*prompt_tokens)
        ))),
        AgentEvent::Compacted {
            before_tokens,
            after_tokens,
            summary,
        } => {
            let how = if *summary {
                "a summary replaces the earlier part"
            } else {
                "old results were left out"
            };
            Some(NoticeCell::info(format!(
                "The model now reads {} tokens in place of {}: {how}. Nothing here is lost.",
                tokens(*after_tokens),
                tokens(*before_tokens)
            )))
        }
        AgentEvent::StepDiscarded { why } => Some(NoticeCell::info(format!(
            "The last words were taken back: {}",
            stripped(why)
        ))),
        _ => None,
    }
}

pub(super) fn exit_text(exit: &TurnExit) -> Option<NoticeCell> {
    let warning = |text: String, fix: &str| NoticeCell {
        level: NoticeLevel::Warning,
        text,
        fix: Some(fix.to_owned()),
    };
    let error = |text: String, fix: &str| NoticeCell::error(text, Some(fix.to_owned()));
    Some(match exit {
        TurnExit::Answered => return None,
        TurnExit::Interrupted => NoticeCell::warning("Stopped. What was done so far is kept."),
        TurnExit::BudgetExhausted { calls } => warning(
            format!("Stopped after {calls} model calls, the limit for one turn"),
            "say \"continue\", or raise agent.max_turns",
        ),
        TurnExit::CostCapReached { usd } => warning(
            format!("Stopped at ${usd:.2}, the limit for one turn"),
            "say \"continue\", or raise the cap",
        ),
        TurnExit::Partial { why } => warning(
            format!("The answer was cut: {}", stripped(why)),
            "say \"continue\"",
        ),
        TurnExit::NoAnswer { why } => error(
            format!("The model gave no answer: {}", stripped(why)),
            "/retry sends your message again",
        ),
        TurnExit::Failed { class, message } => error(message.clone(), fix_for(*class)),
        TurnExit::ContextFull { message } => {
            error(message.clone(), "/compress, or /new for a new conversation")
        }
        TurnExit::Refused { message } => error(
            message.clone(),
            "say it differently, or /model for another one",
        ),
        TurnExit::StoreFailed { message } => error(
            format!("The conversation could not be saved: {}", stripped(message)),
            "hermes doctor; your message is kept, /retry sends it again",
        ),
        TurnExit::LoopStopped { message } => {
            warning(message.clone(), "say what to do differently, or /retry")
        }
    })
}

/// How to fix a failure of this kind.
fn fix_for(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Auth => "/model, or hermes auth add; your message is kept, /retry resends",
        ErrorClass::Billing => {
            "top up the account or choose another model with /model; then /retry"
        }
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Overloaded => {
            "wait a little, then /retry; or /model for another one"
        }
        ErrorClass::Unreachable | ErrorClass::Timeout | ErrorClass::TlsCertificate => {
            "check that the server is running and the network works, then /retry"
        }
        ErrorClass::ModelNotFound => "/model lists the available models",
        ErrorClass::ContextOverflow | ErrorClass::PayloadTooLarge | ErrorClass::LongContextTier => {
            "/compress, then /retry"
        }
        ErrorClass::ImageTooLarge | ErrorClass::ImagesUnsupported => {
            "/undo and send it without the image, or /model for one that supports images"
        }
        ErrorClass::ContentPolicy | ErrorClass::AccountPolicy => {
            "say it differently, or /model for another one"
        }
        _ => "/retry sends your message again; /model chooses another model",
    }
}

/// One sentence without its full stop, to embed in another.
fn stripped(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}
