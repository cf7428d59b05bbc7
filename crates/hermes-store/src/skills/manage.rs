//! Creating, changing and deleting skills.

use std::path::{Path, PathBuf};

use hermes_config::fs;
use serde_json::{Value, json};

use super::usage::SkillUseKind;
use super::view::{available_files, path_inside};
use super::{MAX_DESCRIPTION, MAX_NAME, SkillError, SkillLibrary, frontmatter, patch, walk};

/// Maximum length of a document in characters, and of a supporting file in bytes.
const MAX_CHARS: usize = 100_000;
const MAX_BYTES: usize = 1_048_576;

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    pub message: String,
    /// The directory or file that was written.
    pub path: Option<PathBuf>,
    pub hint: Option<String>,
}

impl Managed {
    fn new(message: String, path: Option<PathBuf>) -> Self {
        Self {
            message,
            path,
            hint: None,
        }
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!({ "success": true, "message": self.message });
        if let Some(path) = &self.path {
            value["path"] = json!(path);
        }
        if let Some(hint) = &self.hint {
            value["hint"] = json!(hint);
        }
        value
    }
}

impl SkillLibrary {
    /// Creates a skill in the home's own directory.
    pub fn create(
        &self,
        name: &str,
        content: &str,
        category: Option<&str>,
    ) -> Result<Managed, SkillError> {
        check_name("name", name)?;
        let category = category
            .map(str::trim)
            .filter(|category| !category.is_empty());
        if let Some(category) = category {
            check_name("category", category)?;
        }
        check_document(content)?;
        if let Some(path) = self.find_skill_dir(name)? {
            return Err(SkillError::Exists {
                name: name.to_owned(),
                path,
            });
        }
        let parent = match category {
            Some(category) => self.dir().join(category),
            None => self.dir().to_path_buf(),
        };
        let dir = parent.join(name);
        let is_new = !dir.exists();
        let written = fs::create_private_dir(&dir)
            .and_then(|()| fs::write_atomic(&dir.join("SKILL.md"), content.as_bytes(), 0o600));
        if let Err(source) = written {
            if is_new {
                // Best effort: an empty directory is not a skill anyway.
                let _ = std::fs::remove_dir(&dir);
            }
            return Err(SkillError::io("write", &dir, source));
        }
        let mut managed = Managed::new(format!("Skill {name} was made."), Some(dir));
        managed.hint = Some(
            "Add files with action write_file, below references/, templates/, scripts/ or assets/."
                .to_owned(),
        );
        Ok(managed)
    }

    /// Replaces the whole document.
    pub fn edit(&self, name: &str, content: &str) -> Result<Managed, SkillError> {
        check_document(content)?;
        let dir = self.require(name)?;
        write(&dir.join("SKILL.md"), content)?;
        self.count_patch(&dir);
        Ok(Managed::new(
            format!("Skill {name} was rewritten."),
            Some(dir),
        ))
    }

    /// Replaces a text in the document or in a file of the skill.
    pub fn patch(
        &self,
        name: &str,
        (old, new): (&str, &str),
        file: Option<&str>,
        all: bool,
    ) -> Result<Managed, SkillError> {
        let dir = self.require(name)?;
        let file = checked_file_path(name, file.unwrap_or("SKILL.md"))?;
        let path = existing_file(&dir, name, &file)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|source| SkillError::io("read", &path, source))?;
        let patched = patch::patch(&text, old, new, all).map_err(|source| SkillError::Patch {
            source,
            file_preview: preview(&text),
        })?;
        check_length(&file, &patched.text)?;
        if file == "SKILL.md" {
            check_document(&patched.text).map_err(|error| {
                SkillError::Invalid(format!("the patch would break the document: {error}"))
            })?;
        }
        write(&path, &patched.text)?;
        self.count_patch(&dir);
        let count = patched.replacements;
        let plural = if count == 1 { "" } else { "s" };
        Ok(Managed::new(
            format!("{file} of skill {name}: {count} place{plural} changed."),
            None,
        ))
    }

    /// Deletes a skill. `absorbed_into` names the skill that took over its content.
    pub fn delete(&self, name: &str, absorbed_into: Option<&str>) -> Result<Managed, SkillError> {
        let dir = self.require(name)?;
        self.check_deletable(name, &dir)?;
        let heir = absorbed_into.map(str::trim).filter(|heir| !heir.is_empty());
        if let Some(heir) = heir {
            if heir == name {
                return Err(SkillError::Invalid(format!(
                    "absorbed_into is {name} itself; name the skill that has the content now"
                )));
            }
            if self.find_skill_dir(heir)?.is_none() {
                return Err(SkillError::Invalid(format!(
                    "absorbed_into: there is no skill {heir}; make or patch it first, then delete {name}"
                )));
            }
        }
        std::fs::remove_dir_all(&dir).map_err(|source| SkillError::io("delete", &dir, source))?;
        if let Some(parent) = dir.parent()
            && !self.roots().any(|root| root == parent)
        {
            // Only succeeds on an empty category.
            let _ = std::fs::remove_dir(parent);
        }
        let used = self.usage();
        for name in [name, &dir_name(&dir)] {
            if let Err(error) = used.forget(name) {
                tracing::warn!(%error, "the usage record of a deleted skill stays");
            }
        }
        let moved = heir.map_or_else(String::new, |heir| {
            format!(" Its content is in {heir} now.")
        });
        Ok(Managed::new(
            format!("Skill {name} was deleted.{moved}"),
            None,
        ))
    }

    /// Adds or replaces a file of the skill.
    pub fn write_file(&self, name: &str, file: &str, content: &str) -> Result<Managed, SkillError> {
        let file = checked_file_path(name, file)?;
        if content.len() > MAX_BYTES {
            return Err(SkillError::Invalid(format!(
                "{file} would have {} bytes, {MAX_BYTES} are allowed; split it",
                content.len()
            )));
        }
        check_length(&file, content)?;
        if file == "SKILL.md" {
            check_document(content)?;
        }
        let dir = self.require(name)?;
        let path = path_inside(&dir, &file)?;
        if let Some(parent) = path.parent() {
            fs::create_private_dir(parent)
                .map_err(|source| SkillError::io("make", parent, source))?;
        }
        write(&path, content)?;
        self.count_patch(&dir);
        Ok(Managed::new(
            format!("{file} of skill {name} was written."),
            Some(path),
        ))
    }

    pub fn remove_file(&self, name: &str, file: &str) -> Result<Managed, SkillError> {
        let file = checked_file_path(name, file)?;
        if file == "SKILL.md" {
            return Err(SkillError::Invalid(
                "a skill without SKILL.md is none; use action delete".to_owned(),
            ));
        }
        let dir = self.require(name)?;
        let path = existing_file(&dir, name, &file)?;
        std::fs::remove_file(&path).map_err(|source| SkillError::io("delete", &path, source))?;
        let parent = path.parent().filter(|parent| *parent != dir);
        if let Some(parent) = parent {
            // Only succeeds when that was the last file.
            let _ = std::fs::remove_dir(parent);
        }
        self.count_patch(&dir);
        Ok(Managed::new(
            format!("{file} of skill {name} was removed."),
            None,
        ))
    }

    fn require(&self, name: &str) -> Result<PathBuf, SkillError> {
        self.find_skill_dir(name)?
            .ok_or_else(|| self.not_found(name))
    }

    fn count_patch(&self, dir: &Path) {
        if let Err(error) = self.usage().bump(&dir_name(dir), SkillUseKind::Patched) {
            tracing::warn!(%error, "a change of a skill was not counted");
        }
    }

    /// Pinned skills are kept; nothing is deleted that is a link or not below a skills directory.
    fn check_deletable(&self, name: &str, dir: &Path) -> Result<(), SkillError> {
        let usage = self.usage();
        for name in [name, &dir_name(dir)] {
            let pinned = usage.is_pinned(name).map_err(|error| {
                SkillError::Invalid(format!("cannot tell whether {name} is pinned: {error}"))
            })?;
            if pinned {
                return Err(SkillError::Pinned(name.to_owned()));
            }
        }
        let refuse = |why: &str| {
            Err(SkillError::Invalid(format!(
                "{} is not deleted: {why}; remove it by hand if that is wanted",
                dir.display()
            )))
        };
        if dir.is_symlink() {
            return refuse("it is a link");
        }
        let real = dir
            .canonicalize()
            .map_err(|source| SkillError::io("read", dir, source))?;
        let mut below = false;
        for root in self.roots() {
            match root.canonicalize() {
                Ok(root) if root == real => return refuse("it is a whole skills directory"),
                Ok(root) => below |= real.starts_with(root),
                Err(_) => {}
            }
        }
        if below {
            Ok(())
        } else {
            refuse("it is outside the skills directories")
        }
    }
}

fn check_name(what: &str, name: &str) -> Result<(), SkillError> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = |c: char| first(c) || matches!(c, '.' | '_' | '-');
    if name.starts_with(first) && name.chars().all(rest) && name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(SkillError::Invalid(format!(
        "{what} {name:?} is not allowed: a-z, 0-9, '.', '_' and '-', starting with a letter or digit, at most {MAX_NAME} characters"
    )))
}

/// A document needs YAML front matter with name and description, and a body.
fn check_document(content: &str) -> Result<(), SkillError> {
    let refuse = |why: String| Err(SkillError::Invalid(format!("SKILL.md {why}")));
    check_length("SKILL.md", content)?;
    if !frontmatter::strip_bom(content).starts_with("---") {
        return refuse("must start with a YAML head between two --- lines".to_owned());
    }
    let Some(parts) = frontmatter::split(content) else {
        return refuse("has no --- line that ends its YAML head".to_owned());
    };
    let head = match frontmatter::parse_strict(parts.yaml) {
        Ok(Value::Object(head)) => head,
        Ok(_) => return refuse("has a header that is not a list of key: value".to_owned()),
        Err(error) => return refuse(format!("has a broken YAML head: {error}")),
    };
    for field in ["name", "description"] {
        if !head.contains_key(field) {
            return refuse(format!("has no {field} in its head"));
        }
    }
    let description = frontmatter::scalar(&head["description"]).unwrap_or_default();
    if description.chars().count() > MAX_DESCRIPTION {
        return refuse(format!(
            "has a description of over {MAX_DESCRIPTION} characters"
        ));
    }
    if parts.body.trim().is_empty() {
        return refuse("has no instructions below its head".to_owned());
    }
    Ok(())
}

fn check_length(what: &str, content: &str) -> Result<(), SkillError> {
    let chars = content.chars().count();
    if chars <= MAX_CHARS {
        return Ok(());
    }
    Err(SkillError::Invalid(format!(
        "{what} would have {chars} characters, {MAX_CHARS} are allowed; move parts into files below references/ or templates/"
    )))
}

/// The path of a file within the skill: the document, or a file below one of four directories.
fn checked_file_path(skill: &str, file: &str) -> Result<String, SkillError> {
    let file = file.trim();
    if file == "SKILL.md" || file.strip_suffix("/SKILL.md") == Some(skill) {
        return Ok("SKILL.md".to_owned());
    }
    let (top, rest) = file.split_once('/').unwrap_or((file, ""));
    if walk::SUPPORT.contains(&top) && !rest.trim_matches('/').is_empty() {
        return Ok(file.to_owned());
    }
    Err(SkillError::Invalid(format!(
        "file_path {file:?} is not allowed: pass SKILL.md or a file below references/, templates/, scripts/ or assets/"
    )))
}

fn existing_file(dir: &Path, skill: &str, file: &str) -> Result<PathBuf, SkillError> {
    let path = path_inside(dir, file)?;
    if path.is_file() {
        return Ok(path);
    }
    Err(SkillError::NoFile {
        skill: skill.to_owned(),
        file: file.to_owned(),
        available: available_files(dir),
    })
}

fn write(path: &Path, content: &str) -> Result<(), SkillError> {
    fs::write_atomic(path, content.as_bytes(), 0o600)
        .map_err(|source| SkillError::io("write", path, source))
}

fn dir_name(dir: &Path) -> String {
    dir.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn preview(text: &str) -> String {
    hermes_core::text::shorten(text, 500)
}
