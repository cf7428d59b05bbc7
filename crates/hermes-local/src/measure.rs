//! Measures the speed of a model on this machine.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::{Engine, EngineOptions, GenerationStats, SamplingOptions};

/// Opens a model and continues `text` greedily, `rounds` times from the start. Reports the time to open it,
/// tokens per second of each round, and the tokens.
pub fn run(
    file: &Path,
    options: &EngineOptions,
    text: &str,
    tokens: usize,
    rounds: usize,
) -> anyhow::Result<Value> {
    let started = Instant::now();
    let mut engine = Engine::open(file, options)?;
    let load = started.elapsed();
    let prompt = engine.tokenizer().encode(text, true);
    let how = SamplingOptions {
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
        max_tokens: tokens,
    };
    let mut done: Vec<GenerationStats> = Vec::new();
    let mut answer = Vec::new();
    for _ in 0..rounds {
        engine.forget();
        answer.clear();
        let mut on_token = |token| {
            answer.push(token);
            ControlFlow::Continue(())
        };
        done.push(engine.generate(&prompt, &how, None, &mut on_token, &|| false)?);
    }
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64().max(1e-9);
    let prefill: Vec<f64> = done.iter().map(|d| rate(d.prompt, d.prefill)).collect();
    // The first token comes from processing the prompt.
    let decode: Vec<f64> = done
        .iter()
        .map(|d| rate(d.generated.saturating_sub(1), d.decode))
        .collect();
    Ok(json!({
        "load_seconds": load.as_secs_f64(),
        "prompt": prompt,
        "prefill": prefill,
        "decode": decode,
        "answer": answer,
        "text": engine.tokenizer().decode(&answer),
        "quantisation": engine.facts().quantisation,
    }))
}
