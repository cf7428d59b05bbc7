//! Whole turns with scripted models.

mod answers;
mod compaction;
mod http;
mod recovery;
mod sessions;
mod snapshots;
mod support;
mod tools;
