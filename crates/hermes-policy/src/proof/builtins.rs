//! Determines the program of a command, and checks shell builtins.

use super::evaluate::StdinFeed;
use super::paths::is_many;
use super::table::{self, ModelledProgram, OperandKind, OptionModel, is_split, parse_arguments};
use super::words::{is_inert_for_programs, is_inert_variable, is_name};
use super::{ProofResult, Prover, construct, refuse};
use crate::classify::SYSTEM_PATHS;
use crate::shell::ShellWord;

impl Prover<'_, '_> {
    /// The program that `words` run.
    pub(super) fn run(&mut self, words: &[ShellWord], feed: &StdinFeed) -> ProofResult {
        let Some((first, args)) = words.split_first() else {
            return Ok(());
        };
        if !first.known() || first.dynamic || first.expanded || (first.glob && first.text != "[") {
            return construct("which program runs is only known when it runs");
        }
        self.steps += 1;
        let text = first.text.as_str();
        let name = SYSTEM_PATHS
            .iter()
            .find_map(|path| text.strip_prefix(path))
            .unwrap_or(text);
        if name.contains('/') || name.is_empty() {
            return refuse(format!("it runs {text}"));
        }
        if self.functions.contains(name) {
            return Ok(());
        }
        if let Some(program) = table::find(name) {
            if program.kind == OperandKind::Writes {
                return self.table_program(name, program, args);
            }
            return self.table_program(name, program, &self.without_option_names(args));
        }
        if is_version_question(name, args) {
            return self.answers_itself(name);
        }
        match self.builtin(name, args) {
            Some(result) => result,
            None => match self.wrapper(name, args, feed) {
                Some(result) => result,
                None => self.special(name, args),
            },
        }
    }

    /// `*` as `./*` if no file here has a name that looks like an option.
    fn without_option_names(&self, args: &[ShellWord]) -> Vec<ShellWord> {
        let starts_open =
            |word: &ShellWord| word.glob && !word.dynamic && word.text.starts_with(['*', '?', '[']);
        let mut args = args.to_vec();
        if !self.classifier.disk || self.writes || !args.iter().any(starts_open) {
            return args;
        }
        let Some(entries) = self
            .classifier
            .only_directory()
            .and_then(|dir| std::fs::read_dir(dir).ok())
        else {
            return args;
        };
        let is_option =
            |entry: std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"-");
        if !entries.flatten().any(is_option) {
            for word in args.iter_mut().filter(|word| starts_open(word)) {
                word.text.insert_str(0, "./");
            }
        }
        args
    }

    fn table_program(
        &mut self,
        name: &str,
        program: &ModelledProgram,
        args: &[ShellWord],
    ) -> ProofResult {
        if name == "sort" {
            return self.sort(args);
        }
        let found = parse_arguments(args, &program.options).or_else(refuse)?;
        let operand = |mark: char| {
            found
                .operands
                .iter()
                .any(|word| word.text.starts_with(mark))
        };
        match name {
            "strings" | "nm" | "objdump" | "readelf" | "size" if operand('@') => {
                return refuse("it takes options from a file");
            }
            "less" | "more" if operand('+') => {
                return refuse("a pager is given a command to start with");
            }
            _ => {}
        }
        match program.kind {
            OperandKind::Text => Ok(()),
            OperandKind::Writes => {
                for (_, value) in &found.given {
                    value.iter().try_for_each(|value| self.not_private(value))?;
                }
                found
                    .operands
                    .iter()
                    .try_for_each(|word| self.may_write(word))
            }
            OperandKind::Reads => {
                for (_, value) in &found.given {
                    value.iter().try_for_each(|value| self.not_private(value))?;
                }
                let pattern = match name {
                    "grep" | "egrep" | "fgrep" | "rg" => {
                        usize::from(!found.has(&["-e", "-f", "--regexp", "--files", "--type-list"]))
                    }
                    _ => 0,
                };
                // A word that stands for many names is pattern and files at once.
                let pattern = match found.operands.first() {
                    Some(first) if is_many(first) => 0,
                    _ => pattern,
                };
                let files = found.operands.get(pattern..).unwrap_or_default();
                if name == "diff" {
                    // All files of two directories are compared, even without `-r`.
                    return files
                        .iter()
                        .try_for_each(|word| self.may_read_or_list(word));
                }
                let tree = match name {
                    "rg" => true,
                    _ => found.has(&["-r", "-R", "--recursive", "-d"]),
                };
                if !tree {
                    return files.iter().try_for_each(|word| self.may_read(word));
                }
                // A name pattern includes what would be excluded.
                let hidden = name != "rg"
                    || found.has(&[
                        "-u",
                        "-.",
                        "--hidden",
                        "--no-ignore",
                        "-g",
                        "--glob",
                        "--iglob",
                    ]);
                if files.is_empty() && !(name == "rg" && found.has(&["--type-list"])) {
                    return self.may_read_tree(&ShellWord::plain("."), hidden);
                }
                files
                    .iter()
                    .try_for_each(|word| self.may_read_tree(word, hidden))
            }
        }
    }

    fn sort(&mut self, args: &[ShellWord]) -> ProofResult {
        let options = OptionModel::new(
            "bcCdfgiMhnrRsuVzm",
            "ktSo",
            "--reverse --unique --numeric-sort --key: --field-separator: --ignore-case --human-numeric-sort --version-sort \
             --general-numeric-sort --check --stable --zero-terminated --parallel: --output:",
        );
        let found = parse_arguments(args, &options).or_else(refuse)?;
        for target in found.values(&["-o", "--output"]) {
            self.may_write(target)?;
        }
        found
            .operands
            .iter()
            .try_for_each(|word| self.may_read(word))
    }

    fn builtin(&mut self, name: &str, args: &[ShellWord]) -> Option<ProofResult> {
        let certain = args
            .iter()
            .all(|word| word.known() && !word.dynamic && !word.glob);
        Some(match name {
            "cd" | "pushd" => {
                if args.len() <= 1 && certain {
                    Ok(())
                } else {
                    refuse("where it changes to is only known when it runs")
                }
            }
            "popd" | "jobs" | "times" | "dirs" | "hash" | "history" | "wait" if args.is_empty() => {
                Ok(())
            }
            "exit" | "return" | "break" | "continue" | "shift" | "umask" | "ulimit" | "help"
            | ":" => {
                let number = |word: &ShellWord| {
                    word.text
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || c == '-')
                };
                if name == ":" || (certain && args.iter().all(number)) {
                    Ok(())
                } else {
                    construct("an argument of a builtin is only known when it runs")
                }
            }
            "set" => {
                let known = [
                    "-e", "-u", "-eu", "-ue", "-euo", "-ueo", "-o", "+e", "+u", "pipefail",
                    "errexit", "nounset",
                ];
                if !args.is_empty()
                    && certain
                    && args.iter().all(|word| known.contains(&word.text.as_str()))
                {
                    Ok(())
                } else {
                    construct("set changes the shell")
                }
            }
            "export" | "local" | "readonly" | "declare" | "typeset" => self.declare(name, args),
            "unset" => {
                if certain
                    && args
                        .iter()
                        .all(|word| is_name(&word.text) && is_inert_variable(&word.text))
                {
                    Ok(())
                } else {
                    construct("unset evaluates subscripts")
                }
            }
            "read" => Self::read(args),
            "printf" => Self::print_formatted(args),
            "test" => Self::test(args),
            "[" => match args.split_last() {
                Some((last, args)) if last.text == "]" => Self::test(args),
                _ => construct("a test is not closed"),
            },
            "exec" if args.is_empty() => Ok(()),
            "trap" => self.trap(args),
            "let" | "mapfile" | "readarray" | "compgen" | "complete" | "compopt" | "alias"
            | "eval" | "source" | "." | "enable" | "bind" | "shopt" | "getopts" | "hash"
            | "history" | "fc" | "exec" => {
                construct("a builtin runs or evaluates what it is given")
            }
            _ => return None,
        })
    }

    fn print_formatted(args: &[ShellWord]) -> ProofResult {
        let is_plain = args.first().is_none_or(|format| {
            format.known()
                && !format.dynamic
                && !format.glob
                && !format.text.starts_with('-')
                && !counts_into_variable(&format.text)
        });
        if is_plain {
            Ok(())
        } else {
            construct("printf may set a variable")
        }
    }

    /// `export A=1`: plain names and values, no attributes.
    fn declare(&self, builtin: &str, args: &[ShellWord]) -> ProofResult {
        let is_inert = if builtin == "export" {
            is_inert_for_programs
        } else {
            is_inert_variable
        };
        for word in args {
            if is_split(word) && !self.direct {
                return construct("a declaration may set more variables than it names");
            }
            let (name, _) = word.text.split_once('=').unwrap_or((&word.text, ""));
            if word.text.starts_with('-') || !is_name(name) || !is_inert(name) {
                return construct("a declaration may evaluate text or change what programs do");
            }
        }
        Ok(())
    }

    fn read(args: &[ShellWord]) -> ProofResult {
        let options = OptionModel::new("rs", "dntp", "");
        let Ok(found) = parse_arguments(args, &options) else {
            return construct("read may evaluate subscripts");
        };
        let plain =
            |word: &&&ShellWord| !word.dynamic && !word.glob && is_inert_variable(&word.text);
        if found.operands.iter().filter(plain).count() == found.operands.len() {
            Ok(())
        } else {
            construct("read may evaluate subscripts")
        }
    }

    fn trap(&mut self, args: &[ShellWord]) -> ProofResult {
        let Some((script, signals)) = args.split_first() else {
            return Ok(());
        };
        let signal = |word: &ShellWord| {
            word.is_static() && word.text.chars().all(|c| c.is_ascii_alphanumeric())
        };
        if !signals.iter().all(signal) || script.text.starts_with('-') && script.text != "-" {
            return construct("a trap is not understood");
        }
        if script.text == "-" {
            return Ok(());
        }
        self.deferred(script)
    }
}

/// A format with `%n`, which assigns a number to a variable.
fn counts_into_variable(format: &str) -> bool {
    format.split('%').skip(1).any(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #'.*hlLjzt$".contains(c))
            .starts_with('n')
    })
}

/// `cargo --version`: known programs only print their version. Which programs are known is decided elsewhere.
/// Programs that a project can replace, and the files that do so.
const REPLACED: &[(&str, &[&str])] = &[
    (
        "cargo rustc rustup rustfmt rustdoc clippy-driver cargo-clippy cargo-fmt",
        &["rust-toolchain", "rust-toolchain.toml"],
    ),
    ("yarn yarnpkg", &[".yarnrc", ".yarnrc.yml", "package.json"]),
    (
        "pnpm pnpx",
        &["package.json", ".pnpmfile.cjs", "pnpm-workspace.yaml"],
    ),
    ("mvn mvnd", &[".mvn"]),
    (
        "gradle",
        &[
            "gradle.properties",
            "settings.gradle",
            "settings.gradle.kts",
            "build.gradle",
        ],
    ),
    ("bundle", &[".bundle", "Gemfile"]),
    ("go", &["go.mod", "go.work"]),
    ("dotnet", &["global.json"]),
    ("bazel", &["tools/bazel", ".bazelversion", ".bazeliskrc"]),
];

impl Prover<'_, '_> {
    /// Even `--version` runs what a project has put in place of a program.
    fn answers_itself(&self, name: &str) -> ProofResult {
        if !table::is_modelled(name) && self.selects_own_programs() {
            return refuse(format!("this project may select another {name}"));
        }
        let row = REPLACED
            .iter()
            .find(|(names, _)| names.split_whitespace().any(|known| known == name));
        let Some((_, files)) = row else {
            return Ok(());
        };
        let there = |dir: &std::path::Path| files.iter().any(|file| dir.join(file).exists());
        let replaced = match self.classifier.only_directory() {
            Some(dir) if self.classifier.disk => dir.ancestors().any(there),
            // Most projects have none of these files; nearly all have those of the others.
            _ => !matches!(name, "cargo" | "rustc" | "rustup" | "go" | "dotnet"),
        };
        if replaced {
            refuse(format!(
                "this project may have put another program in place of {name}"
            ))
        } else {
            Ok(())
        }
    }
}

impl Prover<'_, '_> {
    /// Whether one of these files is in a directory that may be the current one, or above it. The user's own
    /// settings do not count.
    pub(super) fn has_around(&self, names: &[&str]) -> bool {
        let home = self.classifier.user_home();
        self.classifier.disk
            && self.classifier.directories().iter().any(|dir| {
                dir.ancestors()
                    .filter(|dir| *dir != home)
                    .any(|dir| names.iter().any(|name| dir.join(name).exists()))
            })
    }

    /// Whether a version manager is configured to use programs from a directory.
    fn selects_own_programs(&self) -> bool {
        let home = self.classifier.user_home();
        let names = [
            ".tool-versions",
            "mise.toml",
            ".mise.toml",
            ".config/mise.toml",
        ];
        self.classifier.disk
            && self.classifier.directories().iter().any(|dir| {
                let dirs = dir.ancestors().filter(|dir| *dir != home);
                let mut files = dirs.flat_map(|dir| names.map(|name| dir.join(name)));
                files.any(|file| {
                    std::fs::read_to_string(file).is_ok_and(|text| text.contains("path"))
                })
            })
    }
}

/// System programs that print their version. An unknown one may belong to the project.
const SAY_THEIR_VERSION: &str = "node nodejs npm pnpm yarn perl php python python2 python3 pip pip3 cargo rustc rustup rustfmt go \
    docker podman kubectl terraform helm git gcc g++ cc c++ clang clang++ ld as make gmake cmake ninja meson java javac ruby gem lua \
    julia ghc dotnet swift zig deno bun bash sh dash zsh fish ssh dig tmux screen vim nvim emacs psql mysql sqlite3 redis-cli ffmpeg \
    pandoc gradle mvn ant bazel protoc aws gcloud az gh glab uv poetry pyenv rbenv asdf mise brew apt dpkg rpm pacman systemctl \
    openssl curl wget jq rg fd gpg man less tar gzip xz zstd zip unzip rsync strace gdb lldb valgrind hermes bundle";

fn is_version_question(name: &str, args: &[ShellWord]) -> bool {
    let [only] = args else { return false };
    let is_known = table::is_modelled(name)
        || SAY_THEIR_VERSION
            .split_whitespace()
            .any(|known| known == name);
    if !is_known {
        return false;
    }
    let short = match name {
        "node" | "nodejs" | "npm" | "pnpm" | "yarn" | "perl" | "php" => "-v",
        "python" | "python3" | "cargo" | "rustc" | "ssh" | "dig" => "-V",
        "go" | "docker" | "kubectl" | "terraform" | "helm" | "git" => "version",
        _ => "--version",
    };
    only.is_static() && (only.text == "--version" || only.text == "--help" || only.text == short)
}
