//! Programs that only read, and the options that make them do more.

use super::args::{has, operands, value};
use super::place::WriteKind;
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::ShellWord;

/// Harmless whatever the arguments.
const ANY: &str = "ls dir vdir cat head tail wc stat pwd echo printf basename dirname realpath readlink whoami id groups \
    uname arch cal uptime free df du ps pgrep pidof lsof nproc which whereis cut tr comm paste join fold fmt nl tac rev \
    column expand unexpand seq sleep expr md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum od \
    hexdump strings cmp diff diff3 grep egrep fgrep zgrep zcat bzcat xzcat printenv locale getent lscpu lsblk lspci lsusb \
    lsmod jq tty logname users who w last factor numfmt tsort nm size objdump readelf ldd vmstat iostat mpstat \
    pstree sw_vers getconf jobs cloc tokei scc exa eza bat batcat delta hexyl dust duf procs look apropos whatis \
    true false yes pathchk ptx pr dircolors locate";
/// Harmless without these options.
const UNLESS: [(&str, &str); 16] = [
    ("sort", "-o --output --compress-program -T"),
    ("file", "-C --compile"),
    ("tree", "-o --output"),
    ("sdiff", "-o --output"),
    ("rg", "--pre --pre-glob --hostname-bin -z --search-zip"),
    ("ag", "--pager"),
    ("ack", "--pager --output"),
    ("yq", "-i --inplace --in-place -s --split-exp"),
    ("xmllint", "--output -o --shell"),
    ("date", "-s --set"),
    ("hostname", "-F --file"),
    ("dmesg", "-c -C --clear"),
    ("iconv", "-o --output"),
    ("base64", "-o --output"),
    ("base32", "-o --output"),
    ("less", "-o -O --log-file -k --lesskey-file"),
];
/// Programs whose arguments name files without reading them.
const NAMES_ONLY: &str = "ls dir stat test [ [[ echo printf basename dirname realpath readlink cd pushd du tree mkdir \
    touch chmod rmdir which type find git export declare local file pwd";

impl Classifier<'_> {
    pub(super) fn readers(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        if ANY.split_whitespace().any(|name| name == call.name) {
            if call.name == "bat" || call.name == "batcat" || call.name == "delta" {
                self.pager(args);
            }
            return true;
        }
        if let Some((_, options)) = UNLESS.iter().find(|(name, _)| *name == call.name) {
            if has(args, options) {
                if has(
                    args,
                    "--compress-program --pre --hostname-bin --pager --shell",
                ) {
                    self.add_firm(
                        Category::EXEC_FLAG,
                        format!("{} is set to run a program", call.name),
                    );
                }
                match value(args, "-o --output -O --log-file") {
                    Some(target) => self.write(&target, WriteKind::Create),
                    None => self.add_soft(
                        Category::PROGRAM,
                        format!("{} with options that do more than read", call.name),
                    ),
                }
            }
            if call.name == "less" {
                self.keys(args);
            }
            self.require_known_arguments(args);
            return true;
        }
        match call.name {
            "uniq" | "xxd" => {
                self.require_known_arguments(args);
                if let Some(target) = operands(args, "-f -s -w -n -l -c -g -o").get(1) {
                    self.write(target, WriteKind::Create);
                }
            }
            "awk" | "gawk" | "mawk" | "nawk" => self.awk(args),
            "man" | "info" | "more" => {
                self.pager(args);
                self.keys(args);
                if has(args, "-H --html") {
                    self.add_firm(Category::EXEC_FLAG, "is set to run a program");
                }
            }
            "top" | "htop" | "btop" => self.require_known_arguments(args),
            "openssl" => self.openssl(args),
            "vim" | "vi" | "nvim" | "emacs" | "nano" | "ed" | "ex" | "view" => self.editor(call),
            _ => return false,
        }
        true
    }

    /// `less +!sh`: initial commands of a pager.
    fn keys(&mut self, args: &[ShellWord]) {
        for word in args.iter().filter(|word| word.text.starts_with('+')) {
            if let Some((_, command)) = word.text.split_once(['!', '|']) {
                self.add_firm(Category::EXEC_FLAG, "a pager is set to run a program");
                self.script(command);
            }
        }
    }

    fn pager(&mut self, args: &[ShellWord]) {
        self.require_known_arguments(args);
        if has(args, "-P --pager --html -H")
            && value(args, "--pager -P")
                .is_some_and(|pager| pager.text != "cat" && pager.text != "never")
        {
            self.add_firm(Category::EXEC_FLAG, "is set to run a program");
        }
    }

    fn awk(&mut self, args: &[ShellWord]) {
        let words = operands(
            args,
            "-F --field-separator -v --assign -f --file -i --include",
        );
        if has(args, "-f --file -i --include -E --exec -l --load") {
            self.add_soft(
                Category::PROGRAM_CODE,
                "runs an awk program that is not looked at",
            );
        }
        let Some(program) = words.first() else { return };
        let text = program.text.as_str();
        let acts = ["system", "getline", "|", ">", "ARGV", "@"];
        if program.dynamic || acts.iter().any(|act| text.contains(act)) {
            self.add_soft(
                Category::PROGRAM_CODE,
                "the awk program may write files or run commands",
            );
        }
        if text.contains("system") || text.contains('|') {
            // The commands in it are classified like any others.
            self.program_text(text);
            let commands: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
            for command in commands.into_iter().take(20) {
                self.script(command);
            }
        }
    }

    fn openssl(&mut self, args: &[ShellWord]) {
        let verb = args.first().map_or("", |word| word.text.as_str());
        match verb {
            "s_client" | "s_server" | "s_time" => {
                self.facts.network = true;
                self.add_firm(Category::NETWORK_SEND, "openssl opens a connection");
            }
            "version" | "dgst" | "rand" | "x509" | "base64"
                if !has(args, "=-out =-writerand =-engine =-provider =-signkey =-CA") =>
            {
                self.require_known_arguments(args);
            }
            _ => self.add_soft(Category::PROGRAM, format!("runs openssl {verb}")),
        }
    }

    fn editor(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.add_soft(Category::PROGRAM, format!("runs the editor {}", call.name));
        for word in args {
            let text = word.text.trim_start_matches('+').trim_start_matches(':');
            if let Some(command) = text.strip_prefix('!') {
                self.add_firm(Category::EXEC_FLAG, "an editor is set to run a program");
                self.script(command);
            }
        }
        for word in operands(args, "-c --cmd -u -S -s --eval -f -l") {
            self.write(word, WriteKind::Edit);
        }
    }

    /// Secrets among the arguments of a program that reads files.
    pub(super) fn secrets(&mut self, call: ProgramCall<'_>) {
        self.kills_found(call);
        let compares = call.name == "git" && has(call.args(), "--no-index");
        if !compares && NAMES_ONLY.split_whitespace().any(|name| name == call.name) {
            return;
        }
        for word in call.args() {
            if !word.text.starts_with('-') && self.is_secret(word) {
                self.read(word);
            }
        }
    }
}
