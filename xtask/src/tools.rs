//! Programs of others that our tasks run: from PATH, else built once under target/tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, output, retry, run as run_command};
use crate::workspace;

/// A program from the registry of crates.
pub(crate) struct CargoTool {
    name: &'static str,
    /// What is built when there is none.
    version: &'static str,
    /// Words that make it print its version.
    version_args: &'static [&'static str],
    /// Whether another version on PATH will not do.
    exactly: bool,
}

/// The test runner. What our configuration asks of it, every version of the last years knows.
pub(crate) const NEXTEST: CargoTool = CargoTool {
    name: "cargo-nextest",
    version: "0.9.143",
    version_args: &["nextest", "--version"],
    exactly: false,
};

/// Its versions differ in their options and in where they look for a database.
pub(crate) const DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    version_args: &["--version"],
    exactly: true,
};

impl CargoTool {
    /// The program, built if need be.
    pub(crate) fn ensure(&self) -> Result<PathBuf> {
        if let Some(found) = self.find() {
            return Ok(found);
        }
        let root = workspace().join("target/tools");
        retry(3, &format!("installing {}", self.name), || {
            let mut install = cargo();
            install
                .args(["install", "--locked", "--force", self.name])
                .args(["--version", self.version])
                .arg("--root")
                .arg(&root)
                // A helper need not be fast: building it must be.
                .args(["--profile", "dev"])
                .env("CARGO_PROFILE_DEV_DEBUG", "false")
                // One directory for each: two that share one would wait for each other.
                .env("CARGO_TARGET_DIR", root.join("build").join(self.name));
            run_command(&mut install)
        })?;
        // Only its leftovers are removed: a failure costs space and nothing else.
        let _ = std::fs::remove_dir_all(root.join("build").join(self.name));
        Ok(root.join("bin").join(self.name))
    }

    fn find(&self) -> Option<PathBuf> {
        let installed = PathBuf::from(self.name);
        let shown = self.shown_version(&installed);
        if shown.is_some_and(|text| !self.exactly || self.is_pinned(&text)) {
            return Some(installed);
        }
        let built = workspace().join("target/tools/bin").join(self.name);
        let shown = self.shown_version(&built)?;
        self.is_pinned(&shown).then_some(built)
    }

    fn shown_version(&self, program: &Path) -> Option<String> {
        output(Command::new(program).args(self.version_args))
    }

    fn is_pinned(&self, shown: &str) -> bool {
        shown.split_whitespace().any(|word| word == self.version)
    }
}
