//! Choice of tier, places and rules.
