//! Texts that another program (an editor) has open, possibly with unsaved changes.

use std::path::Path;

use crate::BoxFuture;

/// The result of saving a text through the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The program has saved it.
    Done,
    /// It does not save this file, and has not changed it.
    Declined,
    /// Unknown: it has not answered.
    Unknown(String),
}

/// A program that has texts open.
pub trait OpenTexts: Send + Sync {
    /// The text of the file at `path`, which is absolute, as the program has it. `None`: not
    /// available, use the file on disk.
    fn text<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<String>>;

    /// Saves `text` as the file at `path`, so that the program shows it as well.
    fn save<'a>(&'a self, path: &'a Path, text: String) -> BoxFuture<'a, SaveOutcome>;
}
