//! What a session needs of a model: the engine has it, and so have models made for tests.

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::engine::{Constraint, Done, Engine, EngineError, Facts, OpenError, Options, Sampling};

pub trait Model {
    fn facts(&self) -> &Facts;
    /// With `special`, control texts become their tokens.
    fn encode(&self, text: &str, special: bool) -> Vec<u32>;
    fn piece(&self, token: u32) -> &[u8];
    fn is_special(&self, token: u32) -> bool;
    fn generate(
        &mut self,
        prompt: &[u32],
        how: &Sampling,
        constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Done, EngineError>;
}

impl Model for Engine {
    fn facts(&self) -> &Facts {
        self.facts()
    }

    fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        self.tokenizer().encode(text, special)
    }

    fn piece(&self, token: u32) -> &[u8] {
        self.tokenizer().piece(token)
    }

    fn is_special(&self, token: u32) -> bool {
        self.tokenizer().is_special(token)
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        how: &Sampling,
        constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Done, EngineError> {
        self.generate(prompt, how, constraint, on_token, stop)
    }
}

/// Opens the model; again after it failed.
pub type Open = Box<dyn FnMut() -> Result<Box<dyn Model>, OpenError> + Send>;

/// Opens a file.
pub fn file(path: PathBuf, options: Options) -> Open {
    Box::new(move || Ok(Box::new(Engine::open(&path, &options)?)))
}
