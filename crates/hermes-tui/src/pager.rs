//! Something long to read.
