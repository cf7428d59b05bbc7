//! Everything that needs a server to talk to.

// The attribute tells clippy that these are tests throughout, helpers included.
#[cfg(test)]
mod asking;
#[cfg(test)]
mod routing;
mod wire;
