//! Which files a call touches, as far as its arguments say.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hermes_core::paths::lexically_normal;
use hermes_core::tool::ToolArgs;
use serde_json::Value;

/// The files of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileClaim {
    paths: Vec<PathBuf>,
    writes: bool,
}

impl FileClaim {
    /// A call that names no file works on the directory it runs in.
    pub(super) fn new(args: &ToolArgs, keys: &[&str], cwd: &Path, writes: bool) -> Self {
        let mut paths: Vec<PathBuf> = keys
            .iter()
            .filter_map(|key| args.get(*key))
            .flat_map(named)
            .map(|path| canonical(&path, cwd))
            .collect();
        if paths.is_empty() {
            paths.push(canonical(".", cwd));
        }
        Self { paths, writes }
    }

    pub(super) fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self.paths.iter().any(|a| {
                other
                    .paths
                    .iter()
                    .any(|b| a.starts_with(b) || b.starts_with(a))
            })
    }
}

fn named(value: &Value) -> Vec<String> {
    match value {
        Value::String(path) => vec![path.clone()],
        Value::Array(items) => items.iter().flat_map(named).collect(),
        _ => Vec::new(),
    }
}

/// The path with symbolic links resolved as far as it exists; the rest is tidied as text.
fn canonical(path: &str, cwd: &Path) -> PathBuf {
    let path = match path.strip_prefix("~/").or((path == "~").then_some("")) {
        Some(rest) => match std::env::home_dir() {
            Some(home) => home.join(rest),
            None => cwd.join(path),
        },
        None => cwd.join(path),
    };
    let mut existing = lexically_normal(&path);
    let mut missing: Vec<OsString> = Vec::new();
    loop {
        if let Ok(mut resolved) = existing.canonicalize() {
            resolved.extend(missing.iter().rev());
            return resolved;
        }
        let Some(name) = existing.file_name().map(ToOwned::to_owned) else {
            return lexically_normal(&path);
        };
        missing.push(name);
        if !existing.pop() {
            return lexically_normal(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_and_dots_lead_to_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let want = root.join("real/new/file.txt");
        assert_eq!(canonical("link/new/file.txt", &root), want);
        assert_eq!(canonical("./real/x/../new/file.txt", &root), want);
        assert_eq!(canonical(want.to_str().unwrap(), Path::new("/")), want);
    }
}
