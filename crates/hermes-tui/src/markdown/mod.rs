//! Markdown as rows, also while it is still being written.
