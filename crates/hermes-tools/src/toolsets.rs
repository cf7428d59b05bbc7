//! Which tools belong together.
