//! Finding a skill by name.

use std::path::{Component, Path, PathBuf};

use super::{Frontmatter, SkillError, SkillLibrary, walk};

/// A skill document that was found.
pub(super) struct FoundSkill {
    /// `None` for a flat `name.md`.
    pub(super) dir: Option<PathBuf>,
    pub(super) path: PathBuf,
}

impl SkillLibrary {
    /// The document with this name: a path below a skills directory, `category:name`, a directory
    /// name, the name in the front matter, or a flat file. Ambiguous names are an error.
    pub(super) fn lookup(&self, name: &str) -> Result<FoundSkill, SkillError> {
        let name = name.trim().trim_end_matches('/');
        let path = relative(name)?;
        let mut hits: Vec<FoundSkill> = Vec::new();
        for root in self.roots() {
            for hit in in_root(root, name, &path) {
                let same = |known: &FoundSkill| same_file(&known.path, &hit.path);
                if !hits.iter().any(same) {
                    hits.push(hit);
                }
            }
        }
        match hits.len() {
            1 => {}
            0 => return Err(self.not_found(name)),
            _ => {
                return Err(SkillError::Ambiguous {
                    name: name.to_owned(),
                    matches: hits.into_iter().map(|hit| hit.path).collect(),
                });
            }
        }
        hits.pop().ok_or_else(|| self.not_found(name))
    }

    /// The directory of the skill to be changed. Only real skill directories count: by path if
    /// there is a slash, otherwise by directory name first and by the name in the front matter
    /// second.
    pub(super) fn find_skill_dir(&self, name: &str) -> Result<Option<PathBuf>, SkillError> {
        if name.contains('/') {
            let path = relative(name)?;
            let dirs = self.roots().map(|root| root.join(&path));
            return Ok(dirs.into_iter().find(|dir| dir.join("SKILL.md").is_file()));
        }
        let mut by_dir: Vec<PathBuf> = Vec::new();
        let mut by_head: Vec<PathBuf> = Vec::new();
        for root in self.roots() {
            for path in walk::files_named(root, "SKILL.md") {
                let Some(dir) = path.parent().map(Path::to_path_buf) else {
                    continue;
                };
                if dir.file_name().is_some_and(|dir| dir == name) {
                    by_dir.push(dir);
                } else if head_name(&path).as_deref() == Some(name) {
                    by_head.push(dir);
                }
            }
        }
        let mut found = if by_dir.is_empty() { by_head } else { by_dir };
        found.dedup_by(|a, b| same_file(a, b));
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(SkillError::Ambiguous {
                name: name.to_owned(),
                matches: found,
            }),
        }
    }

    pub(super) fn not_found(&self, name: &str) -> SkillError {
        let enabled = self.scan().into_iter().filter(|skill| skill.enabled);
        SkillError::NotFound {
            name: name.to_owned(),
            available: enabled.map(|skill| skill.name).take(20).collect(),
        }
    }
}

/// `name` as a path below a skills directory; `category:name` is `category/name`.
fn relative(name: &str) -> Result<PathBuf, SkillError> {
    let refuse = |why: &str| {
        Err(SkillError::Invalid(format!(
            "{name:?} is not a skill name: {why}. Pass a name from skills_list, or a path below the skills directory"
        )))
    };
    if name.is_empty() {
        return refuse("it is empty");
    }
    let slashed = name.replace('\\', "/");
    let drive =
        slashed.as_bytes().get(1) == Some(&b':') && slashed.as_bytes()[0].is_ascii_alphabetic();
    if drive || Path::new(&slashed).is_absolute() {
        return refuse("absolute paths are not allowed");
    }
    if Path::new(&slashed)
        .components()
        .any(|part| part == Component::ParentDir)
    {
        return refuse("'..' is not allowed");
    }
    match name.split_once(':') {
        None => Ok(PathBuf::from(name)),
        Some((category, rest)) => {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if category.is_empty() || !category.chars().all(word) {
                return refuse("what is before ':' must be letters, digits, '-' or '_'");
            }
            let joined = Path::new(category).join(rest);
            // `Path::join` with an absolute path would leave the directory.
            if rest.is_empty() || Path::new(rest).is_absolute() {
                return refuse("nothing usable is after ':'");
            }
            Ok(joined)
        }
    }
}

fn in_root(root: &Path, name: &str, path: &Path) -> Vec<FoundSkill> {
    let mut hits = Vec::new();
    let direct = root.join(path);
    if direct.join("SKILL.md").is_file() && !in_support_dir(root, &direct) {
        hits.push(FoundSkill {
            path: direct.join("SKILL.md"),
            dir: Some(direct),
        });
    }
    for path in walk::files_named(root, "SKILL.md") {
        let Some(dir) = path.parent() else { continue };
        let by_dir = dir.file_name().is_some_and(|dir| dir == name);
        if by_dir || head_name(&path).as_deref() == Some(name) {
            hits.push(FoundSkill {
                dir: Some(dir.to_path_buf()),
                path,
            });
        }
    }
    let flat = PathBuf::from(format!("{}.md", path.display()));
    if flat.file_name().is_some_and(|file| file != "SKILL.md") {
        let found = walk::files(root, |file| file.ends_with(&flat));
        hits.extend(found.into_iter().map(|path| FoundSkill { dir: None, path }));
    }
    hits
}

/// Whether `path` is inside `references/` or a similar directory of a skill, to which such files
/// belong.
fn in_support_dir(root: &Path, path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .take_while(|dir| *dir != root)
        .any(|dir| {
            let support = dir
                .file_name()
                .is_some_and(|name| walk::SUPPORT.iter().any(|support| name == *support));
            support
                && dir
                    .parent()
                    .is_some_and(|skill| skill.join("SKILL.md").is_file())
        })
}

fn head_name(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Frontmatter::read(&text).0.name()
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
