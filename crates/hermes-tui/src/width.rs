//! How wide text is: the one place that measures, cuts and wraps it, and makes strange characters visible.
