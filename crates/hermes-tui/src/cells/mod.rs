//! What a transcript consists of.
