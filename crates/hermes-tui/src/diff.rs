//! Changes of files, with the words that changed.
