//! Bundles: files in `<home>/skill-bundles` that name several skills, to be used as one command.

use std::io;
use std::path::{Path, PathBuf};

use hermes_config::{fs, yaml};
use serde_json::{Map, Value, json};

use super::SkillError;
use super::frontmatter::scalar;

/// Larger files are ignored.
const MAX_BYTES: u64 = 64 * 1024;
/// Maximum number of files read.
const MAX_FILES: usize = 500;
/// Skills in one bundle.
const MAX_SKILLS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillBundle {
    pub name: String,
    pub description: String,
    pub skills: Vec<String>,
    /// What the person wants done with all of them.
    pub instruction: String,
    pub path: PathBuf,
}

impl SkillBundle {
    /// The command name after the slash.
    pub fn command(&self) -> String {
        command_name(&self.name)
    }

    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name, "command": self.command(), "description": self.description,
            "skills": self.skills, "instruction": self.instruction, "path": self.path,
        })
    }
}

/// The name of a skill or a bundle as it is typed: lower case, spaces and underscores as hyphens,
/// other characters removed.
pub fn command_name(name: &str) -> String {
    let mut typed = String::with_capacity(name.len());
    for c in name.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => typed.push(c),
            ' ' | '_' | '-' if !typed.is_empty() && !typed.ends_with('-') => typed.push('-'),
            _ => {}
        }
    }
    typed.trim_end_matches('-').to_owned()
}

/// The bundles of one home.
#[derive(Clone, Debug)]
pub struct SkillBundles {
    dir: PathBuf,
}

impl SkillBundles {
    pub fn for_home(home: &hermes_config::home::Home) -> Self {
        Self {
            dir: home.join("skill-bundles"),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bundles by command, and errors of invalid files. If two have the same command, the first
    /// file wins.
    pub fn scan(&self) -> (Vec<SkillBundle>, Vec<String>) {
        let (mut bundles, mut problems) = (Vec::<SkillBundle>::new(), Vec::new());
        for path in self.files() {
            match read(&path) {
                Ok(bundle) => match bundles.iter().find(|it| it.command() == bundle.command()) {
                    Some(first) => problems.push(format!(
                        "{}: /{} is a bundle already, in {}",
                        path.display(),
                        bundle.command(),
                        first.path.display()
                    )),
                    None => bundles.push(bundle),
                },
                Err(why) => problems.push(format!("{}: {why}", path.display())),
            }
        }
        bundles.sort_by_key(SkillBundle::command);
        (bundles, problems)
    }

    /// The bundle with this name, in any spelling.
    pub fn find(&self, name: &str) -> Option<SkillBundle> {
        let wanted = command_name(name);
        let (bundles, _) = self.scan();
        bundles.into_iter().find(|it| it.command() == wanted)
    }

    /// Writes a bundle; an existing one is replaced only if `replace` is set.
    pub fn create(&self, bundle: &SkillBundle, replace: bool) -> Result<SkillBundle, SkillError> {
        let command = bundle.command();
        if command.is_empty() {
            let text = format!(
                "{:?} is not a bundle name: use letters a-z, digits, spaces or hyphens",
                bundle.name
            );
            return Err(SkillError::Invalid(text));
        }
        let skills = non_empty_names(&bundle.skills);
        if skills.is_empty() || skills.len() > MAX_SKILLS {
            let text = format!("a bundle names 1 to {MAX_SKILLS} skills");
            return Err(SkillError::Invalid(text));
        }
        let path = match self.find(&bundle.name) {
            Some(there) if replace => there.path,
            Some(there) => {
                return Err(SkillError::Exists {
                    name: there.name,
                    path: there.path,
                });
            }
            None => self.dir.join(format!("{command}.yaml")),
        };
        let mut value = Map::new();
        value.insert("name".to_owned(), json!(bundle.name.trim()));
        for (key, text) in [
            ("description", &bundle.description),
            ("instruction", &bundle.instruction),
        ] {
            if !text.trim().is_empty() {
                value.insert(key.to_owned(), json!(text.trim()));
            }
        }
        value.insert("skills".to_owned(), json!(skills));
        let text = yaml::to_block(&Value::Object(value)) + "\n";
        fs::create_private_dir(&self.dir)
            .map_err(|source| SkillError::io("create", &self.dir, source))?;
        fs::write_atomic(&path, text.as_bytes(), 0o600)
            .map_err(|source| SkillError::io("write", &path, source))?;
        read(&path).map_err(SkillError::Invalid)
    }

    /// Deletes the file of a bundle. `None` if there is none with this name.
    pub fn delete(&self, name: &str) -> Result<Option<SkillBundle>, SkillError> {
        let Some(bundle) = self.find(name) else {
            return Ok(None);
        };
        std::fs::remove_file(&bundle.path)
            .map_err(|source| SkillError::io("delete", &bundle.path, source))?;
        Ok(Some(bundle))
    }

    /// `*.yaml`, then `*.yml`, each by name.
    fn files(&self) -> Vec<PathBuf> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(dir = %self.dir.display(), %error, "bundles cannot be read");
                }
                return Vec::new();
            }
        };
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let end = path.extension();
                end.is_some_and(|end| end == "yaml" || end == "yml") && path.is_file()
            })
            .take(MAX_FILES)
            .collect();
        files.sort_by_key(|path| (path.extension().is_some_and(|it| it == "yml"), path.clone()));
        files
    }
}

fn non_empty_names(skills: &[String]) -> Vec<String> {
    let mut unique_names: Vec<String> = Vec::new();
    for skill in skills {
        let skill = skill.trim();
        if !skill.is_empty() && !unique_names.iter().any(|it| it == skill) {
            unique_names.push(skill.to_owned());
        }
    }
    unique_names
}

fn read(path: &Path) -> Result<SkillBundle, String> {
    let len = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if len.len() > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (value, _) = yaml::parse(&text).map_err(|error| error.to_string())?;
    let Value::Object(fields) = value else {
        return Err("a bundle is a mapping with name, description, skills, instruction".to_owned());
    };
    let text = |key: &str| {
        let text = fields.get(key).and_then(scalar).unwrap_or_default();
        text.trim().to_owned()
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = Some(text("name")).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| stem.into_owned());
    if command_name(&name).is_empty() {
        return Err(format!("{name:?} is not a name that can be typed"));
    }
    let skills = match fields.get("skills") {
        Some(Value::Array(skills)) => skills.iter().filter_map(scalar).collect(),
        _ => Vec::new(),
    };
    let skills = non_empty_names(&skills);
    if skills.is_empty() {
        return Err("skills: a list of at least one skill is missing".to_owned());
    }
    if skills.len() > MAX_SKILLS {
        return Err(format!("skills: more than {MAX_SKILLS} in one bundle"));
    }
    let description = match text("description") {
        none if none.is_empty() => format!("use {} skills together", skills.len()),
        some => some,
    };
    Ok(SkillBundle {
        description,
        instruction: text("instruction"),
        path: path.to_owned(),
        skills,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundles() -> (tempfile::TempDir, SkillBundles) {
        let dir = tempfile::tempdir().unwrap();
        let bundles = SkillBundles {
            dir: dir.path().join("skill-bundles"),
        };
        (dir, bundles)
    }

    #[test]
    fn names_are_typed_as_the_original_types_them() {
        for (name, typed) in [
            ("Backend Dev", "backend-dev"),
            ("a__b  c", "a-b-c"),
            ("C++ & Rust!", "c-rust"),
            ("-x-", "x"),
            ("über", "ber"),
            ("!!", ""),
        ] {
            assert_eq!(command_name(name), typed, "{name:?}");
        }
    }

    #[test]
    fn a_bundle_is_written_found_replaced_and_deleted() {
        let (_dir, bundles) = bundles();
        let wish = |skills: &[&str]| SkillBundle {
            name: "Back End: #1".to_owned(),
            description: "yes".to_owned(),
            skills: skills.iter().map(|it| (*it).to_owned()).collect(),
            instruction: "first\nsecond".to_owned(),
            path: PathBuf::new(),
        };
        let made = bundles.create(&wish(&["a", " b ", "a"]), false).unwrap();
        assert_eq!(made.skills, ["a", "b"]);
        assert_eq!(made.name, "Back End: #1");
        assert_eq!(made.description, "yes");
        assert_eq!(made.instruction, "first\nsecond");
        assert!(made.path.ends_with("back-end-1.yaml"));
        assert!(matches!(
            bundles.create(&wish(&["c"]), false),
            Err(SkillError::Exists { .. })
        ));
        bundles.create(&wish(&["c"]), true).unwrap();
        assert_eq!(bundles.find("back_end 1").unwrap().skills, ["c"]);
        assert!(bundles.create(&wish(&[" "]), true).is_err());
        assert!(bundles.delete("back-end-1").unwrap().is_some());
        assert!(bundles.delete("back-end-1").unwrap().is_none());
    }

    #[test]
    fn what_is_no_bundle_is_named_and_skipped() {
        let (_dir, bundles) = bundles();
        std::fs::create_dir_all(bundles.dir()).unwrap();
        for (file, text) in [
            ("a.yaml", "skills: [one, two]\n"),
            ("b.yaml", "name: A\nskills: [three]\n"),
            ("c.yml", "name: more\nskills: [1]\n"),
            ("d.yaml", "skills: {}\n"),
            ("e.yaml", "- x\n"),
            ("f.yaml", "name: [\n"),
            ("g.yaml", "name: '!'\nskills: [x]\n"),
            ("h.txt", "skills: [x]\n"),
        ] {
            std::fs::write(bundles.dir().join(file), text).unwrap();
        }
        let (found, problems) = bundles.scan();
        let names: Vec<String> = found.iter().map(SkillBundle::command).collect();
        assert_eq!(names, ["a", "more"]);
        assert_eq!(found[0].skills, ["one", "two"]);
        assert_eq!(problems.len(), 5, "{problems:#?}");
    }
}
