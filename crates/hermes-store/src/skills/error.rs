//! Skill errors, for callers to branch on and for the model to read.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::patch::PatchError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    #[error("{0}")]
    Invalid(String),
    #[error("no skill {name:?}; skills_list shows what there is")]
    NotFound {
        name: String,
        available: Vec<String>,
    },
    #[error(
        "{name:?} names {} skills. Pass the path below the skills directory instead, such as category/name", matches.len()
    )]
    Ambiguous { name: String, matches: Vec<PathBuf> },
    #[error("skill {0:?} is not made for this system")]
    Unsupported(String),
    #[error("skill {0:?} is switched off in config.yaml (skills.disabled)")]
    Disabled(String),
    #[error("skill {skill:?} has no file {file:?}")]
    NoFile {
        skill: String,
        file: String,
        available: BTreeMap<String, Vec<String>>,
    },
    #[error("a skill {name:?} exists already at {}", path.display())]
    Exists { name: String, path: PathBuf },
    #[error("skill {0:?} is pinned: only the person may unpin and delete it. Patching it is fine")]
    Pinned(String),
    #[error("{source}")]
    Patch {
        source: PatchError,
        file_preview: String,
    },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl SkillError {
    pub(super) fn io(what: &str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io {
            what: format!("cannot {what} {}", path.display()),
            source,
        }
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!({ "success": false, "error": self.to_string() });
        match self {
            Self::NotFound { available, .. } => value["available_skills"] = json!(available),
            Self::Ambiguous { matches, .. } => value["matches"] = json!(matches),
            Self::Unsupported(_) => value["readiness_status"] = json!("unsupported"),
            Self::NoFile { available, .. } => value["available_files"] = json!(available),
            Self::Patch { file_preview, .. } => value["file_preview"] = json!(file_preview),
            _ => {}
        }
        value
    }
}
