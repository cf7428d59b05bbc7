//! The skills library: directories with a `SKILL.md`, in `<home>/skills` and in directories
//! named by `skills.external_dirs`.

mod bundles;
mod error;
mod frontmatter;
mod heads;
mod index;
mod inline;
mod lookup;
mod manage;
mod manifest;
mod patch;
mod usage;
mod view;
mod walk;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use hermes_config::Config;
use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::Home;
use hermes_core::clock::{Clock, SystemClock};
use serde_json::{Value, json};

pub use bundles::{SkillBundle, SkillBundles, command_name};
pub use error::SkillError;
use frontmatter::Frontmatter;
use heads::SkillFile;
pub use index::Offer;
pub use inline::{inline_commands, with_outputs};
pub use manage::Managed;
pub use manifest::bundled_skills;
use usage::SkillUsage;
pub use usage::SkillUseKind;
pub use view::{SkillOrFile, SkillView};

/// Maximum length of a name and a description in a listing.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;
/// Maximum number of skills in a listing.
const MAX_LISTED: usize = 200;

/// Where skills are, and which of them are active.
#[derive(Clone)]
pub struct Settings {
    /// `<home>/skills`
    pub dir: PathBuf,
    /// Further directories, absolute; the home's own skills take precedence.
    pub external: Vec<PathBuf>,
    /// Names of disabled skills, for every platform and for this one.
    pub disabled: Vec<String>,
    /// Which of `kanban`, `docker`, `s6` apply.
    pub environments: Vec<String>,
    /// Whether `${HERMES_SKILL_DIR}` and `${HERMES_SESSION_ID}` are substituted.
    pub template_vars: bool,
    /// Whether an environment variable that a skill requires is set.
    pub has_env: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    pub clock: Arc<dyn Clock>,
    /// Where the front matter of skills is cached between starts.
    pub cache: Option<PathBuf>,
}

impl Settings {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            external: Vec::new(),
            disabled: Vec::new(),
            environments: Vec::new(),
            template_vars: true,
            has_env: Arc::new(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())),
            clock: Arc::new(SystemClock),
            cache: None,
        }
    }

    /// The settings from `config`. `platform` (`cli`, `telegram`, …) may disable further skills.
    pub fn of_home(home: &Home, config: &Config, platform: Option<&str>) -> Self {
        let skills = &config.skills;
        let dir = home.skills_dir();
        let is_own = |real: &Path| dir.canonicalize().map_or(dir == *real, |own| own == *real);
        let mut external: Vec<PathBuf> = Vec::new();
        for entry in &skills.external_dirs {
            let path = home.root().join(home.expand_user(entry.trim()));
            // A directory that does not exist (a drive that is not mounted) is not searched.
            if let Ok(real) = path.canonicalize()
                && !entry.trim().is_empty()
                && !is_own(&real)
                && !external.contains(&real)
            {
                external.push(real);
            }
        }
        let mut disabled = skills.disabled.clone().unwrap_or_default();
        let on_platform =
            platform.and_then(|platform| skills.platform_disabled.as_ref()?.get(platform));
        disabled.extend(on_platform.into_iter().flatten().cloned());
        let cache = home.cache_dir().join("skills.json");
        let home = home.clone();
        // Read again each time: the person may have just added the missing key to .env.
        let has_env = move |name: &str| {
            let env = Env::load(&home, &ProcessEnv::current());
            env.is_ok_and(|env| env.get(name).is_some_and(|value| !value.is_empty()))
        };
        Self {
            has_env: Arc::new(has_env),
            cache: Some(cache),
            external,
            disabled: disabled.iter().map(|name| name.trim().to_owned()).collect(),
            environments: Self::detect_environments(),
            template_vars: skills.template_vars,
            ..Self::new(dir)
        }
    }

    /// The environments that can be detected from the file system. They do not change during a
    /// process run.
    pub fn detect_environments() -> Vec<String> {
        static FOUND: LazyLock<Vec<String>> = LazyLock::new(Settings::find_environments);
        FOUND.clone()
    }

    fn find_environments() -> Vec<String> {
        let any = |paths: &[&str]| paths.iter().any(|path| Path::new(path).exists());
        let mut found = Vec::new();
        if any(&["/.dockerenv", "/run/.containerenv"]) {
            found.push("docker".to_owned());
        }
        if any(&["/run/s6", "/package/admin/s6-overlay"]) {
            found.push("s6".to_owned());
        }
        found
    }
}

/// A skill in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub category: Option<String>,
    /// The directory with the `SKILL.md`.
    pub dir: PathBuf,
    pub enabled: bool,
}

/// The skills of one home.
#[derive(Clone)]
pub struct SkillLibrary {
    settings: Arc<Settings>,
}

impl SkillLibrary {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
        }
    }

    /// The library of `home` with the settings of `config`.
    pub fn of_home(home: &Home, config: &Config, platform: Option<&str>) -> Self {
        Self::new(Settings::of_home(home, config, platform))
    }

    pub fn dir(&self) -> &Path {
        &self.settings.dir
    }

    pub fn usage(&self) -> SkillUsage {
        SkillUsage::new(&self.settings.dir, Arc::clone(&self.settings.clock))
    }

    /// Every skill that fits this system, including disabled ones, by category and name. If two
    /// have the same name, the first wins: the home's own before external ones.
    pub fn scan(&self) -> Vec<Skill> {
        let mut skills: Vec<Skill> = Vec::new();
        let mut names = HashSet::new();
        for (root, found) in self.heads() {
            for file in found.iter().filter(|file| file.is_skill()) {
                if let Some(skill) = self.to_skill(&root, file)
                    && names.insert(skill.name.clone())
                {
                    skills.push(skill);
                }
            }
        }
        skills.sort_by(|a, b| {
            let key = |skill: &Skill| {
                (
                    skill.category.clone().unwrap_or_default(),
                    skill.name.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        skills
    }

    /// The enabled skills, as shown by the `skills_list` tool. `query`: words that must all occur
    /// in the name, the description or the category, ignoring case; at most [`MAX_LISTED`] are
    /// shown.
    pub fn list(&self, category: Option<&str>, query: Option<&str>) -> Value {
        let mut skills = self.scan();
        skills.retain(|skill| skill.enabled);
        if skills.is_empty() {
            let dir = self.settings.dir.display();
            return json!({
                "success": true, "skills": [], "categories": [],
                "message": format!("There are no skills yet in {dir}."),
            });
        }
        // An unknown category is treated as search words.
        let there = |name: &str| skills.iter().any(|it| it.category.as_deref() == Some(name));
        let (category, query) = match category {
            Some(words) if query.is_some() && !there(words) => (None, Some(words)),
            category => (category, query),
        };
        skills.retain(|skill| category.is_none() || skill.category.as_deref() == category);
        let words: Vec<String> = query
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        skills.retain(|skill| {
            let category = skill.category.as_deref().unwrap_or_default();
            let text = format!("{} {category} {}", skill.name, skill.description).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        });
        let found = skills.len();
        if query.is_some() {
            skills.truncate(MAX_LISTED);
        }
        let mut categories: Vec<&str> = skills
            .iter()
            .filter_map(|skill| skill.category.as_deref())
            .collect();
        categories.sort_unstable();
        categories.dedup();
        let shown: Vec<Value> = skills
            .iter()
            .map(|skill| {
                json!({
                    "name": skill.name, "description": skill.description,
                    "category": skill.category,
                })
            })
            .collect();
        let hint = if found > shown.len() {
            format!(
                "{} of {found} are shown: name a category, or words of what you look for in its place. Load one with skill_view(name) before you follow it.",
                shown.len()
            )
        } else {
            "Load one with skill_view(name) before you follow it.".to_owned()
        };
        json!({
            "success": true, "skills": shown, "categories": categories, "count": shown.len(),
            "hint": hint,
        })
    }

    fn to_skill(&self, root: &Path, file: &SkillFile) -> Option<Skill> {
        let head = &file.head;
        if !head.fits_system(&self.settings.environments) {
            return None;
        }
        let dir = file.path.parent()?.to_path_buf();
        let dir_name = dir.file_name()?.to_string_lossy().into_owned();
        let name = head.name.clone().unwrap_or(dir_name);
        let name: String = name.chars().take(MAX_NAME).collect();
        Some(Skill {
            enabled: !self.settings.disabled.contains(&name),
            description: shortened(head.display_description(), MAX_DESCRIPTION),
            category: category(root, &file.path),
            name,
            dir,
        })
    }

    /// The existing directories, the home's own first.
    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        let external = self.settings.external.iter();
        let external = external.filter(|dir| **dir != self.settings.dir);
        std::iter::once(&self.settings.dir)
            .chain(external)
            .filter(|dir| dir.is_dir())
    }
}

/// The first directory below the root, unless the skill is directly below it.
fn category(root: &Path, path: &Path) -> Option<String> {
    let mut parts = path.strip_prefix(root).ok()?.components();
    let first = parts.next()?;
    (parts.count() >= 2).then(|| first.as_os_str().to_string_lossy().into_owned())
}

/// At most `limit` characters, ending in three dots if something was cut.
fn shortened(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(limit - 3).collect();
    cut.push_str("...");
    cut
}

#[cfg(test)]
mod tests;
