//! From a command to findings.

mod args;
mod cloud;
mod code;
mod files;
mod flow;
mod git;
mod hardline;
mod network;
mod place;
mod readers;
mod system;
mod unproven;
mod wrap;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::assessment::{Category, Finding, Part, Weight};
use crate::shell::text::basename;
use crate::shell::{self, Flow, Problem, Script, Simple, Surroundings, Word};
use place::Verb;

/// Scripts within scripts that are looked at.
const NESTING: usize = 8;
/// Programs that run programs, one within the other, that are looked at.
const WRAPS: usize = 24;
/// Findings that are kept; more say nothing new.
const FINDINGS: usize = 100;
/// Texts in arguments that are looked at as code.
const SCANS: usize = 200;
/// Programs that are remembered for deny globs.
const SEEN: usize = 1_000;
/// Directories whose programs are what their names say.
pub(crate) const SYSTEM_PATHS: [&str; 8] = [
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
    "/opt/homebrew/bin/",
    "/run/current-system/sw/bin/",
];

/// What is known of a command so far.
pub(crate) struct Look<'a> {
    around: &'a Surroundings,
    roots: &'a [PathBuf],
    pub(crate) findings: Vec<Finding>,
    pub(crate) parts: Vec<Part>,
    /// Something in the workspace is changed.
    pub(crate) writes: bool,
    /// Directories that relative paths may start from.
    cwds: Vec<PathBuf>,
    /// The working directory is not known any more.
    lost: bool,
    depth: usize,
    /// Programs that run the one that is looked at.
    wraps: usize,
    excerpt: String,
    facts: Facts,
    /// Every program with its arguments, wherever it was found.
    pub(crate) seen: Vec<String>,
    /// Something is only known at run time.
    pub(crate) dynamic: bool,
    /// There was more than is kept.
    pub(crate) overflow: bool,
    /// Where the findings of the part that is looked at begin.
    part: usize,
    /// Texts that may still be looked at as code.
    scans: usize,
    /// Secrets may be looked for on the disk of this machine.
    pub(crate) disk: bool,
    /// Every part is known to do only what is modelled.
    pub(crate) proven: bool,
    /// Another reading of it uses the network.
    pub(crate) networked: bool,
}

/// What only matters together with something else.
#[derive(Debug, Default)]
struct Facts {
    /// A secret is read, or a directory full of them.
    secret: bool,
    /// Something goes over the network.
    network: bool,
    /// Files that were fetched.
    fetched: BTreeSet<PathBuf>,
    /// Files that were made executable.
    executable: BTreeSet<PathBuf>,
    aliases: Vec<(String, String)>,
}

/// A program and its arguments.
#[derive(Clone, Copy)]
struct Call<'c> {
    /// Without directories, in lower case.
    name: &'c str,
    words: &'c [Word],
    command: &'c Simple,
    script: &'c Script,
}

impl<'c> Call<'c> {
    fn args(&self) -> &'c [Word] {
        self.words.get(1..).unwrap_or_default()
    }

    fn arg(&self, at: usize) -> &'c str {
        self.args().get(at).map_or("", |word| word.text.as_str())
    }
}

impl<'a> Look<'a> {
    pub(crate) fn new(around: &'a Surroundings, roots: &'a [PathBuf]) -> Self {
        Self {
            around,
            roots,
            findings: Vec::new(),
            parts: Vec::new(),
            writes: false,
            cwds: vec![around.cwd.clone()],
            lost: false,
            depth: 0,
            wraps: 0,
            excerpt: String::new(),
            facts: Facts::default(),
            seen: Vec::new(),
            dynamic: false,
            overflow: false,
            part: 0,
            scans: SCANS,
            disk: false,
            proven: false,
            networked: false,
        }
    }

    fn find(&mut self, weight: Weight, category: Category, why: impl Into<String>) {
        let finding = Finding {
            category,
            weight,
            why: why.into(),
            excerpt: self.excerpt.clone(),
        };
        if self.findings[self.part..].contains(&finding) {
            return;
        }
        if self.findings.len() >= FINDINGS && weight != Weight::Forbidden {
            self.overflow = true;
            return;
        }
        self.findings.push(finding);
    }

    pub(crate) fn soft(&mut self, category: Category, why: impl Into<String>) {
        self.find(Weight::Soft, category, why);
    }

    pub(crate) fn firm(&mut self, category: Category, why: impl Into<String>) {
        self.find(Weight::Firm, category, why);
    }

    fn forbid(&mut self, category: Category, why: impl Into<String>) {
        self.find(Weight::Forbidden, category, why);
    }

    /// A whole script, at the top or within another one.
    pub(crate) fn script(&mut self, source: &str) {
        if self.depth >= NESTING {
            self.firm(
                Category::TOO_DEEP,
                "commands within commands, deeper than is looked at",
            );
            self.rough(source);
            return;
        }
        self.depth += 1;
        let script = shell::read(source, self.around);
        if script.problems.contains(&Problem::ForkBomb) {
            source.clone_into(&mut self.excerpt);
            self.forbid(
                Category::FORK_BOMB,
                "a function that starts itself without end",
            );
        }
        if script.problems.contains(&Problem::Unparsed) {
            self.firm(
                Category::UNPARSED,
                "it cannot be understood as a shell command",
            );
            self.rough(source);
        }
        if script.problems.contains(&Problem::TooDeep) {
            self.firm(Category::TOO_DEEP, "nested deeper than is looked at");
            self.rough(source);
        }
        for command in &script.commands {
            if self.depth == 1 {
                self.part = self.findings.len();
            }
            self.dynamic |= is_dynamic(command);
            self.simple(&script, command);
            if self.depth == 1 {
                self.parts.push(Part {
                    argv: argv(command),
                    findings: self.part..self.findings.len(),
                });
            }
            // What commands mean together belongs to none of them.
            self.flow(&script, command);
        }
        if self.depth > 1 {
            self.evaluated_within(source);
        }
        self.depth -= 1;
    }

    fn simple(&mut self, script: &Script, command: &Simple) {
        self.excerpt.clone_from(&command.excerpt);
        let reads = command
            .words
            .first()
            .is_some_and(|word| word.text == "read");
        for (name, value) in &command.assigns {
            // `IFS= read` changes nothing but what this one reads.
            if !(reads && name == "IFS") {
                self.assignment(name, value, command.words.is_empty());
            }
        }
        for redirect in &command.redirects {
            match redirect.flow {
                Flow::In => self.read(&redirect.target),
                Flow::Out => self.write(&redirect.target, Verb::Redirect),
            }
        }
        if !command.words.is_empty() {
            self.run(Call {
                name: "",
                words: &command.words,
                command,
                script,
            });
        }
    }

    /// The program that `call.words` start, wherever they come from.
    fn run(&mut self, call: Call<'_>) {
        if self.wraps >= WRAPS {
            self.firm(
                Category::TOO_DEEP,
                "commands within commands, deeper than is looked at",
            );
            self.every_suffix(call);
            return;
        }
        self.wraps += 1;
        self.run_here(call);
        self.wraps -= 1;
    }

    fn run_here(&mut self, call: Call<'_>) {
        let Some(first) = call.words.first() else {
            return;
        };
        if first.dynamic || first.expanded || first.glob {
            self.firm(
                Category::DYNAMIC_COMMAND,
                "which program runs is only known when it runs",
            );
        }
        if !first.known() {
            return;
        }
        let name = basename(&first.text).to_lowercase();
        let call = Call {
            name: &name,
            ..call
        };
        self.remember(call);
        if let Some(body) = self.alias(&first.text) {
            self.firm(Category::DYNAMIC_COMMAND, "the command is an alias");
            self.script(&body);
        }
        self.hardline(call);
        self.callbacks(call);
        self.secrets(call);
        if self.wrapped(call) {
            return;
        }
        if call.script.functions.contains(&first.text) {
            return;
        }
        if first.text.contains('/')
            && !SYSTEM_PATHS
                .iter()
                .any(|path| first.text.strip_prefix(path) == Some(name.as_str()))
        {
            self.program_file(first);
            return;
        }
        let known = self.builtin(call)
            || self.files(call)
            || self.git(call)
            || self.network(call)
            || self.cloud(call)
            || self.system(call)
            || self.code(call)
            || self.readers(call);
        if !known {
            self.soft(Category::PROGRAM, format!("runs {name}"));
        }
    }

    /// Deny globs are matched with this.
    fn remember(&mut self, call: Call<'_>) {
        if self.seen.len() >= SEEN {
            self.overflow = true;
            return;
        }
        let args = call.args().iter().map(|word| word.text.as_str());
        let words: Vec<&str> = std::iter::once(call.name).chain(args).collect();
        self.seen.push(words.join(" "));
    }

    /// A program by its path: whatever is in the file.
    fn program_file(&mut self, word: &Word) {
        if self.is_fetched(word) {
            self.firm(
                Category::DOWNLOAD_RUN,
                "runs a file that was just downloaded",
            );
        } else if self.is_made_executable(word) {
            self.firm(
                Category::CHMOD_RUN,
                "makes a file executable and runs it at once",
            );
        } else {
            self.soft(Category::PROGRAM, format!("runs {}", word.text));
        }
    }

    fn alias(&self, name: &str) -> Option<String> {
        self.facts
            .aliases
            .iter()
            .find(|(alias, _)| alias == name)
            .map(|(_, body)| body.clone())
    }

    /// Arguments that are only known at run time might be options.
    fn certain(&mut self, args: &[Word]) {
        if args.iter().any(|word| word.dynamic) {
            self.soft(
                Category::DYNAMIC_ARGUMENT,
                "some arguments are only known when it runs",
            );
        }
    }

    /// Options before a subcommand that might take it as their value.
    fn sure(&mut self, args: &[Word], known: &str) {
        if args::unsure(args, known) {
            self.firm(Category::UNPARSED, "unknown options precede the subcommand");
        }
    }

    fn assignment(&mut self, name: &str, value: &Word, lasting: bool) {
        let name = name.split('[').next().unwrap_or(name);
        self.run_later(name, value);
        let loads = [
            "LD_PRELOAD",
            "LD_AUDIT",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
        ];
        let runs = [
            "PAGER",
            "GIT_PAGER",
            "MANPAGER",
            "EDITOR",
            "VISUAL",
            "GIT_EDITOR",
            "GIT_SEQUENCE_EDITOR",
        ];
        let harmless = ["cat", "less", "true", ":", "", "more"];
        let changes = [
            "PATH",
            "IFS",
            "HOME",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "NODE_PATH",
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "RUBYLIB",
            "JAVA_TOOL_OPTIONS",
            "LESSOPEN",
            "LD_LIBRARY_PATH",
            "CDPATH",
            "BASHOPTS",
            "SHELLOPTS",
            "PS4",
            "CARGO_HOME",
            "RUSTC_WRAPPER",
        ];
        if loads.contains(&name)
            || (name.starts_with("GIT_")
                && [
                    "SSH", "EXTERNAL", "PROXY", "CONFIG", "EXEC", "ASKPASS", "TEMPLATE",
                ]
                .iter()
                .any(|part| name.contains(part)))
            || name.starts_with("BASH_FUNC")
        {
            self.firm(
                Category::ENVIRONMENT,
                format!("sets {name}, which makes programs run something else"),
            );
        } else if name.starts_with("HERMES_") {
            self.firm(Category::HERMES_SETTINGS, format!("sets {name}"));
        } else if (runs.contains(&name) && !harmless.contains(&value.text.as_str()))
            || changes.contains(&name)
            || (name.starts_with("LD_") || name.starts_with("DYLD_"))
        {
            self.soft(
                Category::ENVIRONMENT,
                format!("sets {name}, which changes what programs do"),
            );
        }
        if lasting && name == "HOME" {
            self.lost = true;
        }
    }
}

fn is_dynamic(command: &Simple) -> bool {
    let words = command.words.iter().chain(&command.input);
    let values = command.assigns.iter().map(|(_, value)| value);
    let targets = command.redirects.iter().map(|redirect| &redirect.target);
    words.chain(values).chain(targets).any(|word| word.dynamic)
}

/// The words of a command that consists of nothing else, all certain.
fn argv(command: &Simple) -> Option<Vec<String>> {
    let bare =
        command.assigns.is_empty() && command.redirects.is_empty() && command.input.is_none();
    (bare && !command.words.is_empty() && command.words.iter().all(Word::is_static))
        .then(|| command.words.iter().map(|word| word.text.clone()).collect())
}
