//! The forward pass.

use std::cell::RefCell;

use super::compute::{
    Activations, AttentionHead, Blob, Floats, Queries, SimdLevel, ThreadPool, add, norm, quantise,
    silu_times,
};
use super::rope::Rope;
use super::shape::ModelShape;
use super::weights::{Layer, ModelWeights};

/// Tokens of a prompt that are processed together.
pub(super) const CHUNK: usize = 128;
/// Tokens whose queries are computed together.
const TILE: usize = 8;

thread_local! {
    static QUERIES: RefCell<Queries> = RefCell::new(Queries::default());
}

/// `stop` returned true; the chunk is discarded.
#[derive(Debug)]
pub(super) struct Stopped;

/// A model with its key-value cache.
pub(super) struct TransformerModel {
    shape: ModelShape,
    blob: Blob,
    weights: ModelWeights,
    rope: Rope,
    pool: ThreadPool,
    level: SimdLevel,
    /// For each layer, its heads.
    memory: Vec<Vec<AttentionHead>>,
    buffers: Buffers,
}

/// Buffers that are reused for all chunks.
#[derive(Default)]
struct Buffers {
    /// For each token the state between layers, followed by space to prepare a product.
    states: Vec<f32>,
    rows: Activations,
    /// Queries, keys and values; then the feed-forward part.
    wide: Vec<f32>,
    /// The attention result: for each shared key, for each token, the heads.
    found: Vec<f32>,
    /// What a layer adds to the state.
    change: Vec<f32>,
    logits: Vec<f32>,
}

/// The beginning of a buffer, which grows on demand.
fn first(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

impl TransformerModel {
    pub(super) fn new(
        shape: ModelShape,
        weights: ModelWeights,
        blob: Blob,
        pool: ThreadPool,
        level: SimdLevel,
    ) -> Self {
        let factors = weights.rope_factors.map(|floats| blob.floats(floats));
        let rope = Rope::new(&shape, factors);
        let memory = (0..shape.layers)
            .map(|_| {
                (0..shape.kv_heads)
                    .map(|_| AttentionHead::new(shape.head))
                    .collect()
            })
            .collect();
        Self {
            shape,
            blob,
            weights,
            rope,
            pool,
            level,
            memory,
            buffers: Buffers::default(),
        }
    }

    /// Processes `tokens`, the first of which is at `position`, and caches them.
    pub(super) fn forward(
        &mut self,
        tokens: &[u32],
        position: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Stopped> {
        // What a stopped chunk would have added to its own states.
        self.buffers.change.clear();
        let row = self.row();
        let states = first(&mut self.buffers.states, tokens.len() * row);
        for (state, token) in states.chunks_mut(row).zip(tokens) {
            let state = &mut state[..self.shape.width];
            self.weights
                .embedding
                .row(&self.blob, *token as usize, state);
        }
        self.rope.turn_to(position, tokens.len());
        for layer in 0..self.shape.layers {
            if stop() {
                return Err(Stopped);
            }
            self.attention(layer, position, tokens.len());
            self.feed_forward(layer, tokens.len());
        }
        self.take_change(tokens.len());
        Ok(())
    }

    /// The logits after the last of the `count` tokens that were processed together.
    pub(super) fn logits(&mut self, count: usize) -> &mut [f32] {
        let (row, width) = (self.row(), self.shape.width);
        let state = &self.buffers.states[(count - 1) * row..][..width];
        let mut state = state.to_vec();
        let weight = self.blob.floats(self.weights.output_norm);
        norm(self.level, &mut state, weight, self.shape.epsilon);
        let output = self.weights.output;
        quantise(self.level, &state, self.buffers.rows.rows(1, width));
        let logits = first(&mut self.buffers.logits, output.width());
        output.product(
            &mut self.pool,
            self.level,
            &self.blob,
            &self.buffers.rows,
            logits,
        );
        &mut logits[..self.shape.vocabulary]
    }

    /// Numbers of a token in `states`.
    fn row(&self) -> usize {
        self.shape.width + self.shape.width.max(self.shape.queries())
    }

    /// Adds the result of the last product to the states.
    fn take_change(&mut self, count: usize) {
        let (row, width, level) = (self.row(), self.shape.width, self.level);
        let stride = self.buffers.change.len() / count.max(1);
        let Buffers { states, change, .. } = &mut self.buffers;
        if stride == 0 {
            return;
        }
        for (state, change) in states
            .chunks_mut(row)
            .zip(change.chunks(stride))
            .take(count)
        {
            add(level, &mut state[..width], &change[..width]);
        }
        change.clear();
    }

    /// Adds the last change, normalizes the states and quantises them for the next product.
    fn prepare(&mut self, count: usize, weight: Floats) {
        let (row, width, level) = (self.row(), self.shape.width, self.level);
        let epsilon = self.shape.epsilon;
        let weight = self.blob.floats(weight);
        let Buffers {
            states,
            rows,
            change,
            ..
        } = &mut self.buffers;
        let stride = change.len() / count;
        self.pool.pieces_of_two(
            (&mut states[..count * row], row),
            (rows.rows(count, width), Activations::stride(width)),
            |token, state, quantised| {
                let (state, room) = state.split_at_mut(width);
                if stride > 0 {
                    add(level, state, &change[token * stride..][..width]);
                }
                let room = &mut room[..width];
                room.copy_from_slice(state);
                norm(level, room, weight, epsilon);
                quantise(level, room, quantised);
            },
        );
        change.clear();
    }

    fn attention(&mut self, number: usize, position: usize, count: usize) {
        self.prepare(count, self.weights.layers[number].attention_norm);
        let layer = &self.weights.layers[number];
        let wide = first(&mut self.buffers.wide, count * layer.qkv.width());
        layer.qkv.product(
            &mut self.pool,
            self.level,
            &self.blob,
            &self.buffers.rows,
            wide,
        );
        self.remember(number, position, count);
        self.look_up(number, position, count);
        let layer = &self.weights.layers[number];
        let (row, level, shape) = (self.row(), self.level, &self.shape);
        let (queries, group) = (shape.queries(), shape.group() * shape.head);
        let Buffers {
            states,
            rows,
            found,
            change,
            ..
        } = &mut self.buffers;
        let padded = padded(count);
        self.pool.pieces_of_two(
            (&mut states[..count * row], row),
            (rows.rows(count, queries), Activations::stride(queries)),
            |token, state, quantised| {
                let room = &mut state[shape.width..][..queries];
                for (head, room) in room.chunks_mut(group).enumerate() {
                    let at = (head * padded + token) * group;
                    room.copy_from_slice(&found[at..at + group]);
                }
                quantise(level, room, quantised);
            },
        );
        change.resize(count * layer.output.width(), 0.0);
        layer
            .output
            .product(&mut self.pool, level, &self.blob, rows, change);
    }

    /// Writes the keys and values of the tokens.
    fn remember(&mut self, number: usize, position: usize, count: usize) {
        let layer = &self.weights.layers[number];
        let context = HeadContext::new(&self.shape, layer, &self.blob, &self.rope, self.level);
        let (wide, stride) = (&self.buffers.wide, layer.qkv.width());
        let (keys_at, values_at) = (
            self.shape.queries(),
            self.shape.queries() + self.shape.kv_heads * self.shape.head,
        );
        let write = |head: usize, memory: &mut AttentionHead| {
            let size = self.shape.head;
            let mut numbers = vec![0.0; size * 2];
            let (key, value) = numbers.split_at_mut(size);
            for token in 0..count {
                let row = &wide[token * stride..][..stride];
                context.take(row, keys_at + head * size, key);
                context.finish(context.key_norm, token, key);
                context.take(row, values_at + head * size, value);
                memory.write(position + token, key, value);
            }
        };
        let heads = &mut self.memory[number];
        if count < TILE {
            heads
                .iter_mut()
                .enumerate()
                .for_each(|(head, memory)| write(head, memory));
        } else {
            self.pool
                .pieces(heads, 1, |head, memory| write(head, &mut memory[0]));
        }
    }

    /// Computes attention for all heads and tokens.
    fn look_up(&mut self, number: usize, position: usize, count: usize) {
        let layer = &self.weights.layers[number];
        let context = HeadContext::new(&self.shape, layer, &self.blob, &self.rope, self.level);
        let (size, group, level) = (self.shape.head, self.shape.group(), self.level);
        let (wide, stride) = (&self.buffers.wide, layer.qkv.width());
        let scale = 1.0 / (size as f32).sqrt();
        let heads = &self.memory[number];
        let padded = padded(count);
        let found = first(
            &mut self.buffers.found,
            self.shape.kv_heads * padded * group * size,
        );
        // A single token is distributed over the threads by heads.
        let (tokens, per_piece) = if count == 1 { (1, 1) } else { (TILE, group) };
        let pieces_of_head = (padded / tokens) * (group / per_piece);
        self.pool
            .pieces(found, tokens * per_piece * size, |piece, out| {
                let head = piece / pieces_of_head;
                let within = piece % pieces_of_head;
                let (start, lead) = if count == 1 {
                    (0, within)
                } else {
                    (within * TILE, 0)
                };
                QUERIES.with_borrow_mut(|queries| {
                    queries.clear(size);
                    let slots = (start..start + tokens)
                        .flat_map(|token| (0..per_piece).map(move |lane| (token, lead + lane)));
                    for (token, lane) in slots.clone().filter(|(token, _)| *token < count) {
                        let row = &wide[token * stride..][..stride];
                        let query = &mut queries.push(position + token + 1)[..size];
                        context.take(row, (head * group + lane) * size, query);
                        context.finish(context.query_norm, token, query);
                        for value in query {
                            *value *= scale;
                        }
                    }
                    heads[head].attend(level, queries);
                    for (number, out) in out.chunks_mut(size).enumerate() {
                        if start + number / per_piece < count {
                            out.copy_from_slice(&queries.answer(number)[..size]);
                        }
                    }
                });
            });
    }

    fn feed_forward(&mut self, number: usize, count: usize) {
        self.prepare(count, self.weights.layers[number].feed_norm);
        let layer = &self.weights.layers[number];
        let (level, feed) = (self.level, self.shape.feed_forward);
        let Buffers {
            rows, wide, change, ..
        } = &mut self.buffers;
        let width = layer.gate_up.width();
        let wide = first(wide, count * width);
        layer
            .gate_up
            .product(&mut self.pool, level, &self.blob, rows, wide);
        self.pool.pieces_of_two(
            (wide, width),
            (rows.rows(count, feed), Activations::stride(feed)),
            |_, row, quantised| {
                let (gate, up) = row.split_at_mut(feed);
                silu_times(level, gate, &up[..feed]);
                quantise(level, gate, quantised);
            },
        );
        change.resize(count * layer.down.width(), 0.0);
        layer
            .down
            .product(&mut self.pool, level, &self.blob, rows, change);
    }
}

/// Number of tokens that fit into `found`.
fn padded(count: usize) -> usize {
    if count == 1 {
        1
    } else {
        count.next_multiple_of(TILE)
    }
}

/// Converts the numbers of a product into a query or a key.
struct HeadContext<'a> {
    bias: Option<&'a [f32]>,
    query_norm: Option<&'a [f32]>,
    key_norm: Option<&'a [f32]>,
    rope: &'a Rope,
    epsilon: f32,
    level: SimdLevel,
}

impl<'a> HeadContext<'a> {
    fn new(
        shape: &ModelShape,
        layer: &Layer,
        blob: &'a Blob,
        rope: &'a Rope,
        level: SimdLevel,
    ) -> Self {
        let floats = |floats: Option<Floats>| floats.map(|floats| blob.floats(floats));
        Self {
            bias: floats(layer.qkv_bias),
            query_norm: floats(layer.query_norm),
            key_norm: floats(layer.key_norm),
            rope,
            epsilon: shape.epsilon,
            level,
        }
    }

    /// The numbers of one head, with their bias.
    fn take(&self, row: &[f32], at: usize, into: &mut [f32]) {
        into.copy_from_slice(&row[at..at + into.len()]);
        if let Some(bias) = self.bias {
            add(self.level, into, &bias[at..at + into.len()]);
        }
    }

    /// Normalizes and rotates a query or a key.
    fn finish(&self, weight: Option<&[f32]>, token: usize, numbers: &mut [f32]) {
        if let Some(weight) = weight {
            norm(self.level, numbers, weight, self.epsilon);
        }
        self.rope.rotate(token, numbers);
    }
}
