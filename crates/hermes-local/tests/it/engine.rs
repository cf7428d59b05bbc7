//! The engine with real weights, and with files that are wrong.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Value;
use hermes_local::engine::{
    Constraint, Engine, EngineError, EngineOptions, GenerationEnd, GenerationStats, OpenError,
    SamplingOptions,
};

use crate::tiny::{CONTEXT, LLAMA, QWEN2, Tiny, VOCABULARY};
use crate::weights;

const GREEDY: SamplingOptions = SamplingOptions {
    temperature: 0.0,
    top_p: 1.0,
    seed: 0,
    max_tokens: 24,
};

fn open(file: &Path) -> Engine {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/local/cache");
    let options = EngineOptions {
        threads: 2,
        cache: Some(cache),
        context: None,
    };
    Engine::open(file, &options).unwrap()
}

fn chat(engine: &Engine, turns: &[(&str, &str)]) -> Vec<u32> {
    let mut text = String::new();
    for (role, words) in turns {
        text.extend(["<|im_start|>", role, "\n", words, "<|im_end|>\n"]);
    }
    text += "<|im_start|>assistant\n";
    engine.tokenizer().encode(&text, true)
}

fn generate(
    engine: &mut Engine,
    prompt: &[u32],
    how: &SamplingOptions,
) -> (Vec<u32>, GenerationStats) {
    let mut tokens = Vec::new();
    let done = engine
        .generate(
            prompt,
            how,
            None,
            &mut |token| {
                tokens.push(token);
                ControlFlow::Continue(())
            },
            &|| false,
        )
        .unwrap();
    (tokens, done)
}

#[test]
fn the_real_model_knows_what_it_is_and_where_the_eiffel_tower_stands() {
    let Some(file) = weights::require("the_real_model_knows_what_it_is") else {
        return;
    };
    let mut engine = open(&file);
    let facts = engine.facts().clone();
    assert_eq!(facts.architecture, "llama");
    assert_eq!(facts.quantisation, "Q4_1");
    assert_eq!((facts.context, facts.vocabulary), (8192, 49152));
    assert_eq!(facts.parameters, 134_515_008);
    assert_eq!(facts.eos.unwrap().text, "<|im_end|>");
    assert!(facts.template.unwrap().contains("im_start"));
    for (question, word) in [
        ("In which city is the Eiffel Tower?", "Paris"),
        ("What is the capital of France?", "Paris"),
        ("What color is the sky on a clear day?", "blue"),
    ] {
        let prompt = chat(&engine, &[("user", question)]);
        let (tokens, done) = generate(&mut engine, &prompt, &GREEDY);
        let answer = engine.tokenizer().decode(&tokens);
        assert!(answer.contains(word), "{question} {answer}");
        assert_eq!(done.generated, tokens.len());
    }
}

#[test]
fn what_was_read_before_is_not_read_again_and_changes_nothing() {
    let Some(file) = weights::require("what_was_read_before_is_not_read_again") else {
        return;
    };
    let mut engine = open(&file);
    let first = chat(&engine, &[("user", "Name a fruit.")]);
    let (answer, done) = generate(&mut engine, &first, &GREEDY);
    assert_eq!((done.prompt, done.reused), (first.len(), 0));
    let said = engine.tokenizer().decode(&answer);
    let turns = [
        ("user", "Name a fruit."),
        ("assistant", &said),
        ("user", "Another one."),
    ];
    let second = chat(&engine, &turns);
    let (_, done) = generate(&mut engine, &second, &GREEDY);
    assert!(done.reused >= first.len(), "{done:?}");
    assert!(done.reused < second.len());

    let warm = engine.logits(&second).unwrap();
    engine.forget();
    let cold = engine.logits(&second).unwrap();
    assert!(apart(&warm, &cold) < 1e-3);
}

/// How far the two that differ most are from each other.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max)
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let Some(file) = weights::require("text_becomes_tokens_and_text_again") else {
        return;
    };
    let engine = open(&file);
    let tokenizer = engine.tokenizer();
    for text in [
        "Hello, world 2024!",
        "  two\n\nlines\t",
        "naïve 日本語 🦀",
        "",
    ] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false)), text);
    }
    // What the file's own tokenizer makes of it: digits apart, no space in front.
    assert_eq!(tokenizer.encode("2024", false).len(), 4);
    let end = tokenizer.special("<|im_end|>").unwrap();
    assert!(tokenizer.is_special(end));
    assert_eq!(tokenizer.encode("<|im_end|>", true), [end]);
    assert!(!tokenizer.encode("<|im_end|>", false).contains(&end));
}

fn tiny(
    tiny: Tiny,
    change: impl FnOnce(&mut Vec<(String, Value)>),
) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    tiny.write(&file, &tiny.tensors(5), change);
    (folder, file)
}

fn open_tiny() -> (tempfile::TempDir, Engine) {
    let (folder, file) = tiny(LLAMA, |_| {});
    let engine = Engine::open(&file, &EngineOptions::default()).unwrap();
    (folder, engine)
}

fn refused(file: &Path) -> String {
    match Engine::open(file, &EngineOptions::default()) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_that_are_no_models_are_refused_with_a_reason() {
    let (folder, file) = tiny(LLAMA, |_| {});
    let whole = std::fs::read(&file).unwrap();
    for (part, reason) in [
        (whole.len() - 40_000, "bytes and has"),
        (3000, "damaged"),
        (3, "not a GGUF file"),
        (0, "not a GGUF file"),
    ] {
        std::fs::write(&file, &whole[..part]).unwrap();
        let error = refused(&file);
        assert!(
            error.contains(reason) && error.contains("tiny.gguf"),
            "{error}"
        );
    }
    std::fs::write(&file, b"PK\x03\x04 a zip").unwrap();
    assert!(refused(&file).contains("starts with"));
    let missing = folder.path().join("missing.gguf");
    assert!(matches!(
        Engine::open(&missing, &EngineOptions::default()),
        Err(OpenError::Missing(_))
    ));
}

#[test]
fn models_that_are_not_known_are_refused_with_what_is() {
    let set = |key: &'static str, value: Value| {
        move |metadata: &mut Vec<(String, Value)>| {
            metadata.retain(|(name, _)| name != key);
            metadata.push((key.to_owned(), value));
        }
    };
    let text = |value: &str| Value::String(value.to_owned());
    for (change, reason) in [
        (
            set("general.architecture", text("mamba")),
            "known here are llama, qwen2, qwen3",
        ),
        (
            set("tokenizer.ggml.model", text("bert")),
            "known here are gpt2 and llama",
        ),
        (
            set("tokenizer.ggml.pre", text("tekken")),
            "in the way of tekken",
        ),
        (
            set("llama.expert_count", Value::U32(8)),
            "mixture of experts",
        ),
        (
            set("llama.rope.scaling.type", text("yarn")),
            "scaled by yarn",
        ),
        (
            set("llama.block_count", Value::U32(9)),
            "blk.2.attn_norm.weight is missing",
        ),
        (
            set("llama.feed_forward_length", Value::U32(7)),
            "is expected",
        ),
        (
            set("llama.attention.head_count_kv", Value::U32(4)),
            "do not share",
        ),
        (
            set("llama.embedding_length", Value::U32(0)),
            "no usable llama.embedding_length",
        ),
    ] {
        let (_folder, file) = tiny(LLAMA, change);
        let error = refused(&file);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn weights_are_requantised_once_and_a_damaged_copy_is_made_anew() {
    let (folder, file) = tiny(QWEN2, |_| {});
    let cache = folder.path().join("cache");
    let options = EngineOptions {
        threads: 1,
        cache: Some(cache.clone()),
        context: None,
    };
    let prompt: Vec<u32> = (1..40).collect();
    let logits = || {
        Engine::open(&file, &options)
            .unwrap()
            .logits(&prompt)
            .unwrap()
    };
    let kept = || {
        let files = std::fs::read_dir(&cache).unwrap();
        files.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let expected = logits();
    let copy = kept().remove(0);
    let whole = std::fs::read(&copy).unwrap();
    assert_eq!(logits(), expected);

    let mut bad = whole.clone();
    bad[whole.len() / 2] ^= 1;
    for bad in [bad, whole[..whole.len() - 64].to_vec(), Vec::new()] {
        std::fs::write(&copy, bad).unwrap();
        assert_eq!(logits(), expected);
        assert_eq!(std::fs::read(&copy).unwrap(), whole);
    }
    // Another file at the same place: another copy, and the old one goes.
    QWEN2.write(&file, &QWEN2.tensors(6), |_| {});
    assert_ne!(logits(), expected);
    assert_eq!(kept().len(), 1);
    assert_ne!(kept()[0], copy);
}

#[test]
fn what_a_killed_start_left_behind_goes_with_the_next() {
    let (folder, file) = tiny(QWEN2, |_| {});
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    let left = cache.join("tiny.aB3xYz.q8.part");
    let written = cache.join("tiny.Zz9aB3.q8.part");
    let other = cache.join("tiny.Q4_1.aB3xYz.q8.part");
    for path in [&left, &written, &other] {
        std::fs::write(path, "half").unwrap();
    }
    // Another process is writing this one.
    let writing = std::fs::File::open(&written).unwrap();
    writing.lock().unwrap();
    let options = EngineOptions {
        threads: 1,
        cache: Some(cache.clone()),
        context: None,
    };
    Engine::open(&file, &options).unwrap();
    assert!(!left.exists());
    assert!(written.exists() && other.exists());
    let entries = std::fs::read_dir(&cache).unwrap();
    assert_eq!(entries.count(), 3, "the copy itself, and nothing else");
}

#[test]
fn a_stop_ends_a_long_prompt_within_a_layer() {
    let (_folder, mut engine) = open_tiny();
    let prompt: Vec<u32> = (0..600).map(|at| at % 256).collect();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() >= 4
    };
    let done = engine
        .generate(&prompt, &GREEDY, None, &mut |_| panic!("a token"), &stop)
        .unwrap();
    assert_eq!((done.end, done.generated), (GenerationEnd::Stopped, 0));
    // Two layers of two chunks were asked about; nothing ran after the answer.
    assert_eq!(asked.get(), 4);
    // The first chunk is whole and stays; nothing is left of the second.
    let (_, done) = generate(&mut engine, &prompt, &GREEDY);
    assert_eq!(done.reused, 128);
    let after = engine.logits(&prompt).unwrap();
    let fresh = open_tiny().1.logits(&prompt).unwrap();
    assert!(apart(&after, &fresh) < 1e-3);
}

#[test]
fn a_stop_inside_a_token_leaves_nothing_for_the_next_question() {
    let short: Vec<u32> = vec![1, 2, 3];
    let long: Vec<u32> = (1..60).collect();
    for next in [short, long] {
        // Two layers of the prompt and of each token: the fourth time is in the middle of the first
        // token.
        let (_folder, mut engine) = open_tiny();
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() >= 4
        };
        let mut on_token = |_| ControlFlow::Continue(());
        let done = engine
            .generate(&[1, 2, 3], &GREEDY, None, &mut on_token, &stop)
            .unwrap();
        assert_eq!((done.end, done.generated), (GenerationEnd::Stopped, 1));
        let after = engine.logits(&next).unwrap();
        let fresh = open_tiny().1.logits(&next).unwrap();
        assert!(apart(&after, &fresh) < 1e-3, "{} tokens", next.len());
    }
}

#[test]
fn a_stop_or_a_break_ends_between_tokens() {
    let (_folder, mut engine) = open_tiny();
    let how = SamplingOptions {
        max_tokens: 400,
        ..GREEDY
    };
    let count = Cell::new(0);
    let mut on_token = |_| {
        count.set(count.get() + 1);
        ControlFlow::Continue(())
    };
    let done = engine
        .generate(&[1, 2, 3], &how, None, &mut on_token, &|| count.get() >= 5)
        .unwrap();
    assert_eq!((done.end, done.generated), (GenerationEnd::Stopped, 5));
    let mut on_token = |_| ControlFlow::Break(());
    let done = engine
        .generate(&[1, 2, 3], &how, None, &mut on_token, &|| false)
        .unwrap();
    assert_eq!((done.end, done.generated), (GenerationEnd::Break, 1));
}

#[test]
fn limits_are_kept() {
    let (_folder, mut engine) = open_tiny();
    assert!(matches!(engine.logits(&[]), Err(EngineError::EmptyPrompt)));
    assert!(matches!(
        engine.logits(&[VOCABULARY as u32]),
        Err(EngineError::UnknownToken { .. })
    ));
    let long = vec![1; CONTEXT + 1];
    let error = engine.logits(&long).unwrap_err().to_string();
    assert!(
        error.contains("701 tokens") && error.contains("700"),
        "{error}"
    );
    let how = SamplingOptions {
        max_tokens: 5000,
        ..GREEDY
    };
    let (tokens, done) = generate(&mut engine, &long[..CONTEXT - 5], &how);
    if done.end == GenerationEnd::Length {
        assert_eq!(tokens.len(), 6, "the last one is not run and needs no room");
    }
    let (tokens, done) = generate(&mut engine, &[7, 8], &GREEDY);
    assert!(tokens.len() == GREEDY.max_tokens || done.end == GenerationEnd::Eos);
}

#[test]
fn one_seed_one_answer() {
    let (_folder, mut engine) = open_tiny();
    let answer = |engine: &mut Engine, seed| {
        let how = SamplingOptions {
            temperature: 1.5,
            top_p: 0.95,
            seed,
            max_tokens: 12,
        };
        generate(engine, &[5, 6, 7], &how).0
    };
    let first = answer(&mut engine, 1);
    assert_eq!(answer(&mut engine, 1), first);
    assert!((2..8).any(|seed| answer(&mut engine, seed) != first));
}

/// Allows one token after the other, then nothing more.
struct Script {
    tokens: Vec<u32>,
    taken: usize,
}

impl Constraint for Script {
    fn mask(&mut self, logits: &mut [f32]) {
        let allowed = self.tokens.get(self.taken).map(|token| *token as usize);
        for (token, logit) in logits.iter_mut().enumerate() {
            if Some(token) != allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    fn accept(&mut self, token: u32) {
        assert_eq!(self.tokens[self.taken], token);
        self.taken += 1;
    }

    fn finished(&self) -> bool {
        self.taken == self.tokens.len()
    }
}

#[test]
fn a_constraint_decides_what_comes() {
    let (_folder, mut engine) = open_tiny();
    let mut script = Script {
        tokens: vec![9, 200, 33],
        taken: 0,
    };
    let mut tokens = Vec::new();
    let mut on_token = |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    };
    let done = engine
        .generate(&[1, 2], &GREEDY, Some(&mut script), &mut on_token, &|| {
            false
        })
        .unwrap();
    assert_eq!(
        (done.end, tokens),
        (GenerationEnd::Constraint, vec![9, 200, 33])
    );

    let mut nothing = Script {
        tokens: vec![100_000],
        taken: 0,
    };
    let mut on_token = |_| ControlFlow::Continue(());
    let error = engine.generate(&[1, 2], &GREEDY, Some(&mut nothing), &mut on_token, &|| {
        false
    });
    assert!(matches!(error, Err(EngineError::NothingAllowed)));
}
