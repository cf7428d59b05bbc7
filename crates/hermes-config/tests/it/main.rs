//! Integration tests: one binary, one module per concern.

#[cfg(test)]
mod load;
#[cfg(test)]
mod migrate;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod support;
