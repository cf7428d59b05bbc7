//! An open model with its template, its vocabulary and the grammars in use.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::answer::{AnswerDelta, AnswerParser};
use super::ask::{AnswerShape, GenerationRequest};
use super::model::GenerationModel;
use crate::chat::{ChatError, ControlTextGuard, Template};
use crate::engine::{Constraint, EngineError, GenerationEnd, ModelFacts, SamplingOptions};
use crate::grammar::{
    self, CallChoice, CallStyle, GrammarGuide, MaskedGrammar, SchemaError, Vocabulary,
};

/// Tokens of an answer where the question does not say.
const DEFAULT_ANSWER_TOKENS: usize = 2048;
/// Grammars that are kept, with their masks.
const MAX_CACHED_GRAMMARS: usize = 4;

pub struct ModelSession {
    model: Box<dyn GenerationModel>,
    template: Template,
    vocabulary: Rc<Vocabulary>,
    grammars: Vec<(String, Rc<MaskedGrammar>)>,
}

struct PreparedPrompt {
    prompt: Vec<u32>,
    max_tokens: usize,
    /// How calls are written, if there may be some.
    style: Option<CallStyle>,
    guide: Option<GrammarGuide>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFinish {
    Stop,
    Length,
    Calls,
}

/// Tokens that an answer took.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationUsage {
    pub prompt: usize,
    /// Tokens of the prompt that were known from before.
    pub reused: usize,
    pub generated: usize,
    pub prefill: Duration,
    pub decode: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct GenerationOutcome {
    pub finish: AnswerFinish,
    pub used: GenerationUsage,
}

#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    #[error("{0}")]
    Tools(SchemaError),
    #[error("{0}")]
    Chat(#[from] ChatError),
    #[error(
        "the conversation has {prompt} tokens, but this model has room for {context} in all: \
         make it shorter"
    )]
    TooLong { prompt: usize, context: usize },
    #[error("a call of these tools takes up to {least} tokens: raise max_tokens")]
    TooFewTokens { least: usize },
    #[error("cancelled")]
    Cancelled,
    #[error("the model failed: {0}")]
    Engine(#[from] EngineError),
    #[error("this model's vocabulary cannot spell what the schema asks for")]
    Unspeakable,
    #[error("the model's process had an internal error and is restarting")]
    Panicked,
}

impl ModelSession {
    pub fn new(model: Box<dyn GenerationModel>) -> Result<Self, ChatError> {
        let facts = model.facts();
        let size = facts.vocabulary as u32;
        let special = (0..size).filter(|id| model.is_special(*id));
        let texts = special.map(|id| String::from_utf8_lossy(model.piece(id)).into_owned());
        let template = Template::new(facts, ControlTextGuard::new(texts.collect()))?;
        let vocabulary = Vocabulary::new(facts.vocabulary, &facts.ends, |id| {
            if model.is_special(id) {
                &[]
            } else {
                model.piece(id)
            }
        });
        Ok(Self {
            vocabulary: Rc::new(vocabulary),
            model,
            template,
            grammars: Vec::new(),
        })
    }

    pub fn facts(&self) -> &ModelFacts {
        self.model.facts()
    }

    /// Answers. `tell` gets the answer as it comes; when `stop` says so, nobody wants it any more.
    /// `on_token` is called for each token.
    pub fn answer(
        &mut self,
        ask: &GenerationRequest,
        tell: &mut dyn FnMut(AnswerDelta),
        on_token: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> Result<GenerationOutcome, GenerationError> {
        let PreparedPrompt {
            prompt,
            max_tokens,
            style,
            mut guide,
        } = self.prepare(ask)?;
        if stop() {
            return Err(GenerationError::Cancelled);
        }
        tell(AnswerDelta::Begin);
        let sampling = SamplingOptions {
            temperature: ask.temperature,
            top_p: ask.top_p,
            seed: ask.seed,
            max_tokens,
        };
        let constraint = guide.as_mut().map(|guide| guide as &mut dyn Constraint);
        let mut answer = AnswerParser::new(style, &ask.stops);
        let vocabulary = Rc::clone(&self.vocabulary);
        let stopped = Cell::new(false);
        let mut deltas = Vec::new();
        let done = self.model.generate(
            &prompt,
            &sampling,
            constraint,
            &mut |token| {
                on_token();
                stopped.set(answer.feed(vocabulary.piece(token), call_id, &mut deltas));
                deltas.drain(..).for_each(&mut *tell);
                if stopped.get() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            stop,
        )?;
        if done.end == GenerationEnd::Stopped {
            return Err(GenerationError::Cancelled);
        }
        if guide.as_ref().is_some_and(GrammarGuide::lost) {
            return Err(GenerationError::Unspeakable);
        }
        let calls = answer.calls();
        // What is complete with the very last token is complete; text never is.
        let shaped =
            calls > 0 || (ask.tools.is_empty() && matches!(ask.shape, AnswerShape::Json(_)));
        let whole = shaped && guide.is_some_and(|guide| guide.complete());
        if !stopped.get() {
            answer.finish(&mut deltas);
            deltas.into_iter().for_each(tell);
        }
        let finish = match done.end {
            GenerationEnd::Length if !whole => AnswerFinish::Length,
            _ if calls > 0 => AnswerFinish::Calls,
            _ => AnswerFinish::Stop,
        };
        let used = GenerationUsage {
            prompt: done.prompt,
            reused: done.reused,
            generated: done.generated,
            prefill: done.prefill,
            decode: done.decode,
        };
        Ok(GenerationOutcome { finish, used })
    }

    /// Everything that an answer needs; what is wrong with the question comes out here.
    fn prepare(&mut self, ask: &GenerationRequest) -> Result<PreparedPrompt, GenerationError> {
        let template = &self.template;
        let rendered = template.render(&ask.messages, &ask.tools, ask.thinking)?;
        let model = &self.model;
        let prompt = template.tokens_with(&rendered, |text, special| model.encode(text, special));
        let context = model.facts().context;
        let available = context.saturating_sub(prompt.len());
        let too_long = GenerationError::TooLong {
            prompt: prompt.len(),
            context,
        };
        if available == 0 {
            return Err(too_long);
        }
        let max_tokens = ask
            .max_tokens
            .unwrap_or(DEFAULT_ANSWER_TOKENS)
            .min(available);
        let (style, guided) = self.guided(ask)?;
        let guide = guided.map(|guided| GrammarGuide::new(&guided, max_tokens));
        let least = guide.as_ref().map_or(0, GrammarGuide::shortest);
        if least > max_tokens {
            return Err(match ask.max_tokens {
                Some(requested) if requested < available => GenerationError::TooFewTokens { least },
                _ => too_long,
            });
        }
        Ok(PreparedPrompt {
            prompt,
            max_tokens,
            style,
            guide,
        })
    }

    /// What the answer must follow, and how calls in it are written.
    fn guided(
        &mut self,
        ask: &GenerationRequest,
    ) -> Result<(Option<CallStyle>, Option<Rc<MaskedGrammar>>), GenerationError> {
        let style = self.template.style();
        let callable = ask.callable();
        let key = match &ask.shape {
            _ if !callable.is_empty() => {
                let tools = callable.iter();
                let tools = tools.map(|tool| json!([tool.name, tool.parameters]));
                let tools: serde_json::Value = tools.collect();
                format!("{:?} {} {tools}", ask.choice, ask.parallel)
            }
            AnswerShape::Json(schema) => schema.to_string(),
            AnswerShape::Text => return Ok((None, None)),
        };
        let known = self.grammars.iter().position(|(known, _)| *known == key);
        // The one used last is the last to go.
        let known = known.map(|at| self.grammars.remove(at).1);
        let guided = known.map_or_else(
            || {
                let grammar = match &ask.shape {
                    AnswerShape::Json(schema) if callable.is_empty() => grammar::value(schema),
                    _ => grammar::calls(style, &callable, ask.choice, ask.parallel),
                };
                let grammar = grammar.map_err(GenerationError::Tools)?;
                Ok::<_, GenerationError>(MaskedGrammar::new(Rc::clone(&self.vocabulary), grammar))
            },
            Ok,
        )?;
        if self.grammars.len() >= MAX_CACHED_GRAMMARS {
            self.grammars.remove(0);
        }
        self.grammars.push((key, Rc::clone(&guided)));
        let calls = !callable.is_empty() && ask.choice != CallChoice::None;
        Ok((calls.then_some(style), Some(guided)))
    }
}

fn call_id() -> String {
    format!("call_{:024x}", rand::random::<u128>() >> 32)
}
