//! Small models with random weights, written as GGUF files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

/// What a small model looks like.
#[derive(Clone, Copy)]
pub(crate) struct Tiny {
    pub(crate) architecture: &'static str,
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head: usize,
    pub(crate) feed: usize,
    pub(crate) bias: bool,
    pub(crate) head_norm: bool,
    pub(crate) tied: bool,
}

pub(crate) const LLAMA: Tiny = Tiny {
    architecture: "llama",
    layers: 2,
    width: 96,
    heads: 6,
    kv_heads: 2,
    head: 16,
    feed: 160,
    bias: false,
    head_norm: false,
    tied: true,
};

pub(crate) const QWEN2: Tiny = Tiny {
    architecture: "qwen2",
    layers: 3,
    heads: 2,
    kv_heads: 1,
    head: 32,
    width: 64,
    bias: true,
    tied: false,
    ..LLAMA
};

pub(crate) const QWEN3: Tiny = Tiny {
    architecture: "qwen3",
    heads: 4,
    kv_heads: 4,
    head: 48,
    head_norm: true,
    ..LLAMA
};

pub(crate) const VOCABULARY: usize = 272;
pub(crate) const CONTEXT: usize = 700;
pub(crate) const EPSILON: f32 = 1e-5;
pub(crate) const ROPE_BASE: f32 = 10_000.0;
const END: u32 = 257;

/// A model's tensors by name: rows, columns, numbers.
pub(crate) type Tensors = BTreeMap<String, (usize, usize, Vec<f32>)>;

impl Tiny {
    pub(crate) fn tensors(&self, seed: u64) -> Tensors {
        let mut tensors = Tensors::new();
        let mut random = Random(seed);
        let mut matrix = |name: &str, rows: usize, cols: usize| {
            let scale = 1.5 / (cols as f32).sqrt();
            let numbers = (0..rows * cols).map(|_| random.next() * scale).collect();
            tensors.insert(name.to_owned(), (rows, cols, numbers));
        };
        matrix("token_embd.weight", VOCABULARY, self.width);
        if !self.tied {
            matrix("output.weight", VOCABULARY, self.width);
        }
        for layer in 0..self.layers {
            let (queries, keys) = (self.heads * self.head, self.kv_heads * self.head);
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            matrix(&name("attn_q"), queries, self.width);
            matrix(&name("attn_k"), keys, self.width);
            matrix(&name("attn_v"), keys, self.width);
            matrix(&name("attn_output"), self.width, queries);
            matrix(&name("ffn_gate"), self.feed, self.width);
            matrix(&name("ffn_up"), self.feed, self.width);
            matrix(&name("ffn_down"), self.width, self.feed);
        }
        self.vectors(&mut tensors, &mut random);
        tensors
    }

    fn vectors(&self, tensors: &mut Tensors, random: &mut Random) {
        let mut vector = |name: String, len: usize, around: f32| {
            let numbers = (0..len).map(|_| around + random.next() * 0.3).collect();
            tensors.insert(name, (0, len, numbers));
        };
        vector("output_norm.weight".to_owned(), self.width, 1.0);
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            vector(name("attn_norm.weight"), self.width, 1.0);
            vector(name("ffn_norm.weight"), self.width, 1.0);
            if self.bias {
                vector(name("attn_q.bias"), self.heads * self.head, 0.0);
                vector(name("attn_k.bias"), self.kv_heads * self.head, 0.0);
                vector(name("attn_v.bias"), self.kv_heads * self.head, 0.0);
            }
            if self.head_norm {
                vector(name("attn_q_norm.weight"), self.head, 1.0);
                vector(name("attn_k_norm.weight"), self.head, 1.0);
            }
        }
    }

    fn metadata(&self) -> Vec<(String, Value)> {
        let number = |value: usize| Value::U32(value as u32);
        let text = |value: &str| Value::String(value.to_owned());
        let own = |key: &str, value: Value| (format!("{}.{key}", self.architecture), value);
        let plain = |key: &str, value: Value| (key.to_owned(), value);
        vec![
            plain("general.architecture", text(self.architecture)),
            plain("general.name", text("Tiny")),
            own("block_count", number(self.layers)),
            own("context_length", number(CONTEXT)),
            own("embedding_length", number(self.width)),
            own("feed_forward_length", number(self.feed)),
            own("attention.head_count", number(self.heads)),
            own("attention.head_count_kv", number(self.kv_heads)),
            own("attention.key_length", number(self.head)),
            own("attention.layer_norm_rms_epsilon", Value::F32(EPSILON)),
            own("rope.freq_base", Value::F32(ROPE_BASE)),
            plain("tokenizer.ggml.model", text("gpt2")),
            plain("tokenizer.ggml.pre", text("smollm")),
            plain("tokenizer.ggml.tokens", Value::Array(tokens())),
            plain("tokenizer.ggml.token_type", Value::Array(kinds())),
            plain(
                "tokenizer.ggml.merges",
                Value::Array(vec![text("h e"), text("l l")]),
            ),
            plain("tokenizer.ggml.eos_token_id", Value::U32(END)),
        ]
    }

    /// Writes the model; `change` may spoil its metadata first.
    pub(crate) fn write(
        &self,
        path: &Path,
        tensors: &Tensors,
        change: impl FnOnce(&mut Vec<(String, Value)>),
    ) {
        let mut metadata = self.metadata();
        change(&mut metadata);
        let metadata: Vec<(&str, &Value)> = metadata
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let stored: Vec<(&str, QTensor)> = tensors
            .iter()
            .map(|(name, (rows, cols, numbers))| (name.as_str(), store(*rows, *cols, numbers)))
            .collect();
        let stored: Vec<(&str, &QTensor)> = stored
            .iter()
            .map(|(name, tensor)| (*name, tensor))
            .collect();
        let mut file = File::create(path).unwrap();
        gguf_file::write(&mut file, &metadata, &stored).unwrap();
    }
}

fn store(rows: usize, cols: usize, numbers: &[f32]) -> QTensor {
    let tensor = if rows == 0 {
        Tensor::from_slice(numbers, cols, &Device::Cpu)
    } else {
        Tensor::from_slice(numbers, (rows, cols), &Device::Cpu)
    };
    QTensor::quantize(&tensor.unwrap(), GgmlDType::F32).unwrap()
}

/// All bytes, the ends of turns, and two merges.
fn tokens() -> Vec<Value> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut other = 256;
    let mut texts: Vec<String> = (0..256)
        .map(|byte| {
            let letter = if printable(byte) {
                byte
            } else {
                other += 1;
                other - 1
            };
            char::from_u32(letter).unwrap().to_string()
        })
        .collect();
    texts.extend(["<|im_start|>", "<|im_end|>", "he", "ll"].map(str::to_owned));
    texts.extend((texts.len()..VOCABULARY).map(|number| format!("<unused{number}>")));
    texts.into_iter().map(Value::String).collect()
}

fn kinds() -> Vec<Value> {
    (0..VOCABULARY)
        .map(|id| match id {
            256 | 257 | 260.. => Value::I32(3),
            _ => Value::I32(1),
        })
        .collect()
}

/// Numbers between -1 and 1 that are the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
