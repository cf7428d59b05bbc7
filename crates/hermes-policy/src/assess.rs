//! Computes the [`Assessment`] of a request from the request and the configuration. The disk is only accessed
//! to find secrets among the files that would be read.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::path::PathBuf;

use hermes_core::approval::Rule;
use unicode_normalization::UnicodeNormalization as _;

use crate::assessment::{Assessment, Category, CommandClass, FindingWeight, PolicyFinding};
use crate::classify::Classifier;
use crate::proof::is_offline_python;
use crate::request::{CommandRequest, ConfinementLevel, RequestKind};
use crate::rules;
use crate::shell::ScriptContext;
use crate::shell::text::quote_all;

/// Longer commands never run: put them into a file.
pub(crate) const LIMIT: usize = 128_000;
/// Rules must be readable for users.
const RULE: usize = 500;

pub(crate) fn assess(
    request: &CommandRequest,
    user_home: PathBuf,
    hermes_home: PathBuf,
) -> Assessment {
    if request.command.len() > LIMIT {
        return too_long(request);
    }
    let around = ScriptContext {
        cwd: request.cwd.clone(),
        user_home,
        hermes_home,
    };
    let clean = clean(&request.command);
    // A sandbox keeps secrets unreadable anyway.
    let disk = request.confinement == ConfinementLevel::None;
    let mut look = Classifier::new(&around, &request.roots);
    look.disk = disk;
    if clean != request.command.replace("\r\n", "\n") {
        look.add_firm(
            Category::HIDDEN,
            "it has characters that do not show or that change what is shown",
        );
    }
    if request.kind == RequestKind::Code {
        look.add_soft(Category::PROGRAM_CODE, "runs Python code");
        look.program_text(&clean);
    } else {
        look.script(&clean);
        look.prove_harmless(&clean);
    }
    let mut texts = vec![clean.clone()];
    for variant in alternative_readings(&clean) {
        let mut other = Classifier::new(&around, &request.roots);
        other.disk = disk;
        if request.kind == RequestKind::Code {
            other.program_text(&variant);
        } else {
            other.script(&variant);
            other.prove_harmless(&variant);
        }
        merge(&mut look, other);
        texts.push(variant);
    }
    if look.overflow {
        look.findings.push(PolicyFinding {
            category: Category::TOO_DEEP,
            weight: FindingWeight::Firm,
            why: "it has more parts than are looked at".to_owned(),
            excerpt: String::new(),
        });
    }
    let offline = match request.kind {
        RequestKind::Code => is_offline_python(&clean),
        _ => look.is_offline(),
    };
    texts.append(&mut look.seen);
    let soft = match (request.confinement, request.kind) {
        // Programs named in the configuration were chosen by the user.
        (ConfinementLevel::Sandboxed, _) | (_, RequestKind::Spawn) => false,
        _ => true,
    };
    let class = class(&look.findings, look.writes, soft);
    let rule = (class == CommandClass::Ask && request.kind != RequestKind::Code)
        .then(|| rule(&look, &clean))
        .flatten();
    Assessment {
        class,
        findings: look.findings,
        rule,
        offline,
        parts: look.parts,
        texts: texts.into_iter().map(|text| text.to_lowercase()).collect(),
    }
}

/// Whether soft findings make this request ask.
pub(crate) fn asks_for_soft_findings(request: &CommandRequest) -> bool {
    request.confinement == ConfinementLevel::None && request.kind != RequestKind::Spawn
}

fn too_long(request: &CommandRequest) -> Assessment {
    let finding = PolicyFinding {
        category: Category::PARSER_LIMIT,
        weight: FindingWeight::Forbidden,
        why: format!("it is longer than {LIMIT} bytes; write the text to a file and run that"),
        excerpt: request.command.chars().take(80).collect(),
    };
    Assessment {
        class: CommandClass::Forbidden,
        findings: vec![finding],
        rule: None,
        offline: false,
        parts: Vec::new(),
        texts: Vec::new(),
    }
}

fn class(findings: &[PolicyFinding], writes: bool, asks_for_soft_findings: bool) -> CommandClass {
    let worst = findings.iter().map(|finding| finding.weight).max();
    match worst {
        Some(FindingWeight::Forbidden) => CommandClass::Forbidden,
        Some(FindingWeight::Firm) => CommandClass::Ask,
        Some(FindingWeight::Soft) if asks_for_soft_findings => CommandClass::Ask,
        Some(FindingWeight::Soft) => CommandClass::WorkspaceWrite,
        None if writes => CommandClass::WorkspaceWrite,
        None => CommandClass::ReadOnly,
    }
}

/// Removes characters that are invisible to a user. The rest means the same, or the difference is a finding.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = text.replace("\r\n", "\n");
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A colour or cursor sequence: up to its final letter.
            if chars.next_if_eq(&'[').is_some() {
                while chars.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                chars.next();
            }
            continue;
        }
        if !is_invisible(c) {
            out.push(c);
        }
    }
    out
}

/// Invisible, or reorders what is shown. Private-use characters are reserved for our markers.
pub fn is_invisible(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e000}'..='\u{f8ff}'
                | '\u{e0000}'..='\u{e007f}'
                | '\u{3164}'
                | '\u{115f}'
                | '\u{1160}'
        )
}

/// The same command as a shell joins its lines, and as a human reads its characters.
fn alternative_readings(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut add = |variant: String| {
        if variant != text && !out.contains(&variant) {
            out.push(variant);
        }
    };
    if text.contains("\\\n") {
        add(text.replace("\\\n", ""));
    }
    if !text.is_ascii() {
        add(text.nfkc().collect());
    }
    out
}

/// Merges the findings of another reading of the same command.
fn merge(look: &mut Classifier<'_>, other: Classifier<'_>) {
    look.writes |= other.writes;
    look.dynamic |= other.dynamic;
    look.overflow |= other.overflow;
    look.proven &= other.proven;
    look.networked |= other.networked;
    look.seen.extend(other.seen);
    for finding in other.findings {
        let same = |known: &PolicyFinding| {
            known.category == finding.category
                && known.weight == finding.weight
                && known.why == finding.why
        };
        if !look.findings.iter().any(same) {
            look.findings.push(finding);
        }
    }
}

/// The rule that "always" would store: the words of a single command, else the whole text.
fn rule(look: &Classifier<'_>, text: &str) -> Option<Rule> {
    let hidden = [Category::HIDDEN, Category::UNPARSED, Category::TOO_DEEP];
    let uncertain = look.dynamic
        || look
            .findings
            .iter()
            .any(|finding| hidden.contains(&finding.category));
    let text = text.trim();
    if uncertain || text.len() > RULE || text.contains('\n') {
        return None;
    }
    let whole = match look.parts.as_slice() {
        [part] => part.argv.as_deref().map(quote_all),
        _ => None,
    };
    Some(rules::exact(&whole.unwrap_or_else(|| text.to_owned())))
}
