//! Which instructions this processor has.

/// A set of instructions that was found on this processor: a value is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Level(pub(super) Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The best there is.
    pub(in crate::engine) fn detect() -> Self {
        Self::available()
            .last()
            .copied()
            .unwrap_or(Self(Kind::Portable))
    }

    /// All there are, from plain to best.
    pub(in crate::engine) fn available() -> Vec<Self> {
        let mut levels = vec![Self(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                levels.push(Self(Kind::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                levels.push(Self(Kind::Avx512));
            }
        }
        levels
    }

    /// How many tokens are multiplied with one load of weights.
    pub(super) fn tile(self) -> usize {
        match self.0 {
            Kind::Portable => 4,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => 4,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => 8,
        }
    }
}
