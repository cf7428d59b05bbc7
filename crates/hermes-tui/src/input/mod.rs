//! What a person types: keys, pastes, focus.
