//! Parts of the prompt that come from the home: memory and skills.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hermes_store::scan::{self, Scope};

use crate::lean::Mode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Memory,
    User,
}

/// The block of a memory file as it stands in the prompt; `None` when there are no entries.
///
/// An entry that tries to give orders is shown as blocked; the file keeps it.
pub fn memory_block(kind: MemoryKind, entries: &[String], limit: usize) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let title = match kind {
        MemoryKind::Memory => "MEMORY (your personal notes)",
        MemoryKind::User => "USER PROFILE (who the user is)",
    };
    let used = entries.join("\n§\n").chars().count();
    let percent = (used * 100).checked_div(limit).unwrap_or(0).min(100);
    let rule = "═".repeat(46);
    let shown: Vec<String> = entries.iter().map(|entry| guarded(entry)).collect();
    Some(format!(
        "{rule}\n{title} [{percent}% — {}/{} chars]\n{rule}\n{}",
        thousands(used),
        thousands(limit),
        shown.join("\n§\n")
    ))
}

fn guarded(entry: &str) -> String {
    match scan::first(entry, Scope::Strict) {
        Some(finding) => format!(
            "[BLOCKED: this entry looks like an attempt to give orders ({finding}); it is not \
             shown. Ask the user about it, or remove it with the memory tool.]"
        ),
        None => entry.to_owned(),
    }
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One skill of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillLine {
    pub category: String,
    pub name: String,
    pub description: String,
}

/// Longest description in the index.
const DESCRIPTION_CHARS: usize = 60;

/// The skills index, by category and name. In the lean modes it holds names only; `None` when
/// there are no skills.
pub fn skills_index(skills: &[SkillLine], mode: Mode) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let mut by_category: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for skill in skills {
        by_category
            .entry(&skill.category)
            .or_default()
            .entry(&skill.name)
            .or_insert(&skill.description);
    }
    let mut out = String::from("<available_skills>\n");
    for (category, skills) in by_category {
        if mode == Mode::Full {
            let _ = writeln!(out, "  {category}:");
            for (name, description) in skills {
                let _ = writeln!(out, "    - {}", line(name, description));
            }
        } else {
            let names: Vec<&str> = skills.into_keys().collect();
            let _ = writeln!(out, "  {category}: {}", names.join(", "));
        }
    }
    out.push_str("</available_skills>");
    Some(out)
}

fn line(name: &str, description: &str) -> String {
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    if description.is_empty() {
        name.to_owned()
    } else if description.chars().count() > DESCRIPTION_CHARS {
        let cut: String = description.chars().take(DESCRIPTION_CHARS - 3).collect();
        format!("{name}: {}…", cut.trim_end())
    } else {
        format!("{name}: {description}")
    }
}
