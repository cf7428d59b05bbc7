//! Lists that things can be done to.
