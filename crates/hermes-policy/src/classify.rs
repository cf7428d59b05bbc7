//! Classifies commands: from a command to findings.

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

use crate::assessment::{Category, CommandPart, FindingWeight, PolicyFinding};
use crate::shell::text::basename;
use crate::shell::{
    self, RedirectDirection, ScriptContext, ScriptProblem, ShellScript, ShellWord, SimpleCommand,
};
use place::WriteKind;

/// Maximum nesting of scripts.
const MAX_NESTING: usize = 8;
/// Maximum nesting of programs that run programs.
const MAX_WRAPPERS: usize = 24;
/// Maximum number of findings; more add nothing new.
const MAX_FINDINGS: usize = 100;
/// Maximum number of argument texts checked as code.
const MAX_CODE_SCANS: usize = 200;
/// Maximum number of programs recorded for deny globs.
const MAX_PROGRAMS: usize = 1_000;
/// Directories whose programs can be trusted by name.
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

/// Collects what is known about a command.
pub(crate) struct Classifier<'a> {
    around: &'a ScriptContext,
    roots: &'a [PathBuf],
    pub(crate) findings: Vec<PolicyFinding>,
    pub(crate) parts: Vec<CommandPart>,
    /// Something in the workspace is changed.
    pub(crate) writes: bool,
    /// Possible base directories of relative paths.
    cwds: Vec<PathBuf>,
    /// The working directory is no longer known.
    lost: bool,
    depth: usize,
    /// How many programs run the current one.
    wrapper_depth: usize,
    excerpt: String,
    facts: RiskFacts,
    /// Every program with its arguments, wherever it was found.
    pub(crate) seen: Vec<String>,
    /// Something is only known at run time.
    pub(crate) dynamic: bool,
    /// A limit was exceeded.
    pub(crate) overflow: bool,
    /// Index of the first finding of the current part.
    part: usize,
    /// How many texts may still be checked as code.
    scans: usize,
    /// The local disk may be searched for secrets.
    pub(crate) disk: bool,
    /// Every part is proven to do only what is modelled.
    pub(crate) proven: bool,
    /// Another reading of it uses the network.
    pub(crate) networked: bool,
}

/// Facts that only matter in combination.
#[derive(Debug, Default)]
struct RiskFacts {
    /// A secret is read, or a directory with secrets.
    secret: bool,
    /// The network is used.
    network: bool,
    /// Downloaded files.
    fetched: BTreeSet<PathBuf>,
    /// Files that were made executable.
    executable: BTreeSet<PathBuf>,
    aliases: Vec<(String, String)>,
}

/// A program and its arguments.
#[derive(Clone, Copy)]
struct ProgramCall<'c> {
    /// Without directory, in lower case.
    name: &'c str,
    words: &'c [ShellWord],
    command: &'c SimpleCommand,
    script: &'c ShellScript,
}

impl<'c> ProgramCall<'c> {
    fn args(&self) -> &'c [ShellWord] {
        self.words.get(1..).unwrap_or_default()
    }

    fn arg(&self, at: usize) -> &'c str {
        self.args().get(at).map_or("", |word| word.text.as_str())
    }
}

impl<'a> Classifier<'a> {
    pub(crate) fn new(around: &'a ScriptContext, roots: &'a [PathBuf]) -> Self {
        Self {
            around,
            roots,
            findings: Vec::new(),
            parts: Vec::new(),
            writes: false,
            cwds: vec![around.cwd.clone()],
            lost: false,
            depth: 0,
            wrapper_depth: 0,
            excerpt: String::new(),
            facts: RiskFacts::default(),
            seen: Vec::new(),
            dynamic: false,
            overflow: false,
            part: 0,
            scans: MAX_CODE_SCANS,
            disk: false,
            proven: false,
            networked: false,
        }
    }

    fn find(&mut self, weight: FindingWeight, category: Category, why: impl Into<String>) {
        let finding = PolicyFinding {
            category,
            weight,
            why: why.into(),
            excerpt: self.excerpt.clone(),
        };
        if self.findings[self.part..].contains(&finding) {
            return;
        }
        if self.findings.len() >= MAX_FINDINGS && weight != FindingWeight::Forbidden {
            self.overflow = true;
            return;
        }
        self.findings.push(finding);
    }

    pub(crate) fn add_soft(&mut self, category: Category, why: impl Into<String>) {
        self.find(FindingWeight::Soft, category, why);
    }

    pub(crate) fn add_firm(&mut self, category: Category, why: impl Into<String>) {
        self.find(FindingWeight::Firm, category, why);
    }

    fn add_forbidden(&mut self, category: Category, why: impl Into<String>) {
        self.find(FindingWeight::Forbidden, category, why);
    }

    /// Classifies a script, at the top level or nested.
    pub(crate) fn script(&mut self, source: &str) {
        if self.depth >= MAX_NESTING {
            self.add_firm(
                Category::TOO_DEEP,
                "commands within commands, deeper than is looked at",
            );
            self.scan_unparsed(source);
            return;
        }
        self.depth += 1;
        let script = shell::read(source, self.around);
        if script.problems.contains(&ScriptProblem::ForkBomb) {
            source.clone_into(&mut self.excerpt);
            self.add_forbidden(
                Category::FORK_BOMB,
                "a function that starts itself without end",
            );
        }
        if script.problems.contains(&ScriptProblem::Unparsed) {
            self.add_firm(
                Category::UNPARSED,
                "it cannot be understood as a shell command",
            );
            self.scan_unparsed(source);
        }
        if script.problems.contains(&ScriptProblem::TooDeep) {
            self.add_firm(Category::TOO_DEEP, "nested deeper than is looked at");
            self.scan_unparsed(source);
        }
        for command in &script.commands {
            if self.depth == 1 {
                self.part = self.findings.len();
            }
            self.dynamic |= is_dynamic(command);
            self.simple(&script, command);
            if self.depth == 1 {
                self.parts.push(CommandPart {
                    argv: argv(command),
                    findings: self.part..self.findings.len(),
                });
            }
            // Findings about combinations belong to no single command.
            self.flow(&script, command);
        }
        if self.depth > 1 {
            self.check_evaluated_texts(source);
        }
        self.depth -= 1;
    }

    fn simple(&mut self, script: &ShellScript, command: &SimpleCommand) {
        self.excerpt.clone_from(&command.excerpt);
        let reads = command
            .words
            .first()
            .is_some_and(|word| word.text == "read");
        for (name, value) in &command.assigns {
            // `IFS= read` only affects this `read`.
            if !(reads && name == "IFS") {
                self.assignment(name, value, command.words.is_empty());
            }
        }
        for redirect in &command.redirects {
            match redirect.flow {
                RedirectDirection::In => self.read(&redirect.target),
                RedirectDirection::Out => self.write(&redirect.target, WriteKind::Redirect),
            }
        }
        if !command.words.is_empty() {
            self.run(ProgramCall {
                name: "",
                words: &command.words,
                command,
                script,
            });
        }
    }

    /// Classifies the program that `call.words` run.
    fn run(&mut self, call: ProgramCall<'_>) {
        if self.wrapper_depth >= MAX_WRAPPERS {
            self.add_firm(
                Category::TOO_DEEP,
                "commands within commands, deeper than is looked at",
            );
            self.classify_every_suffix(call);
            return;
        }
        self.wrapper_depth += 1;
        self.classify_call_inner(call);
        self.wrapper_depth -= 1;
    }

    fn classify_call_inner(&mut self, call: ProgramCall<'_>) {
        let Some(first) = call.words.first() else {
            return;
        };
        if first.dynamic || first.expanded || first.glob {
            self.add_firm(
                Category::DYNAMIC_COMMAND,
                "which program runs is only known when it runs",
            );
        }
        if !first.known() {
            return;
        }
        let name = basename(&first.text).to_lowercase();
        let call = ProgramCall {
            name: &name,
            ..call
        };
        self.record_program(call);
        if let Some(body) = self.alias(&first.text) {
            self.add_firm(Category::DYNAMIC_COMMAND, "the command is an alias");
            self.script(&body);
        }
        self.hardline(call);
        self.check_callbacks(call);
        self.secrets(call);
        if self.classify_wrapper(call) {
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
            self.classify_program_file(first);
            return;
        }
        let known = self.builtin(call)
            || self.files(call)
            || self.git(call)
            || self.network(call)
            || self.cloud(call)
            || self.system(call);
        if known {
            return;
        }
        let is_code = self.code(call);
        let is_reader = !is_code && self.readers(call);
        if !is_reader {
            self.carried_commands(call);
        }
        if !is_code && !is_reader {
            self.add_soft(Category::PROGRAM, format!("runs {name}"));
        }
    }

    /// Deny globs are matched against this.
    fn record_program(&mut self, call: ProgramCall<'_>) {
        if self.seen.len() >= MAX_PROGRAMS {
            self.overflow = true;
            return;
        }
        let args = call.args().iter().map(|word| word.text.as_str());
        let words: Vec<&str> = std::iter::once(call.name).chain(args).collect();
        self.seen.push(words.join(" "));
    }

    /// A program by its path, with unknown content.
    fn classify_program_file(&mut self, word: &ShellWord) {
        if self.is_fetched(word) {
            self.add_firm(
                Category::DOWNLOAD_RUN,
                "runs a file that was just downloaded",
            );
        } else if self.is_made_executable(word) {
            self.add_firm(
                Category::CHMOD_RUN,
                "makes a file executable and runs it at once",
            );
        } else {
            self.add_soft(Category::PROGRAM, format!("runs {}", word.text));
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
    fn require_known_arguments(&mut self, args: &[ShellWord]) {
        if args.iter().any(|word| word.dynamic) {
            self.add_soft(
                Category::DYNAMIC_ARGUMENT,
                "some arguments are only known when it runs",
            );
        }
    }

    /// Unknown options might take the subcommand as their value.
    fn require_known_options(&mut self, args: &[ShellWord], known: &str) {
        if args::unsure(args, known) {
            self.add_firm(Category::UNPARSED, "unknown options precede the subcommand");
        }
    }

    fn assignment(&mut self, name: &str, value: &ShellWord, lasting: bool) {
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
            self.add_firm(
                Category::ENVIRONMENT,
                format!("sets {name}, which makes programs run something else"),
            );
        } else if name.starts_with("HERMES_") {
            self.add_firm(Category::HERMES_SETTINGS, format!("sets {name}"));
        } else if (runs.contains(&name) && !harmless.contains(&value.text.as_str()))
            || changes.contains(&name)
            || (name.starts_with("LD_") || name.starts_with("DYLD_"))
        {
            self.add_soft(
                Category::ENVIRONMENT,
                format!("sets {name}, which changes what programs do"),
            );
        }
        if lasting && name == "HOME" {
            self.lost = true;
        }
    }
}

fn is_dynamic(command: &SimpleCommand) -> bool {
    let words = command.words.iter().chain(&command.input);
    let values = command.assigns.iter().map(|(_, value)| value);
    let targets = command.redirects.iter().map(|redirect| &redirect.target);
    words.chain(values).chain(targets).any(|word| word.dynamic)
}

/// The words of a command without assignments or redirections, all certain.
fn argv(command: &SimpleCommand) -> Option<Vec<String>> {
    let bare =
        command.assigns.is_empty() && command.redirects.is_empty() && command.input.is_none();
    (bare && !command.words.is_empty() && command.words.iter().all(ShellWord::is_static))
        .then(|| command.words.iter().map(|word| word.text.clone()).collect())
}
