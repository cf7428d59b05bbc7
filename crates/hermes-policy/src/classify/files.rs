//! Programs that change files.

use super::args::{has, operands, value};
use super::place::{Spot, Verb, lexical};
use super::{Call, Look};
use crate::assessment::Category;
use crate::proof::is_harmless_sed;
use crate::shell::Word;

impl Look<'_> {
    pub(super) fn files(&mut self, call: Call<'_>) -> bool {
        let args = call.args();
        match call.name {
            "rm" | "unlink" | "trash" => self.remove(args),
            "rmdir" => self.write_all(&operands(args, ""), Verb::Delete),
            "mkdir" | "mkfifo" => self.write_all(&operands(args, "-m --mode"), Verb::Create),
            "touch" => self.write_all(&operands(args, "-d --date -r --reference -t"), Verb::Create),
            "mktemp" => {
                self.writes = true;
                if let Some(dir) = value(args, "-p --tmpdir") {
                    self.write(&dir, Verb::Create);
                }
                self.write_all(&operands(args, "-p --tmpdir --suffix"), Verb::Create);
            }
            "cp" | "mv" | "install" | "ln" | "link" => self.copy(call),
            "tee" | "sponge" => self.write_all(&operands(args, ""), Verb::Tee),
            "truncate" => {
                self.write_all(&operands(args, "-s --size -r --reference"), Verb::Create);
                self.firm(Category::OVERWRITE, "cuts files off");
            }
            "shred" | "srm" | "wipe" => self.firm(Category::OVERWRITE, "destroys files for good"),
            "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => self.rights(call),
            "dd" => self.dd(args),
            "sed" | "gsed" => self.sed(args),
            "patch" => {
                self.certain(args);
                self.writes = true;
                if let Some(dir) = value(args, "-d --directory") {
                    self.write(&dir, Verb::Create);
                }
            }
            "tar" | "bsdtar" | "gtar" => self.tar(call),
            "zip" | "unzip" | "7z" | "7za" | "unrar" | "gzip" | "gunzip" | "bzip2" | "bunzip2"
            | "xz" | "unxz" | "zstd" | "unzstd" | "lz4" | "compress" | "split" | "csplit"
            | "cpio" => self.pack(call),
            "rsync" => self.rsync(args),
            "find" | "gfind" => self.find_files(call),
            "fd" | "fdfind" => self.fd(call),
            "mknod" => self.firm(Category::SYSTEM_CHANGE, "creates a device"),
            _ => return false,
        }
        true
    }

    fn write_all(&mut self, words: &[&Word], verb: Verb) {
        for word in words {
            self.write(word, verb);
        }
    }

    fn remove(&mut self, args: &[Word]) {
        let targets = operands(args, "");
        if has(args, "-r -R --recursive") {
            let category = if args.iter().any(|word| word.text.starts_with("--rec")) {
                Category::RECURSIVE_DELETE_LONG
            } else {
                Category::RECURSIVE_DELETE
            };
            self.firm(category, "deletes directories with everything in them");
        }
        self.write_all(&targets, Verb::Delete);
        self.certain(args);
    }

    fn copy(&mut self, call: Call<'_>) {
        let args = call.args();
        self.certain(args);
        let words = operands(
            args,
            "-t --target-directory -S --suffix -m --mode -o --owner -g --group",
        );
        let (sources, target): (&[&Word], Option<&Word>) =
            match value(args, "-t --target-directory") {
                Some(dir) => {
                    self.write(&dir, Verb::Copy);
                    (&words, None)
                }
                None if words.len() > 1 => (&words[..words.len() - 1], words.last().copied()),
                None => (&words, None),
            };
        match target {
            Some(target) => self.write(target, Verb::Copy),
            None => self.writes = true,
        }
        match call.name {
            "mv" => self.write_all(sources, Verb::Delete),
            "ln" | "link" => {
                let leaves = sources.iter().any(|word| {
                    word.text.starts_with('/') && !matches!(self.spot(word), Spot::Workspace)
                });
                if leaves {
                    self.soft(
                        Category::OUTSIDE_WRITE,
                        "makes a link that leads out of the workspace",
                    );
                }
            }
            _ => {}
        }
        if matches!(call.name, "install") && has(args, "-o -g --owner --group") {
            self.firm(Category::PRIVILEGE, "gives a file to another user");
        }
    }

    fn rights(&mut self, call: Call<'_>) {
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
            self.firm(category, "changes whose files these are");
            return;
        }
        if opens_to_everybody(&mode.text) {
            let category = if args.iter().any(|word| word.text.starts_with("--rec")) {
                Category::WORLD_WRITABLE_LONG
            } else {
                Category::WORLD_WRITABLE
            };
            self.firm(category, "lets everybody on the machine change the files");
        }
        if elevates(&mode.text) {
            self.firm(
                Category::PRIVILEGE,
                "makes a program run with the rights of its owner",
            );
        }
        if executable(&mode.text) {
            for target in targets {
                let paths = self.resolve(&target.text);
                if self.is_fetched(target) {
                    self.firm(
                        Category::DOWNLOAD_RUN,
                        "makes a file executable that was just downloaded",
                    );
                }
                self.facts.executable.extend(paths);
            }
        }
        self.write_all(targets, Verb::Create);
        self.certain(args);
    }

    fn dd(&mut self, args: &[Word]) {
        for word in args {
            if let Some(path) = word.text.strip_prefix("of=") {
                let target = Word {
                    text: path.to_owned(),
                    ..word.clone()
                };
                self.write(&target, Verb::Create);
            }
            if let Some(path) = word.text.strip_prefix("if=") {
                let source = Word {
                    text: path.to_owned(),
                    ..word.clone()
                };
                self.read(&source);
                self.firm(Category::DISK_COPY, "copies raw data");
            }
        }
        self.writes = true;
    }

    fn sed(&mut self, args: &[Word]) {
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
            self.soft(
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
                self.soft(
                    Category::PROGRAM_CODE,
                    "the sed script may write files or run commands",
                );
            }
        }
        if in_place {
            self.write_all(&words, Verb::Edit);
            self.certain(args);
        }
    }

    /// Commands that a sed script runs: `e command`, and replacements that are run.
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

    fn tar(&mut self, call: Call<'_>) {
        let args = call.args();
        let runs = "--to-command --checkpoint-action --use-compress-program -I --rsh-command --info-script --new-volume-script -F";
        if has(args, runs) {
            self.firm(Category::EXEC_FLAG, "tar is set to run a program");
        }
        self.certain(args);
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
            self.firm(
                Category::REMOTE_HOST,
                "writes an archive on another machine",
            );
        }
        if mode('c', "--create") || mode('r', "--append") || mode('u', "--update") {
            if let Some(file) = file.filter(|file| file.text != "-") {
                self.write(&file, Verb::Create);
            }
            for word in operands(args, "-f --file -C --directory -X") {
                if self.holds_secrets(word) {
                    self.facts.secret = true;
                }
            }
        } else if mode('x', "--extract") || has(args, "--get") {
            let dir = value(args, "-C --directory").unwrap_or_else(|| Word::plain("."));
            if has(args, "-P --absolute-names") {
                self.firm(
                    Category::OUTSIDE_WRITE,
                    "unpacks to wherever the archive says",
                );
            }
            self.write(&dir, Verb::Create);
        } else if !mode('t', "--list") && !has(args, "--version --help") {
            self.soft(Category::PROGRAM, "tar changes an archive");
        }
    }

    fn pack(&mut self, call: Call<'_>) {
        let args = call.args();
        self.certain(args);
        if call.name == "zip" && has(args, "-T -TT") {
            self.firm(Category::EXEC_FLAG, "zip is set to run a program");
        }
        match call.name {
            "unzip" => {
                if !has(args, "=-l =-t =-v =-Z =-p =-lv =-ql =-lq =-qqp") {
                    let dir = value(args, "-d").unwrap_or_else(|| Word::plain("."));
                    self.write(&dir, Verb::Create);
                }
            }
            "zip" | "7z" | "7za" => {
                for word in operands(args, "-x -i").into_iter().take(2) {
                    if word.text.contains('.') {
                        self.write(word, Verb::Create);
                    }
                }
                for word in args.iter().filter(|word| word.text.starts_with("-o")) {
                    let dir = Word {
                        text: word.text[2..].to_owned(),
                        ..word.clone()
                    };
                    self.write(&dir, Verb::Create);
                }
                self.writes = true;
            }
            "split" | "csplit" | "cpio" | "unrar" => {
                if call.name == "cpio" {
                    self.soft(
                        Category::OUTSIDE_WRITE,
                        "unpacks to wherever the archive says",
                    );
                }
                if has(args, "--filter") {
                    self.firm(Category::EXEC_FLAG, "split is set to run a program");
                }
                for word in operands(args, "-l -b -n -C -a -f").iter().skip(1) {
                    self.write(word, Verb::Create);
                }
                if let Some(prefix) = value(args, "-f --prefix") {
                    self.write(&prefix, Verb::Create);
                }
                self.writes = true;
            }
            _ => {
                if !has(
                    args,
                    "=-c =--stdout =-l =--list =-t =--test =-dc =-cd =-kc =-ck =-tv",
                ) {
                    self.write_all(&operands(args, "-S --suffix -T --threads"), Verb::Create);
                }
            }
        }
    }

    fn rsync(&mut self, args: &[Word]) {
        let words = operands(
            args,
            "-e --rsh -f --filter --exclude --include --exclude-from --files-from --log-file",
        );
        if has(args, "-e --rsh --rsync-path") {
            self.firm(Category::EXEC_FLAG, "rsync is set to run a program");
        }
        if words.iter().any(|word| word.text.contains(':')) {
            self.facts.network = true;
            self.firm(Category::REMOTE_HOST, "copies to or from another machine");
        }
        if has(
            args,
            "--delete --delete-before --delete-after --delete-during --delete-excluded --remove-source-files =--del",
        ) {
            self.firm(Category::OVERWRITE, "deletes what is not on the other side");
        }
        if let Some(target) = words.last() {
            self.write(target, Verb::Copy);
        }
        self.certain(args);
    }

    fn find_files(&mut self, call: Call<'_>) {
        let args = call.args();
        self.certain(args);
        for (at, word) in args.iter().enumerate() {
            match word.text.as_str() {
                "-delete" => self.firm(Category::FIND_DELETE, "deletes what it finds"),
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
                        self.firm(Category::FIND_EXEC_RM, "deletes what it finds");
                    }
                    for word in &mut words {
                        if word.text.contains("{}") {
                            word.text = word.text.replace("{}", &crate::shell::UNKNOWN.to_string());
                            word.dynamic = true;
                        }
                    }
                    self.run(Call {
                        words: &words,
                        ..call
                    });
                }
                "-fprint" | "-fprintf" | "-fls" | "-fprint0" => {
                    if let Some(target) = args.get(at + 1) {
                        self.write(target, Verb::Create);
                    }
                }
                _ => {}
            }
        }
    }

    fn fd(&mut self, call: Call<'_>) {
        let args = call.args();
        self.certain(args);
        let Some(at) = args.iter().position(|word| {
            matches!(word.text.as_str(), "-x" | "-X" | "--exec" | "--exec-batch")
                || word.text.starts_with("--exec")
        }) else {
            return;
        };
        let mut words = args[at + 1..].to_vec();
        words.push(Word {
            text: crate::shell::UNKNOWN.to_string(),
            dynamic: true,
            ..Word::default()
        });
        if words.first().is_some_and(|word| word.text == "rm") {
            self.firm(Category::FIND_EXEC_RM, "deletes what it finds");
        }
        self.run(Call {
            words: &words,
            ..call
        });
    }

    /// A file that is fetched, so that running it later is noticed.
    pub(super) fn fetched(&mut self, word: &Word) {
        let paths: Vec<_> = self
            .resolve(&word.text)
            .into_iter()
            .map(|path| lexical(&path))
            .collect();
        self.facts.fetched.extend(paths);
    }
}

/// A mode that lets others write: `777`, `0666`, `o+w`, `a+rwx`, `+w` (with umask in between, `ugo+w`).
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

/// Set-user-id and friends.
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

/// More than one script is given to sed.
fn several_scripts(args: &[Word]) -> bool {
    let scripts = args.iter().filter(|word| {
        let text = word.text.as_str();
        text.starts_with("--e")
            || (text.starts_with('-') && !text.starts_with("--") && text.contains('e'))
    });
    scripts.count() > 1
}
