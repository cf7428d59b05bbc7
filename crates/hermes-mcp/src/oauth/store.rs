//! The token files, shared with other processes and with the original.
//!
//! `mcp-tokens/<safe>.json` contains the tokens, `.client.json` the registration, `.meta.json` the
//! authorization server's metadata. Unknown keys are preserved. Values that the original does not
//! store are under a key that it ignores.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hermes_config::fs::{FileLock, LockError, create_private_dir, sync_dir, write_atomic};
use serde_json::{Map, Value};

use super::error::OAuthError;

/// Far above the size of any valid file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Which of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFile {
    Tokens,
    Client,
    Meta,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenFileVersion {
    modified: (i64, i64),
    length: u64,
    inode: u64,
}

impl TokenFileVersion {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            modified: (meta.mtime(), meta.mtime_nsec()),
            length: meta.len(),
            inode: meta.ino(),
        }
    }

    /// When the file was written, in seconds since the epoch.
    pub(crate) fn modified(self) -> f64 {
        self.modified.0 as f64 + self.modified.1 as f64 / 1e9
    }
}

/// The object in a file, and its version.
pub(crate) type Versioned = (Map<String, Value>, TokenFileVersion);

/// The files of one server.
#[derive(Clone, Debug)]
pub(crate) struct TokenStore {
    server: String,
    dir: PathBuf,
    safe: String,
}

impl TokenStore {
    pub(crate) fn new(home: &Path, server: &str) -> Self {
        Self {
            server: server.to_owned(),
            dir: home.join("mcp-tokens"),
            safe: safe_name(server),
        }
    }

    pub(crate) fn tokens_path(&self) -> PathBuf {
        self.path(TokenFile::Tokens)
    }

    pub(crate) fn path(&self, file: TokenFile) -> PathBuf {
        let suffix = match file {
            TokenFile::Tokens => "json",
            TokenFile::Client => "client.json",
            TokenFile::Meta => "meta.json",
        };
        self.dir.join(format!("{}.{suffix}", self.safe))
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.dir.join(format!("{}.lock", self.safe))
    }

    /// The version of the token file; `None` if it does not exist.
    pub(crate) fn version(&self) -> Option<TokenFileVersion> {
        let meta = fs::metadata(self.path(TokenFile::Tokens)).ok()?;
        Some(TokenFileVersion::of(&meta))
    }

    /// The object in a file and its version; `None` if it does not exist.
    pub(crate) fn read(&self, file: TokenFile) -> Result<Option<Versioned>, OAuthError> {
        let path = self.path(file);
        // The version is read first: if the file is written in between, the next check reloads it
        // instead of missing the change.
        let meta = match fs::metadata(&path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        if meta.len() > MAX_FILE_BYTES {
            return Err(self.corrupt(&path, "it is far too large"));
        }
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(object)) => Ok(Some((object, TokenFileVersion::of(&meta)))),
            Ok(_) => Err(self.corrupt(&path, "it holds no JSON object")),
            // Not the error itself, which may quote part of a token.
            Err(error) => Err(self.corrupt(
                &path,
                &format!(
                    "no valid JSON at line {} column {}",
                    error.line(),
                    error.column()
                ),
            )),
        }
    }

    /// A damaged file is never overwritten; the user decides.
    pub(crate) fn corrupt(&self, path: &Path, why: &str) -> OAuthError {
        OAuthError::needs_login(
            &self.server,
            &format!(
                "{} is damaged ({why}); logging in sets it aside",
                path.display()
            ),
        )
    }

    /// Replaces a file: readable by the owner only, and on disk when this returns.
    pub(crate) fn write(
        &self,
        file: TokenFile,
        object: &Map<String, Value>,
    ) -> Result<Option<TokenFileVersion>, OAuthError> {
        let path = self.path(file);
        let write = || -> io::Result<TokenFileVersion> {
            self.prepare_dir()?;
            match fs::metadata(&path) {
                // `write_atomic` keeps the mode of an existing file.
                Ok(meta) if meta.mode() & 0o7777 != 0o600 => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                }
                _ => {}
            }
            let bytes = serde_json::to_vec_pretty(object).map_err(io::Error::other)?;
            write_atomic(&path, &bytes, 0o600)?;
            Ok(TokenFileVersion::of(&fs::metadata(&path)?))
        };
        write()
            .map(Some)
            .map_err(|error| OAuthError::store(format!("cannot write {}: {error}", path.display())))
    }

    fn prepare_dir(&self) -> io::Result<()> {
        create_private_dir(&self.dir)?;
        if fs::metadata(&self.dir)?.mode() & 0o077 != 0 {
            fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Takes the lock that other processes and tasks respect. `None`: it is held by one of them.
    pub(crate) fn try_lock(&self) -> Result<Option<FileLock>, OAuthError> {
        let failed = |error: &dyn std::fmt::Display| {
            OAuthError::store(format!(
                "cannot write to {}: {error}; tokens of {} cannot be renewed until that is possible",
                self.dir.display(),
                self.server
            ))
        };
        self.prepare_dir().map_err(|error| failed(&error))?;
        // A refresh whose result cannot be stored would lose a rotating grant.
        rustix::fs::access(&self.dir, rustix::fs::Access::WRITE_OK)
            .map_err(|error| failed(&error))?;
        match FileLock::try_acquire(&self.lock_path()) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Busy(_)) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Renames a file to `<name>.<suffix>`, replacing an older copy. Returns the new path if the
    /// file existed.
    pub(crate) fn set_aside(
        &self,
        file: TokenFile,
        suffix: &str,
    ) -> Result<Option<PathBuf>, OAuthError> {
        let path = self.path(file);
        let mut name = path.clone().into_os_string();
        name.push(format!(".{suffix}"));
        let renamed = PathBuf::from(name);
        match fs::rename(&path, &renamed) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(OAuthError::store(format!(
                    "cannot rename {} to {}: {error}",
                    path.display(),
                    renamed.display()
                )));
            }
        }
        sync_dir(&self.dir)
            .map_err(|error| OAuthError::store(format!("{}: {error}", self.dir.display())))?;
        Ok(Some(renamed))
    }

    /// Deletes all three files. Returns whether any existed.
    pub(crate) fn remove(&self) -> Result<bool, OAuthError> {
        let mut any = false;
        for file in [TokenFile::Tokens, TokenFile::Client, TokenFile::Meta] {
            any |= self.delete(file)?;
        }
        Ok(any)
    }

    pub(crate) fn delete(&self, file: TokenFile) -> Result<bool, OAuthError> {
        let path = self.path(file);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(OAuthError::store(format!(
                "cannot delete {}: {error}",
                path.display()
            ))),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> OAuthError {
    OAuthError::store(format!("cannot read {}: {error}", path.display()))
}

/// The file name for a server, the same as in the original.
fn safe_name(server: &str) -> String {
    let replaced: String = server
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let name: String = replaced.trim_matches('_').chars().take(128).collect();
    if name.is_empty() {
        "default".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::error::OAuthErrorKind;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other} is not an object"),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn names_are_those_of_the_original() {
        for (server, safe) in [
            ("linear", "linear"),
            ("my server/1", "my_server_1"),
            ("../../etc", "etc"),
            ("__", "default"),
            ("naïve-日本", "naïve-日本"),
        ] {
            assert_eq!(safe_name(server), safe);
        }
        assert_eq!(safe_name(&"x".repeat(300)).len(), 128);
    }

    #[test]
    fn files_are_private_even_where_they_were_not() {
        let home = tempfile::tempdir().unwrap();
        let store = TokenStore::new(home.path(), "s");
        let path = store.tokens_path();
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&path, "{}").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let version = store
            .write(TokenFile::Tokens, &object(json!({"access_token": "a"})))
            .unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(version, store.version());
    }

    #[test]
    fn a_damaged_file_is_named_and_never_quoted() {
        let home = tempfile::tempdir().unwrap();
        let store = TokenStore::new(home.path(), "s");
        assert_eq!(store.read(TokenFile::Tokens).unwrap(), None);
        store.write(TokenFile::Tokens, &Map::new()).unwrap();
        for text in [
            "{\"access_token\": \"very-secret",
            "[]",
            "",
            "\u{0}\u{1}very-secret",
        ] {
            fs::write(store.tokens_path(), text).unwrap();
            let error = store.read(TokenFile::Tokens).unwrap_err();
            assert_eq!(error.kind, OAuthErrorKind::NeedsLogin);
            assert!(error.text.contains("s.json is damaged"), "{error}");
            assert!(error.text.contains("hermes mcp login s"), "{error}");
            assert!(!error.text.contains("very-secret"), "{error}");
            assert_eq!(fs::read_to_string(store.tokens_path()).unwrap(), text);
        }
    }

    #[test]
    fn the_lock_has_one_holder() {
        let home = tempfile::tempdir().unwrap();
        let store = TokenStore::new(home.path(), "s");
        let held = store.try_lock().unwrap();
        assert!(held.is_some());
        assert!(store.try_lock().unwrap().is_none());
        drop(held);
        assert!(store.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_before_anything_is_lost() {
        let home = tempfile::tempdir().unwrap();
        let store = TokenStore::new(home.path(), "s");
        store.write(TokenFile::Tokens, &Map::new()).unwrap();
        // Simulates a read-only directory, which would not stop root.
        fs::create_dir(store.lock_path()).unwrap();
        let error = store.try_lock().unwrap_err();
        assert_eq!(error.kind, OAuthErrorKind::Store);
        assert!(error.text.contains("mcp-tokens"), "{error}");
    }
}
