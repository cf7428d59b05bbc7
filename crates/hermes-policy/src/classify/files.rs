//! Programs that change files.

use super::args::{has, operands, value};
use super::place::{PathKind, WriteKind, lexical};
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::proof::is_harmless_sed;
use crate::shell::ShellWord;

impl Classifier<'_> {
    pub(super) fn files(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        match call.name {
            "rm" | "unlink" | "trash" => self.remove(args),
            "rmdir" => self.write_all(&operands(args, ""), WriteKind::Delete),
            "mkdir" | "mkfifo" => self.write_all(&operands(args, "-m --mode"), WriteKind::Create),
            "touch" => self.write_all(
                &operands(args, "-d --date -r --reference -t"),
                WriteKind::Create,
            ),
            "mktemp" => {
                self.writes = true;
                if let Some(dir) = value(args, "-p --tmpdir") {
                    self.write(&dir, WriteKind::Create);
                }
                self.write_all(&operands(args, "-p --tmpdir --suffix"), WriteKind::Create);
            }
            "cp" | "mv" | "install" | "ln" | "link" => self.copy(call),
            "tee" | "sponge" => self.write_all(&operands(args, ""), WriteKind::Tee),
            "truncate" => {
                self.write_all(
                    &operands(args, "-s --size -r --reference"),
                    WriteKind::Create,
                );
                self.add_firm(Category::OVERWRITE, "cuts files off");
            }
            "shred" | "srm" | "wipe" => {
                self.add_firm(Category::OVERWRITE, "destroys files for good")
            }
            "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => self.rights(call),
            "dd" => self.dd(args),
            "sed" | "gsed" => self.sed(args),
            "patch" => {
                self.require_known_arguments(args);
                self.writes = true;
                if let Some(dir) = value(args, "-d --directory") {
                    self.write(&dir, WriteKind::Create);
                }
            }
            "tar" | "bsdtar" | "gtar" => self.tar(call),
            "zip" | "unzip" | "7z" | "7za" | "unrar" | "gzip" | "gunzip" | "bzip2" | "bunzip2"
            | "xz" | "unxz" | "zstd" | "unzstd" | "lz4" | "compress" | "split" | "csplit"
            | "cpio" => self.pack(call),
            "rsync" => self.rsync(args),
            "find" | "gfind" => self.find_files(call),
            "fd" | "fdfind" => self.fd(call),
            "mknod" => self.add_firm(Category::SYSTEM_CHANGE, "creates a device"),
            _ => return false,
        }
        true
    }

    fn write_all(&mut self, words: &[&ShellWord], verb: WriteKind) {
        for word in words {
            self.write(word, verb);
        }
    }

    fn remove(&mut self, args: &[ShellWord]) {
        let targets = operands(args, "");
        if has(args, "-r -R --recursive") {
            let category = if args.iter().any(|word| word.text.starts_with("--rec")) {
                Category::RECURSIVE_DELETE_LONG
            } else {
                Category::RECURSIVE_DELETE
            };
            self.add_firm(category, "deletes directories with everything in them");
        }
        self.write_all(&targets, WriteKind::Delete);
        self.require_known_arguments(args);
    }

    fn copy(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.require_known_arguments(args);
        let words = operands(
            args,
            "-t --target-directory -S --suffix -m --mode -o --owner -g --group",
        );
        let (sources, target): (&[&ShellWord], Option<&ShellWord>) =
            match value(args, "-t --target-directory") {
                Some(dir) => {
                    self.write(&dir, WriteKind::Copy);
                    (&words, None)
                }
                None if words.len() > 1 => (&words[..words.len() - 1], words.last().copied()),
                None => (&words, None),
            };
        match target {
            Some(target) => self.write(target, WriteKind::Copy),
            None => self.writes = true,
        }
        match call.name {
            "mv" => self.write_all(sources, WriteKind::Delete),
            "ln" | "link" => {
                let leaves = sources.iter().any(|word| {
                    word.text.starts_with('/')
                        && !matches!(self.path_kind(word), PathKind::Workspace)
                });
                if leaves {
                    self.add_soft(
                        Category::OUTSIDE_WRITE,
                        "makes a link that leads out of the workspace",
                    );
                }
            }
            _ => {}
        }
        if matches!(call.name, "install") && has(args, "-o -g --owner --group") {
            self.add_firm(Category::PRIVILEGE, "gives a file to another user");
        }
    }

    fn rights(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let words = operands(args, "--reference -m -x");
        let Some((mode, targets)) = words.split_first() else {
            return;
        };
        if call.name != "chmod" {
            let root = mode.text.split(':').next() == Some("root") && has(args, "-R --recursive");
            let category = if root {
                Category::CHOWN_ROOT
            } else {
                Category::SYSTEM_CHANGE
            };
            self.add_firm(category, "changes whose files these are");
            return;
        }
        if opens_to_everybody(&mode.text) {
            let category = if args.iter().any(|word| word.text.starts_with("--rec")) {
                Category::WORLD_WRITABLE_LONG
            } else {
                Category::WORLD_WRITABLE
            };
            self.add_firm(category, "lets everybody on the machine change the files");
        }
        if elevates(&mode.text) {
            self.add_firm(
                Category::PRIVILEGE,
                "makes a program run with the rights of its owner",
            );
        }
        if executable(&mode.text) {
            for target in targets {
                let paths = self.resolve(&target.text);
                if self.is_fetched(target) {
                    self.add_firm(
                        Category::DOWNLOAD_RUN,
                        "makes a file executable that was just downloaded",
                    );
                }
                self.facts.executable.extend(paths);
            }
        }
        self.write_all(targets, WriteKind::Create);
        self.require_known_arguments(args);
    }

    fn dd(&mut self, args: &[ShellWord]) {
        for word in args {
            if let Some(path) = word.text.strip_prefix("of=") {
                let target = ShellWord {
                    text: path.to_owned(),
                    ..word.clone()
                };
                self.write(&target, WriteKind::Create);
            }
            if let Some(path) = word.text.strip_prefix("if=") {
                let source = ShellWord {
                    text: path.to_owned(),
                    ..word.clone()
                };
                self.read(&source);
                self.add_firm(Category::DISK_COPY, "copies raw data");
            }
        }
        self.writes = true;
    }

    fn sed(&mut self, args: &[ShellWord]) {
        let in_place = has(args, "-i --in-place");
        let mut words = operands(args, "-e --expression -f --file -l");
        let mut scripts: Vec<String> = value(args, "-e --expression")
            .map(|word| word.text)
            .into_iter()
            .collect();
        let given = has(args, "-e -f --expression --file");
        if !given && !words.is_empty() {
            scripts.push(words.remove(0).text.clone());
        }
        if has(args, "-f --file") || (given && several_scripts(args)) {
            self.add_soft(
                Category::PROGRAM_CODE,
                "runs a sed script that is not looked at",
            );
            for word in args {
                self.sed_commands(&word.text);
            }
        }
        for script in scripts {
            for line in script.split([';', '\n']) {
                let line =
                    line.trim_start_matches(|c: char| c.is_ascii_digit() || " ,$".contains(c));
                if let Some(command) = line.strip_prefix("e ") {
                    self.script(command);
                }
            }
            if !is_harmless_sed(&script) {
                self.sed_commands(&script);
                self.add_soft(
                    Category::PROGRAM_CODE,
                    "the sed script may write files or run commands",
                );
            }
        }
        if in_place {
            self.write_all(&words, WriteKind::Edit);
            self.require_known_arguments(args);
        }
    }

    /// Commands that a sed script runs: `e command`, and replacements with the `e` flag.
    fn sed_commands(&mut self, script: &str) {
        for part in script.split([';', '\n', '{', '}']).take(50) {
            let part =
                part.trim_start_matches(|c: char| c.is_ascii_digit() || ",$+~! ".contains(c));
            if let Some(command) = part.strip_prefix('e') {
                self.forbidden_in(command);
            }
            let mut letters = part.chars();
            if letters.next() == Some('s')
                && let Some(mark) = letters.next()
                && let Some(replacement) = part.split(mark).nth(2)
            {
                self.forbidden_in(replacement);
            }
        }
    }

    fn tar(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let runs = "--to-command --checkpoint-action --use-compress-program -I --rsh-command --info-script --new-volume-script -F";
        if has(args, runs) {
            self.add_firm(Category::EXEC_FLAG, "tar is set to run a program");
        }
        self.require_known_arguments(args);
        let first = call.arg(0);
        let mode = |letter: char, long: &str| {
            has(args, &format!("-{letter} {long}"))
                || (!first.starts_with('-') && first.contains(letter))
        };
        let file = match first.starts_with('-') {
            true => value(args, "-f --file"),
            false if first.contains('f') => args.get(1).cloned(),
            false => None,
        };
        if let Some(file) = &file
            && file.text.contains(':')
        {
            self.facts.network = true;
            self.add_firm(
                Category::REMOTE_HOST,
                "writes an archive on another machine",
            );
        }
        if mode('c', "--create") || mode('r', "--append") || mode('u', "--update") {
            if let Some(file) = file.filter(|file| file.text != "-") {
                self.write(&file, WriteKind::Create);
            }
            for word in operands(args, "-f --file -C --directory -X") {
                if self.holds_secrets(word) {
                    self.facts.secret = true;
                }
            }
        } else if mode('x', "--extract") || has(args, "--get") {
            let dir = value(args, "-C --directory").unwrap_or_else(|| ShellWord::plain("."));
            if has(args, "-P --absolute-names") {
                self.add_firm(
                    Category::OUTSIDE_WRITE,
                    "unpacks to wherever the archive says",
                );
            }
            self.write(&dir, WriteKind::Create);
        } else if !mode('t', "--list") && !has(args, "--version --help") {
            self.add_soft(Category::PROGRAM, "tar changes an archive");
        }
    }

    fn pack(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.require_known_arguments(args);
        if call.name == "zip" && has(args, "-T -TT") {
            self.add_firm(Category::EXEC_FLAG, "zip is set to run a program");
        }
        match call.name {
            "unzip" => {
                if !has(args, "=-l =-t =-v =-Z =-p =-lv =-ql =-lq =-qqp") {
                    let dir = value(args, "-d").unwrap_or_else(|| ShellWord::plain("."));
                    self.write(&dir, WriteKind::Create);
                }
            }
            "zip" | "7z" | "7za" => {
                for word in operands(args, "-x -i").into_iter().take(2) {
                    if word.text.contains('.') {
                        self.write(word, WriteKind::Create);
                    }
                }
                for word in args.iter().filter(|word| word.text.starts_with("-o")) {
                    let dir = ShellWord {
                        text: word.text[2..].to_owned(),
                        ..word.clone()
                    };
                    self.write(&dir, WriteKind::Create);
                }
                self.writes = true;
            }
            "split" | "csplit" | "cpio" | "unrar" => {
                if call.name == "cpio" {
                    self.add_soft(
                        Category::OUTSIDE_WRITE,
                        "unpacks to wherever the archive says",
                    );
                }
                if has(args, "--filter") {
                    self.add_firm(Category::EXEC_FLAG, "split is set to run a program");
                }
                for word in operands(args, "-l -b -n -C -a -f").iter().skip(1) {
                    self.write(word, WriteKind::Create);
                }
                if let Some(prefix) = value(args, "-f --prefix") {
                    self.write(&prefix, WriteKind::Create);
                }
                self.writes = true;
            }
            _ => {
                if !has(
                    args,
                    "=-c =--stdout =-l =--list =-t =--test =-dc =-cd =-kc =-ck =-tv",
                ) {
                    self.write_all(
                        &operands(args, "-S --suffix -T --threads"),
                        WriteKind::Create,
                    );
                }
            }
        }
    }

    fn rsync(&mut self, args: &[ShellWord]) {
        let words = operands(
            args,
            "-e --rsh -f --filter --exclude --include --exclude-from --files-from --log-file",
        );
        if has(args, "-e --rsh --rsync-path") {
            self.add_firm(Category::EXEC_FLAG, "rsync is set to run a program");
        }
        if words.iter().any(|word| word.text.contains(':')) {
            self.facts.network = true;
            self.add_firm(Category::REMOTE_HOST, "copies to or from another machine");
        }
        if has(
            args,
            "--delete --delete-before --delete-after --delete-during --delete-excluded --remove-source-files =--del",
        ) {
            self.add_firm(Category::OVERWRITE, "deletes what is not on the other side");
        }
        if let Some(target) = words.last() {
            self.write(target, WriteKind::Copy);
        }
        self.require_known_arguments(args);
    }

    fn find_files(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.require_known_arguments(args);
        for (at, word) in args.iter().enumerate() {
            match word.text.as_str() {
                "-delete" => self.add_firm(Category::FIND_DELETE, "deletes what it finds"),
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    let end = args[at + 1..]
                        .iter()
                        .position(|word| matches!(word.text.as_str(), ";" | "+"))
                        .map_or(args.len(), |end| at + 1 + end);
                    let mut words = args[at + 1..end].to_vec();
                    if words
                        .first()
                        .is_some_and(|word| crate::shell::text::basename(&word.text) == "rm")
                    {
                        self.add_firm(Category::FIND_EXEC_RM, "deletes what it finds");
                    }
                    for word in &mut words {
                        if word.text.contains("{}") {
                            word.text = word.text.replace("{}", &crate::shell::UNKNOWN.to_string());
                            word.dynamic = true;
                        }
                    }
                    self.run(ProgramCall {
                        words: &words,
                        ..call
                    });
                }
                "-fprint" | "-fprintf" | "-fls" | "-fprint0" => {
                    if let Some(target) = args.get(at + 1) {
                        self.write(target, WriteKind::Create);
                    }
                }
                _ => {}
            }
        }
    }

    fn fd(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.require_known_arguments(args);
        let Some(at) = args.iter().position(|word| {
            matches!(word.text.as_str(), "-x" | "-X" | "--exec" | "--exec-batch")
                || word.text.starts_with("--exec")
        }) else {
            return;
        };
        let mut words = args[at + 1..].to_vec();
        words.push(ShellWord {
            text: crate::shell::UNKNOWN.to_string(),
            dynamic: true,
            ..ShellWord::default()
        });
        if words.first().is_some_and(|word| word.text == "rm") {
            self.add_firm(Category::FIND_EXEC_RM, "deletes what it finds");
        }
        self.run(ProgramCall {
            words: &words,
            ..call
        });
    }

    /// Records a downloaded file, so that executing it later is noticed.
    pub(super) fn fetched(&mut self, word: &ShellWord) {
        let paths: Vec<_> = self
            .resolve(&word.text)
            .into_iter()
            .map(|path| lexical(&path))
            .collect();
        self.facts.fetched.extend(paths);
    }
}

/// A mode that allows others to write: `777`, `0666`, `o+w`, `a+rwx`, `+w` (`ugo+w` without the umask).
fn opens_to_everybody(mode: &str) -> bool {
    if mode.chars().all(|c| c.is_digit(8)) {
        return mode
            .chars()
            .last()
            .is_some_and(|last| matches!(last, '2' | '3' | '6' | '7'));
    }
    mode.split(',').any(|clause| {
        let Some(at) = clause.find(['+', '=']) else {
            return false;
        };
        let (who, what) = clause.split_at(at);
        (who.contains('o') || who.contains('a')) && what.contains('w')
    })
}

/// Set-user-id and similar bits.
fn elevates(mode: &str) -> bool {
    if mode.chars().all(|c| c.is_digit(8)) {
        return mode.trim_start_matches('0').len() == 4
            && !mode.trim_start_matches('0').starts_with('1');
    }
    mode.split(',')
        .any(|clause| clause.contains(['+', '=']) && clause.contains('s'))
}

fn executable(mode: &str) -> bool {
    if mode.chars().all(|c| c.is_digit(8)) {
        return mode.chars().any(|c| matches!(c, '1' | '3' | '5' | '7'));
    }
    mode.split(',')
        .any(|clause| clause.contains(['+', '=']) && clause.contains(['x', 'X']))
}

/// Whether sed gets more than one script.
fn several_scripts(args: &[ShellWord]) -> bool {
    let scripts = args.iter().filter(|word| {
        let text = word.text.as_str();
        text.starts_with("--e")
            || (text.starts_with('-') && !text.starts_with("--") && text.contains('e'))
    });
    scripts.count() > 1
}
