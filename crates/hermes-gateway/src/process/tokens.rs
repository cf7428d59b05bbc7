//! One process per token on this machine, across homes: two processes polling with the same token
//! would steal each other's messages.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hermes_config::fs::{create_private_dir, write_atomic};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::machine::start_time;
use super::record::ProcessRecord;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("another gateway on this machine uses this token (pid {0}); each needs one of its own")]
    Taken(u32),
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Where the locks of this machine are.
#[derive(Clone, Debug)]
pub struct TokenLocks {
    dir: PathBuf,
}

impl TokenLocks {
    /// `HERMES_GATEWAY_LOCK_DIR`, else below `XDG_STATE_HOME`, else below the user's directory.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        if let Some(dir) = set("HERMES_GATEWAY_LOCK_DIR") {
            return Some(Self { dir: dir.into() });
        }
        let state = match set("XDG_STATE_HOME") {
            Some(dir) => PathBuf::from(dir),
            None => PathBuf::from(set("HOME")?).join(".local/state"),
        };
        Some(Self {
            dir: state.join("hermes/gateway-locks"),
        })
    }

    /// Locks `identity` (a token, a number) of a platform.
    pub fn take(
        &self,
        scope: &str,
        identity: &str,
        now: DateTime<Utc>,
    ) -> Result<TokenLock, TokenError> {
        let hash = hash(identity);
        let path = self.dir.join(format!("{scope}-{hash}.lock"));
        let io = |source| TokenError::Io {
            path: path.clone(),
            source,
        };
        create_private_dir(&self.dir).map_err(io)?;
        let mut record = Value::Object(ProcessRecord::own().json());
        record["scope"] = scope.into();
        record["identity_hash"] = hash.into();
        record["metadata"] = json!({});
        record["updated_at"] = now.to_rfc3339().into();
        let text = record.to_string();
        // Twice: another process may take it between the check and the write.
        for _ in 0..2 {
            let made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match made {
                Ok(mut file) => {
                    file.write_all(text.as_bytes()).map_err(io)?;
                    return Ok(TokenLock { path });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
            match ProcessRecord::read(&path) {
                Some(holder) if is_own(&holder) => {
                    write_atomic(&path, text.as_bytes(), 0o600).map_err(io)?;
                    return Ok(TokenLock { path });
                }
                Some(holder) if holder.lives() => return Err(TokenError::Taken(holder.pid)),
                // Dead, or killed before it could write its name.
                _ => std::fs::remove_file(&path).map_err(io)?,
            }
        }
        Err(TokenError::Taken(0))
    }
}

fn is_own(record: &ProcessRecord) -> bool {
    let pid = std::process::id();
    record.pid == pid && record.start_time == start_time(pid)
}

fn hash(identity: &str) -> String {
    hermes_core::bytes::hex(&Sha256::digest(identity.as_bytes())[..8])
}

/// Held until this is dropped.
#[derive(Debug)]
pub struct TokenLock {
    path: PathBuf,
}

impl Drop for TokenLock {
    fn drop(&mut self) {
        let ours = ProcessRecord::read(&self.path).is_some_and(|record| is_own(&record));
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }
}
