//! Showing a skill, or one of its files.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};

use super::frontmatter::{fits_platform, scalar, words};
use super::lookup::FoundSkill;
use super::{Frontmatter, SkillError, SkillLibrary, walk};

/// What was requested.
#[derive(Clone, Debug, PartialEq)]
pub enum SkillOrFile {
    Skill(Box<SkillView>),
    File(FileView),
}

/// A skill document with everything it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillView {
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub related_skills: Vec<String>,
    /// The whole document, with placeholders substituted.
    pub content: String,
    /// Relative to the skills directory.
    pub path: String,
    pub dir: Option<PathBuf>,
    /// Kind → paths relative to the skill.
    pub linked_files: Vec<(&'static str, Vec<String>)>,
    pub required_env: Vec<Map<String, Value>>,
    pub missing_env: Vec<String>,
    pub missing_files: Vec<String>,
    pub compatibility: Option<Value>,
    pub metadata: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FileView {
    /// The requested name.
    pub skill: String,
    pub file: String,
    /// `None` if it is not text.
    pub content: Option<String>,
    pub bytes: u64,
}

impl SkillView {
    /// The environment variables that it requires, set or not.
    pub fn env_names(&self) -> impl Iterator<Item = &str> {
        self.required_env
            .iter()
            .filter_map(|entry| entry.get("name")?.as_str())
    }
}

impl SkillLibrary {
    /// Shows the skill `name`, or its file `file`. `session` replaces `${HERMES_SESSION_ID}`.
    pub fn view(
        &self,
        name: &str,
        file: Option<&str>,
        session: Option<&str>,
    ) -> Result<SkillOrFile, SkillError> {
        let FoundSkill { dir, path } = self.lookup(name)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|source| SkillError::io("read", &path, source))?;
        let (head, _) = Frontmatter::read(&text);
        let named = head.name().unwrap_or_else(|| {
            let location = dir
                .as_deref()
                .map_or_else(|| path.file_stem(), Path::file_name);
            location.unwrap_or_default().to_string_lossy().into_owned()
        });
        if !fits_platform(&head.top_words("platforms")) {
            return Err(SkillError::Unsupported(named));
        }
        if self.settings.disabled.contains(&named) {
            return Err(SkillError::Disabled(named));
        }
        let file = file.map(str::trim).filter(|file| !file.is_empty());
        match (file, dir) {
            (Some(file), Some(dir)) => view_file(name, &dir, file).map(SkillOrFile::File),
            (_, dir) => {
                let hit = FoundSkill { dir, path };
                let skill = self.view_skill(named, hit, text, &head, session);
                Ok(SkillOrFile::Skill(Box::new(skill)))
            }
        }
    }

    fn view_skill(
        &self,
        name: String,
        hit: FoundSkill,
        text: String,
        head: &Frontmatter,
        session: Option<&str>,
    ) -> SkillView {
        let required_env = required_env(head);
        let missing_env = required_env
            .iter()
            .filter(|entry| !entry.contains_key("optional"))
            .filter_map(|entry| scalar(entry.get("name")?))
            .filter(|name| !(self.settings.has_env)(name))
            .collect();
        let content = if self.settings.template_vars {
            fill_placeholders(text, hit.dir.as_deref(), session)
        } else {
            text
        };
        let metadata = head.fields.get("metadata");
        SkillView {
            description: head.description().unwrap_or_default(),
            tags: head.tags("tags"),
            related_skills: head.tags("related_skills"),
            content,
            path: self.display_path(&hit.path),
            linked_files: hit.dir.as_deref().map(linked_files).unwrap_or_default(),
            missing_files: self.missing_files(head),
            required_env,
            missing_env,
            compatibility: head
                .fields
                .get("compatibility")
                .filter(|v| truthy(v))
                .cloned(),
            metadata: metadata.filter(|value| value.is_object()).cloned(),
            dir: hit.dir,
            name,
        }
    }

    fn display_path(&self, path: &Path) -> String {
        let outside = path.parent().and_then(Path::parent);
        let relative = path
            .strip_prefix(&self.settings.dir)
            .or_else(|_| path.strip_prefix(outside.unwrap_or(path)));
        relative.unwrap_or(path).display().to_string()
    }

    /// Credential files below the home that the skill requires and that are missing.
    fn missing_files(&self, head: &Frontmatter) -> Vec<String> {
        let Some(Value::Array(wanted)) = head.fields.get("required_credential_files") else {
            return Vec::new();
        };
        let home = self.settings.dir.parent().unwrap_or(&self.settings.dir);
        wanted
            .iter()
            .filter_map(|entry| scalar(entry).or_else(|| scalar(entry.get("path")?)))
            .filter(|file| stays_inside(Path::new(file)) && !home.join(file).is_file())
            .collect()
    }
}

impl SkillOrFile {
    pub fn to_json(&self) -> Value {
        match self {
            Self::Skill(skill) => skill.to_json(),
            Self::File(file) => file.to_json(),
        }
    }

    /// The name under which the view is counted.
    pub fn skill_name(&self) -> &str {
        match self {
            Self::Skill(skill) => &skill.name,
            Self::File(file) => &file.skill,
        }
    }
}

impl SkillView {
    /// What the model reads when a person uses the skill: the document, its directory, its files,
    /// and what is missing.
    pub fn instructions(&self) -> String {
        let mut text = self.content.trim_end().to_owned();
        let mut notes = Vec::new();
        if let Some(dir) = &self.dir {
            notes.push(format!(
                "The skill lies in {}; paths in it are relative to that.",
                dir.display()
            ));
            let files = self.linked_files.iter().flat_map(|(_, files)| files);
            let files: Vec<String> = files.map(|file| format!("- {file}")).collect();
            if !files.is_empty() {
                notes.push(format!(
                    "Its files, to be loaded with skill_view(name, file_path) when a step needs one:\n{}",
                    files.join("\n")
                ));
            }
        }
        notes.extend(self.setup_note());
        for note in notes {
            text.push_str("\n\n");
            text.push_str(&note);
        }
        text
    }

    /// What must be set up first, if anything.
    fn setup_note(&self) -> Option<String> {
        let env = self.missing_env.iter().map(|name| format!("${name}"));
        let files = self.missing_files.iter().map(|file| format!("file {file}"));
        let missing: Vec<String> = env.chain(files).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "Not ready: {} must be set up first. Tell the person; do not guess values.",
                missing.join(", ")
            )
        })
    }

    pub fn setup_needed(&self) -> bool {
        !self.missing_env.is_empty() || !self.missing_files.is_empty()
    }

    pub fn to_json(&self) -> Value {
        let linked: Map<String, Value> = self
            .linked_files
            .iter()
            .map(|(kind, files)| ((*kind).to_owned(), json!(files)))
            .collect();
        let has_links = !linked.is_empty();
        let setup_needed = self.setup_needed();
        let mut value = json!({
            "success": true,
            "name": self.name,
            "description": self.description,
            "tags": self.tags,
            "related_skills": self.related_skills,
            "content": self.content,
            "path": self.path,
            "skill_dir": self.dir,
            "linked_files": has_links.then_some(linked),
            "usage_hint": has_links.then_some(
                "Load a linked file with skill_view(name, file_path), with a path from linked_files."
            ),
            "required_environment_variables": self.required_env,
            "required_commands": [],
            "missing_required_environment_variables": self.missing_env,
            "missing_credential_files": self.missing_files,
            "missing_required_commands": [],
            "setup_needed": setup_needed,
            "setup_skipped": false,
            "readiness_status": if setup_needed { "setup_needed" } else { "available" },
        });
        let help = self.required_env.iter().find_map(|entry| entry.get("help"));
        if let Some(help) = help {
            value["setup_help"] = help.clone();
        }
        if let Some(note) = self.setup_note() {
            value["setup_note"] = json!(note);
        }
        if let Some(compatibility) = &self.compatibility {
            value["compatibility"] = compatibility.clone();
        }
        if let Some(metadata) = &self.metadata {
            value["metadata"] = metadata.clone();
        }
        value
    }
}

impl FileView {
    pub fn to_json(&self) -> Value {
        let Self {
            skill,
            file,
            content,
            bytes,
        } = self;
        match content {
            Some(content) => {
                let extension = Path::new(file).extension().unwrap_or_default();
                let file_type = match extension.to_string_lossy() {
                    none if none.is_empty() => String::new(),
                    some => format!(".{some}"),
                };
                json!({
                    "success": true, "name": skill, "file": file, "content": content,
                    "file_type": file_type,
                })
            }
            None => json!({
                "success": true, "name": skill, "file": file,
                "content": format!("[not text: {bytes} bytes]"), "is_binary": true,
            }),
        }
    }
}

fn view_file(skill: &str, dir: &Path, file: &str) -> Result<FileView, SkillError> {
    let path = path_inside(dir, file)?;
    if !path.is_file() {
        return Err(SkillError::NoFile {
            skill: skill.to_owned(),
            file: file.to_owned(),
            available: available_files(dir),
        });
    }
    let bytes = std::fs::read(&path).map_err(|source| SkillError::io("read", &path, source))?;
    Ok(FileView {
        skill: skill.to_owned(),
        file: file.to_owned(),
        bytes: bytes.len() as u64,
        content: String::from_utf8(bytes).ok(),
    })
}

/// `dir/file`; an error if it leaves `dir`, by `..` or by a link.
pub(super) fn path_inside(dir: &Path, file: &str) -> Result<PathBuf, SkillError> {
    let refuse = || {
        SkillError::Invalid(format!(
            "{file:?} is outside the skill; pass a path below its directory, without '..'"
        ))
    };
    if !stays_inside(Path::new(file)) {
        return Err(refuse());
    }
    let path = dir.join(file);
    let real_dir = dir
        .canonicalize()
        .map_err(|source| SkillError::io("read", dir, source))?;
    // A path that does not exist yet is checked by its existing part.
    let existing = path.ancestors().find_map(|part| part.canonicalize().ok());
    match existing {
        Some(real) if real.starts_with(&real_dir) => Ok(path),
        _ => Err(refuse()),
    }
}

fn stays_inside(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Every file of a skill except its document, by kind.
pub(super) fn available_files(dir: &Path) -> BTreeMap<String, Vec<String>> {
    const OTHER: [&str; 7] = ["md", "py", "yaml", "yml", "json", "tex", "sh"];
    let mut available: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in walk::relative_files(dir).unwrap_or_default() {
        let shown = file.display().to_string();
        let top = shown.split('/').next().unwrap_or_default();
        let known = file
            .extension()
            .is_some_and(|ext| OTHER.iter().any(|other| ext == *other));
        if walk::SUPPORT.contains(&top) && top != shown {
            available.entry(top.to_owned()).or_default().push(shown);
        } else if known && shown != "SKILL.md" {
            available.entry("other".to_owned()).or_default().push(shown);
        }
    }
    available
}

/// The files that a skill offers, by kind; each kind lists what the original lists.
fn linked_files(dir: &Path) -> Vec<(&'static str, Vec<String>)> {
    let rules: [(&'static str, bool, &[&str]); 4] = [
        ("references", false, &["md"]),
        (
            "templates",
            true,
            &["md", "py", "yaml", "yml", "json", "tex", "sh"],
        ),
        ("assets", true, &[]),
        ("scripts", false, &["py", "sh", "bash", "js", "ts", "rb"]),
    ];
    let mut linked = Vec::new();
    for (kind, deep, extensions) in rules {
        let found: Vec<String> = walk::relative_files(&dir.join(kind))
            .unwrap_or_default()
            .into_iter()
            .filter(|file| deep || file.components().count() == 1)
            .filter(|file| {
                let matching = |ext: &std::ffi::OsStr| extensions.iter().any(|known| ext == *known);
                extensions.is_empty() || file.extension().is_some_and(matching)
            })
            .map(|file| format!("{kind}/{}", file.display()))
            .collect();
        if !found.is_empty() {
            linked.push((kind, found));
        }
    }
    linked
}

/// The environment variables that a skill requires, from all the fields that may declare them.
fn required_env(head: &Frontmatter) -> Vec<Map<String, Value>> {
    let setup = head.fields.get("setup");
    let setup_help = setup.and_then(|setup| setup.get("help"));
    let list = |value: Option<&Value>| match value {
        Some(Value::Array(items)) => items.clone(),
        Some(one @ Value::Object(_)) => vec![one.clone()],
        _ => Vec::new(),
    };
    let mut wanted = list(head.fields.get("required_environment_variables"));
    wanted.extend(list(setup.and_then(|setup| setup.get("collect_secrets"))));
    let legacy = head
        .fields
        .get("prerequisites")
        .and_then(|all| all.get("env_vars"));
    wanted.extend(
        legacy
            .map(words)
            .unwrap_or_default()
            .into_iter()
            .map(Value::String),
    );

    let mut required: Vec<Map<String, Value>> = Vec::new();
    for entry in wanted {
        let field = |key: &str| {
            let text = entry.get(key).and_then(scalar).unwrap_or_default();
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let name = scalar(&entry)
            .or_else(|| field("name"))
            .or_else(|| field("env_var"));
        let Some(name) = name
            .map(|name| name.trim().to_owned())
            .filter(|name| is_env_name(name))
        else {
            continue;
        };
        if required.iter().any(|known| known["name"] == *name) {
            continue;
        }
        let mut entry_out = Map::new();
        let prompt = field("prompt").unwrap_or_else(|| format!("Enter value for {name}"));
        entry_out.insert("name".to_owned(), json!(name));
        entry_out.insert("prompt".to_owned(), json!(prompt));
        let help = ["help", "provider_url", "url"].into_iter().find_map(field);
        let help = help.or_else(|| {
            setup_help
                .and_then(Value::as_str)
                .map(|h| h.trim().to_owned())
        });
        if let Some(help) = help.filter(|help| !help.is_empty()) {
            entry_out.insert("help".to_owned(), json!(help));
        }
        if let Some(purpose) = field("required_for") {
            entry_out.insert("required_for".to_owned(), json!(purpose));
        }
        if entry.get("optional").is_some_and(truthy) {
            entry_out.insert("optional".to_owned(), json!(true));
        }
        required.push(entry_out);
    }
    required
}

fn is_env_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Substitutes the two placeholders; one without a value is kept, so that its author notices.
fn fill_placeholders(mut text: String, dir: Option<&Path>, session: Option<&str>) -> String {
    if let Some(dir) = dir {
        text = text.replace("${HERMES_SKILL_DIR}", &dir.display().to_string());
    }
    if let Some(session) = session.filter(|session| !session.is_empty()) {
        text = text.replace("${HERMES_SESSION_ID}", session);
    }
    text
}
