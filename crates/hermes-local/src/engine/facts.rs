//! Metadata of an open model.

use super::shape::ModelShape;
use super::source::GgufSource;
use super::tokenizer::Tokenizer;
use super::{ModelFacts, SpecialToken};

/// Tokens that end an answer whatever the file says: files often name only one of them.
const ENDS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "</s>",
];

impl ModelFacts {
    pub(super) fn read(
        source: &GgufSource,
        shape: &ModelShape,
        tokenizer: &Tokenizer,
        context: Option<usize>,
    ) -> Self {
        let special = |key: &str| {
            let id = source.number(&format!("tokenizer.ggml.{key}_token_id"))? as u32;
            ((id as usize) < tokenizer.vocabulary()).then(|| SpecialToken {
                id,
                text: String::from_utf8_lossy(tokenizer.piece(id)).into_owned(),
            })
        };
        let eos = special("eos");
        let named = ["eos", "eot", "eom"].iter().filter_map(|key| special(key));
        let mut ends: Vec<u32> = named.map(|special| special.id).collect();
        ends.extend(ENDS.iter().filter_map(|text| tokenizer.special(text)));
        ends.sort_unstable();
        ends.dedup();
        let stem = source.path().file_stem().unwrap_or_default();
        Self {
            name: source
                .text("general.name")
                .map_or_else(|| stem.to_string_lossy().into_owned(), str::to_owned),
            architecture: shape.architecture.clone(),
            parameters: source.parameters(),
            context: context
                .filter(|context| *context > 0)
                .map_or(shape.context, |context| context.min(shape.context)),
            template: source.text("tokenizer.chat_template").map(str::to_owned),
            bos: special("bos"),
            eos,
            add_bos: source
                .flag("tokenizer.ggml.add_bos_token")
                .unwrap_or_else(|| source.text("tokenizer.ggml.model") == Some("llama")),
            ends,
            vocabulary: shape.vocabulary,
            quantisation: source.quantisation(),
        }
    }
}
