//! The `clarify` tool: asks the person.

use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::ask::{Answer, Choice, Question, Want};
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

const NAME: &str = "clarify";
const MAX_CHOICES: usize = 4;

/// Asks questions of the model.
pub(super) struct Clarify {
    spec: ToolSpec,
    /// `agent.clarify_timeout`; `None`: the person may take their time.
    timeout: Option<Duration>,
}

impl Clarify {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "question": {
                    "type": "string",
                    "description": "The question alone, without the answers to choose from.",
                },
                "choices": {
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": MAX_CHOICES,
                    "description": "Answers to choose from, one entry each. The person may always answer in other words. Leave out for an open question.",
                },
            },
            "required": ["question"],
        }));
        let description = "Ask the person a question and wait for the answer. \
            Use it when the request can be read in ways that lead to different work, or when a \
            choice is really theirs. Where a sensible default exists, take it and say so instead. \
            Dangerous commands ask for permission by themselves.";
        Self {
            spec: ToolSpec::new(NAME, NAME, Effects::Interactive, description, parameters),
            timeout,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let question = args.required("question", "what to ask")?.trim();
        let choices = choices(&args)?;
        let want = if choices.is_empty() {
            Want::Text
        } else {
            Want::Choice {
                options: choices.iter().map(Choice::plain).collect(),
                other: true,
            }
        };
        let asked = cx.asker.ask(Question {
            id: format!("{}:{}", cx.session, cx.call_id),
            from: NAME.to_owned(),
            text: question.to_owned(),
            want,
        });
        let answer = match self.timeout {
            None => asked.await,
            Some(limit) => tokio::time::timeout(limit, asked)
                .await
                .unwrap_or_else(|_| Answer::Unanswered {
                    why: format!("no answer came within {} seconds", limit.as_secs()),
                }),
        };
        let response = match answer {
            Answer::Text { text } => text.trim().to_owned(),
            Answer::Agreed => "yes".to_owned(),
            Answer::Form { values } => Value::Object(values).to_string(),
            Answer::Declined { why } => {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                format!("The person does not want to answer{why}. Go on without it, or stop.")
            }
            Answer::Unanswered { why } => {
                let kind = if cx.cancel.is_cancelled() {
                    ToolErrorKind::Cancelled
                } else {
                    ToolErrorKind::Failed
                };
                let text = format!(
                    "{NAME}: {why}. Decide by yourself what is most likely wanted, and say what you assumed"
                );
                return Err(ToolOutcome::error(kind, text));
            }
        };
        let offered = (!choices.is_empty()).then_some(&choices);
        Ok(json!({
            "question": question,
            "choices_offered": offered,
            "user_response": response,
        }))
    }
}

/// Choices as plain text; models also send objects with the text somewhere in them.
fn choices(args: &Args<'_>) -> Result<Vec<String>, ToolOutcome> {
    let list = args.list("choices")?.unwrap_or_default();
    let texts = list
        .iter()
        .map(flat)
        .filter(|text| !text.is_empty())
        .take(MAX_CHOICES);
    Ok(texts.collect())
}

fn flat(choice: &Value) -> String {
    match choice {
        Value::String(text) => text.trim().to_owned(),
        Value::Object(fields) => ["label", "description", "text", "title", "value", "name"]
            .iter()
            .find_map(|key| {
                let text = fields.get(*key)?.as_str()?.trim();
                (!text.is_empty()).then(|| text.to_owned())
            })
            .unwrap_or_default(),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(flat).collect();
            texts.join(" ").trim().to_owned()
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl Tool for Clarify {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}
