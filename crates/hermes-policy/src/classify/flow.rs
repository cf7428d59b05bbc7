//! What commands mean together: what flows into a shell, secrets that leave, files that are fetched
//! and run.

use super::wrap::SHELLS;
use super::{Look, code};
use crate::assessment::Category;
use crate::shell::text::{basename, output_of};
use crate::shell::{Script, Simple, Word};

const FETCHERS: [&str; 9] = [
    "curl", "wget", "fetch", "aria2c", "http", "https", "lynx", "nc", "ftp",
];

fn name(command: &Simple) -> &str {
    command
        .words
        .first()
        .map_or("", |word| basename(&word.text))
}

/// Brings something from the network.
pub(super) fn fetches(command: &Simple) -> bool {
    command
        .words
        .iter()
        .take(4)
        .any(|word| FETCHERS.contains(&basename(&word.text)))
}

/// A pipeline's last words: does this one run what it reads?
fn runs_input(command: &Simple) -> bool {
    let words: Vec<&str> = command
        .words
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    // Wrappers may stand before the shell.
    let Some(at) = words.iter().take(6).position(|word| {
        let word = basename(word);
        SHELLS.contains(&word) || code::is_interpreter(word)
    }) else {
        return false;
    };
    let shell = SHELLS.contains(&basename(words[at]));
    let rest = &words[at + 1..];
    let inline = rest.iter().any(|word| {
        word.starts_with('-')
            && (word.contains('c') && shell || *word == "-c" || *word == "-e" || *word == "-m")
    });
    let file = rest
        .iter()
        .any(|word| !word.starts_with('-') && *word != "/dev/stdin" && !word.is_empty());
    !inline && (!file || rest.contains(&"-s") || rest.contains(&"-"))
}

/// The stages of the same pipelines that come before `command`.
fn stages_before<'s>(script: &'s Script, command: &Simple) -> Vec<&'s Simple> {
    let before = |other: &&Simple| {
        command.pipes.iter().any(|(pipe, at)| {
            other
                .pipes
                .iter()
                .any(|(other_pipe, place)| other_pipe == pipe && place < at)
        })
    };
    script.commands.iter().filter(before).collect()
}

impl Look<'_> {
    /// Looks at `command` beside the others of its script.
    pub(super) fn flow(&mut self, script: &Script, command: &Simple) {
        if !command.pipes.is_empty() && runs_input(command) {
            self.fed_to_shell(script, command);
        }
        if name(command) == "xargs" {
            self.fed_to_xargs(script, command);
        }
        let evaluates = matches!(name(command), "eval" | "source" | ".");
        for word in &command.words {
            let Some(inner) = &word.inner else { continue };
            if evaluates && script.commands[inner.clone()].iter().any(fetches) {
                self.firm(
                    Category::REMOTE_EVAL,
                    "runs what was fetched from the network",
                );
            }
        }
        if self.facts.secret && self.facts.network {
            let known = self
                .findings
                .iter()
                .any(|finding| finding.category == Category::EXFILTRATION);
            if !known {
                self.firm(
                    Category::EXFILTRATION,
                    "reads secrets and talks to the network in one command",
                );
            }
        }
    }

    /// `echo / | xargs rm -rf`: what is fed is part of the command.
    fn fed_to_xargs(&mut self, script: &Script, command: &Simple) {
        let before: Vec<Simple> = stages_before(script, command)
            .into_iter()
            .cloned()
            .collect();
        let Some(text) = output_of(&before) else {
            return;
        };
        let words: Vec<&str> = command
            .words
            .iter()
            .skip(1)
            .map(|word| word.text.as_str())
            .collect();
        for start in 0..words.len().min(8) {
            let line = words[start..].join(" ");
            self.forbidden_in(&format!("{line} {text}"));
            for mark in ["{}", "%"] {
                if line.contains(mark) {
                    self.forbidden_in(&line.replace(mark, &text));
                }
            }
        }
    }

    fn fed_to_shell(&mut self, script: &Script, command: &Simple) {
        let before = stages_before(script, command);
        if before.is_empty() {
            return;
        }
        let decodes = |names: &[&str]| before.iter().any(|other| names.contains(&name(other)));
        if before.iter().any(|other| fetches(other)) {
            self.firm(
                Category::REMOTE_TO_SHELL,
                "runs what was fetched from the network",
            );
        } else if decodes(&[
            "base64", "base32", "base16", "basenc", "gunzip", "zcat", "uudecode",
        ]) {
            self.firm(Category::DECODED_TO_SHELL, "runs a text that was encoded");
        } else if decodes(&["xxd", "od", "hexdump"]) {
            self.firm(Category::XXD_TO_SHELL, "runs a text that was encoded");
        } else if decodes(&["tr", "rev", "sed", "awk"]) {
            self.firm(
                Category::TR_TO_SHELL,
                "runs a text that was rewritten on the way",
            );
        } else if decodes(&["openssl", "gpg"]) {
            self.firm(Category::OPENSSL_TO_SHELL, "runs a text that was encoded");
        } else {
            self.firm(
                Category::DYNAMIC_COMMAND,
                "runs what another command prints",
            );
        }
        let known: Vec<Simple> = before.into_iter().cloned().collect();
        if let Some(text) = output_of(&known) {
            let shell = SHELLS.iter().any(|shell| {
                command
                    .words
                    .iter()
                    .any(|word| basename(&word.text) == *shell)
            });
            if shell {
                self.nested(&Word::plain(text));
            } else {
                self.program_text(&text);
            }
        }
    }
}
