//! The crates of others in Cargo.lock.

use std::path::Path;

use anyhow::{Context, Result};
use semver::Version;
use serde::Deserialize;

/// A crate from a registry, at the version that is built. One name can be there several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockedCrate {
    pub(crate) name: String,
    pub(crate) version: Version,
}

#[derive(Deserialize)]
struct Lockfile {
    package: Vec<LockfilePackage>,
}

#[derive(Deserialize)]
struct LockfilePackage {
    name: String,
    version: String,
    /// Our own crates have none.
    source: Option<String>,
}

pub(crate) fn read(path: &Path) -> Result<Vec<LockedCrate>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lockfile: Lockfile = toml::from_str(&text).with_context(|| path.display().to_string())?;
    lockfile
        .package
        .into_iter()
        .filter(|package| package.source.is_some())
        .map(|package| {
            let version = Version::parse(&package.version).with_context(|| {
                format!(
                    "{}: {} has the version {:?}",
                    path.display(),
                    package.name,
                    package.version
                )
            })?;
            Ok(LockedCrate {
                name: package.name,
                version,
            })
        })
        .collect()
}
