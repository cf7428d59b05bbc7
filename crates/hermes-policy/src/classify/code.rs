//! Interpreters and program text.

use std::sync::LazyLock;

use regex::Regex;

use super::args::{has, operands, subcommand};
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::{ShellWord, UNKNOWN};

/// Interpreter families, the options that carry program text, and options with values.
const INTERPRETERS: [(&str, &str, &str); 12] = [
    ("python", "-c", "-W -X -m"),
    ("pypy", "-c", "-W -X -m"),
    (
        "node",
        "-e --eval -p --print",
        "-r --require --import --loader -C",
    ),
    ("nodejs", "-e --eval -p --print", "-r --require --import"),
    ("deno", "eval", ""),
    ("bun", "-e --eval", ""),
    ("perl", "-e -E", "-I -M -m"),
    ("ruby", "-e", "-I -r -C"),
    ("php", "-r", "-c -d -z"),
    ("lua", "-e", "-l"),
    ("rscript", "-e", ""),
    ("osascript", "-e", ""),
];

/// Programs that build, test and run projects: they do whatever the project specifies.
const PROJECT: &str = "make gmake cmake ninja meson bazel cargo rustc rustup go gofmt npm npx pnpm yarn bun deno \
    pip pip3 pipx uv uvx poetry pdm hatch tox nox pytest ruff black isort mypy flake8 pylint eslint prettier tsc \
    vite webpack jest vitest mocha mvn gradle gradlew ant sbt mix elixir erl rake bundle gem composer dotnet \
    swift swiftc xcodebuild javac java kotlinc scala ghc stack cabal gcc g++ cc c++ clang clang++ ld ar zig \
    just task pre-commit tsx ts-node conda mamba virtualenv sqlx diesel flutter dart";

static SHELL_CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        (?:system|popen|exec[lv]?p?e?|execSync|spawnSync|spawn|check_output|check_call|getoutput|getstatusoutput|Popen|run|call|shell_exec|passthru|qx|%x)
        \s*[\(\{\[/]?\s*\[?\s*
        ((?:[rbfuRBFU]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')[\s,\[]*)+)"#,
    )
    .ok()
});
static LITERAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'"#).ok());
static PERL_BACKTICKS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"`([^`]+)`").ok());
static TREE_DELETE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?:rmtree|rmSync|rmdirSync|rm_rf|remove_tree|rimraf|delete_dir)\s*\(?\s*(?:Path\()?(?:os\.path\.expanduser\()?\s*["']([^"']+)["']"#).ok()
});
static STRING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""([^"\n]+)"|'([^'\n]+)'"#).ok());

pub(super) fn is_interpreter(name: &str) -> bool {
    family(name).is_some()
}

fn family(name: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(family, ..)| *family == stem)
}

impl Classifier<'_> {
    pub(super) fn code(&mut self, call: ProgramCall<'_>) -> bool {
        if let Some((family, inline, options)) = family(call.name) {
            self.interpreter(call, family, inline, options);
            return true;
        }
        if matches!(
            call.name,
            "powershell" | "pwsh" | "cmd" | "powershell.exe" | "cmd.exe"
        ) {
            self.windows(call);
            return true;
        }
        if !PROJECT.split_whitespace().any(|name| name == call.name) {
            return false;
        }
        self.project(call);
        true
    }

    fn interpreter(&mut self, call: ProgramCall<'_>, family: &str, inline: &str, options: &str) {
        let args = call.args();
        if args.len() == 1 && has(args, "--version --help =-V =-v =-h") {
            return;
        }
        if matches!(family, "perl" | "ruby") && has(args, "-i") {
            let files = operands(args, "-e -E -I -M -m -r");
            for file in files {
                self.write(file, super::WriteKind::Edit);
            }
        }
        let text = match family {
            "deno" => subcommand(args, "")
                .filter(|(verb, _)| *verb == "eval")
                .and_then(|(_, rest)| rest.first().cloned()),
            _ => inline_text(args, inline, options),
        };
        if let Some(text) = text {
            if !text.known() {
                self.add_soft(
                    Category::DYNAMIC_ARGUMENT,
                    "the program text is only known when it runs",
                );
            }
            self.add_soft(
                Category::SCRIPT_FLAG,
                format!("runs {family} code given in the command"),
            );
            self.program_text(&text.text.replace(UNKNOWN, " "));
            return;
        }
        if let Some(input) = &call.command.input {
            self.add_soft(
                Category::SCRIPT_HEREDOC,
                format!("runs {family} code from a here document"),
            );
            let input = input.text.replace(UNKNOWN, " ");
            self.program_text(&input);
            return;
        }
        match operands(args, options).first() {
            Some(file) => {
                if let Some(inner) = &file.inner
                    && call.script.commands[inner.clone()]
                        .iter()
                        .any(super::flow::fetches)
                {
                    self.add_firm(
                        Category::REMOTE_SUBSTITUTION,
                        "runs what was fetched from the network",
                    );
                }
                self.classify_program_file(file);
            }
            None => self.add_soft(Category::PROGRAM, format!("runs {family}")),
        }
    }

    /// Checks program text in another language for shell and file access.
    pub(crate) fn program_text(&mut self, text: &str) {
        self.shell_calls(text);
        for call in PERL_BACKTICKS
            .iter()
            .flat_map(|regex| regex.captures_iter(text))
        {
            if let Some(line) = call.get(1) {
                self.script(line.as_str());
            }
        }
        for delete in TREE_DELETE
            .iter()
            .flat_map(|regex| regex.captures_iter(text))
        {
            let path = delete.get(1).map_or("", |found| found.as_str());
            let path = match path.strip_prefix('~') {
                Some(rest) => format!("{}{rest}", self.around.user_home.display()),
                None => path.to_owned(),
            };
            match self.irreplaceable(&ShellWord::plain(path.as_str())) {
                Some(category) => {
                    self.add_forbidden(category, format!("deletes {path} and everything in it"));
                }
                None => self.add_firm(
                    Category::RECURSIVE_DELETE,
                    format!("deletes {path} and everything in it"),
                ),
            }
        }
        let strings: Vec<String> = STRING
            .iter()
            .flat_map(|regex| regex.captures_iter(text))
            .filter_map(|found| found.get(1).or_else(|| found.get(2)))
            .map(|found| {
                found.as_str().replacen(
                    '~',
                    &self.around.user_home.to_string_lossy(),
                    usize::from(found.as_str().starts_with("~/")),
                )
            })
            .collect();
        for string in strings.iter().take(500) {
            self.read(&ShellWord::plain(string.as_str()));
        }
        let lower = text.to_lowercase();
        let connects = [
            "urllib",
            "requests.",
            "http.client",
            "httpx",
            "socket",
            "fetch(",
            "axios",
            "net.connect",
            "net/http",
            "smtplib",
            "xmlhttprequest",
        ];
        if connects.iter().any(|word| lower.contains(word)) {
            self.facts.network = true;
        }
        let duplicates =
            (lower.contains("dup2") || lower.contains("pty.spawn")) && lower.contains("socket");
        if duplicates
            || (lower.contains("socket")
                && (lower.contains("/bin/sh") || lower.contains("/bin/bash")))
        {
            self.add_firm(Category::REVERSE_SHELL, "connects a shell to the network");
        }
        self.sql(text);
    }

    /// Commands that a program passes to a shell or starts itself.
    fn shell_calls(&mut self, text: &str) {
        for calls in SHELL_CALL
            .iter()
            .flat_map(|regex| regex.captures_iter(text))
        {
            let words = calls.get(1).map_or("", |found| found.as_str());
            let words: Vec<String> = LITERAL
                .iter()
                .flat_map(|regex| regex.captures_iter(words))
                .filter_map(|word| word.get(1).or_else(|| word.get(2)))
                .map(|word| unescaped(word.as_str()))
                .collect();
            self.script(words.join(" ").trim());
            if words.len() > 1 {
                // A list: every string is one word, possibly a shell script.
                let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                self.script(&quoted.join(" "));
            }
        }
    }

    fn windows(&mut self, call: ProgramCall<'_>) {
        let line: Vec<String> = call
            .args()
            .iter()
            .map(|word| word.text.to_lowercase())
            .collect();
        let line = line.join(" ");
        let deletes = ["remove-item", "rmdir", "erase", "del ", "rd ", "ri ", "rm "];
        if line.contains("-enc") || line.split(' ').any(|word| word == "-e") {
            self.add_firm(Category::POWERSHELL_ENCODED, "runs an encoded command");
        } else if deletes.iter().any(|word| line.contains(word)) {
            let category = if call.name.starts_with("cmd") {
                Category::WINDOWS_DELETE
            } else {
                Category::POWERSHELL_DELETE
            };
            self.add_firm(category, "deletes files");
        } else {
            self.add_soft(Category::PROGRAM, format!("runs {}", call.name));
        }
    }

    fn project(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        if args.len() == 1 && has(args, "--version --help =-V =-v =-h =version") {
            return;
        }
        let before = "-C --prefix --manifest-path --cwd";
        let sure = !super::args::unsure(args, before);
        if let Some((verb, rest)) = subcommand(args, before) {
            let publishes = matches!(
                (call.name, verb),
                (
                    "npm"
                        | "pnpm"
                        | "yarn"
                        | "cargo"
                        | "poetry"
                        | "gem"
                        | "dart"
                        | "bun"
                        | "hatch"
                        | "uv",
                    "publish" | "unpublish" | "yank" | "owner" | "login" | "push"
                ) | (
                    "mvn" | "gradle" | "gradlew",
                    "deploy" | "publish" | "release:perform"
                )
            );
            if publishes {
                self.add_firm(
                    Category::NETWORK_SEND,
                    format!("{} {verb} changes something for others", call.name),
                );
            }
            let global = has(rest, "-g --global =--user =--break-system-packages")
                && matches!(
                    verb,
                    "install" | "i" | "add" | "remove" | "uninstall" | "update"
                );
            if global
                || (call.name == "cargo" && matches!(verb, "install" | "uninstall"))
                || call.name == "rustup"
            {
                self.add_firm(
                    Category::PACKAGES,
                    "installs or removes software for the whole user or system",
                );
            }
            if sure
                && matches!(
                    (call.name, verb),
                    (
                        "pip" | "pip3" | "uv" | "npm" | "pnpm" | "yarn",
                        "list" | "show" | "freeze" | "ls" | "view" | "outdated" | "why"
                    )
                )
            {
                return;
            }
        }
        self.add_soft(
            Category::PROGRAM,
            format!("runs {}, which does what the project says", call.name),
        );
    }

    /// SQL that destroys.
    pub(super) fn sql(&mut self, text: &str) {
        let upper = text.to_uppercase();
        let squeezed: Vec<&str> = upper.split_whitespace().collect();
        let line = squeezed.join(" ");
        for what in ["TABLE", "DATABASE", "SCHEMA", "COLLECTION"] {
            if line.contains(&format!("DROP {what}")) {
                self.add_firm(Category::SQL_DROP, "drops a table or database");
            }
        }
        if line.contains("TRUNCATE TABLE") {
            self.add_firm(Category::SQL_TRUNCATE, "empties a table");
        }
        for statement in line.split(';') {
            if statement.contains("DELETE FROM") && !statement.contains(" WHERE ") {
                self.add_firm(Category::SQL_DELETE, "deletes every row of a table");
            }
        }
    }
}

/// The text of a string literal, as far as it matters to shells.
fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut letters = literal.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            letter => text.push(letter),
        }
    }
    text
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The text of `-c` or `-e`: a separate word, or the rest of a cluster such as `-pe`. `options` take the next
/// word.
fn inline_text(args: &[ShellWord], inline: &str, options: &str) -> Option<ShellWord> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if text == "-" || !text.starts_with('-') {
            return None;
        }
        for option in inline.split(' ') {
            let short = option.trim_start_matches('-');
            let long = option.starts_with("--");
            if text == option || (!long && !text.starts_with("--") && text.ends_with(short)) {
                return args.get(at + 1).cloned();
            }
            let joined = if long {
                format!("{option}=")
            } else {
                option.to_owned()
            };
            if let Some(rest) = text.strip_prefix(&joined) {
                return Some(ShellWord {
                    text: rest.to_owned(),
                    ..word.clone()
                });
            }
        }
        let takes = options.split(' ').any(|option| option == text);
        at += if takes { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_are_valid() {
        for pattern in [
            &SHELL_CALL,
            &LITERAL,
            &PERL_BACKTICKS,
            &TREE_DELETE,
            &STRING,
        ] {
            assert!(pattern.is_some());
        }
    }
}
