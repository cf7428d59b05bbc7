//! A model that does what it is told, for everything that is not about models.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hermes_local::engine::{
    Constraint, EngineError, GenerationEnd, GenerationStats, ModelFacts, SamplingOptions,
    SpecialToken,
};
use hermes_local::generation::GenerationModel;
use hermes_local::server::{LocalServerSettings, serve};
use tempfile::TempDir;

use crate::http::{Client, eventually};

const START: u32 = 256;
const END: u32 = 257;
const VOCABULARY: usize = 258;

/// Held: answers to "wait" do not end. Counts how often the model was opened, how many of them
/// there are, and how many there were at once.
#[derive(Default)]
pub(crate) struct Strings {
    held: Mutex<bool>,
    moved: Condvar,
    pub(crate) opened: Mutex<usize>,
    alive: Mutex<usize>,
    pub(crate) at_once: Mutex<usize>,
}

impl Strings {
    pub(crate) fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.moved.notify_all();
    }
}

struct Parrot {
    facts: ModelFacts,
    pieces: Vec<Vec<u8>>,
    last: Vec<u32>,
    strings: Arc<Strings>,
}

impl Parrot {
    fn new(strings: Arc<Strings>) -> Self {
        let mut pieces: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        pieces.extend([b"<|im_start|>".to_vec(), b"<|im_end|>".to_vec()]);
        *strings.opened.lock().unwrap() += 1;
        let mut alive = strings.alive.lock().unwrap();
        *alive += 1;
        let mut at_once = strings.at_once.lock().unwrap();
        *at_once = (*at_once).max(*alive);
        drop((alive, at_once));
        Self {
            facts: ModelFacts {
                name: "Parrot".to_owned(),
                architecture: "bird".to_owned(),
                parameters: 1,
                context: 4000,
                template: None,
                bos: None,
                eos: Some(SpecialToken {
                    id: END,
                    text: "<|im_end|>".to_owned(),
                }),
                add_bos: false,
                ends: vec![END],
                vocabulary: VOCABULARY,
                quantisation: "F32".to_owned(),
            },
            pieces,
            last: Vec::new(),
            strings,
        }
    }

    /// What it says to what it was told.
    fn line(&self, told: &str, stop: &dyn Fn() -> bool) -> String {
        if let Some(said) = told.strip_prefix("say ") {
            return said.to_owned();
        }
        match told {
            "panic" => panic!("the parrot falls off its perch"),
            "count" => "and on ".repeat(100_000),
            "wait" => {
                let mut held = self.strings.held.lock().unwrap();
                while *held && !stop() {
                    let pause = Duration::from_millis(5);
                    held = self.strings.moved.wait_timeout(held, pause).unwrap().0;
                }
                "waited".to_owned()
            }
            _ => "Polly".to_owned(),
        }
    }
}

impl Drop for Parrot {
    fn drop(&mut self) {
        *self.strings.alive.lock().unwrap() -= 1;
    }
}

impl GenerationModel for Parrot {
    fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            let control = [START, END]
                .into_iter()
                .filter(|_| special)
                .find_map(|id| Some((id, rest.strip_prefix(self.piece(id))?)));
            let (token, next) = control.unwrap_or((u32::from(*first), after));
            tokens.push(token);
            rest = next;
        }
        tokens
    }

    fn piece(&self, token: u32) -> &[u8] {
        &self.pieces[token as usize]
    }

    fn is_special(&self, token: u32) -> bool {
        token >= START
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        how: &SamplingOptions,
        mut constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<GenerationStats, EngineError> {
        let reused = self
            .last
            .iter()
            .zip(prompt)
            .take_while(|(a, b)| a == b)
            .count();
        self.last = prompt.to_vec();
        // The last turn but one is what it was told; the last has just begun.
        let turns: Vec<&[u32]> = prompt.split(|token| *token == START).collect();
        let told = turns[turns.len() - 2]
            .split(|token| *token == END)
            .next()
            .unwrap();
        let told: Vec<u8> = told.iter().map(|token| *token as u8).collect();
        let told = String::from_utf8(told).unwrap();
        let line = self.line(told.strip_prefix("user\n").unwrap_or(&told), stop);
        let mut wanted = line.bytes();
        let mut generated = 0;
        let end = loop {
            if stop() {
                break GenerationEnd::Stopped;
            }
            if constraint
                .as_ref()
                .is_some_and(|constraint| constraint.finished())
            {
                break GenerationEnd::Constraint;
            }
            if generated == how.max_tokens {
                break GenerationEnd::Length;
            }
            let mut logits = vec![0.0; VOCABULARY];
            logits[wanted.next().map_or(END, u32::from) as usize] = 1.0;
            if let Some(constraint) = &mut constraint {
                constraint.mask(&mut logits);
            }
            let best = (0..VOCABULARY)
                .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
                .unwrap();
            let token = best as u32;
            if let Some(constraint) = &mut constraint {
                constraint.accept(token);
            }
            if token == END {
                break GenerationEnd::Eos;
            }
            generated += 1;
            if on_token(token).is_break() {
                break GenerationEnd::Break;
            }
        };
        Ok(GenerationStats {
            prompt: prompt.len(),
            reused,
            generated,
            prefill: Duration::from_millis(1),
            decode: Duration::from_millis(1),
            end,
        })
    }
}

/// A server with the parrot, in this process.
pub(crate) struct Perch {
    pub(crate) client: Client,
    pub(crate) strings: Arc<Strings>,
    pub(crate) run: PathBuf,
    _directory: TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Perch {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run/local.json");
        let strings = Arc::new(Strings::default());
        let settings = LocalServerSettings {
            model: PathBuf::from("/models/parrot.Q1.gguf"),
            run: run.clone(),
            idle: Duration::from_mins(10),
            grace: Duration::from_mins(10),
        };
        let shared = Arc::clone(&strings);
        let open = Box::new(move || {
            Ok(Box::new(Parrot::new(Arc::clone(&shared))) as Box<dyn GenerationModel>)
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let guard = runtime.enter();
        hermes_core::task::spawn("parrot", serve(settings, open, || {}));
        drop(guard);
        eventually("the run file", || run.exists());
        let told: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&run).unwrap()).unwrap();
        let client = Client {
            port: told["port"].as_u64().unwrap() as u16,
            token: told["token"].as_str().unwrap().to_owned(),
            host: None,
        };
        Self {
            client,
            strings,
            run,
            _directory: directory,
            _runtime: runtime,
        }
    }
}
