//! The interface as a whole: state, the loop, what is drawn.
