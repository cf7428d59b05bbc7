//! Environment variables: the process's own, and those of the home's `.env` files.

mod dotenv;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod known;
pub mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::home::Home;
use dotenv::Precedence;

/// A snapshot of the process environment, so that tests can set it and nothing changes meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnv(BTreeMap<String, String>);

impl ProcessEnv {
    /// The environment of this process. Names and values that are not UTF-8 are skipped.
    pub fn current() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        )
    }

    pub fn from_vars<K: Into<String>, V: Into<String>>(
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self(
            vars.into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The administrator's directory: `HERMES_MANAGED_DIR`, else `/etc/hermes`, where it exists.
    pub fn managed_dir(&self) -> Option<PathBuf> {
        let dir = match self.get("HERMES_MANAGED_DIR").map(str::trim) {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir),
            _ => PathBuf::from("/etc/hermes"),
        };
        dir.is_dir().then_some(dir)
    }
}

/// Where a variable's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvSource {
    Shell,
    DotEnv,
    OpEnv,
    Managed,
}

impl EnvSource {
    pub fn label(self) -> &'static str {
        match self {
            Self::Shell => "environment",
            Self::DotEnv => ".env",
            Self::OpEnv => ".op.env",
            Self::Managed => "managed .env",
        }
    }
}

impl fmt::Display for EnvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Something in a `.env` file that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvWarning {
    BadLine {
        path: PathBuf,
        line: usize,
    },
    Encoding {
        path: PathBuf,
    },
    /// A credential contained characters that cannot be sent in a header; they were removed.
    NonAscii {
        name: String,
        stripped: usize,
    },
}

impl fmt::Display for EnvWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLine { path, line } => {
                write!(f, "{}:{line}: not an assignment, ignored", path.display())
            }
            Self::Encoding { path } => {
                write!(
                    f,
                    "{}: unknown text encoding, file ignored; save it as UTF-8",
                    path.display()
                )
            }
            Self::NonAscii { name, stripped } => write!(
                f,
                "{name}: left out {stripped} character(s) that a key cannot contain; copy the key again if it is refused"
            ),
        }
    }
}

#[derive(Clone)]
struct EnvEntry {
    value: String,
    source: EnvSource,
    /// The value that this one overrides.
    beneath: Option<Box<EnvEntry>>,
}

/// The variables Hermes sees: process environment ← `.env` ← (`.op.env` fills gaps) ← managed.
///
/// The home's `.env` overrides the shell: a key changed there takes effect although some profile
/// script still exports the old one.
#[derive(Clone, Default)]
pub struct Env {
    values: BTreeMap<String, EnvEntry>,
    warnings: Vec<EnvWarning>,
    managed_dir: Option<PathBuf>,
}

/// Values are often secrets: only names are shown.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("names", &self.values.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Env {
    /// Reads the files. Nothing is rewritten, even if a line is invalid.
    pub fn load(home: &Home, process: &ProcessEnv) -> Result<Self, EnvError> {
        let mut env = Self::from_process(process);
        env.layer(&home.env_path(), EnvSource::DotEnv)?;
        if env
            .get("OP_SERVICE_ACCOUNT_TOKEN")
            .is_none_or(str::is_empty)
        {
            env.layer(&home.join(".op.env"), EnvSource::OpEnv)?;
        }
        if let Some(dir) = env.managed_dir.clone() {
            env.layer(&dir.join(".env"), EnvSource::Managed)?;
        }
        env.clean_credentials();
        Ok(env)
    }

    /// The process environment alone.
    pub fn from_process(process: &ProcessEnv) -> Self {
        let entry = |value: &str| EnvEntry {
            value: value.to_owned(),
            source: EnvSource::Shell,
            beneath: None,
        };
        Self {
            values: process
                .iter()
                .map(|(name, value)| (name.to_owned(), entry(value)))
                .collect(),
            warnings: Vec::new(),
            managed_dir: process.managed_dir(),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|entry| entry.value.as_str())
    }

    pub fn source(&self, name: &str) -> Option<EnvSource> {
        self.values.get(name).map(|entry| entry.source)
    }

    /// The value of a key or token, if it is usable. A template placeholder is skipped for the
    /// value that it overrides; an empty value means that there is none.
    pub fn credential(&self, name: &str) -> Option<(SecretString, EnvSource)> {
        let mut entry = self.values.get(name)?;
        while !is_usable_secret(&entry.value) {
            if entry.value.trim().is_empty() {
                return None;
            }
            entry = entry.beneath.as_deref()?;
        }
        let secret = SecretString::from(entry.value.trim().to_owned());
        Some((secret, entry.source))
    }

    /// Whether the administrator fixed this variable.
    pub fn is_managed(&self, name: &str) -> bool {
        self.source(name) == Some(EnvSource::Managed)
    }

    pub fn managed_dir(&self) -> Option<&Path> {
        self.managed_dir.as_deref()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(name, entry)| (name.as_str(), entry.value.as_str()))
    }

    pub fn warnings(&self) -> &[EnvWarning] {
        &self.warnings
    }

    fn layer(&mut self, path: &Path, source: EnvSource) -> Result<(), EnvError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(EnvError::Read {
                    path: path.to_path_buf(),
                    source,
                });
            }
        };
        let Some(text) = dotenv::decode(&bytes) else {
            self.warnings.push(EnvWarning::Encoding {
                path: path.to_path_buf(),
            });
            return Ok(());
        };
        let fills_gaps = source == EnvSource::OpEnv;
        let first = if fills_gaps {
            Precedence::Outer
        } else {
            Precedence::File
        };
        let parsed = dotenv::parse(&text, &|name| self.get(name).map(str::to_owned), first);
        for line in parsed.bad_lines {
            self.warnings.push(EnvWarning::BadLine {
                path: path.to_path_buf(),
                line,
            });
        }
        for (name, value) in parsed.values {
            if fills_gaps && self.source(&name).is_some_and(|old| old != source) {
                continue;
            }
            let beneath = self.values.remove(&name).map(Box::new);
            let entry = EnvEntry {
                value,
                source,
                beneath,
            };
            self.values.insert(name, entry);
        }
        Ok(())
    }

    fn clean_credentials(&mut self) {
        const SUFFIXES: [&str; 4] = ["_API_KEY", "_TOKEN", "_SECRET", "_KEY"];
        for (name, entry) in &mut self.values {
            let stripped = entry.value.chars().filter(|c| !c.is_ascii()).count();
            if stripped > 0 && SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
                entry.value.retain(|c| c.is_ascii());
                self.warnings.push(EnvWarning::NonAscii {
                    name: name.clone(),
                    stripped,
                });
            }
        }
    }
}

/// Whether a configured secret is usable: not empty, not a template placeholder.
pub fn is_usable_secret(value: &str) -> bool {
    const PLACEHOLDERS: [&str; 13] = [
        "changeme",
        "change-me",
        "change_me",
        "your-api-key",
        "your-api-key-here",
        "your-key-here",
        "your-token-here",
        "placeholder",
        "example",
        "dummy",
        "null",
        "none",
        "xxxx",
    ];
    let value = value
        .trim()
        .trim_matches(['<', '>'])
        .to_lowercase()
        .replace('_', "-");
    value.len() >= 4 && !PLACEHOLDERS.contains(&value.as_str()) && value.chars().any(|c| c != '*')
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn load(files: &[(&str, &str)], shell: &[(&str, &str)]) -> (tempfile::TempDir, Env) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let managed = dir.path().join("managed").to_string_lossy().into_owned();
        let vars = shell
            .iter()
            .copied()
            .chain([("HERMES_MANAGED_DIR", managed.as_str())]);
        let env = Env::load(&Home::at(dir.path()), &ProcessEnv::from_vars(vars)).unwrap();
        (dir, env)
    }

    #[test]
    fn the_file_beats_the_shell_and_the_administrator_beats_both() {
        let (_dir, env) = load(
            &[
                (".env", "A=file\nM=file\n"),
                ("managed/.env", "M=managed\n"),
            ],
            &[("A", "shell"), ("B", "shell"), ("M", "shell")],
        );
        assert_eq!(env.get("A"), Some("file"));
        assert_eq!(env.get("B"), Some("shell"));
        assert_eq!(env.get("M"), Some("managed"));
        assert!(env.is_managed("M") && !env.is_managed("A"));
        assert_eq!(env.source("B"), Some(EnvSource::Shell));
    }

    #[test]
    fn op_env_only_fills_gaps_and_only_without_a_token() {
        let op = "OP_SERVICE_ACCOUNT_TOKEN=t\nA=op\nC=op\n";
        let (_dir, env) = load(&[(".env", "A=file\n"), (".op.env", op)], &[]);
        assert_eq!((env.get("A"), env.get("C")), (Some("file"), Some("op")));
        let (_dir, env) = load(&[(".op.env", op)], &[("OP_SERVICE_ACCOUNT_TOKEN", "mine")]);
        assert_eq!(
            (env.get("OP_SERVICE_ACCOUNT_TOKEN"), env.get("C")),
            (Some("mine"), None)
        );
    }

    #[test]
    fn a_credential_is_a_real_value() {
        let (_dir, env) = load(
            &[(
                ".env",
                "K1_API_KEY=sk-123\u{28b}456\nK2=your-api-key-here\nK3=***\nK4=\nK5=YOUR_API_KEY\n",
            )],
            &[],
        );
        let (secret, source) = env.credential("K1_API_KEY").unwrap();
        assert_eq!(
            (secret.expose_secret(), source),
            ("sk-123456", EnvSource::DotEnv)
        );
        for name in ["K2", "K3", "K4", "K5", "K6"] {
            assert!(env.credential(name).is_none(), "{name}");
        }
        assert!(matches!(
            env.warnings(),
            [EnvWarning::NonAscii { stripped: 1, .. }]
        ));
        assert!(!format!("{env:?}").contains("sk-123"));
    }

    #[test]
    fn a_placeholder_does_not_hide_the_shells_key_but_an_empty_value_does() {
        let (_dir, env) = load(
            &[(".env", "A=your-api-key-here\nB=\n")],
            &[("A", "sk-real"), ("B", "sk-real")],
        );
        let (secret, source) = env.credential("A").unwrap();
        assert_eq!(
            (secret.expose_secret(), source),
            ("sk-real", EnvSource::Shell)
        );
        assert!(env.credential("B").is_none());
    }

    #[test]
    fn glued_lines_are_split_in_memory_only() {
        let text = "OPENAI_API_KEY=one1OPENROUTER_API_KEY=two2\n";
        let (dir, env) = load(&[(".env", text)], &[]);
        assert_eq!(env.get("OPENROUTER_API_KEY"), Some("two2"));
        assert_eq!(
            std::fs::read_to_string(dir.path().join(".env")).unwrap(),
            text
        );
    }

    #[test]
    fn an_unreadable_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".env")).unwrap();
        let env = Env::load(&Home::at(dir.path()), &ProcessEnv::default());
        assert!(matches!(env, Err(EnvError::Read { .. })));
    }
}
