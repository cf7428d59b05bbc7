//! Why a turn ended, in words for the person.

use hermes_core::event::TurnExit;
use hermes_core::model::{ErrorClass, ModelError, Route};
use hermes_core::store::StoreError;

/// Why it ended; `None` where the answer speaks for itself.
pub fn cause(exit: &TurnExit) -> Option<String> {
    Some(match exit {
        TurnExit::Answered => return None,
        TurnExit::Interrupted => "interrupted; what was written so far is kept".to_owned(),
        TurnExit::BudgetExhausted { calls } => {
            format!("stopped after {calls} model calls, the limit of a turn")
        }
        TurnExit::CostCapReached { usd } => {
            format!("stopped: this turn cost ${usd:.4}, the cap of agent.max_cost_usd")
        }
        TurnExit::Partial { why } => format!("the answer is incomplete: {why}"),
        TurnExit::NoAnswer { why } => format!("the model gave no answer: {why}"),
        TurnExit::Failed { message, .. } => message.clone(),
        TurnExit::ContextFull { message } => {
            format!("the conversation does not fit the model: {message}")
        }
        TurnExit::Refused { message } => format!("refused by the provider: {message}"),
        TurnExit::StoreFailed { message } => {
            format!("stopped, because nothing could be recorded: {message}")
        }
        TurnExit::LoopStopped { message } => format!("stopped a loop: {message}"),
    })
}

/// Why it ended and what to do about it, on two lines: cause first.
pub fn explain(exit: &TurnExit, route: Option<&Route>) -> Option<String> {
    let cause = cause(exit)?;
    let fix = match exit {
        TurnExit::BudgetExhausted { calls } => Some(format!(
            "say \"continue\", or raise it: hermes config set agent.max_turns {}",
            calls * 2
        )),
        TurnExit::CostCapReached { .. } => Some(
            "say \"continue\", or raise it: hermes config set agent.max_cost_usd <usd>".to_owned(),
        ),
        TurnExit::ContextFull { .. } => Some(
            "a shorter message, fewer tools (-t), /compress, or a larger model (hermes -m …); \
             model.context_length sets the size where it was detected wrongly"
                .to_owned(),
        ),
        TurnExit::NoAnswer { .. } => {
            Some("ask again, or use another model: hermes -m <model>".to_owned())
        }
        TurnExit::StoreFailed { .. } => {
            Some("see what is wrong with the home: hermes doctor".to_owned())
        }
        TurnExit::Failed { class, .. } => remedy(*class, route),
        _ => None,
    };
    Some(match fix {
        Some(fix) => format!("{cause}\n  fix: {fix}"),
        None => cause,
    })
}

fn remedy(class: ErrorClass, route: Option<&Route>) -> Option<String> {
    let credential = route.and_then(|route| route.credential.as_deref());
    let key = credential.and_then(|label| label.rsplit(':').next());
    let text = match (class, key) {
        // The key stands in config.yaml itself.
        (ErrorClass::Auth, Some("model_config")) => {
            "the key was rejected: hermes config set model.api_key <key>".to_owned()
        }
        (ErrorClass::Auth, Some(key)) => {
            format!("the key of {key} was rejected: hermes config set {key} <key>")
        }
        (ErrorClass::Auth, None) if route.is_some_and(|route| route.provider == "custom") => {
            "a key is needed: hermes config set model.api_key <key>".to_owned()
        }
        (ErrorClass::Auth, None) => {
            "a key is needed: hermes config set <PROVIDER>_API_KEY <key>".to_owned()
        }
        (ErrorClass::Billing, _) => {
            "top up the account, or name another model in fallback_providers".to_owned()
        }
        (ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit | ErrorClass::Overloaded, _) => {
            "wait and try again, or use another model: hermes -m <model>".to_owned()
        }
        (ErrorClass::Server, _) => "the provider has trouble; try again later".to_owned(),
        (ErrorClass::Timeout, _) => "check the network, and that the server is running".to_owned(),
        (ErrorClass::Unreachable, _) => match route {
            Some(route) => {
                let address = hermes_config::redact::url(&route.base_url);
                format!("is {address} right, and is the server running?")
            }
            None => "check the network".to_owned(),
        },
        (ErrorClass::TlsCertificate, _) => {
            "behind a proxy with its own certificate, set SSL_CERT_FILE to its CA file".to_owned()
        }
        (ErrorClass::ModelNotFound, _) => "see what there is: hermes model list --live".to_owned(),
        (ErrorClass::AccountPolicy, _) => {
            "change the privacy settings of the provider's account".to_owned()
        }
        _ => return None,
    };
    Some(text)
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
                explain(&exit, None).is_some_and(|words| words.len() > 15),
                "{exit:?}"
            );
        }
        assert_eq!(explain(&TurnExit::Answered, None), None);
    }

    #[test]
    fn an_address_is_named_without_its_password() {
        let route = Route {
            provider: "custom".into(),
            model: "m".into(),
            base_url: "http://me:letmein99@lab.test/v1".into(),
            format: hermes_core::model::WireFormat::ChatCompletions,
            credential: None,
        };
        let exit = TurnExit::Failed {
            class: ErrorClass::Unreachable,
            message: "refused".into(),
        };
        let text = explain(&exit, Some(&route)).unwrap();
        assert!(text.contains("http://me:****@lab.test/v1"), "{text}");
    }

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
        let own = |credential: Option<&str>| Route {
            provider: "custom".into(),
            credential: credential.map(Into::into),
            ..route.clone()
        };
        for (route, setting) in [
            (route.clone(), "OPENROUTER_API_KEY"),
            (own(None), "model.api_key"),
            (own(Some("model_config")), "model.api_key"),
            (own(Some("env:LAB_KEY")), "LAB_KEY"),
        ] {
            let text = explain(&exit, Some(&route)).unwrap();
            let command = format!("hermes config set {setting} <key>");
            assert!(text.ends_with(&command), "{text}");
        }
    }
}
