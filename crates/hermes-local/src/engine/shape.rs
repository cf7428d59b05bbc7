//! The architecture of a model, from the metadata of its file.

use super::error::OpenError;
use super::source::GgufSource;

/// Which numbers of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Neighbours: llama files.
    Neighbours,
    /// The first half with the second: qwen files.
    Halves,
}

#[derive(Clone, Debug)]
pub(super) struct ModelShape {
    pub(super) architecture: String,
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head: usize,
    pub(super) feed_forward: usize,
    pub(super) vocabulary: usize,
    pub(super) context: usize,
    pub(super) epsilon: f32,
    pub(super) rotated: usize,
    pub(super) rope_base: f32,
    /// Positions are divided by this.
    pub(super) rope_scale: f32,
    pub(super) pairs: Pairs,
}

const KNOWN: &[(&str, Pairs)] = &[
    ("llama", Pairs::Neighbours),
    ("qwen2", Pairs::Halves),
    ("qwen3", Pairs::Halves),
];

impl ModelShape {
    pub(super) fn read(source: &GgufSource) -> Result<Self, OpenError> {
        let architecture = source
            .text("general.architecture")
            .ok_or_else(|| source.damaged("it does not name its architecture"))?;
        let Some((_, pairs)) = KNOWN.iter().find(|(name, _)| *name == architecture) else {
            let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            return Err(source.unsupported(format!(
                "its architecture is {architecture}; known here are {}",
                known.join(", ")
            )));
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let needed = |name: &str| {
            source
                .number(&key(name))
                .filter(|number| *number > 0)
                .ok_or_else(|| source.damaged(format!("it has no usable {}", key(name))))
        };
        if source.number(&key("expert_count")).unwrap_or_default() > 0 {
            return Err(
                source.unsupported("it is a mixture of experts; only dense models are known here")
            );
        }
        let width = needed("embedding_length")?;
        let heads = needed("attention.head_count")?;
        let head = source
            .number(&key("attention.key_length"))
            .unwrap_or(width / heads);
        let window = source.number(&key("attention.sliding_window"));
        let vocabulary = source.dims("token_embd.weight")?.first().copied();
        let shape = Self {
            architecture: architecture.to_owned(),
            layers: needed("block_count")?,
            width,
            heads,
            kv_heads: source
                .number(&key("attention.head_count_kv"))
                .unwrap_or(heads),
            head,
            feed_forward: needed("feed_forward_length")?,
            vocabulary: vocabulary.unwrap_or_default(),
            context: needed("context_length")?.min(window.filter(|w| *w > 0).unwrap_or(usize::MAX)),
            epsilon: source
                .float(&key("attention.layer_norm_rms_epsilon"))
                .unwrap_or(1e-5),
            rotated: source.number(&key("rope.dimension_count")).unwrap_or(head),
            rope_base: source.float(&key("rope.freq_base")).unwrap_or(10_000.0),
            rope_scale: rope_scale(source, architecture)?,
            pairs: *pairs,
        };
        shape.check(source)?;
        Ok(shape)
    }

    fn check(&self, source: &GgufSource) -> Result<(), OpenError> {
        let whole_groups = self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        if !whole_groups || self.head == 0 {
            return Err(source.damaged(format!(
                "{} heads do not share {} keys",
                self.heads, self.kv_heads
            )));
        }
        if self.rotated > self.head || !self.rotated.is_multiple_of(2) {
            return Err(source.damaged(format!(
                "{} numbers of a head of {} cannot be rotated",
                self.rotated, self.head
            )));
        }
        if self.vocabulary == 0 {
            return Err(source.damaged("its vocabulary is empty"));
        }
        Ok(())
    }

    /// Numbers of all queries of a token.
    pub(super) fn queries(&self) -> usize {
        self.heads * self.head
    }

    /// Queries that share a key.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

fn rope_scale(source: &GgufSource, architecture: &str) -> Result<f32, OpenError> {
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    match source.text(&key("type")) {
        None | Some("none") => Ok(1.0),
        Some("linear") => Ok(source.float(&key("factor")).unwrap_or(1.0)),
        Some(other) => Err(source.unsupported(format!(
            "its positions are scaled by {other}, which is not known here"
        ))),
    }
}
