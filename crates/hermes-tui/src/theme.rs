//! Colours and signs by what they mean.
