//! Integration tests of the store, one binary.

#[cfg(test)]
mod db;
#[cfg(test)]
mod files;
