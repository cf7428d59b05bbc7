//! The gateway as a process: which processes live, who may run, what others can read about it.

mod machine;

pub use machine::{Machine, start_time, this_process};
