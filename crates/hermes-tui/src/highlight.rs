//! Colours for code.
