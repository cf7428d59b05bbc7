//! `elicitation/create`: a form for the user, or a page to visit.

use hermes_core::ask::{Answer, Question, Want};
use serde_json::{Map, Value, json};
use url::Url;

use super::{ServerRequestHandler, form, question_id};
use crate::actor::call_origin::AskerResult;
use crate::transport::connect::Declined;

/// Longer texts from a server are truncated before the user sees them.
const MAX_TEXT_CHARS: usize = 4000;

/// The result returned to the server.
enum Outcome {
    Accept(Option<Map<String, Value>>),
    /// The user declined, or there is no user to ask.
    Decline(Option<String>),
    /// No decision was made.
    Cancel(String),
}

impl ServerRequestHandler {
    pub(super) async fn elicit(
        &self,
        params: &Value,
        asker: AskerResult,
    ) -> Result<Value, Declined> {
        let (kind, outcome) = match self.ask(params, asker).await {
            Ok(outcome) => outcome,
            Err(declined) => {
                self.audit.count("elicitation/invalid");
                return Err(declined);
            }
        };
        let (action, content, reason) = match outcome {
            Outcome::Accept(content) => ("accept", content, None),
            Outcome::Decline(why) => ("decline", None, why),
            Outcome::Cancel(why) => ("cancel", None, Some(why)),
        };
        self.audit.count(&format!("elicitation/{kind}/{action}"));
        tracing::info!(
            server = self.server,
            kind,
            action,
            reason,
            "MCP server asked the person"
        );
        let mut result = json!({ "action": action });
        if let Some(content) = content {
            result["content"] = Value::Object(content);
        }
        if let Some(reason) = reason {
            result["_meta"] = json!({ "hermes/reason": reason });
        }
        Ok(result)
    }

    async fn ask(
        &self,
        params: &Value,
        asker: AskerResult,
    ) -> Result<(&'static str, Outcome), Declined> {
        let mode = params["mode"].as_str().unwrap_or("form");
        let (kind, want) = match mode {
            "form" => ("form", want_form(params)?),
            "url" => ("url", want_visit(params)?),
            other => return Err(invalid(&format!("unknown mode {other:?}"))),
        };
        if !self.elicitation.enabled {
            let why = format!(
                "questions of this server are off (mcp_servers.{}.elicitation.enabled)",
                self.server
            );
            return Ok((kind, Outcome::Decline(Some(why))));
        }
        let asker = match asker {
            Ok(asker) => asker,
            Err(why) => return Ok((kind, Outcome::Decline(Some(why)))),
        };
        let Ok(_permit) = self.open_questions.try_acquire() else {
            let why = "too many questions of this server are open".to_owned();
            return Ok((kind, Outcome::Cancel(why)));
        };
        let question = Question {
            id: question_id(),
            from: format!("MCP server {}", self.server),
            text: truncate(params["message"].as_str().unwrap_or_default()),
            want: want.clone(),
        };
        let asking = asker.ask(question);
        let timeout = self.elicitation.timeout;
        let Ok(answer) = tokio::time::timeout(timeout, asking).await else {
            let why = format!("no answer within {} s", timeout.as_secs_f64());
            return Ok((kind, Outcome::Cancel(why)));
        };
        Ok((kind, outcome(answer, &want)?))
    }
}

fn want_form(params: &Value) -> Result<Want, Declined> {
    let fields = form::fields(&params["requestedSchema"]).map_err(|why| invalid(&why))?;
    Ok(Want::Form { fields })
}

fn want_visit(params: &Value) -> Result<Want, Declined> {
    let text = params["url"].as_str().unwrap_or_default();
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
        .ok_or_else(|| invalid("url must be an http or https address"))?;
    // A password before the host name makes one host look like another.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("url must not contain a user name"));
    }
    Ok(Want::Visit { url: url.into() })
}

fn outcome(answer: Answer, want: &Want) -> Result<Outcome, Declined> {
    Ok(match (answer, want) {
        (Answer::Form { values }, Want::Form { fields }) => {
            let values = form::checked(values, fields).map_err(|why| Declined {
                code: -32603,
                message: format!("the answer does not fit the form: {why}"),
            })?;
            Outcome::Accept(Some(values))
        }
        (Answer::Agreed, Want::Visit { .. }) => Outcome::Accept(None),
        (Answer::Declined { why }, _) => Outcome::Decline(why),
        (Answer::Unanswered { why }, _) => Outcome::Decline(Some(why)),
        (Answer::Text { .. } | Answer::Form { .. } | Answer::Agreed, _) => {
            Outcome::Cancel("the answer was of another kind than the question".to_owned())
        }
    })
}

fn invalid(message: &str) -> Declined {
    Declined {
        code: -32602,
        message: format!("elicitation/create: {message}"),
    }
}

pub(super) fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
