//! The forward pass beside a plain one, written as in the papers.

use hermes_local::engine::{Engine, EngineOptions};

use crate::tiny::{EPSILON, LLAMA, QWEN2, QWEN3, ROPE_BASE, Tensors, Tiny, VOCABULARY};

struct Plain<'a> {
    tiny: Tiny,
    tensors: &'a Tensors,
    /// For each layer, the keys and values of all tokens so far.
    memory: Vec<Vec<(Vec<f32>, Vec<f32>)>>,
}

impl Plain<'_> {
    fn vector(&self, name: &str) -> &[f32] {
        &self.tensors[name].2
    }

    fn times(&self, name: &str, state: &[f32]) -> Vec<f32> {
        let (_, cols, numbers) = &self.tensors[name];
        numbers
            .chunks(*cols)
            .map(|row| row.iter().zip(state).map(|(a, b)| a * b).sum())
            .collect()
    }

    fn rotate(&self, head: &mut [f32], position: usize) {
        let half = head.len() / 2;
        for pair in 0..half {
            let speed = ROPE_BASE.powf(-((2 * pair) as f32) / head.len() as f32);
            let (sin, cos) = (position as f32 * speed).sin_cos();
            let (a, b) = if self.tiny.architecture == "llama" {
                (2 * pair, 2 * pair + 1)
            } else {
                (pair, pair + half)
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }

    /// A query, key or value of all heads.
    fn heads(&self, layer: usize, part: &str, state: &[f32], position: usize) -> Vec<f32> {
        let name = |end: &str| format!("blk.{layer}.attn_{part}{end}");
        let mut numbers = self.times(&name(".weight"), state);
        if self.tiny.bias {
            for (number, bias) in numbers.iter_mut().zip(self.vector(&name(".bias"))) {
                *number += bias;
            }
        }
        if part != "v" {
            for head in numbers.chunks_mut(self.tiny.head) {
                if self.tiny.head_norm {
                    let normed = norm(head, self.vector(&name("_norm.weight")));
                    head.copy_from_slice(&normed);
                }
                self.rotate(head, position);
            }
        }
        numbers
    }

    fn attention(&mut self, layer: usize, state: &[f32], position: usize) -> Vec<f32> {
        let query = self.heads(layer, "q", state, position);
        let key = self.heads(layer, "k", state, position);
        let value = self.heads(layer, "v", state, position);
        self.memory[layer].push((key, value));
        let (size, group) = (self.tiny.head, self.tiny.heads / self.tiny.kv_heads);
        let mut found = vec![0.0; query.len()];
        for (number, (query, found)) in query.chunks(size).zip(found.chunks_mut(size)).enumerate() {
            let at = number / group * size;
            let powers: Vec<f32> = self.memory[layer]
                .iter()
                .map(|(key, _)| {
                    let dot: f32 = query.iter().zip(&key[at..]).map(|(a, b)| a * b).sum();
                    (dot / (size as f32).sqrt()).exp()
                })
                .collect();
            let sum: f32 = powers.iter().sum();
            for (power, (_, value)) in powers.iter().zip(&self.memory[layer]) {
                for (found, value) in found.iter_mut().zip(&value[at..at + size]) {
                    *found += power / sum * value;
                }
            }
        }
        self.times(&format!("blk.{layer}.attn_output.weight"), &found)
    }

    fn step(&mut self, token: u32, position: usize) -> Vec<f32> {
        let width = self.tiny.width;
        let mut state =
            self.vector("token_embd.weight")[token as usize * width..][..width].to_vec();
        for layer in 0..self.tiny.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let normed = norm(&state, self.vector(&name("attn_norm")));
            let change = self.attention(layer, &normed, position);
            state
                .iter_mut()
                .zip(change)
                .for_each(|(state, change)| *state += change);
            let normed = norm(&state, self.vector(&name("ffn_norm")));
            let gate = self.times(&name("ffn_gate"), &normed);
            let up = self.times(&name("ffn_up"), &normed);
            let inner: Vec<f32> = gate
                .iter()
                .zip(up)
                .map(|(x, up)| x / (1.0 + (-x).exp()) * up)
                .collect();
            let change = self.times(&name("ffn_down"), &inner);
            state
                .iter_mut()
                .zip(change)
                .for_each(|(state, change)| *state += change);
        }
        let normed = norm(&state, self.vector("output_norm.weight"));
        let output = if self.tiny.tied {
            "token_embd.weight"
        } else {
            "output.weight"
        };
        self.times(output, &normed)
    }
}

fn norm(row: &[f32], weight: &[f32]) -> Vec<f32> {
    let mean = row.iter().map(|value| value * value).sum::<f32>() / row.len() as f32;
    let scale = 1.0 / (mean + EPSILON).sqrt();
    row.iter()
        .zip(weight)
        .map(|(value, weight)| value * scale * weight)
        .collect()
}

/// The length of the difference, beside the length of the second.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let length =
        |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|n| n * n).sum::<f32>().sqrt();
    length(&mut a.iter().zip(b).map(|(a, b)| a - b)) / length(&mut b.iter().copied())
}

fn agrees(tiny: Tiny) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    let tensors = tiny.tensors(11);
    tiny.write(&file, &tensors, |_| {});
    let options = EngineOptions {
        threads: 2,
        ..EngineOptions::default()
    };
    let mut engine = Engine::open(&file, &options).unwrap();
    assert_eq!(engine.facts().architecture, tiny.architecture);
    let mut plain = Plain {
        tiny,
        tensors: &tensors,
        memory: vec![Vec::new(); tiny.layers],
    };
    let prompt: Vec<u32> = (0..150u32).map(|at| at * 37 % VOCABULARY as u32).collect();
    for (position, token) in prompt.iter().enumerate() {
        let expected = plain.step(*token, position);
        // With one token alone, within a chunk, and across chunks.
        if [0, 1, 6, 40, 149].contains(&position) {
            engine.forget();
            let found = engine.logits(&prompt[..=position]).unwrap();
            let distance = distance(&found, &expected);
            // Weights and states have seven bits.
            assert!(distance < 0.04, "{distance} at {position}");
        }
    }
}

#[test]
fn a_llama_agrees_with_the_plain_one() {
    agrees(LLAMA);
}

#[test]
fn a_qwen2_agrees_with_the_plain_one() {
    agrees(QWEN2);
}

#[test]
fn a_qwen3_agrees_with_the_plain_one() {
    agrees(QWEN3);
}
