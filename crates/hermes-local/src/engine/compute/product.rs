//! Products of quantised weights and quantised rows.
//!
//! Weights are blocks of 32 with a scale, as in Q8_0, in panels of 16 rows. Within a panel and a block, four
//! neighbours of row 0, four of row 1, … are adjacent: one load covers all sixteen rows, and four numbers of
//! the other operand serve them all. Weights are offset by 128, because the multiply-add instruction takes one
//! unsigned operand.

use half::f16;

use super::level::{LevelKind, SimdLevel};
use super::memory::Blob;
use super::pool::ThreadPool;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Numbers per scale.
pub(in crate::engine) const BLOCK: usize = 32;
/// Rows per panel.
pub(in crate::engine) const PANEL: usize = 16;
/// Bytes of a block of a panel.
pub(super) const PANEL_BLOCK: usize = PANEL * BLOCK;

/// Location of a matrix in a [`Blob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Matrix {
    pub(in crate::engine) rows: usize,
    pub(in crate::engine) cols: usize,
    /// Byte offsets.
    quants: usize,
    scales: usize,
}

/// Rows of quantised numbers. Each row has its numbers, then the scales, then the offset of the integer product
/// of each block.
#[derive(Default)]
pub(in crate::engine) struct Activations {
    words: Vec<u32>,
    blocks: usize,
}

/// Input and output of one tile of a product; the tokens of a tile are a stride apart.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) quants: *const u8,
    pub(super) scales: *const u16,
    pub(super) blocks: usize,
    /// The first token's row, and the number of words to the next.
    pub(super) row: *const u32,
    pub(super) row_stride: usize,
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
}

impl Activations {
    /// Words of a row for `cols` numbers.
    pub(in crate::engine) fn stride(cols: usize) -> usize {
        cols.div_ceil(BLOCK) * (BLOCK / 4 + 2)
    }

    /// Allocates `tokens` rows of `cols` numbers, to be filled by [`super::quantise`].
    pub(in crate::engine) fn rows(&mut self, tokens: usize, cols: usize) -> &mut [u32] {
        self.blocks = cols.div_ceil(BLOCK);
        let needed = tokens * Self::stride(cols);
        if self.words.len() < needed {
            self.words.resize(needed, 0);
        }
        &mut self.words[..needed]
    }
}

impl Matrix {
    /// Places a matrix at `at` of a blob and advances `at`.
    pub(in crate::engine) fn lay(rows: usize, cols: usize, at: &mut usize) -> Self {
        let blocks = rows.div_ceil(PANEL) * cols.div_ceil(BLOCK);
        let quants = *at;
        let scales = quants + blocks * PANEL_BLOCK;
        *at = (scales + blocks * PANEL * 2).next_multiple_of(Blob::ALIGN);
        Self {
            rows,
            cols,
            quants,
            scales,
        }
    }

    fn blocks(&self) -> usize {
        self.cols.div_ceil(BLOCK)
    }

    pub(in crate::engine) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Numbers per token of a product: the rows, rounded up to whole panels.
    pub(in crate::engine) fn width(&self) -> usize {
        self.panels() * PANEL
    }

    /// The bytes of the quants and of the scales, to be filled by [`Matrix::pack`] in pieces.
    pub(in crate::engine) fn parts<'a>(&self, blob: &'a mut Blob) -> (&'a mut [u8], &'a mut [u8]) {
        let size = self.panels() * self.blocks();
        let bytes = &mut blob.bytes_mut()[self.quants..self.scales + size * PANEL * 2];
        bytes.split_at_mut(size * PANEL_BLOCK)
    }

    /// Bytes of one panel in each of the parts.
    pub(in crate::engine) fn panel_bytes(&self) -> (usize, usize) {
        (self.blocks() * PANEL_BLOCK, self.blocks() * PANEL * 2)
    }

    /// Quantises up to 16 rows into a panel.
    pub(in crate::engine) fn pack(&self, rows: &[f32], quants: &mut [u8], scales: &mut [u8]) {
        quants.fill(128);
        for (lane, row) in rows.chunks(self.cols).enumerate() {
            for (number, block) in row.chunks(BLOCK).enumerate() {
                let top = block.iter().fold(0.0f32, |top, value| top.max(value.abs()));
                let scale = top / 127.0;
                let factor = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                let at = number * PANEL * 2 + lane * 2;
                scales[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
                for (index, value) in block.iter().enumerate() {
                    let small = (value * factor).round() as i32;
                    let at = number * PANEL_BLOCK + place(lane, index);
                    quants[at] = (small + 128) as u8;
                }
            }
        }
    }

    /// One row approximately as before quantisation.
    pub(in crate::engine) fn row(&self, blob: &Blob, row: usize, into: &mut [f32]) {
        let (panel, lane) = (row / PANEL, row % PANEL);
        let first = panel * self.blocks();
        let scales = blob.halves(self.scales, self.panels() * self.blocks() * PANEL);
        for (number, block) in into.chunks_mut(BLOCK).enumerate() {
            let number = first + number;
            let scale = f16::from_bits(scales[number * PANEL + lane]).to_f32();
            let quants = &blob.bytes()[self.quants + number * PANEL_BLOCK..][..PANEL_BLOCK];
            for (index, value) in block.iter_mut().enumerate() {
                *value = scale * f32::from(i16::from(quants[place(lane, index)]) - 128);
            }
        }
    }

    /// The product with the first `tokens` rows of `rows`: [`Matrix::width`] numbers for each.
    pub(in crate::engine) fn product(
        &self,
        pool: &mut ThreadPool,
        level: SimdLevel,
        blob: &Blob,
        rows: &Activations,
        out: &mut [f32],
    ) {
        let (blocks, width) = (self.blocks(), self.width());
        let tokens = out.len() / width;
        let stride = Activations::stride(self.cols);
        assert!(rows.blocks == blocks && rows.words.len() >= tokens * stride);
        assert_eq!(out.len(), tokens * width);
        let scales = blob.halves(self.scales, self.panels() * blocks * PANEL);
        let quants = &blob.bytes()[self.quants..][..self.panels() * blocks * PANEL_BLOCK];
        let out = SharedPointer(out.as_mut_ptr());
        let parts = self.panels().min(pool.threads() * 8);
        pool.run(parts, &|part| {
            let from = part * self.panels() / parts;
            let to = (part + 1) * self.panels() / parts;
            let out = &out;
            for panel in from..to {
                let mut token = 0;
                while token < tokens {
                    let size = tile_size(tokens - token, level.tile());
                    // SAFETY: the asserts and the slices above bound what is read. This panel's
                    // columns of `out` are written by this part alone.
                    unsafe {
                        let tile = Tile {
                            quants: quants[panel * blocks * PANEL_BLOCK..].as_ptr(),
                            scales: scales[panel * blocks * PANEL..].as_ptr(),
                            blocks,
                            row: rows.words.as_ptr().add(token * stride),
                            row_stride: stride,
                            out: out.0.add(token * width + panel * PANEL),
                            out_stride: width,
                        };
                        multiply(level, size, tile);
                    }
                    token += size;
                }
            }
        });
    }
}

/// Position of number `index` of row `lane` in a block of the panel.
fn place(lane: usize, index: usize) -> usize {
    index / 4 * PANEL * 4 + lane * 4 + index % 4
}

/// The largest of 8, 4, 2 and 1 that fits.
pub(super) fn tile_size(left: usize, max_size: usize) -> usize {
    let max_size = left.min(max_size);
    if max_size == 0 {
        0
    } else {
        1 << max_size.ilog2()
    }
}

/// # Safety
/// What the tile points to is there: `size` rows, a panel of weights, and room for the result that
/// nobody else uses.
unsafe fn multiply(level: SimdLevel, size: usize, tile: Tile) {
    // SAFETY: by the caller, and a level is only made when the processor has its instructions.
    unsafe {
        match (level.0, size) {
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 8) => x86::tile_avx512::<8>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 4) => x86::tile_avx512::<4>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 2) => x86::tile_avx512::<2>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, _) => x86::tile_avx512::<1>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 4) => x86::tile_avx2::<4>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 2) => x86::tile_avx2::<2>(tile),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, _) => x86::tile_avx2::<1>(tile),
            (LevelKind::Portable, 4) => portable::tile::<4>(tile),
            (LevelKind::Portable, 2) => portable::tile::<2>(tile),
            (LevelKind::Portable, _) => portable::tile::<1>(tile),
        }
    }
}

/// A pointer that several threads write through, each to its own locations.
struct SharedPointer(*mut f32);

// SAFETY: see where it is used.
unsafe impl Sync for SharedPointer {}
