//! The instruction sets of this processor.

/// An instruction set that was detected on this processor: a value is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct SimdLevel(pub(super) LevelKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LevelKind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl SimdLevel {
    /// The best available.
    pub(in crate::engine) fn detect() -> Self {
        Self::available()
            .last()
            .copied()
            .unwrap_or(Self(LevelKind::Portable))
    }

    /// All available, from portable to best.
    pub(in crate::engine) fn available() -> Vec<Self> {
        let mut levels = vec![Self(LevelKind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                levels.push(Self(LevelKind::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                levels.push(Self(LevelKind::Avx512));
            }
        }
        levels
    }

    /// How many tokens are multiplied per load of weights.
    pub(super) fn tile(self) -> usize {
        match self.0 {
            LevelKind::Portable => 4,
            #[cfg(target_arch = "x86_64")]
            LevelKind::Avx2 => 4,
            #[cfg(target_arch = "x86_64")]
            LevelKind::Avx512 => 8,
        }
    }
}
