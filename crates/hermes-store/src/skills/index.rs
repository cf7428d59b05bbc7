//! The list of skills in the system prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::SkillLibrary;
use super::heads::{SkillFile, SkillHead};

/// Maximum length of a description in the list.
const MAX_DESCRIPTION: usize = 60;

/// Maximum bytes of the list, which is part of every request.
const MAX_RENDERED: usize = 16_000;

/// The tools of the session, which decide about skills that require or replace them.
#[derive(Clone, Debug, Default)]
pub struct Offer<'a> {
    pub tools: BTreeSet<&'a str>,
    pub toolsets: BTreeSet<&'a str>,
}

/// Skills by category, in the order of the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    pub categories: BTreeMap<String, IndexCategory>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCategory {
    pub description: String,
    /// Name → short description.
    pub skills: BTreeMap<String, String>,
}

impl SkillLibrary {
    /// The skills to offer. If two have the same name, the first wins: the home's own before
    /// external ones.
    pub fn index(&self, offer: &Offer<'_>) -> Index {
        let mut index = Index::default();
        let mut seen = BTreeSet::new();
        let roots = self.heads();
        for (root, found) in &roots {
            let mut added = BTreeSet::new();
            for file in found.iter().filter(|file| file.is_skill()) {
                let Some((category, name)) = self.is_offered(root, file, offer) else {
                    continue;
                };
                if seen.contains(&name) {
                    continue;
                }
                let entry = index.categories.entry(category).or_default();
                entry
                    .skills
                    .entry(name.clone())
                    .or_insert_with(|| short_description(&file.head));
                added.insert(name);
            }
            seen.extend(added);
        }
        for (root, found) in &roots {
            describe_categories(root, found, &mut index);
        }
        index
    }

    fn is_offered(
        &self,
        root: &Path,
        file: &SkillFile,
        offer: &Offer<'_>,
    ) -> Option<(String, String)> {
        let (category, dir_name) = category_and_name(root, &file.path)?;
        let head = &file.head;
        let name = head.name.clone().unwrap_or_else(|| dir_name.clone());
        let off = |name: &String| self.settings.disabled.contains(name);
        let hidden = off(&name)
            || off(&dir_name)
            || !head.fits_system(&self.settings.environments)
            || !conditions_met(head, offer);
        (!hidden).then_some((category, name))
    }
}

impl Index {
    pub fn is_empty(&self) -> bool {
        self.categories.is_empty()
    }

    /// The block for the prompt; `None` if there is nothing to offer. If it exceeds
    /// [`MAX_RENDERED`], it is shortened: names without descriptions, then fewer names.
    pub fn render(&self) -> Option<String> {
        let full = self.render_full()?;
        if full.len() <= MAX_RENDERED {
            return Some(full);
        }
        self.render_names_only()
    }

    fn render_full(&self) -> Option<String> {
        self.render_with(|text, category| {
            if !category.description.is_empty() {
                let _ = write!(text, " {}", category.description);
            }
            for (name, description) in &category.skills {
                let _ = match description.as_str() {
                    "" => write!(text, "\n    - {name}"),
                    description => write!(text, "\n    - {name}: {description}"),
                };
            }
        })
    }

    /// Names only, for small contexts.
    pub fn render_names_only(&self) -> Option<String> {
        let every = usize::MAX;
        let lean = self.names(every)?;
        if lean.len() <= MAX_RENDERED {
            return Some(lean);
        }
        // Each category keeps as many names as fit; the rest can be found by searching.
        let (mut low, mut high) = (0, MAX_RENDERED);
        while low + 1 < high {
            let middle = usize::midpoint(low, high);
            match self.names(middle) {
                Some(text) if text.len() <= MAX_RENDERED => low = middle,
                _ => high = middle,
            }
        }
        let text = self.names(low)?;
        if text.len() <= MAX_RENDERED {
            return Some(text);
        }
        let count: usize = self.categories.values().map(|it| it.skills.len()).sum();
        Some(format!(
            "<available_skills>\n  {count} skills in {} categories; find them with skills_list(category)\n</available_skills>",
            self.categories.len()
        ))
    }

    /// At most this many names of each category.
    fn names(&self, max: usize) -> Option<String> {
        self.render_with(|text, category| {
            let names: Vec<&str> = category
                .skills
                .keys()
                .map(String::as_str)
                .take(max)
                .collect();
            let _ = write!(text, " {}", names.join(", "));
            let left = category.skills.len() - names.len();
            if left > 0 {
                let _ = write!(text, " and {left} more: skills_list(category)");
            }
        })
    }

    fn render_with(&self, skills: impl Fn(&mut String, &IndexCategory)) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut text = String::from("<available_skills>");
        for (name, category) in &self.categories {
            let _ = write!(text, "\n  {name}:");
            skills(&mut text, category);
        }
        text.push_str("\n</available_skills>");
        Some(text)
    }
}

/// The category (all directories above the skill's) and the directory name of a skill. One directly
/// below the root is a category of its own.
fn category_and_name(root: &Path, path: &Path) -> Option<(String, String)> {
    let parts: Vec<String> = path
        .strip_prefix(root)
        .ok()?
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    match &parts[..] {
        [] => None,
        [_] => Some((
            "general".to_owned(),
            root.file_name()?.to_string_lossy().into_owned(),
        )),
        [dir, _] => Some((dir.clone(), dir.clone())),
        [categories @ .., dir, _] => Some((categories.join("/"), dir.clone())),
    }
}

/// All `requires_*` must be available; none of `fallback_for_*`.
fn conditions_met(head: &SkillHead, offer: &Offer<'_>) -> bool {
    let all = |field: &str, have: &BTreeSet<&str>| {
        let mut words = head.condition(field).iter();
        words.all(|word| have.contains(word.as_str()))
    };
    let none = |field: &str, have: &BTreeSet<&str>| {
        let mut words = head.condition(field).iter();
        !words.any(|word| have.contains(word.as_str()))
    };
    all("requires_tools", &offer.tools)
        && all("requires_toolsets", &offer.toolsets)
        && none("fallback_for_tools", &offer.tools)
        && none("fallback_for_toolsets", &offer.toolsets)
}

fn short_description(head: &SkillHead) -> String {
    let text = head.description.as_deref().unwrap_or_default();
    let text = text.trim().trim_matches(['\'', '"']);
    super::shortened(text, MAX_DESCRIPTION)
}

/// Categories may have a description in `DESCRIPTION.md`.
fn describe_categories(root: &Path, found: &[SkillFile], index: &mut Index) {
    for file in found.iter().filter(|file| !file.is_skill()) {
        let dir = file
            .path
            .parent()
            .and_then(|dir| dir.strip_prefix(root).ok());
        let Some(dir) = dir else {
            continue;
        };
        let name = match dir.to_string_lossy() {
            name if name.is_empty() => "general".into(),
            name => name,
        };
        let Some(category) = index.categories.get_mut(name.as_ref()) else {
            continue;
        };
        if category.description.is_empty()
            && let Some(description) = &file.head.description
        {
            description
                .trim()
                .trim_matches(['\'', '"'])
                .clone_into(&mut category.description);
        }
    }
}
