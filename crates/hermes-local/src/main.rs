//! `hermes-local`: serves one model on loopback.

fn main() {}
