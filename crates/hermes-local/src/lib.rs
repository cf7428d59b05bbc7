//! A small open model that runs on the CPU, in a process of its own.

pub mod engine;
