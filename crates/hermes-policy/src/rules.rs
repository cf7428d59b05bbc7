//! Stored permissions: the entries of `command_allowlist`.
//!
//! An entry is the exact text of a command, or words followed by ` *` for every command that begins with them.
//! Older homes also contain category names and free globs; both are read, never written.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use hermes_core::approval::Rule;

use crate::assessment::{Assessment, Category, CommandPart};
pub use crate::live::{add, remove, stored};
use crate::shell::{self, ScriptContext};

/// The meaning of an entry of `command_allowlist`.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// Exactly this command. A single one is compared word by word, a list as text.
    Exact {
        text: String,
        argv: Option<Vec<String>>,
    },
    /// Commands that begin with these words.
    Prefix(Vec<String>),
    /// A glob for the text of a single command, from older homes.
    Glob(GlobMatcher),
    /// A whole category, from older homes: applies only while a user is present.
    Category(Category),
    /// It allows nothing.
    Ignored(&'static str),
}

/// The entry for exactly `command`. Wildcards in it are bracketed to make them literal, here and for Hermes
/// Agent.
pub fn exact(command: &str) -> Rule {
    let mut text = String::with_capacity(command.len());
    for c in command.trim().chars() {
        match c {
            '*' | '?' | '[' => {
                text.push('[');
                text.push(c);
                text.push(']');
            }
            c => text.push(c),
        }
    }
    Rule(text)
}

/// The entry for every command that begins with these words.
pub fn prefix(words: &[String]) -> Rule {
    let words = exact(&shell::text::quote_all(words));
    Rule(format!("{} *", words.0))
}

/// Parses an entry.
pub fn meaning(entry: &str) -> Meaning {
    let entry = entry.trim();
    if entry.is_empty() {
        return Meaning::Ignored("it is empty");
    }
    if let Some(category) = Category::of_original(entry) {
        return Meaning::Category(category);
    }
    if [r"\s", r"\b", "(?:", "[^"]
        .iter()
        .any(|part| entry.contains(part))
    {
        return Meaning::Ignored("it is a pattern of a very old version");
    }
    if let Some(words) = entry.strip_suffix(" *").and_then(plain) {
        return match argv(&words) {
            Some(words) => Meaning::Prefix(words),
            None => Meaning::Ignored("the words before * are not a plain command"),
        };
    }
    if let Some(text) = plain(entry) {
        let argv = argv(&text);
        return Meaning::Exact { text, argv };
    }
    let program = entry.split_whitespace().next().unwrap_or_default();
    if plain(program).is_none() {
        return Meaning::Ignored("it does not name a program");
    }
    match GlobBuilder::new(entry).literal_separator(false).build() {
        Ok(glob) => Meaning::Glob(glob.compile_matcher()),
        Err(_) => Meaning::Ignored("it is not a valid glob"),
    }
}

/// The text without brackets around wildcards; `None` if it contains an unbracketed wildcard.
fn plain(entry: &str) -> Option<String> {
    let mut out = String::with_capacity(entry.len());
    let mut rest = entry;
    while let Some(at) = rest.find(['*', '?', '[']) {
        out.push_str(&rest[..at]);
        let wildcard = ["[*]", "[?]", "[[]"]
            .into_iter()
            .find(|bracketed| rest[at..].starts_with(bracketed))?;
        out.push_str(&wildcard[1..2]);
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    Some(out)
}

/// The words of a text that is a single command without dynamic parts.
fn argv(text: &str) -> Option<Vec<String>> {
    let around = ScriptContext {
        cwd: "/".into(),
        user_home: "/".into(),
        hermes_home: "/".into(),
    };
    let script = shell::read(text, &around);
    match script.commands.as_slice() {
        [command] if script.problems.is_empty() => {
            let bare = command.assigns.is_empty()
                && command.redirects.is_empty()
                && command.input.is_none();
            let certain = command.words.iter().all(shell::ShellWord::is_static);
            (bare && certain && !command.words.is_empty())
                .then(|| command.words.iter().map(|word| word.text.clone()).collect())
        }
        _ => None,
    }
}

/// Quotes words for a shell.
pub fn line(words: &[String]) -> String {
    shell::text::quote_all(words)
}

/// The words of `command` as a prefix, or why they cannot be one.
pub fn words(command: &str) -> Result<Vec<String>, &'static str> {
    argv(command).ok_or("it is not a single command with plain words")
}

/// The entry among `entries` that allows `command`, if any. `attended`: a user is present. `soft`: soft
/// findings ask.
pub(crate) fn covering<'e>(
    entries: &'e [String],
    command: &str,
    assessment: &Assessment,
    attended: bool,
    soft: bool,
) -> Option<&'e str> {
    let meanings: Vec<(&str, Meaning)> = entries
        .iter()
        .map(|entry| (entry.as_str(), meaning(entry)))
        .collect();
    let whole = meanings.iter().find(
        |(_, meaning)| matches!(meaning, Meaning::Exact { text, .. } if text == command.trim()),
    );
    if let Some((entry, _)) = whole {
        return Some(entry);
    }
    let mut used = None;
    for (at, finding) in assessment.asking(soft) {
        let part = assessment
            .parts
            .iter()
            .find(|part| part.findings.contains(&at));
        let (entry, _) = meanings.iter().find(|(_, meaning)| match meaning {
            Meaning::Category(category) => attended && *category == finding.category,
            meaning => part.is_some_and(|part| covers(meaning, part, finding.category)),
        })?;
        used = Some(*entry);
    }
    used
}

/// Whether a rule about one command covers a finding of it.
fn covers(meaning: &Meaning, part: &CommandPart, category: Category) -> bool {
    let Some(argv) = &part.argv else {
        return false;
    };
    match meaning {
        Meaning::Exact {
            argv: Some(known), ..
        } => known == argv,
        Meaning::Prefix(words) => argv.starts_with(words) && !category.beyond_prefix(),
        Meaning::Glob(glob) => {
            !category.beyond_prefix() && glob.is_match(Path::new(&argv.join(" ")))
        }
        _ => false,
    }
}
