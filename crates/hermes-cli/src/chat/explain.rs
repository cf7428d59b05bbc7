//! Why a turn did not end with an answer, in words for the person: cause first, then what to do.

use hermes_core::event::TurnExit;
use hermes_core::model::{ErrorClass, Route};

/// `None`: it ended with an answer, nothing needs explaining.
pub(crate) fn explain(exit: &TurnExit, route: Option<&Route>) -> Option<String> {
    let text = match exit {
        TurnExit::Answered => return None,
        TurnExit::Interrupted => "interrupted".to_owned(),
        TurnExit::BudgetExhausted { calls } => format!(
            "stopped after {calls} model calls, the limit of a turn\n  \
             fix: say \"continue\", or raise it: hermes config set agent.max_turns {}",
            calls * 2
        ),
        TurnExit::CostCapReached { usd } => format!(
            "stopped: this turn cost ${usd:.4}, the cap of agent.max_cost_usd\n  \
             fix: say \"continue\", or raise it: hermes config set agent.max_cost_usd <usd>"
        ),
        TurnExit::Partial { why } => format!("the answer is incomplete: {why}"),
        TurnExit::NoAnswer { why } => format!("the model gave no answer: {why}"),
        TurnExit::Failed { class, message } => {
            format!(
                "{message}{}",
                fix(*class, route)
                    .map(|fix| format!("\n  fix: {fix}"))
                    .unwrap_or_default()
            )
        }
        TurnExit::ContextFull { message } => format!(
            "the conversation does not fit the model: {message}\n  \
             fix: start anew (hermes), or use a model with a larger context (hermes -m …)"
        ),
        TurnExit::Refused { message } => format!("refused by the provider: {message}"),
        TurnExit::StoreFailed { message } => {
            format!("stopped, because nothing could be recorded: {message}")
        }
        TurnExit::LoopStopped { message } => format!("stopped a loop: {message}"),
    };
    Some(text)
}

fn fix(class: ErrorClass, route: Option<&Route>) -> Option<String> {
    let credential = route.and_then(|route| route.credential.as_deref());
    let key = credential
        .and_then(|label| label.rsplit(':').next())
        .unwrap_or("<PROVIDER>_API_KEY");
    let text = match class {
        ErrorClass::Auth => match credential {
            Some(label) => {
                format!("the key of {label} was rejected: hermes config set {key} <key>")
            }
            None => format!("a key is needed: hermes config set {key} <key>"),
        },
        ErrorClass::Billing => {
            "top up the account, or add a fallback: hermes config set fallback_model.model <model>"
                .into()
        }
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Overloaded => {
            "wait and try again, or use another model: hermes -m <model>".into()
        }
        ErrorClass::ModelNotFound => "see what there is: hermes model list --live".into(),
        ErrorClass::Unreachable => match route {
            Some(route) => format!("is {} right, and is the server running?", route.base_url),
            None => "check the network".into(),
        },
        ErrorClass::TlsCertificate => {
            "behind a proxy with its own certificate, set SSL_CERT_FILE to its CA file".into()
        }
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_key_names_the_variable_to_set() {
        let route = Route {
            provider: "openrouter".into(),
            model: "m".into(),
            base_url: "https://openrouter.ai/api/v1".into(),
            format: hermes_core::model::WireFormat::ChatCompletions,
            credential: Some("env:OPENROUTER_API_KEY".into()),
        };
        let exit = TurnExit::Failed {
            class: ErrorClass::Auth,
            message: "401".into(),
        };
        let text = explain(&exit, Some(&route)).unwrap();
        assert!(
            text.contains("hermes config set OPENROUTER_API_KEY"),
            "{text}"
        );
        assert_eq!(explain(&TurnExit::Answered, None), None);
    }
}
