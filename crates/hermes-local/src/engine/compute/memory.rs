//! One aligned buffer that holds all weights.

/// A cache line; what vectors are loaded from starts at one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Blob::ALIGN]);

/// Aligned bytes.
pub(in crate::engine) struct Blob {
    lines: Vec<Line>,
}

/// Where numbers lie in a [`Blob`], in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Floats {
    pub(in crate::engine) at: usize,
    pub(in crate::engine) len: usize,
}

impl Blob {
    pub(in crate::engine) const ALIGN: usize = 64;

    /// Zeros, at least `bytes` of them.
    pub(in crate::engine) fn zeroed(bytes: usize) -> Self {
        Self {
            lines: vec![Line([0; Self::ALIGN]); bytes.div_ceil(Self::ALIGN)],
        }
    }

    pub(in crate::engine) fn bytes(&self) -> &[u8] {
        // SAFETY: `Line` is an array of bytes without padding, and any byte is initialised.
        unsafe {
            std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * Self::ALIGN)
        }
    }

    pub(in crate::engine) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; every pattern of bytes is a `Line`.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.lines.as_mut_ptr().cast(),
                self.lines.len() * Self::ALIGN,
            )
        }
    }

    pub(in crate::engine) fn floats(&self, floats: Floats) -> &[f32] {
        let bytes = &self.bytes()[floats.at..floats.at + floats.len * 4];
        // SAFETY: every pattern of bits is an `f32`, and the alignment is seen to.
        let (before, numbers, _) = unsafe { bytes.align_to::<f32>() };
        debug_assert!(before.is_empty());
        numbers
    }

    pub(super) fn halves(&self, at: usize, len: usize) -> &[u16] {
        let bytes = &self.bytes()[at..at + len * 2];
        // SAFETY: every pattern of bits is a `u16`, and the alignment is seen to.
        let (before, numbers, _) = unsafe { bytes.align_to::<u16>() };
        debug_assert!(before.is_empty());
        numbers
    }
}

/// The bytes of words, to be written as small numbers.
pub(super) fn small_mut(words: &mut [u32]) -> &mut [i8] {
    // SAFETY: every pattern of bits is an `i8` and a `u32`; bytes need no alignment.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 4) }
}
