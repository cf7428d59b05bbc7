//! Commands that never run, whatever is configured, because they are irreversible.

use super::args::{has, operands};
use super::place::is_block_device;
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::ShellWord;
use crate::shell::text::basename;

/// Programs that shut down or restart the machine.
const POWER: [&str; 5] = ["shutdown", "reboot", "halt", "poweroff", "kexec"];

/// Programs that run others, for unparsed text.
const ROUGH_WRAPS: [&str; 21] = [
    "sudo", "doas", "env", "timeout", "nice", "nohup", "setsid", "exec", "command", "builtin",
    "time", "stdbuf", "xargs", "busybox", "sh", "bash", "zsh", "dash", "ksh", "eval", "ionice",
];
/// Programs whose words are another program and its words. Elsewhere such a word may be a name: `make reboot`.
const RUNNERS: [&str; 22] = [
    "uv",
    "uvx",
    "poetry",
    "pipenv",
    "pdm",
    "hatch",
    "bundle",
    "conda",
    "mamba",
    "mise",
    "rtx",
    "asdf",
    "direnv",
    "doppler",
    "infisical",
    "nix",
    "proot",
    "fakeroot",
    "torsocks",
    "screen",
    "tmux",
    "proxychains",
];
/// Programs that destroy what their words name.
const DESTROYERS: [&str; 14] = [
    "rm",
    "find",
    "dd",
    "chmod",
    "chown",
    "chgrp",
    "mv",
    "shred",
    "tee",
    "wipefs",
    "blkdiscard",
    "mke2fs",
    "mkswap",
    "kill",
];
/// Maximum number of words checked in a piece of such text.
const ROUGH_WORDS: usize = 16;

impl Classifier<'_> {
    pub(super) fn hardline(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let asks = has(args, "--help --version =-h =-V") && args.len() == 1;
        self.power(call, asks);
        self.disks(call, asks);
        match call.name {
            "kill" => self.kill(args),
            "killall5" if !asks => {
                self.add_forbidden(Category::KILL_ALL, "ends every process");
            }
            "rm" => self.delete(args),
            "find" => self.find_delete(args),
            "chmod" | "chown" | "chgrp" if has(args, "-R --recursive") => {
                // The mode or owner comes first.
                let targets = operands(args, "--reference");
                if let Some(category) = targets
                    .iter()
                    .skip(1)
                    .find_map(|word| self.irreplaceable(word))
                    && category == Category::ROOT_DELETE
                {
                    self.add_forbidden(category, "changes the rights of every file there is");
                }
            }
            "mv" => {
                let targets = operands(args, "-t --target-directory -S --suffix");
                let sources = targets.len().saturating_sub(1);
                if let Some(category) = targets
                    .iter()
                    .take(sources)
                    .find_map(|word| self.irreplaceable(word))
                {
                    self.add_forbidden(
                        category,
                        "moves a directory away that the system or the user cannot do without",
                    );
                }
            }
            "sudo" if has(args, "-S --stdin") && sudo_flag(args, 'S') => {
                self.add_forbidden(Category::SUDO_GUESS, "gives sudo a password to try; Hermes asks the person for it where that is set up");
            }
            _ => {}
        }
    }

    /// Shutdown and restart.
    fn power(&mut self, call: ProgramCall<'_>, asks: bool) {
        let args = call.args();
        match call.name {
            name if POWER.contains(&name) && !asks && !(name == "shutdown" && has(args, "=-c")) => {
                self.add_forbidden(Category::SHUTDOWN, "ends or restarts the machine");
            }
            "init" if matches!(call.arg(0), "0" | "6") => {
                self.add_forbidden(Category::INIT_SHUTDOWN, "ends or restarts the machine");
            }
            "telinit" if matches!(call.arg(0), "0" | "6") => {
                self.add_forbidden(Category::TELINIT, "ends or restarts the machine");
            }
            "systemctl" | "loginctl" => {
                let verbs = ["poweroff", "reboot", "halt", "kexec", "soft-reboot"];
                let targets = [
                    "poweroff.target",
                    "reboot.target",
                    "halt.target",
                    "kexec.target",
                ];
                if args.iter().any(|word| {
                    verbs.contains(&word.text.as_str()) || targets.contains(&word.text.as_str())
                }) {
                    self.add_forbidden(Category::SYSTEMCTL_POWER, "ends or restarts the machine");
                }
            }
            _ => {}
        }
    }

    /// Erasing a disk.
    fn disks(&mut self, call: ProgramCall<'_>, asks: bool) {
        let args = call.args();
        match call.name {
            name if (name == "mkfs"
                || name.starts_with("mkfs.")
                || name == "wipefs"
                || name == "blkdiscard")
                && !asks =>
            {
                self.add_forbidden(Category::MKFS, "erases a file system");
            }
            "mke2fs" | "mkswap" | "mkntfs" | "newfs" if !asks => {
                self.add_forbidden(Category::MKFS, "erases a file system");
            }
            "diskutil"
                if matches!(
                    call.arg(0).to_lowercase().as_str(),
                    "erasedisk" | "erasevolume" | "partitiondisk" | "zerodisk"
                ) =>
            {
                self.add_forbidden(Category::MKFS, "erases a disk");
            }
            "sgdisk" | "sfdisk" | "parted" | "cryptsetup" | "nvme" | "hdparm"
                if erases_disk(args) =>
            {
                self.add_forbidden(Category::MKFS, "erases a disk");
            }
            "dd" if args
                .iter()
                .any(|word| word.text.strip_prefix("of=").is_some_and(is_block_device)) =>
            {
                self.add_forbidden(Category::DD_DEVICE, "overwrites a disk");
            }
            "shred" | "cp" | "mv" | "tee" | "truncate" | "install"
                if args.iter().any(|word| is_block_device(&word.text)) =>
            {
                let last = args.last().is_some_and(|word| is_block_device(&word.text));
                if last || !matches!(call.name, "cp" | "mv" | "install") {
                    self.add_forbidden(Category::DEVICE_WRITE, "overwrites a disk");
                }
            }
            _ => {}
        }
    }

    fn kill(&mut self, args: &[ShellWord]) {
        // `-1` as the first word is a signal; after a signal or `--` it means all processes.
        let mut words = args.iter().map(|word| word.text.as_str());
        let mut signal = false;
        while let Some(word) = words.next() {
            match word {
                "-s" | "-n" | "--signal" => {
                    words.next();
                    signal = true;
                }
                "--" => signal = true,
                "-1" if signal || args.len() == 1 => {
                    self.add_forbidden(Category::KILL_ALL, "ends every process");
                    return;
                }
                word if word.starts_with('-') => signal = true,
                _ => {}
            }
        }
    }

    /// `rm -r` of irreplaceable directories.
    fn delete(&mut self, args: &[ShellWord]) {
        let recursive = has(args, "-r -R --recursive");
        for word in operands(args, "") {
            if let Some(category) = self.irreplaceable(word)
                && (recursive || word.text.ends_with('*'))
            {
                self.add_forbidden(
                    category,
                    format!("deletes {} and everything in it", word.text),
                );
            }
        }
    }

    /// `find / -delete` without anything that narrows it.
    fn find_delete(&mut self, args: &[ShellWord]) {
        let deletes = args.iter().any(|word| word.text == "-delete")
            || args
                .windows(2)
                .any(|pair| pair[0].text.starts_with("-exec") && basename(&pair[1].text) == "rm");
        let narrows = args.iter().any(|word| {
            [
                "-name",
                "-iname",
                "-path",
                "-ipath",
                "-regex",
                "-iregex",
                "-newer",
                "-mtime",
                "-mmin",
                "-size",
                "-user",
                "-empty",
                "-atime",
                "-ctime",
                "-perm",
                "-links",
                "-inum",
                "-samefile",
                "-wholename",
            ]
            .contains(&word.text.as_str())
        });
        if !deletes || narrows {
            return;
        }
        let starts = args
            .iter()
            .take_while(|word| !word.text.starts_with(['-', '(', '!']));
        let precious: Vec<Category> = starts.filter_map(|word| self.irreplaceable(word)).collect();
        if let Some(category) = precious.first() {
            self.add_forbidden(*category, "deletes everything below");
        }
    }

    /// A program that is not known to take its words as data may run them (`uv run …`, `npx -c '…'`).
    pub(super) fn carried_commands(&mut self, call: ProgramCall<'_>) {
        let runs_words = RUNNERS.contains(&call.name);
        self.carried_words(call, call.args(), runs_words);
        let texts = call.args().iter().filter(|word| word.known());
        for text in texts.filter(|word| word.text.contains(char::is_whitespace)) {
            for piece in text
                .text
                .split(['\n', ';', '|', '&', '(', ')', '`', '{', '}'])
            {
                let words: Vec<ShellWord> = piece
                    .split_whitespace()
                    .map(|word| ShellWord::plain(word.replace(['"', '\'', '\\'], "")))
                    .collect();
                self.carried_words(call, &words, false);
            }
        }
    }

    fn carried_words(&mut self, call: ProgramCall<'_>, words: &[ShellWord], runs_words: bool) {
        for at in 0..words.len().min(ROUGH_WORDS) {
            let words = &words[at..];
            let name = basename(&words[0].text).to_lowercase();
            let destroys = DESTROYERS.contains(&name.as_str()) || name.starts_with("mkfs");
            if runs_words || (destroys && words.len() > 1) {
                self.hardline(ProgramCall {
                    name: &name,
                    words,
                    ..call
                });
            }
        }
    }

    /// For text that the grammar does not accept: bash runs what precedes the error.
    pub(super) fn scan_unparsed(&mut self, source: &str) {
        const PIECES: usize = 20_000;
        if defines_fork_bomb(source) {
            self.add_forbidden(
                Category::FORK_BOMB,
                "a function that starts itself without end",
            );
        }
        let pieces = source.split(['\n', ';', '|', '&', '(', ')', '`', '{', '}']);
        for (number, piece) in pieces.enumerate() {
            if number > PIECES {
                self.add_forbidden(
                    Category::PARSER_LIMIT,
                    "it has too many parts to be looked at; write a script file",
                );
                return;
            }
            let blanks = |c: char| c.is_whitespace() || c == ',';
            let words: Vec<ShellWord> = piece
                .split(blanks)
                .filter(|word| !word.is_empty())
                .map(|word| ShellWord::plain(word.replace(['"', '\'', '\\'], "")))
                .skip_while(|word| {
                    matches!(
                        word.text.as_str(),
                        "!" | "then"
                            | "do"
                            | "else"
                            | "elif"
                            | "if"
                            | "while"
                            | "until"
                            | "time"
                            | ""
                    ) || word.text.contains('=')
                })
                .collect();
            if words.is_empty() {
                continue;
            }
            piece.trim().clone_into(&mut self.excerpt);
            let script = crate::shell::ShellScript::default();
            let command = crate::shell::SimpleCommand::default();
            self.scan_unparsed_run(ProgramCall {
                name: "",
                words: &words,
                command: &command,
                script: &script,
            });
            for pair in piece.split('>').skip(1) {
                let target = pair
                    .trim_start_matches(['>', '|', '&'])
                    .split_whitespace()
                    .next()
                    .unwrap_or_default();
                if is_block_device(target) {
                    self.add_forbidden(Category::REDIRECT_DEVICE, "writes to a disk itself");
                }
            }
        }
    }

    fn scan_unparsed_run(&mut self, call: ProgramCall<'_>) {
        let Some(first) = call.words.first() else {
            return;
        };
        let name = basename(&first.text).to_lowercase();
        self.hardline(ProgramCall {
            name: &name,
            ..call
        });
        if !ROUGH_WRAPS.contains(&name.as_str()) {
            return;
        }
        // Any later word may be the program.
        for at in 1..call.words.len().min(ROUGH_WORDS) {
            let words = &call.words[at..];
            let name = basename(&words[0].text).to_lowercase();
            self.hardline(ProgramCall {
                name: &name,
                words,
                ..call
            });
        }
    }
}

/// Whether a function pipes into itself or starts itself in the background, by its text alone.
fn defines_fork_bomb(source: &str) -> bool {
    let tight: String = source.chars().filter(|c| !c.is_whitespace()).collect();
    let mut rest = tight.as_str();
    while let Some((before, after)) = rest.split_once("(){") {
        let is_separator = |c: char| matches!(c, ';' | '|' | '&' | '(' | ')' | '{' | '}');
        let name = before.rsplit(is_separator).next().unwrap_or_default();
        let body = after.split('}').next().unwrap_or_default();
        // Without spaces, words before the name are part of it.
        let starts_itself = |body: &str, name: &str| {
            body.contains(&format!("|{name}")) || body.contains(&format!("{name}&"))
        };
        let mut names = name.char_indices().map(|(at, _)| &name[at..]).take(64);
        if names.any(|name| starts_itself(body, name)) {
            return true;
        }
        rest = after;
    }
    false
}

/// Words of partitioning programs that erase the disk that is named with them.
fn erases_disk(args: &[ShellWord]) -> bool {
    const WORDS: [&str; 14] = [
        "-Z",
        "--zap-all",
        "-z",
        "--zap",
        "-o",
        "--clear",
        "--delete",
        "mklabel",
        "mktable",
        "luksFormat",
        "erase",
        "format",
        "sanitize",
        "write-zeroes",
    ];
    let erases = |word: &ShellWord| {
        WORDS.contains(&word.text.as_str()) || word.text.starts_with("--security-erase")
    };
    args.iter().any(|word| is_block_device(&word.text)) && args.iter().any(erases)
}

/// A short option of sudo itself, not of the command it runs.
fn sudo_flag(args: &[ShellWord], flag: char) -> bool {
    let takes = "-u --user -g --group -h --host -p --prompt -C -D -R -T -U -r -t";
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            return false;
        }
        if text.starts_with("--st") || (!text.starts_with("--") && text.contains(flag)) {
            return true;
        }
        at += if takes.split(' ').any(|option| option == text) {
            2
        } else {
            1
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_bombs_are_found_in_what_is_not_understood() {
        for text in [
            "if x; elif\n:(){ :|:& };:",
            "then boom () { boom & boom; } ; boom",
            "else : ( ) { : | : & } ; :",
        ] {
            assert!(defines_fork_bomb(text), "{text}");
        }
        for text in ["f() { ls | cat; }; f", "f() { g & }", "(){", "echo '(){'"] {
            assert!(!defines_fork_bomb(text), "{text}");
        }
    }

    #[test]
    fn options_of_sudo_end_where_its_command_begins() {
        let words =
            |text: &str| -> Vec<ShellWord> { text.split(' ').map(ShellWord::plain).collect() };
        assert!(sudo_flag(&words("-u root -S whoami"), 'S'));
        assert!(!sudo_flag(&words("-u root ls -S"), 'S'));
    }
}
