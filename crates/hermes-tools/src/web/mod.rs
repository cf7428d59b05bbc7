//! The web and images.
