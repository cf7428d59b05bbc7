//! A throw-away home: HERMES_HOME, HOME and a working directory, gone when dropped.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// The model name that [`TempHome::use_server`] configures.
pub const MODEL: &str = "scripted-model";

#[derive(Debug)]
pub struct TempHome {
    root: TempDir,
}

impl Default for TempHome {
    fn default() -> Self {
        Self::new()
    }
}

impl TempHome {
    /// An empty home beside an empty user directory and an empty working directory.
    pub fn new() -> Self {
        let root = TempDir::with_prefix("hermes-test-").expect("a temporary directory");
        for name in ["home", "user", "work"] {
            fs::create_dir(root.path().join(name)).expect("a directory in the temporary one");
        }
        Self { root }
    }

    /// What HERMES_HOME names.
    pub fn path(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// What HOME names.
    pub fn user(&self) -> PathBuf {
        self.root.path().join("user")
    }

    /// A working directory outside the home.
    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// A path below the home.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    /// Writes a file below the home, with its directories.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(path);
        let parent = path.parent().expect("a file below the home has a parent");
        fs::create_dir_all(parent).expect("the file's directory");
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.join(path).exists()
    }

    /// Writes config.yaml exactly as given.
    pub fn config(&self, yaml: &str) -> &Self {
        self.write("config.yaml", yaml);
        self
    }

    /// Writes config.yaml from JSON, which is YAML.
    pub fn config_json(&self, config: &Value) -> &Self {
        self.config(&format!("{config:#}\n"))
    }

    /// Writes .env exactly as given.
    pub fn env_file(&self, text: &str) -> &Self {
        self.write(".env", text);
        self
    }

    /// A config that talks chat completions to this server with [`MODEL`], without titles. `more` is
    /// YAML put below it.
    pub fn use_server(&self, base_url: &str, more: &str) -> &Self {
        self.config(&format!(
            "model:\n  default: {MODEL}\n  provider: custom\n  base_url: {base_url}\n  \
             api_key: test-key\n  context_length: 200000\n\
             auxiliary:\n  title_generation:\n    enabled: false\n{more}"
        ))
    }

    /// The environment a program needs to live in this home and nowhere else.
    pub fn vars(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        vec![
            ("HERMES_HOME".to_owned(), text(self.path())),
            ("HOME".to_owned(), text(self.user())),
            ("PATH".to_owned(), path),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ]
    }
}
