//! Calls through the engine: a small model with random weights calls whatever the schema is.

use std::path::Path;

use candle_core::quantized::gguf_file::Value as Metadata;
use hermes_local::chat::{ChatRole, PromptMessage, PromptTool};
use hermes_local::engine::EngineOptions;
use hermes_local::generation::{
    AnswerDelta, AnswerFinish, AnswerShape, GenerationError, GenerationRequest, ModelSession, file,
};
use hermes_local::grammar::CallChoice;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::check::valid;
use crate::grammar::{rooted, schema};
use crate::tiny::LLAMA;

/// Every byte is a token, so that prompts are long.
const CONTEXT: u32 = 8000;

fn session(directory: &Path) -> ModelSession {
    let path = directory.join("tiny.gguf");
    LLAMA.write(&path, &LLAMA.tensors(11), |metadata| {
        for (key, value) in metadata {
            if key.ends_with("context_length") {
                *value = Metadata::U32(CONTEXT);
            }
        }
    });
    let options = EngineOptions {
        threads: 1,
        ..EngineOptions::default()
    };
    ModelSession::new(file(path, options)().unwrap()).unwrap()
}

fn ask(seed: u64) -> GenerationRequest {
    GenerationRequest {
        temperature: 1.5,
        seed,
        max_tokens: Some(300),
        ..GenerationRequest::new(vec![PromptMessage::new(ChatRole::User, "Go.")])
    }
}

fn answer(
    session: &mut ModelSession,
    ask: &GenerationRequest,
) -> Result<(Vec<AnswerDelta>, AnswerFinish), GenerationError> {
    let mut deltas = Vec::new();
    let outcome = session.answer(ask, &mut |delta| deltas.push(delta), &|| {}, &|| false)?;
    Ok((deltas, outcome.finish))
}

/// The calls of an answer, each with its arguments.
fn calls(deltas: &[AnswerDelta]) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for delta in deltas {
        match delta {
            AnswerDelta::Call { name, .. } => calls.push((name.clone(), String::new())),
            AnswerDelta::Arguments { text, .. } => calls.last_mut().unwrap().1.push_str(text),
            AnswerDelta::Begin | AnswerDelta::Text(_) => {}
        }
    }
    calls
}

#[test]
fn a_model_without_sense_makes_well_formed_calls() {
    let directory = tempfile::tempdir().unwrap();
    let session = std::cell::RefCell::new(session(directory.path()));
    let strategy = (schema(), any::<u64>(), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(32)
    });
    let test = |(schema, seed, parallel): (Value, u64, bool)| {
        let parameters = rooted(&json!({
            "type": "object",
            "properties": { "it": schema, "count": { "type": "integer", "minimum": 3 } },
            "required": ["count"],
        }));
        let mut ask = ask(seed);
        ask.choice = CallChoice::Required;
        ask.parallel = parallel;
        ask.tools = ["first", "second"]
            .map(|name| PromptTool {
                name: name.to_owned(),
                description: "Does it.".to_owned(),
                parameters: Some(parameters.clone()),
            })
            .to_vec();
        let (deltas, finish) = answer(&mut session.borrow_mut(), &ask).unwrap();
        prop_assert_eq!(finish, AnswerFinish::Calls);
        let calls = calls(&deltas);
        prop_assert!(!calls.is_empty());
        prop_assert!(parallel || calls.len() == 1);
        for (name, arguments) in calls {
            prop_assert!(name == "first" || name == "second");
            let given: Value = serde_json::from_str(&arguments).unwrap();
            prop_assert!(valid(&parameters, &parameters, &given), "{}", given);
        }
        Ok(())
    };
    runner.run(&strategy, test).unwrap();
}

#[test]
fn a_model_without_sense_writes_json_by_a_schema() {
    let directory = tempfile::tempdir().unwrap();
    let session = std::cell::RefCell::new(session(directory.path()));
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(32)
    });
    let test = |(schema, seed): (Value, u64)| {
        let schema = rooted(&schema);
        let mut ask = ask(seed);
        ask.shape = AnswerShape::Json(schema.clone());
        let (deltas, finish) = match answer(&mut session.borrow_mut(), &ask) {
            // There are schemas that nothing satisfies, and some that need more tokens.
            Err(GenerationError::Tools(_) | GenerationError::TooFewTokens { .. }) => return Ok(()),
            answered => answered.unwrap(),
        };
        prop_assert_eq!(finish, AnswerFinish::Stop);
        let text: String = deltas
            .iter()
            .filter_map(|delta| match delta {
                AnswerDelta::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let written: Value = serde_json::from_str(&text).unwrap();
        prop_assert!(valid(&schema, &schema, &written), "{}", written);
        Ok(())
    };
    runner.run(&(schema(), any::<u64>()), test).unwrap();
}
