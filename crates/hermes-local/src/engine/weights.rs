//! The weights, requantised for the products and laid out in one buffer.

use super::compute::{Blob, Floats, Matrix, PANEL, ThreadPool};
use super::error::OpenError;
use super::shape::ModelShape;
use super::source::GgufSource;
use std::sync::{Mutex, PoisonError};

/// Panels that a thread requantises at a time.
const PANELS_PER_STEP: usize = 8;

pub(super) struct Layer {
    pub(super) attention_norm: Floats,
    /// Rows of queries, then keys, then values.
    pub(super) qkv: Matrix,
    pub(super) qkv_bias: Option<Floats>,
    pub(super) query_norm: Option<Floats>,
    pub(super) key_norm: Option<Floats>,
    pub(super) output: Matrix,
    pub(super) feed_norm: Floats,
    /// Rows of the gate, then of the up projection.
    pub(super) gate_up: Matrix,
    pub(super) down: Matrix,
}

pub(super) struct ModelWeights {
    pub(super) embedding: Matrix,
    pub(super) output: Matrix,
    pub(super) output_norm: Floats,
    pub(super) layers: Vec<Layer>,
    /// Each rotation frequency is divided by its number.
    pub(super) rope_factors: Option<Floats>,
}

/// The layout of all weights and the tensors they come from.
pub(super) struct WeightPlan {
    pub(super) weights: ModelWeights,
    pub(super) bytes: usize,
    matrices: Vec<(Matrix, Vec<String>)>,
    floats: Vec<(Floats, Vec<String>)>,
}

struct WeightPlanner<'a> {
    source: &'a GgufSource,
    at: usize,
    matrices: Vec<(Matrix, Vec<String>)>,
    floats: Vec<(Floats, Vec<String>)>,
}

impl WeightPlanner<'_> {
    fn matrix(&mut self, tensors: &[(String, usize)], cols: usize) -> Result<Matrix, OpenError> {
        for (name, rows) in tensors {
            let dims = self.source.dims(name)?;
            if dims != [*rows, cols] {
                return Err(self.source.damaged(format!(
                    "the tensor {name} is {dims:?} where {rows} × {cols} is expected"
                )));
            }
        }
        let rows = tensors.iter().map(|(_, rows)| rows).sum();
        let matrix = Matrix::lay(rows, cols, &mut self.at);
        let names = tensors.iter().map(|(name, _)| name.clone()).collect();
        self.matrices.push((matrix, names));
        Ok(matrix)
    }

    fn floats(&mut self, tensors: &[(String, usize)]) -> Result<Floats, OpenError> {
        for (name, len) in tensors {
            let dims = self.source.dims(name)?;
            if dims != [*len] {
                return Err(self.source.damaged(format!(
                    "the tensor {name} is {dims:?} where {len} numbers are expected"
                )));
            }
        }
        let len = tensors.iter().map(|(_, len)| len).sum();
        let floats = Floats { at: self.at, len };
        self.at = (self.at + len * 4).next_multiple_of(Blob::ALIGN);
        let names = tensors.iter().map(|(name, _)| name.clone()).collect();
        self.floats.push((floats, names));
        Ok(floats)
    }

    fn optional(&mut self, name: String, len: usize) -> Result<Option<Floats>, OpenError> {
        if !self.source.has(&name) {
            return Ok(None);
        }
        self.floats(&[(name, len)]).map(Some)
    }

    fn layer(&mut self, number: usize, shape: &ModelShape) -> Result<Layer, OpenError> {
        let name = |part: &str| format!("blk.{number}.{part}");
        let weight = |part: &str| name(&format!("{part}.weight"));
        let (queries, keys) = (shape.queries(), shape.kv_heads * shape.head);
        let (width, feed) = (shape.width, shape.feed_forward);
        let qkv = [("attn_q", queries), ("attn_k", keys), ("attn_v", keys)];
        let biases: Vec<_> = qkv
            .iter()
            .map(|(part, len)| (name(&format!("{part}.bias")), *len))
            .collect();
        let weights: Vec<_> = qkv.iter().map(|(part, len)| (weight(part), *len)).collect();
        let biased = biases.iter().any(|(name, _)| self.source.has(name));
        Ok(Layer {
            attention_norm: self.floats(&[(weight("attn_norm"), width)])?,
            qkv: self.matrix(&weights, width)?,
            qkv_bias: biased.then(|| self.floats(&biases)).transpose()?,
            query_norm: self.optional(weight("attn_q_norm"), shape.head)?,
            key_norm: self.optional(weight("attn_k_norm"), shape.head)?,
            output: self.matrix(&[(weight("attn_output"), width)], queries)?,
            feed_norm: self.floats(&[(weight("ffn_norm"), width)])?,
            gate_up: self.matrix(
                &[(weight("ffn_gate"), feed), (weight("ffn_up"), feed)],
                width,
            )?,
            down: self.matrix(&[(weight("ffn_down"), width)], feed)?,
        })
    }
}

impl WeightPlan {
    pub(super) fn new(source: &GgufSource, shape: &ModelShape) -> Result<Self, OpenError> {
        let mut planner = WeightPlanner {
            source,
            at: 0,
            matrices: Vec::new(),
            floats: Vec::new(),
        };
        let vocabulary = |name: &str| [(name.to_owned(), shape.vocabulary)];
        let embedding = planner.matrix(&vocabulary("token_embd.weight"), shape.width)?;
        let output = if source.has("output.weight") {
            planner.matrix(&vocabulary("output.weight"), shape.width)?
        } else {
            embedding
        };
        let output_norm = planner.floats(&[("output_norm.weight".to_owned(), shape.width)])?;
        let rope_factors = planner.optional("rope_freqs.weight".to_owned(), shape.rotated / 2)?;
        let layers = (0..shape.layers)
            .map(|number| planner.layer(number, shape))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            weights: ModelWeights {
                embedding,
                output,
                output_norm,
                layers,
                rope_factors,
            },
            bytes: planner.at.next_multiple_of(Blob::ALIGN),
            matrices: planner.matrices,
            floats: planner.floats,
        })
    }

    /// Reads and requantises everything.
    pub(super) fn build(
        &self,
        source: &GgufSource,
        pool: &mut ThreadPool,
    ) -> Result<Blob, OpenError> {
        let mut blob = Blob::zeroed(self.bytes);
        for (floats, tensors) in &self.floats {
            let mut at = floats.at;
            for tensor in tensors {
                for value in source.rows(tensor, 0, 1)? {
                    blob.bytes_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
                    at += 4;
                }
            }
        }
        for (matrix, tensors) in &self.matrices {
            pack(matrix, tensors, source, pool, &mut blob)?;
        }
        Ok(blob)
    }
}

fn pack(
    matrix: &Matrix,
    tensors: &[String],
    source: &GgufSource,
    pool: &mut ThreadPool,
    blob: &mut Blob,
) -> Result<(), OpenError> {
    let (quants, scales) = matrix.parts(blob);
    let (quant_bytes, scale_bytes) = matrix.panel_bytes();
    let failed = Mutex::new(None);
    pool.pieces_of_two(
        (quants, quant_bytes * PANELS_PER_STEP),
        (scales, scale_bytes * PANELS_PER_STEP),
        |step, quants, scales| {
            let first = step * PANELS_PER_STEP * PANEL;
            let rows = (matrix.rows - first).min(PANELS_PER_STEP * PANEL);
            match joined_rows(source, tensors, first, rows) {
                Ok(numbers) => {
                    let panels = quants
                        .chunks_mut(quant_bytes)
                        .zip(scales.chunks_mut(scale_bytes))
                        .zip(numbers.chunks(PANEL * matrix.cols));
                    for ((quants, scales), rows) in panels {
                        matrix.pack(rows, quants, scales);
                    }
                }
                Err(error) => {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        },
    );
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

/// Rows of several tensors, stacked.
fn joined_rows(
    source: &GgufSource,
    tensors: &[String],
    mut first: usize,
    mut rows: usize,
) -> Result<Vec<f32>, OpenError> {
    let mut numbers = Vec::new();
    for tensor in tensors {
        let first_dim = source.dims(tensor)?.first().copied().unwrap_or_default();
        if first >= first_dim {
            first -= first_dim;
            continue;
        }
        let take = rows.min(first_dim - first);
        numbers.append(&mut source.rows(tensor, first, take)?);
        rows -= take;
        first = 0;
        if rows == 0 {
            break;
        }
    }
    Ok(numbers)
}
