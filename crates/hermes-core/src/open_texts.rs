//! Texts that another program holds open, perhaps changed and not saved: an editor's.

use std::path::Path;

use crate::BoxFuture;

/// What became of a text that was handed over to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The program has saved it.
    Done,
    /// It does not save this file, and has not touched it.
    Declined,
    /// Nobody knows: it has not answered.
    Unknown(String),
}

/// Whoever holds texts open.
pub trait OpenTexts: Send + Sync {
    /// The text of the file at `path`, which is absolute, as the program has it. `None`: it does not
    /// tell, and the disk counts.
    fn text<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<String>>;

    /// Saves `text` as the file at `path`, so that the program shows it as well.
    fn save<'a>(&'a self, path: &'a Path, text: String) -> BoxFuture<'a, SaveOutcome>;
}
