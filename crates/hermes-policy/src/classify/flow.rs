//! Findings about commands in combination: input of a shell, secrets that are sent away, files that are
//! downloaded and executed.

use super::wrap::SHELLS;
use super::{Classifier, code};
use crate::assessment::Category;
use crate::shell::text::{basename, output_of};
use crate::shell::{ShellScript, ShellWord, SimpleCommand};

const FETCHERS: [&str; 9] = [
    "curl", "wget", "fetch", "aria2c", "http", "https", "lynx", "nc", "ftp",
];

fn name(command: &SimpleCommand) -> &str {
    command
        .words
        .first()
        .map_or("", |word| basename(&word.text))
}

/// Whether it downloads something.
pub(super) fn fetches(command: &SimpleCommand) -> bool {
    command
        .words
        .iter()
        .take(4)
        .any(|word| FETCHERS.contains(&basename(&word.text)))
}

/// Whether the last stage of a pipeline executes its input.
fn runs_input(command: &SimpleCommand) -> bool {
    let words: Vec<&str> = command
        .words
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    // Wrappers may precede the shell.
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

/// The earlier stages of the pipelines of `command`.
fn stages_before<'s>(script: &'s ShellScript, command: &SimpleCommand) -> Vec<&'s SimpleCommand> {
    let before = |other: &&SimpleCommand| {
        command.pipes.iter().any(|(pipe, at)| {
            other
                .pipes
                .iter()
                .any(|(other_pipe, place)| other_pipe == pipe && place < at)
        })
    };
    script.commands.iter().filter(before).collect()
}

impl Classifier<'_> {
    /// Classifies `command` together with the others of its script.
    pub(super) fn flow(&mut self, script: &ShellScript, command: &SimpleCommand) {
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
                self.add_firm(
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
                self.add_firm(
                    Category::EXFILTRATION,
                    "reads secrets and talks to the network in one command",
                );
            }
        }
    }

    /// `echo / | xargs rm -rf`: the input is part of the command.
    fn fed_to_xargs(&mut self, script: &ShellScript, command: &SimpleCommand) {
        let before: Vec<SimpleCommand> = stages_before(script, command)
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

    fn fed_to_shell(&mut self, script: &ShellScript, command: &SimpleCommand) {
        let before = stages_before(script, command);
        if before.is_empty() {
            return;
        }
        let decodes = |names: &[&str]| before.iter().any(|other| names.contains(&name(other)));
        if before.iter().any(|other| fetches(other)) {
            self.add_firm(
                Category::REMOTE_TO_SHELL,
                "runs what was fetched from the network",
            );
        } else if decodes(&[
            "base64", "base32", "base16", "basenc", "gunzip", "zcat", "uudecode",
        ]) {
            self.add_firm(Category::DECODED_TO_SHELL, "runs a text that was encoded");
        } else if decodes(&["xxd", "od", "hexdump"]) {
            self.add_firm(Category::XXD_TO_SHELL, "runs a text that was encoded");
        } else if decodes(&["tr", "rev", "sed", "awk"]) {
            self.add_firm(
                Category::TR_TO_SHELL,
                "runs a text that was rewritten on the way",
            );
        } else if decodes(&["openssl", "gpg"]) {
            self.add_firm(Category::OPENSSL_TO_SHELL, "runs a text that was encoded");
        } else {
            self.add_firm(
                Category::DYNAMIC_COMMAND,
                "runs what another command prints",
            );
        }
        let known: Vec<SimpleCommand> = before.into_iter().cloned().collect();
        if let Some(text) = output_of(&known) {
            let shell = SHELLS.iter().any(|shell| {
                command
                    .words
                    .iter()
                    .any(|word| basename(&word.text) == *shell)
            });
            if shell {
                self.nested(&ShellWord::plain(text));
            } else {
                self.program_text(&text);
            }
        }
    }
}
