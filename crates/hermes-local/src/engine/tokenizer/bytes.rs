//! Byte-pair encoding over bytes, as in GPT-2 and most models since.

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{NormalizerWrapper, Tokenizer, normalizers::unicode::NFC};

use super::{TokenKind, strings};
use crate::engine::error::OpenError;
use crate::engine::source::GgufSource;

pub(super) struct Bytes(Tokenizer);

/// How text is split before pairs are merged, by the name in the file.
struct PreTokenizer {
    names: &'static [&'static str],
    /// `None`: GPT-2's own, with digits apart or not.
    pattern: Option<&'static str>,
    digits: bool,
    /// Text is normalized to its composed form first.
    compose: bool,
    /// A piece that is a token is used as it is.
    whole: bool,
}

const CUTS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        pattern: None,
        digits: true,
        compose: false,
        whole: false,
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "gpt2",
            "default",
            "mpt",
            "olmo",
            "phi-2",
            "jina-v2-en",
        ],
        pattern: None,
        digits: false,
        compose: false,
        whole: false,
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "smaug-bpe",
            "falcon3",
            "pixtral",
        ],
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        digits: false,
        compose: false,
        whole: true,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"],
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        digits: false,
        compose: true,
        whole: false,
    },
];

impl PreTokenizer {
    fn steps(&self) -> tokenizers::Result<PreTokenizerWrapper> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        if self.digits {
            steps.push(Digits::new(true).into());
        }
        if let Some(pattern) = self.pattern {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into());
        }
        let own = self.pattern.is_none();
        steps.push(ByteLevel::new(false, true, own).into());
        Ok(Sequence::new(steps).into())
    }
}

impl Bytes {
    pub(super) fn read(source: &GgufSource, texts: &[String]) -> Result<Self, OpenError> {
        let name = source.text("tokenizer.ggml.pre").unwrap_or("default");
        let cut = CUTS
            .iter()
            .find(|cut| cut.names.contains(&name))
            .ok_or_else(|| {
                source.unsupported(format!(
                    "its tokenizer cuts text in the way of {name}, which is not known here"
                ))
            })?;
        let merges = strings(source, "tokenizer.ggml.merges")
            .ok_or_else(|| source.damaged("it has no list of merges"))?
            .into_iter()
            .map(|merge| {
                merge
                    .split_once(' ')
                    .map(|(left, right)| (left.to_owned(), right.to_owned()))
                    .ok_or_else(|| source.damaged(format!("{merge:?} is not a merge")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let damaged = |error: tokenizers::Error| source.damaged(format!("its tokenizer: {error}"));
        let vocabulary = texts.iter().cloned().zip(0..).collect();
        let model = BPE::builder()
            .vocab_and_merges::<tokenizers::models::bpe::Vocab>(vocabulary, merges)
            .ignore_merges(cut.whole)
            .build()
            .map_err(damaged)?;
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_pre_tokenizer(Some(cut.steps().map_err(damaged)?));
        if cut.compose {
            tokenizer
                .with_normalizer(Some(NormalizerWrapper::from(NFC)))
                .map_err(damaged)?;
        }
        Ok(Self(tokenizer))
    }

    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        match self.0.encode_fast(text, false) {
            Ok(encoding) => tokens.extend_from_slice(encoding.get_ids()),
            // Every byte has a token, so every text can be encoded.
            Err(error) => tracing::error!(%error, "text that cannot be cut into tokens"),
        }
    }
}

/// The bytes of each token. In the file, non-printable bytes are represented by other characters.
pub(super) fn pieces(texts: &[String], kinds: &[TokenKind]) -> Vec<Vec<u8>> {
    let table = table();
    texts
        .iter()
        .zip(kinds)
        .map(|(text, kind)| {
            if *kind != TokenKind::Text {
                return text.clone().into_bytes();
            }
            let mut bytes = Vec::with_capacity(text.len());
            for letter in text.chars() {
                match table.get(letter as usize).copied().flatten() {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            bytes
        })
        .collect()
}

/// From characters to the bytes they represent.
fn table() -> Vec<Option<u8>> {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut table = vec![None; 512];
    let mut other = 256;
    for byte in 0..=255u8 {
        if printable(byte) {
            table[usize::from(byte)] = Some(byte);
        } else {
            table[other] = Some(byte);
            other += 1;
        }
    }
    table
}
