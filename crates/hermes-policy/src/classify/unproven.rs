//! Findings for parts that are not proven harmless.

use super::{Classifier, ProgramCall};
use crate::assessment::{Category, FindingWeight, PolicyFinding};
use crate::proof::{self, Unproven};
use crate::shell::{self, ShellWord};

/// Maximum number of texts within a command that are checked as code.
const TEXTS: usize = 64;
/// Maximum length of such a text in bytes.
const TEXT: usize = 4_096;
/// Builtins that run or evaluate their arguments.
const EVALUATORS: &str = "mapfile readarray compgen complete compopt bind hash enable trap alias let read declare typeset local export \
    readonly printf unset test [ fc history getopts shopt source . coproc";
/// Programs that print data from other machines.
const SERVICES: [&str; 14] = [
    "docker", "podman", "kubectl", "gh", "aws", "gcloud", "az", "helm", "npm", "pnpm", "yarn",
    "uv", "brew", "nc",
];
/// Prefixes of commands that access the network, of programs that otherwise do not.
const ASK_OTHERS: [&str; 9] = [
    "pip index ",
    "pip3 index ",
    "pip search ",
    "pip3 search ",
    "git remote show ",
    "git remote update",
    "git remote prune ",
    "getent hosts ",
    "getent ahosts ",
];
/// Programs whose arguments and input are code in languages that can run commands.
const INTERPRETERS: &str = "lua luajit vi vim nvim view ex ed emacs expect tclsh wish psql mysql mariadb sqlite3 osascript at batch make gmake \
    gdb lldb R Rscript julia guile racket sbcl ocaml elixir erl groovy jshell pwsh powershell zip bind m4 dc octave gnuplot ghci deno bun";
/// Those whose language is SQL, and what runs programs in it.
const SQL: [&str; 4] = ["psql", "mysql", "mariadb", "sqlite3"];
const SQL_RUNS: [&str; 8] = [
    "edit",
    "\\!",
    "program",
    "shell",
    "system",
    "sys_exec",
    "sys_eval",
    "load_extension",
];
/// Words that precede a command in such languages.
const RUNS_NEXT: [&str; 7] = ["spawn", "exec", "system", "shell", "run", "silent", "sh"];
/// Parts of option names that take a program or command.
const RUNNING: [&str; 26] = [
    "exec", "command", "cmd", "prog", "pager", "editor", "hook", "filter", "pre", "shell", "run",
    "script", "action", "eval", "rsh", "helper", "proxy", "askpass", "pack", "browser", "textconv",
    "tool", "plugin", "loader", "bin", "with",
];

impl Classifier<'_> {
    /// Adds findings for everything that is not on the positive list, and looks for forbidden commands in texts
    /// that may be evaluated as code.
    pub(crate) fn prove_harmless(&mut self, source: &str) {
        let (doubts, writes) = proof::unproven_parts(self, source);
        self.writes |= writes;
        self.proven = doubts.is_empty();
        self.networked |= self.facts.network;
        if doubts.is_empty() {
            return;
        }
        if doubts.iter().any(|doubt| doubt.evaluates) {
            self.check_hidden_code(source);
        }
        self.excerpt.clear();
        for doubt in doubts {
            self.add_unproven(doubt);
        }
    }

    /// Whether it provably uses no network: everything in it is known, and nothing in it accesses other
    /// machines or prints what they sent.
    pub(crate) fn is_offline(&self) -> bool {
        let names = self
            .seen
            .iter()
            .map(|line| line.split(' ').next().unwrap_or_default());
        let asks = |line: &String| ASK_OTHERS.iter().any(|start| line.starts_with(start));
        self.proven
            && !self.networked
            && !names.into_iter().any(|name| SERVICES.contains(&name))
            && !self.seen.iter().any(asks)
    }

    fn add_unproven(&mut self, doubt: Unproven) {
        let part = doubt.argv.as_ref().and_then(|argv| {
            self.parts
                .iter()
                .position(|part| part.argv.as_ref() == Some(argv))
        });
        // If there is another finding against that command, this adds nothing.
        if part.is_some_and(|part| !self.parts[part].findings.is_empty()) {
            return;
        }
        let category = if doubt.private {
            Category::SECRET_READ
        } else {
            Category::UNPROVEN
        };
        self.facts.secret |= doubt.private;
        let finding = PolicyFinding {
            category,
            weight: FindingWeight::Soft,
            why: doubt.why,
            excerpt: doubt.argv.map(|argv| argv.join(" ")).unwrap_or_default(),
        };
        if self.findings.contains(&finding) {
            return;
        }
        self.findings.push(finding);
        if let Some(part) = part {
            self.parts[part].findings = self.findings.len() - 1..self.findings.len();
        }
    }

    /// A nested script: checks texts that it may evaluate for forbidden commands.
    pub(super) fn check_evaluated_texts(&mut self, source: &str) {
        if source.len() > TEXT || self.scans == 0 || !source.contains(['$', '`', '<', '>']) {
            return;
        }
        self.scans -= 1;
        let (doubts, _) = proof::unproven_parts(self, source);
        if doubts.iter().any(|doubt| doubt.evaluates) {
            self.check_hidden_code(source);
        }
    }

    /// Checks texts that a construct may evaluate for forbidden commands. That the command asks is already
    /// certain.
    fn check_hidden_code(&mut self, source: &str) {
        let script = shell::read(source, self.around);
        let mut texts = substitutions(source);
        for command in &script.commands {
            let values = command.assigns.iter().map(|(_, value)| value);
            for word in command.words.iter().chain(values).chain(&command.input) {
                texts.extend(substitutions(&word.text));
            }
        }
        texts.truncate(TEXTS);
        for text in texts {
            self.forbidden_in(&text);
        }
    }

    /// Classifies `text` as a script and keeps only forbidden findings.
    pub(super) fn forbidden_in(&mut self, text: &str) {
        if self.depth >= super::MAX_NESTING || self.scans == 0 || text.trim().is_empty() {
            return;
        }
        self.scans -= 1;
        let text = &text[..text.floor_char_boundary(TEXT)];
        let mut other = Classifier::new(self.around, self.roots);
        other.depth = self.depth + 1;
        other.cwds.clone_from(&self.cwds);
        other.scans = self.scans;
        other.script(&text.replace(shell::UNKNOWN, " "));
        self.scans = other.scans;
        let forbidden = other
            .findings
            .into_iter()
            .filter(|finding| finding.weight == FindingWeight::Forbidden);
        for finding in forbidden {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }

    /// Arguments of builtins and options that are executed.
    pub(super) fn check_callbacks(&mut self, call: ProgramCall<'_>) {
        if EVALUATORS.split_whitespace().any(|name| name == call.name) {
            for word in call.args().iter().take(32) {
                self.forbidden_in(&word.text);
            }
        }
        if INTERPRETERS
            .split_whitespace()
            .any(|name| name == call.name)
        {
            let texts = code_of(call);
            for text in texts.iter().flat_map(|text| commands_in(text)).take(TEXTS) {
                self.forbidden_in(&text);
            }
        }
        for word in call.args().iter().take(64) {
            let marks = [".shell ", ".system ", "shell ", "system ", "!"];
            if let Some(command) = marks.iter().find_map(|mark| word.text.strip_prefix(mark)) {
                self.forbidden_in(command);
            }
        }
        if call.name == "git" {
            for word in call.args().iter().take(64) {
                if let Some((key, command)) = word.text.split_once('=')
                    && key.contains('.')
                {
                    self.forbidden_in(command.trim_start_matches('!'));
                }
            }
        }
        let args = call.args();
        for (at, word) in args.iter().enumerate().take(64) {
            let Some(option) = word.text.strip_prefix('-') else {
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, args.get(at + 1).map(|word| word.text.as_str())),
            };
            let long = name.starts_with('-') || name.len() > 3;
            let runs = long
                && RUNNING
                    .iter()
                    .any(|part| name.to_lowercase().contains(part));
            let short = matches!(
                (call.name, name),
                ("tar", "I" | "F")
                    | ("rsync" | "man", "e" | "P" | "H")
                    | ("ssh" | "scp" | "sftp", "o" | "S")
            );
            if (runs || short)
                && let Some(value) = value
            {
                // `--checkpoint-action=exec=…`, `-o ProxyCommand=…`
                let command = value.rsplit_once('=').map_or(value, |(_, command)| command);
                let (value, command) = (value.to_owned(), command.to_owned());
                self.forbidden_in(&value);
                self.forbidden_in(&command);
            }
        }
    }

    /// An assignment whose value the shell or a program executes later.
    pub(super) fn run_later(&mut self, name: &str, value: &ShellWord) {
        let runs = name.starts_with("BASH_")
            || name.starts_with("GIT_")
            || [
                "PROMPT_COMMAND",
                "PS0",
                "PS1",
                "PS4",
                "ENV",
                "PAGER",
                "MANPAGER",
                "EDITOR",
                "VISUAL",
                "LESSOPEN",
                "LESSCLOSE",
                "BROWSER",
                "RUSTC_WRAPPER",
            ]
            .contains(&name);
        if runs {
            self.forbidden_in(&value.text);
        }
    }
}

/// The arguments and the input of an interpreter that are code, not names of files or other data.
fn code_of(call: ProgramCall<'_>) -> Vec<String> {
    let args = call.args();
    let is_option = |text: &str| text.starts_with(['-', '+']);
    let given = args.iter().enumerate().filter(|(at, word)| {
        let follows = *at > 0 && is_option(&args[at - 1].text);
        follows || is_option(&word.text) || word.text.contains(['!', '('])
    });
    let texts = given.map(|(_, word)| word).chain(&call.command.input);
    let texts = texts.take(32).map(|word| word.text.clone());
    if !SQL.contains(&call.name) {
        return texts.collect();
    }
    // Most texts in a query are data.
    texts
        .filter(|text| {
            let text = text.to_lowercase();
            SQL_RUNS.iter().any(|part| text.contains(part))
        })
        .collect()
}

/// Texts in a program of another language that may be commands: all of it, what is quoted, what follows a `!`, a colon or
/// a word that runs the rest.
fn commands_in(text: &str) -> Vec<String> {
    let mut found = vec![text.to_owned()];
    for quote in ['\'', '"', '`'] {
        let parts = text.split(quote).skip(1).step_by(2);
        found.extend(parts.map(str::to_owned));
    }
    for mark in ['!', ':', '\n'] {
        found.extend(
            text.match_indices(mark)
                .map(|(at, _)| text[at + 1..].to_owned()),
        );
    }
    for index in 0..found.len() {
        let (first, rest) = found[index].trim().split_once(' ').unwrap_or_default();
        if RUNS_NEXT.contains(&first) {
            let rest = rest.to_owned();
            found.push(rest);
        }
    }
    found.retain(|text| !text.trim().is_empty());
    found
}

/// The content of command substitutions in `text`, however it is quoted: each from its start to its closing
/// bracket.
fn substitutions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for opener in ["$(", "<(", ">(", "${ ", "${|"] {
        for (at, _) in text.match_indices(opener).take(TEXTS) {
            let inside = &text[at + opener.len()..];
            found.push(up_to_bracket(inside).to_owned());
        }
    }
    let ticks: Vec<&str> = text.split('`').collect();
    found.extend(
        ticks
            .iter()
            .skip(1)
            .take(TEXTS)
            .map(|inside| (*inside).to_owned()),
    );
    found
}

fn up_to_bracket(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' if depth == 0 => return &text[..at],
            ')' | '}' => depth -= 1,
            _ => {}
        }
    }
    text
}
