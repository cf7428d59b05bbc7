//! Evaluates how well a model calls tools, with forty prompts and a few tools.
//!
//! A call is correct if the tool is suitable and its arguments contain what the prompt asked for. If no tool is
//! suitable, a text answer is correct.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::chat::{ChatRole, PromptMessage, PromptTool};
use crate::generation::{AnswerDelta, GenerationError, GenerationRequest, ModelSession};

const PROMPTS: &str = include_str!("../prompts/prompts.json");
const TOOLS: &str = include_str!("../prompts/tools.json");
/// A call of one of these tools is short.
const MAX_ANSWER_TOKENS: usize = 160;
/// After this many tokens without a call, none is expected any more.
const MAX_TOKENS_BEFORE_CALL: usize = 48;
const SYSTEM: &str = "You are a helpful assistant on a person's computer.";
/// Tools are offered to models with this score in the probe that do not call too eagerly.
const MIN_TOOL_SCORE: f64 = 0.6;

#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    #[error("the prompts of this program cannot be read: {0}")]
    Prompts(#[from] serde_json::Error),
    #[error(transparent)]
    Failed(#[from] GenerationError),
}

#[derive(Clone, Debug, Deserialize)]
pub struct EvalPrompt {
    pub prompt: String,
    /// Correct calls; empty: no call is correct.
    pub accept: Vec<Accept>,
    /// Part of the short set.
    #[serde(default)]
    pub probe: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Accept {
    tool: String,
    /// Words that each argument must contain.
    arguments: Map<String, Value>,
}

impl Accept {
    fn fits(&self, name: &str, arguments: &Value) -> bool {
        let has = |(argument, words): (&String, &Value)| {
            let given = match arguments.get(argument) {
                Some(Value::String(given)) => given.to_lowercase(),
                Some(given) => given.to_string(),
                None => return false,
            };
            let words = words
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            words
                .into_iter()
                .all(|word| given.contains(&word.to_lowercase()))
        };
        self.tool == name && self.arguments.iter().all(has)
    }
}

pub fn prompts() -> Result<Vec<EvalPrompt>, EvalError> {
    Ok(serde_json::from_str(PROMPTS)?)
}

pub fn tools() -> Result<Vec<PromptTool>, EvalError> {
    #[derive(Deserialize)]
    struct Described {
        name: String,
        description: String,
        parameters: Value,
    }
    let tools: Vec<Described> = serde_json::from_str(TOOLS)?;
    let tool = |tool: Described| PromptTool {
        name: tool.name,
        description: tool.description,
        parameters: Some(tool.parameters),
    };
    Ok(tools.into_iter().map(tool).collect())
}

/// What a model did with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalVerdict {
    Right,
    /// An unsuitable tool or wrong arguments.
    Wrong,
    /// Text instead of a call.
    Missed,
    /// A call where none was needed.
    Eager,
}

impl EvalVerdict {
    fn name(self) -> &'static str {
        match self {
            EvalVerdict::Right => "right",
            EvalVerdict::Wrong => "wrong",
            EvalVerdict::Missed => "missed",
            EvalVerdict::Eager => "eager",
        }
    }
}

/// One prompt and its result.
#[derive(Clone, Debug)]
pub struct EvalResult {
    pub prompt: String,
    pub due: bool,
    pub verdict: EvalVerdict,
    pub answer: String,
}

#[derive(Clone, Debug, Default)]
pub struct EvalReport {
    pub tried: Vec<EvalResult>,
    pub time: Duration,
}

impl EvalReport {
    fn share(&self, due: bool, verdict: EvalVerdict) -> (usize, usize) {
        let all = self.tried.iter().filter(|tried| tried.due == due);
        let counted = all.clone().filter(|tried| tried.verdict == verdict).count();
        (counted, all.count())
    }

    /// Whether the remaining `prompts` cannot make up for the errors.
    fn is_lost(&self, prompts: &[EvalPrompt]) -> bool {
        [true, false].iter().any(|due| {
            let all = prompts
                .iter()
                .filter(|it| it.accept.is_empty() != *due)
                .count();
            let (right, tried) = self.share(*due, EvalVerdict::Right);
            ((all - tried + right) as f64) < MIN_TOOL_SCORE * all as f64
        })
    }

    /// Whether tools should be offered to the model.
    pub fn offers_tools(&self) -> bool {
        let part = |(count, all): (usize, usize)| count as f64 / all.max(1) as f64;
        part(self.share(true, EvalVerdict::Right)) >= MIN_TOOL_SCORE
            && part(self.share(false, EvalVerdict::Right)) >= MIN_TOOL_SCORE
    }

    pub fn to_json(&self) -> Value {
        let (right, due) = self.share(true, EvalVerdict::Right);
        let (wrong, _) = self.share(true, EvalVerdict::Wrong);
        let (missed, _) = self.share(true, EvalVerdict::Missed);
        let (eager, not_due) = self.share(false, EvalVerdict::Eager);
        let tried = self.tried.iter().map(|tried| {
            json!({ "prompt": tried.prompt, "verdict": tried.verdict.name(), "answer": tried.answer })
        });
        json!({
            "tools": self.offers_tools(),
            "prompts": self.tried.len(),
            "call_due": due,
            "right_calls": right,
            "wrong_calls": wrong,
            "missed_calls": missed,
            "no_call_due": not_due,
            "needless_calls": eager,
            "seconds": self.time.as_secs_f64(),
            "tried": tried.collect::<Value>(),
        })
    }

    pub fn to_text(&self) -> String {
        let line = |what: &str, (count, all): (usize, usize)| {
            let percent = (count * 100 + all / 2) / all.max(1);
            format!("{what:<24} {count:>2} of {all:>2}  ({percent} %)\n")
        };
        let mut text = line("right calls", self.share(true, EvalVerdict::Right));
        text += &line("wrong calls", self.share(true, EvalVerdict::Wrong));
        text += &line(
            "calls that were missed",
            self.share(true, EvalVerdict::Missed),
        );
        text += &line("calls without need", self.share(false, EvalVerdict::Eager));
        text += if self.offers_tools() {
            "good enough to be offered tools\n"
        } else {
            "not good enough to be offered tools: chat only\n"
        };
        text
    }
}

/// Runs the prompts, all or only those of the probe. `tell` is called for each.
pub fn run(
    session: &mut ModelSession,
    probe: bool,
    tell: &mut dyn FnMut(&EvalResult),
) -> Result<EvalReport, EvalError> {
    let tools = tools()?;
    let started = Instant::now();
    let mut report = EvalReport::default();
    let mut prompts = prompts()?;
    prompts.retain(|prompt| prompt.probe || !probe);
    for prompt in &prompts {
        let mut ask = GenerationRequest::new(vec![
            PromptMessage::new(ChatRole::System, SYSTEM),
            PromptMessage::new(ChatRole::User, prompt.prompt.clone()),
        ]);
        ask.tools.clone_from(&tools);
        ask.max_tokens = Some(MAX_ANSWER_TOKENS);
        let deltas = answer(session, &ask)?;
        let tried = judge(prompt, &deltas);
        tell(&tried);
        report.tried.push(tried);
        if probe && report.is_lost(&prompts) {
            break;
        }
    }
    report.time = started.elapsed();
    Ok(report)
}

/// An answer, or as much of it as shows that no call follows.
fn answer(
    session: &mut ModelSession,
    ask: &GenerationRequest,
) -> Result<Vec<AnswerDelta>, EvalError> {
    let deltas = RefCell::new(Vec::new());
    let tokens = Cell::new(0);
    let called = |deltas: &[AnswerDelta]| {
        deltas
            .iter()
            .any(|it| matches!(it, AnswerDelta::Call { .. }))
    };
    let answered = session.answer(
        ask,
        &mut |delta| deltas.borrow_mut().push(delta),
        &|| tokens.set(tokens.get() + 1),
        &|| tokens.get() > MAX_TOKENS_BEFORE_CALL && !called(&deltas.borrow()),
    );
    match answered {
        Ok(_) | Err(GenerationError::Cancelled) => Ok(deltas.into_inner()),
        Err(failure) => Err(failure.into()),
    }
}

fn judge(prompt: &EvalPrompt, deltas: &[AnswerDelta]) -> EvalResult {
    let mut text = String::new();
    let mut call = None;
    let mut arguments = String::new();
    for delta in deltas {
        match delta {
            AnswerDelta::Text(more) => text.push_str(more),
            AnswerDelta::Call { name, .. } => {
                call.get_or_insert_with(|| name.clone());
            }
            AnswerDelta::Arguments { index: 0, text } => arguments.push_str(text),
            AnswerDelta::Begin | AnswerDelta::Arguments { .. } => {}
        }
    }
    let due = !prompt.accept.is_empty();
    let verdict = match &call {
        None if due => EvalVerdict::Missed,
        None => EvalVerdict::Right,
        Some(_) if !due => EvalVerdict::Eager,
        Some(name) => {
            let given = serde_json::from_str(&arguments).unwrap_or(Value::Null);
            let fits = prompt.accept.iter().any(|accept| accept.fits(name, &given));
            if fits {
                EvalVerdict::Right
            } else {
                EvalVerdict::Wrong
            }
        }
    };
    EvalResult {
        prompt: prompt.prompt.clone(),
        due,
        verdict,
        answer: match call {
            Some(name) => format!("{name} {arguments}"),
            None => text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> Vec<AnswerDelta> {
        vec![
            AnswerDelta::Begin,
            AnswerDelta::Call {
                index: 0,
                id: String::new(),
                name: name.to_owned(),
            },
            AnswerDelta::Arguments {
                index: 0,
                text: arguments.to_owned(),
            },
        ]
    }

    #[test]
    fn there_are_forty_prompts_and_their_tools_exist() {
        let prompts = prompts().unwrap();
        assert_eq!(prompts.len(), 40);
        let tools = tools().unwrap();
        for prompt in &prompts {
            for accept in &prompt.accept {
                let tool = tools.iter().find(|tool| tool.name == accept.tool).unwrap();
                let known = &tool.parameters.as_ref().unwrap()["properties"];
                for argument in accept.arguments.keys() {
                    assert!(known.get(argument).is_some(), "{argument} of {}", tool.name);
                }
            }
        }
        assert!(
            prompts
                .iter()
                .any(|prompt| prompt.probe && prompt.accept.is_empty())
        );
    }

    #[test]
    fn answers_are_judged() {
        let prompts = prompts().unwrap();
        let read = &prompts[0];
        let hello = prompts
            .iter()
            .find(|prompt| prompt.accept.is_empty())
            .unwrap();
        let verdict = |prompt, deltas: &[AnswerDelta]| judge(prompt, deltas).verdict;
        assert_eq!(
            verdict(read, &call("read_file", "{\"path\":\"./Notes.txt\"}")),
            EvalVerdict::Right
        );
        assert_eq!(
            verdict(read, &call("read_file", "{\"path\":\"a\"}")),
            EvalVerdict::Wrong
        );
        assert_eq!(verdict(read, &call("memory", "{}")), EvalVerdict::Wrong);
        assert_eq!(
            verdict(read, &[AnswerDelta::Text("notes.txt".to_owned())]),
            EvalVerdict::Missed
        );
        assert_eq!(
            verdict(hello, &[AnswerDelta::Text("Hi".to_owned())]),
            EvalVerdict::Right
        );
        assert_eq!(verdict(hello, &call("memory", "{}")), EvalVerdict::Eager);
        let mut report = EvalReport::default();
        assert!(!report.offers_tools());
        report
            .tried
            .push(judge(read, &call("read_file", "{\"path\":\"notes.txt\"}")));
        report.tried.push(judge(hello, &[]));
        assert!(report.offers_tools());
        assert_eq!(report.to_json()["right_calls"], 1);
        assert!(
            report
                .to_text()
                .starts_with("right calls               1 of  1  (100 %)\n")
        );
    }
}
