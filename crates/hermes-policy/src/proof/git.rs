//! git: subcommands with options that execute nothing and read nothing else.

use super::table::{OptionModel, ParsedArguments, parse_arguments};
use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

/// Subcommands that only read the repository.
const READS: &str = "status log diff show rev-parse ls-files ls-tree blame annotate describe shortlog cat-file grep name-rev merge-base rev-list \
    diff-tree diff-index diff-files var version count-objects for-each-ref whatchanged check-ignore check-attr cherry range-diff show-ref \
    show-branch fsck merge-tree";
const READ_OPTIONS: OptionModel = OptionModel::new(
    "abcdegijklpqrstuvwxzhomCDEFHIMPRTW0123456789",
    "nSGLUAB",
    "--oneline --graph --all --decorate --no-decorate --stat --shortstat --numstat --name-only --name-status --summary --patch --no-patch --pretty --format \
     --abbrev --abbrev-commit --no-abbrev-commit --since --after --until --before --author --committer --grep --date --reverse --merges \
     --no-merges --first-parent --follow --cached --staged --color --no-color --word-diff --color-words --unified --minimal --patience \
     --histogram --diff-algorithm --ignore-all-space --ignore-space-change --ignore-blank-lines --find-renames --no-renames --diff-filter \
     --relative --raw --full-index --binary --check --exit-code --quiet --max-count --skip --branches --tags --remotes --left-right \
     --cherry-pick --topo-order --date-order --full-history --dirstat --function-context --no-ext-diff --no-textconv --merge-base --source \
     --no-prefix --invert-grep --all-match --regexp-ignore-case --extended-regexp --fixed-strings --perl-regexp --parents --children --boundary \
     --walk-reflogs --cc --text --short --branch --porcelain --long --verbose --untracked-files --ignored --show-stash --ahead-behind \
     --column --show-toplevel --git-dir --is-inside-work-tree --verify --symbolic-full-name --abbrev-ref --show-prefix --show-cdup --others \
     --modified --deleted --stage --unmerged --exclude-standard --error-unmatch --full-name --always --dirty --exact-match --contains \
     --long --match --numbered --email --summary --count --line-number --ignore-case --files-with-matches --only-matching --word-regexp \
     --heading --break --show-function --after-context --before-context --context --heads --sort --points-at --merged --no-merged \
     --line-porcelain --root --show-email --batch-check --is-ancestor --independent --octopus --fork-point --full --strict --no-dangling --output:",
);

/// A subcommand that changes the repository, with its options.
const WRITES: &[(&str, OptionModel)] = &[
    (
        "add",
        OptionModel::new(
            "AunvNf",
            "",
            "--all --update --intent-to-add --dry-run --verbose --force",
        ),
    ),
    (
        "commit",
        OptionModel::new(
            "aqsvn",
            "m",
            "--amend --no-edit --allow-empty --message: --signoff --quiet --no-verify --all --date: --author: --allow-empty-message --fixup: --squash:",
        ),
    ),
    ("mv", OptionModel::new("fknv", "", "--force --verbose")),
    (
        "rm",
        OptionModel::new("rfqn", "", "--cached --force --quiet --dry-run"),
    ),
    (
        "merge",
        OptionModel::new(
            "q",
            "m",
            "--no-ff --ff-only --ff --squash --no-commit --abort --no-edit --quiet --stat --no-stat",
        ),
    ),
    (
        "cherry-pick",
        OptionModel::new("xn", "", "--no-commit --abort --skip --quit"),
    ),
    (
        "revert",
        OptionModel::new("n", "m", "--no-commit --no-edit --abort --skip --quit"),
    ),
    // A mailbox says which files it changes, and the next steps of an interrupted rebase may run programs.
    ("am", OptionModel::new("q", "", "--abort --quit --quiet")),
    (
        "switch",
        OptionModel::new(
            "dqt",
            "cC",
            "--create: --detach --track --quiet --guess --no-guess --orphan:",
        ),
    ),
    (
        "checkout",
        OptionModel::new(
            "dqtf",
            "bB",
            "--detach --track --quiet --orphan: --force --ours --theirs",
        ),
    ),
    (
        "restore",
        OptionModel::new("SWq", "s", "--staged --worktree --source: --quiet"),
    ),
    (
        "reset",
        OptionModel::new("q", "", "--soft --mixed --hard --merge --keep --quiet"),
    ),
    (
        "rebase",
        OptionModel::new(
            "q",
            "",
            "--abort --quit --onto: --autostash --quiet --no-autostash",
        ),
    ),
    (
        "stash",
        OptionModel::new(
            "qupka",
            "m",
            "--message: --include-untracked --keep-index --all --quiet --stat --patch --oneline --index",
        ),
    ),
    (
        "branch",
        OptionModel::new(
            "avrlmdqitcfDMC",
            "u",
            "--list --all --remotes --show-current --contains --merged --no-merged --sort: --format: --points-at: --set-upstream-to: --track --delete --move --verbose --column --color --no-color --force --no-track --unset-upstream",
        ),
    ),
    (
        "tag",
        OptionModel::new(
            "lanidf",
            "m",
            "--list --contains --merged --no-merged --points-at: --sort: --format: --annotate --message: --delete --column --force",
        ),
    ),
    (
        "clean",
        OptionModel::new("ndxXfq", "e", "--dry-run --force --quiet --exclude:"),
    ),
    ("notes", OptionModel::new("", "m", "--message:")),
];
const FETCHES: &[(&str, OptionModel)] = &[
    (
        "fetch",
        OptionModel::new(
            "qvatpnf4",
            "",
            "--all --prune --tags --depth: --quiet --verbose --force --dry-run --no-tags --unshallow --progress",
        ),
    ),
    (
        "pull",
        OptionModel::new(
            "qvr",
            "",
            "--rebase --ff-only --no-rebase --quiet --autostash --verbose --no-edit --ff --no-ff",
        ),
    ),
    (
        "clone",
        OptionModel::new(
            "qvn",
            "b",
            "--depth: --branch: --quiet --single-branch --no-checkout --bare --mirror --filter: --progress --no-tags",
        ),
    ),
    (
        "ls-remote",
        OptionModel::new(
            "htq",
            "",
            "--heads --tags --refs --quiet --symref --get-url --exit-code",
        ),
    ),
    (
        "push",
        OptionModel::new(
            "qvufdn",
            "",
            "--tags --force --force-with-lease --delete --set-upstream --all --quiet --dry-run --no-verify --mirror --prune",
        ),
    ),
];
/// Settings that are cosmetic, or name the committer.
const COSMETIC_SETTINGS: [&str; 8] = [
    "color.",
    "user.name",
    "user.email",
    "advice.",
    "core.quotepath",
    "core.abbrev",
    "init.defaultbranch",
    "diff.renames",
];

/// Whether a message is entered in an editor, which can also run commands.
fn opens_editor(verb: &str, found: &ParsedArguments<'_>) -> bool {
    let given = found.has(&[
        "-m",
        "--message",
        "--no-edit",
        "--abort",
        "--skip",
        "--quit",
    ]);
    match verb {
        "commit" => {
            let mut fixes = found.values(&["--fixup"]);
            let rewords = fixes.any(|word| word.dynamic || word.text.contains(':'));
            rewords || (!given && !found.has(&["--fixup", "--squash"]))
        }
        "stash" => {
            let shows = found
                .operands
                .first()
                .is_some_and(|word| word.text == "show");
            found.has(&["-p", "--patch"]) && !shows
        }
        "revert" => !found.has(&[
            "--no-edit",
            "--no-commit",
            "-n",
            "--abort",
            "--skip",
            "--quit",
        ]),
        "tag" => !given && found.has(&["-a", "--annotate"]),
        "notes" => {
            !given
                && found
                    .operands
                    .first()
                    .is_some_and(|word| matches!(word.text.as_str(), "add" | "append" | "edit"))
        }
        _ => false,
    }
}

/// The directory that `git clone` makes for an address.
fn named_by(address: &ShellWord) -> ShellWord {
    let text = address.text.trim_end_matches('/');
    let text = text.strip_suffix("/.git").unwrap_or(text);
    let name = text.rsplit(['/', ':']).next().unwrap_or(text);
    ShellWord {
        text: name.strip_suffix(".git").unwrap_or(name).to_owned(),
        ..address.clone()
    }
}

/// A lower-case key: one of [`COSMETIC_SETTINGS`], or below one that ends in a dot.
fn is_cosmetic_setting(key: &str) -> bool {
    COSMETIC_SETTINGS
        .iter()
        .any(|look| key == *look || look.ends_with('.') && key.starts_with(look))
}

impl Prover<'_, '_> {
    pub(super) fn git(&mut self, args: &[ShellWord]) -> ProofResult {
        let mut at = 0;
        let mut dirs = self.classifier.directories().to_vec();
        loop {
            let Some(word) = args.get(at) else {
                return Ok(());
            };
            if word.dynamic || word.glob {
                return refuse("an argument that is only known when it runs may be an option");
            }
            match word.text.as_str() {
                "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" => at += 1,
                "-C" => {
                    let Some(dir) = args.get(at + 1).filter(|dir| !dir.dynamic && !dir.glob) else {
                        return refuse("where git runs is only known when it runs");
                    };
                    dirs = dirs.iter().map(|start| start.join(&dir.text)).collect();
                    at += 2;
                }
                "-c" => {
                    let setting = args
                        .get(at + 1)
                        .map(|word| word.text.to_lowercase())
                        .unwrap_or_default();
                    let key = setting.split('=').next().unwrap_or_default();
                    let known = is_cosmetic_setting(key) || setting == "core.pager=cat";
                    if !known || setting.contains("=!") {
                        return refuse("sets an option of git that may run a program");
                    }
                    at += 2;
                }
                "--version" | "--help" => return Ok(()),
                text if text.starts_with('-') => {
                    return refuse(format!(
                        "the option {text} of git is not known to be harmless"
                    ));
                }
                verb => {
                    let verb = verb.to_owned();
                    let looks = READS.split_whitespace().any(|read| read == verb)
                        || matches!(verb.as_str(), "help" | "remote" | "reflog" | "config");
                    if !matches!(verb.as_str(), "init" | "clone" | "version") {
                        self.repositories_are_plain(&dirs, !looks)?;
                    }
                    return self.git_verb(&verb, &args[at + 1..]);
                }
            }
        }
    }

    fn git_verb(&mut self, verb: &str, args: &[ShellWord]) -> ProofResult {
        let find = |list: &[(&str, OptionModel)]| {
            list.iter()
                .find(|(name, _)| *name == verb)
                .map(|(_, options)| *options)
        };
        if READS.split_whitespace().any(|read| read == verb) {
            if matches!(verb, "blame" | "annotate")
                && args.iter().any(|word| word.text.starts_with("-S"))
            {
                return refuse("git blame reads another file");
            }
            let found = parse_arguments(args, &READ_OPTIONS).or_else(refuse)?;
            if verb == "diff" {
                self.compares_files(&found.operands)?;
            }
            return self.git_words(&found);
        }
        if let Some(options) = find(WRITES) {
            let found = parse_arguments(args, &options).or_else(refuse)?;
            if verb == "am" && !found.has(&["--abort", "--quit"]) {
                return refuse("which files git am changes is only known from the patch");
            }
            if matches!(verb, "mv" | "rm" | "checkout" | "restore") {
                // Of the revisions among them only this one has a name that no file may get.
                for word in found.operands.iter().filter(|word| word.text != "HEAD") {
                    self.may_write(word)?;
                }
            }
            if verb == "mv"
                && let Some((target, sources)) = found.operands.split_last()
            {
                for source in sources {
                    self.may_put(source, target)?;
                }
            }
            if opens_editor(verb, &found) {
                return refuse("git opens an editor, in which anything can be typed");
            }
            let with_ignored = verb == "stash" && found.has(&["-a", "--all"])
                || verb == "add" && found.has(&["-f", "--force"]);
            let takes_untracked = match verb {
                "add" => !self.names_files(&found),
                "stash" => with_ignored || found.has(&["-u", "--include-untracked"]),
                _ => false,
            };
            if takes_untracked {
                self.takes_no_secrets(with_ignored)?;
            }
            // The commit message is not a path.
            let message = matches!(verb, "commit" | "tag" | "merge" | "notes" | "stash");
            return if message {
                Ok(())
            } else {
                self.git_words(&found)
            };
        }
        if let Some(options) = find(FETCHES) {
            let found = parse_arguments(args, &options).or_else(refuse)?;
            for word in &found.operands {
                Self::git_address(word)?;
            }
            if verb == "clone" {
                let target = match found.operands.as_slice() {
                    [_, target, ..] => (*target).clone(),
                    [address] => named_by(address),
                    [] => return refuse("git clone without an address"),
                };
                self.may_fill(&target)?;
                self.may_write(&target)?;
            }
            return Ok(());
        }
        self.git_other(verb, args)
    }

    /// Everything in the repository that git does not ignore is added: what is in the index can be shown and
    /// pushed.
    fn takes_no_secrets(&self, with_ignored: bool) -> ProofResult {
        let Some(dir) = self
            .classifier
            .only_directory()
            .filter(|_| self.classifier.disk)
        else {
            return Ok(());
        };
        let root = dir.ancestors().find(|dir| dir.join(".git").exists());
        let root = root.unwrap_or(dir);
        match super::paths::untracked_secret(root, with_ignored) {
            Some(name) => refuse(format!("it may take in {name}, which holds secrets")),
            None => Ok(()),
        }
    }

    /// Whether only files are added that are named one by one.
    fn names_files(&self, found: &ParsedArguments<'_>) -> bool {
        let is_file = |word: &&ShellWord| {
            let paths = self.classifier.resolve(&word.text);
            !word.glob && !word.dynamic && paths.iter().all(|path| path.is_file())
        };
        self.classifier.disk
            && !found.operands.is_empty()
            && !found.has(&["-A", "--all", "-u", "--update"])
            && found.operands.iter().all(is_file)
    }

    /// If one of two paths is outside the repository, they are compared with all files below them.
    fn compares_files(&self, operands: &[&ShellWord]) -> ProofResult {
        let [first, second] = operands else {
            return Ok(());
        };
        let exists = |word: &ShellWord| {
            self.classifier
                .resolve(&word.text)
                .iter()
                .any(|path| path.exists())
        };
        if self.classifier.disk && exists(first) && exists(second) {
            self.may_read_or_list(first)?;
            self.may_read_or_list(second)?;
        }
        Ok(())
    }

    fn git_other(&mut self, verb: &str, args: &[ShellWord]) -> ProofResult {
        let texts: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
        let certain = args.iter().all(|word| !word.dynamic && !word.glob);
        let word = |text: &str| !text.starts_with('-');
        match (verb, texts.as_slice()) {
            ("help", [topic])
                if certain
                    && topic.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
                    && word(topic) =>
            {
                Ok(())
            }
            ("remote", ["show" | "get-url" | "remove" | "rm" | "prune", name])
                if certain && word(name) =>
            {
                Ok(())
            }
            ("remote", ["rename" | "add" | "set-url", name, rest]) if certain && word(name) => {
                Self::git_address(&ShellWord::plain(*rest))
            }
            ("remote", [] | ["-v" | "--verbose"])
            | ("reflog" | "worktree", [] | ["list" | "show"])
            | ("symbolic-ref", ["HEAD"] | ["--short", "HEAD"])
            | ("submodule", ["status"]) => Ok(()),

            (
                "bisect",
                [
                    "start" | "good" | "bad" | "reset" | "log" | "skip",
                    rest @ ..,
                ],
            ) if certain && rest.iter().all(|text| word(text)) => Ok(()),
            ("init", _) => {
                let found = parse_arguments(
                    args,
                    &OptionModel::new("q", "b", "--quiet --initial-branch: --bare"),
                )
                .or_else(refuse)?;
                found.operands.iter().try_for_each(|word| {
                    self.may_fill(word)?;
                    self.may_write(word)
                })
            }
            ("apply", _) => {
                let found = parse_arguments(
                    args,
                    &OptionModel::new(
                        "Rv3",
                        "p",
                        "--check --stat --numstat --summary --cached --index --reverse --3way",
                    ),
                )
                .or_else(refuse)?;
                if !found.has(&["--check", "--stat", "--numstat", "--summary"]) {
                    return refuse("which files git apply changes is only known from the patch");
                }
                found
                    .operands
                    .iter()
                    .try_for_each(|word| self.may_read(word))
            }
            ("format-patch", _) => {
                let found = parse_arguments(
                    args,
                    &OptionModel::new(
                        "nkN0123456789",
                        "o",
                        "--stdout --output-directory: --numbered --cover-letter",
                    ),
                )
                .or_else(refuse)?;
                for dir in found.values(&["-o", "--output-directory"]) {
                    self.may_write(dir)?;
                }
                self.may_write(&ShellWord::plain("."))
            }
            ("config", texts) if certain => self.git_config(args, texts),
            _ => refuse(format!(
                "git {verb} with these arguments is not known to be harmless"
            )),
        }
    }

    fn git_config(&mut self, args: &[ShellWord], texts: &[&str]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new("lz", "", "--get --get-all --get-regexp --list --show-origin --show-scope --local --global --system --name-only --default: --type: --bool --int --null"),
        )
        .or_else(refuse)?;
        let reads = found.has(&["--get", "--get-all", "--get-regexp", "--list", "-l"])
            || matches!(texts.first(), Some(&"get" | &"list"));
        let operands: Vec<&str> = found
            .operands
            .iter()
            .map(|word| word.text.as_str())
            .collect();
        let own = !found.has(&["--global", "--system"]);
        match operands.as_slice() {
            _ if reads => Ok(()),
            [_key] => Ok(()),
            [key, _] | ["set", key, _] if own && is_cosmetic_setting(&key.to_lowercase()) => {
                self.may_write(&ShellWord::plain("."))
            }
            _ => refuse("git config changes settings"),
        }
    }

    /// Revisions and paths: none of them may be private.
    fn git_words(&mut self, found: &ParsedArguments<'_>) -> ProofResult {
        for target in found.values(&["--output"]) {
            self.may_write(target)?;
        }
        for (_, value) in &found.given {
            if let Some(value) = value {
                self.not_private(value)?;
            }
        }
        for word in &found.operands {
            if word.dynamic {
                return refuse("it names a revision or file that is only known when it runs");
            }
            self.not_private(word)?;
        }
        Ok(())
    }

    /// A remote by its name or a common URL. Others make git run a helper.
    fn git_address(word: &ShellWord) -> ProofResult {
        let text = word.text.as_str();
        if word.dynamic
            || word.glob
            || text.contains("::")
            || text.starts_with('-')
            || text.contains("file:")
        {
            return refuse("git is given an address that may run a program");
        }
        Ok(())
    }
}
