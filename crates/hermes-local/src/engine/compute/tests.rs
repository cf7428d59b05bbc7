use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::rows::{largest, powers};
use super::*;

/// Numbers between -1 and 1, from a seed.
fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
    (0..count)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn matrix(rows: usize, cols: usize, weights: &[f32]) -> (Matrix, Blob) {
    let mut size = 0;
    let matrix = Matrix::lay(rows, cols, &mut size);
    let mut blob = Blob::zeroed(size);
    let (quant_bytes, scale_bytes) = matrix.panel_bytes();
    let (quants, scales) = matrix.parts(&mut blob);
    let panels = quants
        .chunks_mut(quant_bytes)
        .zip(scales.chunks_mut(scale_bytes))
        .zip(weights.chunks(PANEL * cols));
    for ((quants, scales), rows) in panels {
        matrix.pack(rows, quants, scales);
    }
    (matrix, blob)
}

fn product(
    level: SimdLevel,
    threads: usize,
    (matrix, blob): &(Matrix, Blob),
    states: &[f32],
) -> Vec<f32> {
    let mut pool = ThreadPool::new(threads).unwrap();
    let mut rows = Activations::default();
    let tokens = states.len() / matrix.cols;
    let quantised = rows.rows(tokens, matrix.cols);
    for (state, row) in states
        .chunks(matrix.cols)
        .zip(quantised.chunks_mut(Activations::stride(matrix.cols)))
    {
        quantise(level, state, row);
    }
    let mut out = vec![f32::NAN; tokens * matrix.width()];
    matrix.product(&mut pool, level, blob, &rows, &mut out);
    out
}

fn close(a: &[f32], b: &[f32], tolerance: f32) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.len(), b.len());
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        prop_assert!((a - b).abs() <= tolerance, "{} {} at {}", a, b, at);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_are_the_same_with_all_instructions_and_near_the_plain_one(
        rows in 1usize..70, cols in 1usize..150, tokens in 1usize..20, seed: u64, threads in 1usize..4,
    ) {
        let weights = numbers(rows * cols, seed);
        let states = numbers(tokens * cols, seed ^ 1);
        let packed = matrix(rows, cols, &weights);
        let width = packed.0.width();
        let portable = product(SimdLevel::available()[0], 1, &packed, &states);
        for level in SimdLevel::available() {
            close(&product(level, threads, &packed, &states), &portable, 1e-4)?;
        }
        for (token, state) in states.chunks(cols).enumerate() {
            for (row, weights) in weights.chunks(cols).enumerate() {
                let exact: f32 = weights.iter().zip(state).map(|(a, b)| a * b).sum();
                let found = portable[token * width + row];
                // Each side is off by at most half of a 127th for each of its numbers.
                let bound = 0.01 * cols as f32;
                prop_assert!((exact - found).abs() < bound, "{exact} {found}");
            }
        }
    }

    #[test]
    fn rows_are_the_same_with_all_instructions(count in 1usize..200, seed: u64) {
        let row: Vec<f32> = numbers(count, seed).iter().map(|value| value * 20.0).collect();
        let other = numbers(count, seed ^ 1);
        let plain = SimdLevel::available()[0];
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exact: Vec<f32> = row.iter().map(|value| (value - top).exp()).collect();
        let silu: Vec<f32> = row
            .iter()
            .zip(&other)
            .map(|(x, up)| x / (1.0 + (-x).exp()) * up)
            .collect();
        for level in SimdLevel::available() {
            prop_assert!((largest(level, &row) - top).abs() < f32::EPSILON);
            let mut found = row.clone();
            let sum = powers(level, &mut found, top);
            close(&found, &exact, 1e-6)?;
            prop_assert!((sum - exact.iter().sum::<f32>()).abs() < 1e-3);
            let mut found = row.clone();
            silu_times(level, &mut found, &other);
            close(&found, &silu, 1e-4)?;
            let mut words = vec![0; Activations::stride(count)];
            let mut expected = words.clone();
            quantise(level, &row, &mut words);
            quantise(plain, &row, &mut expected);
            prop_assert_eq!(words, expected);
            let (mut found, mut expected) = (row.clone(), row.clone());
            norm(level, &mut found, &other, 1e-5);
            norm(plain, &mut expected, &other, 1e-5);
            close(&found, &expected, 1e-4)?;
        }
    }

    #[test]
    fn attention_is_a_softmax_over_what_is_seen(
        dim in 1usize..5, positions in 1usize..600, count in 1usize..12, seed: u64,
    ) {
        let dim = dim * 10;
        let (keys, values) = (numbers(positions * dim, seed), numbers(positions * dim, seed ^ 1));
        let asked = numbers(count * dim, seed ^ 2);
        let mut head = AttentionHead::new(dim);
        for (position, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
            head.write(position, key, value);
        }
        let seen = |query: usize| (positions * (query + 1) / count).max(1);
        for level in SimdLevel::available() {
            let mut queries = Queries::default();
            queries.clear(dim);
            for (number, query) in asked.chunks(dim).enumerate() {
                queries.push(seen(number))[..dim].copy_from_slice(query);
            }
            head.attend(level, &mut queries);
            for (number, query) in asked.chunks(dim).enumerate() {
                let expected = softmax(query, &keys, &values, seen(number));
                close(&queries.answer(number)[..dim], &expected, 2e-3)?;
            }
        }
    }
}

fn softmax(query: &[f32], keys: &[f32], values: &[f32], seen: usize) -> Vec<f32> {
    let dim = query.len();
    let dot = |key: &[f32]| key.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
    let powers: Vec<f32> = keys
        .chunks(dim)
        .take(seen)
        .map(|key| dot(key).exp())
        .collect();
    let sum: f32 = powers.iter().sum();
    let mut out = vec![0.0; dim];
    for (power, value) in powers.iter().zip(values.chunks(dim)) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += power / sum * value;
        }
    }
    out
}

#[test]
fn a_row_comes_back_as_it_went_in() {
    let weights = numbers(40 * 70, 3);
    let (matrix, blob) = matrix(40, 70, &weights);
    for (number, row) in weights.chunks(70).enumerate() {
        let mut found = vec![0.0; 70];
        matrix.row(&blob, number, &mut found);
        for (a, b) in row.iter().zip(&found) {
            assert!((a - b).abs() < 0.005, "{a} {b}");
        }
    }
}

#[test]
fn each_part_is_done_once_by_whoever_comes() {
    let mut pool = ThreadPool::new(4).unwrap();
    for round in 0..2000 {
        let done: Vec<AtomicUsize> = (0..round % 40).map(|_| AtomicUsize::new(0)).collect();
        pool.run(done.len(), &|part| {
            done[part].fetch_add(1, Ordering::Relaxed);
        });
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
    let mut data = vec![0usize; 103];
    pool.pieces(&mut data, 10, |part, piece| piece.fill(part));
    assert!(data.iter().enumerate().all(|(at, part)| at / 10 == *part));
}

#[test]
fn a_part_that_panics_does_not_hang_the_others() {
    let mut pool = ThreadPool::new(3).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.run(64, &|part| assert!(part != 40, "this part fails"));
    }));
    assert!(panicked.is_err());
    let done = AtomicUsize::new(0);
    pool.run(64, &|_| {
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.into_inner(), 64);
}
