//! Why a turn ended, in words for the person.

use hermes_core::event::TurnExit;
use hermes_core::model::{ErrorClass, ModelError};
use hermes_core::store::StoreError;

/// The explanation of an exit; `None` where the answer speaks for itself.
pub fn explain(exit: &TurnExit) -> Option<String> {
    Some(match exit {
        TurnExit::Answered => return None,
        TurnExit::Interrupted => "Stopped. What was written so far is kept.".to_owned(),
        TurnExit::BudgetExhausted { calls } => format!(
            "The limit of {calls} steps for one request is reached (agent.max_turns). Say \"go on\" to continue."
        ),
        TurnExit::CostCapReached { usd } => format!(
            "This request has cost ${usd:.2}: the cap agent.max_cost_usd is reached. Say \"go on\" to continue."
        ),
        TurnExit::Partial { why } => format!("The answer is incomplete: {why}."),
        TurnExit::NoAnswer { why } => format!("The model gave no answer: {why}."),
        TurnExit::Failed { class, message } => format!("{message}. {}", advice(*class)),
        TurnExit::ContextFull { message } => format!(
            "The conversation does not fit the model's window: {message}. Use /compress, start a new session, or switch to a model with a larger window."
        ),
        TurnExit::Refused { message } => format!("The provider refused: {message}"),
        TurnExit::StoreFailed { message } => {
            format!("The conversation could not be recorded, so nothing more was done: {message}")
        }
        TurnExit::LoopStopped { message } => {
            format!("The turn was stopped because it went in circles: {message}.")
        }
    })
}

fn advice(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Auth => "Check the provider's key (hermes status).",
        ErrorClass::Billing => "The account has no credit left, or the key has reached its limit.",
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit => {
            "Wait a while, or name another model in fallback_providers."
        }
        ErrorClass::Overloaded | ErrorClass::Server => "The provider has trouble; try again later.",
        ErrorClass::Timeout | ErrorClass::Unreachable => {
            "Check the network, and that the server is running."
        }
        ErrorClass::TlsCertificate => {
            "The server's certificate is not trusted: check the clock, the proxy, and custom CA settings."
        }
        ErrorClass::ModelNotFound => "Check the model's name (hermes model).",
        ErrorClass::AccountPolicy => "Change the privacy settings of the provider's account.",
        _ => "Try again, or switch to another model.",
    }
}

/// How a turn ends on a failure that nothing could mend.
pub(super) fn of_failure(error: &ModelError) -> TurnExit {
    let message = error.to_string();
    match error.class {
        ErrorClass::ContextOverflow | ErrorClass::PayloadTooLarge => {
            TurnExit::ContextFull { message }
        }
        ErrorClass::ContentPolicy => TurnExit::Refused { message },
        ErrorClass::Cancelled => TurnExit::Interrupted,
        class => TurnExit::Failed { class, message },
    }
}

pub(super) fn of_store(error: &StoreError) -> TurnExit {
    TurnExit::StoreFailed {
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_but_an_answer_is_explained() {
        let text = || "because".to_owned();
        for exit in [
            TurnExit::Interrupted,
            TurnExit::BudgetExhausted { calls: 90 },
            TurnExit::CostCapReached { usd: 1.5 },
            TurnExit::Partial { why: text() },
            TurnExit::NoAnswer { why: text() },
            TurnExit::ContextFull { message: text() },
            TurnExit::Refused { message: text() },
            TurnExit::StoreFailed { message: text() },
            TurnExit::LoopStopped { message: text() },
        ] {
            assert!(
                explain(&exit).is_some_and(|words| words.len() > 20),
                "{exit:?}"
            );
        }
        assert_eq!(explain(&TurnExit::Answered), None);
    }
}
