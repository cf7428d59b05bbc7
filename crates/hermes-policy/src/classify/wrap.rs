//! Programs that run other programs: the inner program is classified.

use super::args::{has, operands, value};
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::text::{basename, output_of};
use crate::shell::{ShellWord, UNKNOWN};

pub(super) const SHELLS: [&str; 9] = [
    "sh", "bash", "zsh", "dash", "ksh", "ash", "mksh", "fish", "rbash",
];

/// Wrapper, its options with a value, and the number of words before the command.
const PLAIN: [(&str, &str, usize); 26] = [
    ("nohup", "", 0),
    ("setsid", "", 0),
    ("time", "-f --format -o --output", 0),
    ("nice", "-n --adjustment", 0),
    ("ionice", "-c --class -n --classdata -p", 0),
    ("chrt", "", 1),
    ("taskset", "", 1),
    ("timeout", "-k --kill-after -s --signal", 1),
    ("gtimeout", "-k --kill-after -s --signal", 1),
    ("stdbuf", "-i --input -o --output -e --error", 0),
    ("command", "", 0),
    ("builtin", "", 0),
    ("exec", "-a", 0),
    ("coproc", "", 0),
    ("busybox", "", 0),
    ("toybox", "", 0),
    ("unbuffer", "", 0),
    ("catchsegv", "", 0),
    ("faketime", "", 1),
    ("caffeinate", "-t -w", 0),
    ("chronic", "", 0),
    ("ts", "", 9),
    ("dbus-run-session", "", 0),
    ("xvfb-run", "-n -s -e -f -p -w", 0),
    ("firejail", "", 0),
    ("proxychains4", "-f", 0),
];

impl Classifier<'_> {
    /// Whether `call` only runs something else, which has then been classified.
    pub(super) fn classify_wrapper(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        match call.name {
            "sudo" | "doas" | "pkexec" | "run0" => self.privileged(call),
            "su" | "runuser" => self.as_user(call),
            "env" => return self.env(call),
            "xargs" | "parallel" => {
                self.xargs(call);
                if call.name == "parallel" {
                    self.carried_commands(call);
                }
            }
            "watch" | "entr" | "hyperfine" | "strace" | "ltrace" | "perf" | "valgrind" | "gdb" => {
                self.observed(call);
            }
            "ssh" => self.ssh(call),
            "eval" => self.eval(call),
            "trap" => self.text_of(operands(args, "").first().copied()),
            "flock" => self.flock(call),
            "script" => self.text_of(value(args, "-c --command").as_ref()),
            "chroot" | "unshare" | "nsenter" | "systemd-run" | "setpriv" | "capsh" | "bwrap" => {
                self.add_firm(
                    Category::PRIVILEGE,
                    format!("{} runs a program in other surroundings", call.name),
                );
                self.classify_every_suffix(call);
            }
            name if SHELLS.contains(&name) => self.shell(call),
            name => {
                let Some((_, options, skip)) = PLAIN.iter().find(|(wrapper, ..)| *wrapper == name)
                else {
                    return false;
                };
                return self.plain(call, options, *skip);
            }
        }
        true
    }

    fn plain(&mut self, call: ProgramCall<'_>, options: &str, skip: usize) -> bool {
        let args = call.args();
        if call.name == "command" && matches!(call.arg(0), "-v" | "-V") {
            return true;
        }
        if call.name == "taskset" || call.name == "chrt" {
            self.classify_every_suffix(call);
        }
        let Some(start) = first_operand(args, options, skip) else {
            return true;
        };
        let words: Vec<ShellWord> = args[start..]
            .iter()
            .skip_while(|word| matches!(word.text.as_str(), "{" | "!" | "("))
            .cloned()
            .collect();
        if let Some(target) = value(args, "-o --output")
            && call.name == "time"
            && start > 1
        {
            self.write(&target, super::WriteKind::Create);
        }
        self.run(ProgramCall {
            words: &words,
            ..call
        });
        true
    }

    /// If the options are not known well enough, every word may be the program.
    pub(super) fn classify_every_suffix(&mut self, call: ProgramCall<'_>) {
        for at in 0..call.args().len().min(64) {
            let words = &call.args()[at..];
            let name = basename(&words[0].text).to_lowercase();
            self.hardline(ProgramCall {
                name: &name,
                words,
                ..call
            });
        }
        if let Some(script) = value(call.args(), "-c") {
            self.nested(&script);
        }
    }

    fn privileged(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let options =
            "-u --user -g --group -h --host -p --prompt -C -D --chdir -R --chroot -T -U -r -t";
        let start = first_operand(args, options, 0).unwrap_or(args.len());
        let own = &args[..start];
        let short = own.iter().any(|word| {
            word.text.starts_with('-')
                && !word.text.starts_with("--")
                && word.text[1..].contains(['S', 'A', 's', 'i'])
        });
        if call.name == "sudo" && (short || has(own, "--stdin --askpass --shell --login")) {
            self.add_firm(
                Category::SUDO_FLAG,
                "sudo with an option that gives it a password or a shell",
            );
        }
        self.add_firm(
            Category::PRIVILEGE,
            format!("{} runs with other rights", call.name),
        );
        // Assignments may precede the command.
        let words: Vec<ShellWord> = args[start..]
            .iter()
            .skip_while(|word| is_assignment(&word.text))
            .cloned()
            .collect();
        self.run(ProgramCall {
            words: &words,
            ..call
        });
    }

    fn as_user(&mut self, call: ProgramCall<'_>) {
        self.add_firm(
            Category::PRIVILEGE,
            format!("{} runs as another user", call.name),
        );
        match value(call.args(), "-c --command") {
            Some(script) => self.nested(&script),
            None => self.classify_every_suffix(call),
        }
    }

    /// `env` alone prints; with a command it runs it.
    fn env(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        if let Some(script) = value(args, "-S --split-string") {
            self.add_firm(Category::EXEC_FLAG, "env -S takes a command out of a text");
            self.nested(&script);
        }
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let text = word.text.as_str();
            if matches!(text, "-u" | "--unset" | "-C" | "--chdir") {
                at += 2;
            } else if let (false, Some((name, value))) =
                (text.starts_with('-'), text.split_once('='))
            {
                self.assignment(name, &ShellWord::plain(value), false);
                at += 1;
            } else if text.starts_with('-') {
                at += 1;
            } else {
                self.run(ProgramCall {
                    words: &args[at..],
                    ..call
                });
                return true;
            }
        }
        true
    }

    fn xargs(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let options = "-a --arg-file -d --delimiter -E -I --replace -L --max-lines -n --max-args -P \
                       --max-procs -s --max-chars -j --jobs";
        let Some(start) = first_operand(args, options, 0) else {
            self.require_known_arguments(args);
            return;
        };
        let mut words = args[start..].to_vec();
        if basename(&words[0].text) == "rm" {
            self.add_firm(Category::XARGS_RM, "deletes whatever is fed to it");
        }
        let mark =
            value(&args[..start], "-I --replace").map_or_else(|| "{}".to_owned(), |word| word.text);
        let mut marked = false;
        for word in &mut words {
            if !mark.is_empty() && word.text.contains(&mark) {
                word.text = word.text.replace(&mark, &UNKNOWN.to_string());
                word.dynamic = true;
                word.expanded = true;
                marked = true;
            }
        }
        if !marked {
            words.push(ShellWord {
                text: UNKNOWN.to_string(),
                dynamic: true,
                expanded: true,
                ..ShellWord::default()
            });
        }
        if SHELLS.contains(&basename(&words[0].text)) && words.len() == 2 {
            self.add_firm(Category::DYNAMIC_COMMAND, "runs whatever is fed to it");
        }
        self.run(ProgramCall {
            words: &words,
            ..call
        });
    }

    /// Programs that run and observe a command: the command is a shell line or words.
    fn observed(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let options = match call.name {
            "watch" => "-n --interval",
            "strace" | "ltrace" => "-e -o -p -s -u -P -E",
            "perf" => "-e -o -F",
            "gdb" => "-ex -x -p",
            _ => "-w --warmup -r --runs",
        };
        self.require_known_arguments(args);
        let Some(mut start) = first_operand(args, options, 0) else {
            return;
        };
        if call.name == "perf" {
            start += 1;
        }
        if matches!(call.name, "strace" | "ltrace" | "perf" | "valgrind" | "gdb") {
            self.add_soft(
                Category::PROGRAM,
                format!("runs a program under {}", call.name),
            );
            self.run(ProgramCall {
                words: args.get(start..).unwrap_or_default(),
                ..call
            });
            return;
        }
        let line: Vec<&str> = args[start..]
            .iter()
            .map(|word| word.text.as_str())
            .collect();
        self.script(&line.join(" "));
    }

    fn ssh(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.facts.network = true;
        self.add_firm(Category::REMOTE_HOST, "acts on another machine over ssh");
        for word in args {
            let text = word.text.to_lowercase();
            if text.contains("proxycommand")
                || text.contains("localcommand")
                || text.contains("knownhostscommand")
            {
                self.add_firm(Category::EXEC_FLAG, "ssh is set to run a program here");
            }
        }
        let options = "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w -B";
        if let Some(start) = first_operand(args, options, 1) {
            let line: Vec<&str> = args[start..]
                .iter()
                .map(|word| word.text.as_str())
                .collect();
            self.script(&line.join(" "));
        }
        if let Some(input) = &call.command.input {
            self.nested(input);
        }
    }

    fn eval(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.add_firm(Category::DYNAMIC_COMMAND, "eval runs a text as a command");
        let line: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
        self.nested(&ShellWord {
            text: line.join(" "),
            dynamic: args.iter().any(|word| word.dynamic),
            ..ShellWord::default()
        });
    }

    fn flock(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        if let Some(script) = value(args, "-c --command") {
            self.nested(&script);
        } else if let Some(start) = first_operand(args, "-w --timeout -E", 1) {
            self.run(ProgramCall {
                words: &args[start..],
                ..call
            });
        }
        self.writes = true;
    }

    fn text_of(&mut self, script: Option<&ShellWord>) {
        if let Some(script) = script {
            self.nested(script);
        }
    }

    /// A text that is run as a script.
    pub(super) fn nested(&mut self, script: &ShellWord) {
        if !script.known() {
            self.add_firm(
                Category::DYNAMIC_COMMAND,
                "the command text is only known when it runs",
            );
        }
        let text = script.text.replace(UNKNOWN, " ");
        let outer = self.excerpt.clone();
        self.script(&text);
        self.excerpt = outer;
    }

    /// `sh -c …`, `bash file`, `bash <<EOF`, `… | sh`.
    fn shell(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let mut at = 0;
        let mut inline = false;
        while let Some(word) = args.get(at) {
            let text = word.text.as_str();
            if matches!(text, "--rcfile" | "--init-file") {
                self.add_soft(Category::PROGRAM, "runs a file of shell commands");
                at += 2;
                continue;
            }
            if !text.starts_with(['-', '+']) || text == "-" || text == "--" {
                break;
            }
            if !text.starts_with("--") {
                inline |= text.starts_with('-') && text.contains('c');
                // Each `o` takes the next word: `bash -euo pipefail -c …`.
                at += text
                    .chars()
                    .skip(1)
                    .filter(|c| matches!(c, 'o' | 'O'))
                    .count();
            }
            at += 1;
        }
        if args
            .get(at)
            .is_some_and(|word| matches!(word.text.as_str(), "--" | "-"))
        {
            at += 1;
        }
        let rest = args.get(at..).unwrap_or_default();
        match rest.first() {
            Some(script) if inline => {
                self.nested(script);
                // "$0" and "$1" are known here, but not where they are used.
            }
            Some(file) => self.shell_file(file, call),
            None if has(args, "--version --help") => {}
            None => self.shell_input(call),
        }
    }

    pub(super) fn shell_file(&mut self, file: &ShellWord, call: ProgramCall<'_>) {
        if let Some(inner) = &file.inner {
            if let Some(text) = output_of(&call.script.commands[inner.clone()]) {
                self.nested(&ShellWord::plain(text));
            }
            let fetches = call.script.commands[inner.clone()]
                .iter()
                .any(super::flow::fetches);
            if fetches {
                self.add_firm(
                    Category::REMOTE_SUBSTITUTION,
                    "runs what was fetched from the network",
                );
            } else {
                self.add_firm(Category::DYNAMIC_COMMAND, "runs the output of a command");
            }
            return;
        }
        if file.text == "/dev/stdin" {
            self.shell_input(call);
            return;
        }
        self.classify_program_file(file);
    }

    /// Commands come from standard input.
    fn shell_input(&mut self, call: ProgramCall<'_>) {
        if let Some(input) = &call.command.input {
            self.add_firm(
                Category::SHELL_HEREDOC,
                "a shell reads its commands from a here document",
            );
            self.nested(input);
            return;
        }
        for redirect in &call.command.redirects {
            if redirect.flow == crate::shell::RedirectDirection::In {
                self.shell_file(&redirect.target, call);
                return;
            }
        }
        if call.command.pipes.is_empty() {
            self.add_soft(Category::PROGRAM, "starts a shell");
        }
        // A shell at the end of a pipeline is classified with the pipeline.
    }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The index of the operand after `skip` others.
fn first_operand(args: &[ShellWord], with_value: &str, skip: usize) -> Option<usize> {
    let mut seen = 0;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            at += 1 + (skip - seen.min(skip));
            return (at < args.len()).then_some(at);
        }
        if text.len() > 1 && text.starts_with('-') && seen == 0 {
            at += if with_value.split_whitespace().any(|option| option == text) {
                2
            } else {
                1
            };
            continue;
        }
        if seen == skip {
            return Some(at);
        }
        seen += 1;
        at += 1;
    }
    None
}
