//! The hermes binary.
fn main() {}
