//! git.

use super::args::{has, operands, subcommand, value};
use super::place::WriteKind;
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::ShellWord;

const READS: &str = "status log diff show rev-parse ls-files ls-tree blame annotate describe shortlog cat-file grep \
    name-rev merge-base rev-list diff-tree diff-index diff-files var version help count-objects for-each-ref \
    whatchanged check-ignore check-attr cherry range-diff show-ref show-branch verify-commit verify-tag fsck \
    merge-tree get-tar-commit-id --version --help";
const WORKS: &str = "add commit init mv merge cherry-pick revert apply am format-patch notes sparse-checkout \
    maintenance rerere switch fetch pull submodule lfs";
/// Settings that make git run something, or that are not merely cosmetic.
const LOOKS: [&str; 9] = [
    "color.",
    "user.",
    "advice.",
    "log.",
    "core.quotepath",
    "core.abbrev",
    "init.defaultbranch",
    "diff.renames",
    "commit.gpgsign",
];

impl Classifier<'_> {
    pub(super) fn git(&mut self, call: ProgramCall<'_>) -> bool {
        if call.name != "git" {
            return false;
        }
        let args = call.args();
        let options =
            "-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix";
        let Some((verb, rest)) = subcommand(args, options) else {
            return true;
        };
        let flags = "=--no-pager =-P =-p =--paginate =--bare =--no-optional-locks =--literal-pathspecs =--no-replace-objects =--glob-pathspecs";
        self.require_known_options(args, &format!("{options} {flags}"));
        let own = &args[..args.len() - rest.len() - 1];
        self.git_options(own);
        if let Some(dir) = value(own, "-C") {
            self.enter(&dir);
        }
        self.require_known_arguments(args);
        match verb {
            verb if READS.split_whitespace().any(|read| read == verb) => self.git_read(rest),
            "push" => self.git_push(rest),
            "reset" => self.git_reset(rest),
            "checkout" => self.git_checkout(rest),
            "restore" if has(rest, "=--staged =-S") && !has(rest, "--worktree -W") => {
                self.writes = true;
            }
            "restore" => self.add_firm(
                Category::GIT_DISCARD,
                "overwrites changes that were not committed",
            ),
            "clean"
                if has(
                    rest,
                    "=-n =--dry-run =-nd =-dn =-ndx =-nfd =-fdn =-fdxn =-nfdx",
                ) => {}
            "clean" => self.add_firm(Category::GIT_CLEAN, "deletes files that git does not know"),
            "branch" => self.git_branch(rest),
            "tag" => self.git_tag(rest),
            "stash" => self.git_stash(rest),
            "remote" => self.git_remote(rest),
            "config" => self.git_config(rest),
            "reflog" | "worktree" | "bisect" | "rebase" | "symbolic-ref" | "update-ref" => {
                self.git_other(verb, rest);
            }
            "rm" => {
                if has(rest, "-r -f --force") && !has(rest, "--cached") {
                    self.add_firm(Category::RECURSIVE_DELETE, "deletes files");
                }
                self.writes = true;
            }
            "ls-remote" => self.git_url(rest),
            "clone" => {
                self.git_url(rest);
                if let Some(target) = operands(rest, "-b --branch -o --origin -u --upload-pack --depth -c --config --reference --template -j --jobs --filter").get(1) {
                    self.write(target, WriteKind::Create);
                }
                self.writes = true;
            }
            "filter-branch" | "filter-repo" | "gc" | "prune" | "replace" | "repack" => {
                self.add_firm(Category::GIT_DISCARD, "rewrites or removes history");
            }
            "send-email" | "request-pull" | "daemon" | "instaweb" | "svn" | "p4" => {
                self.add_firm(
                    Category::NETWORK_SEND,
                    format!("git {verb} talks to others"),
                );
            }
            verb if WORKS.split_whitespace().any(|work| work == verb) => self.git_work(verb, rest),
            _ => self.add_soft(Category::PROGRAM, format!("runs git {verb}")),
        }
        true
    }

    fn git_options(&mut self, own: &[ShellWord]) {
        for (at, word) in own.iter().enumerate() {
            let text = word.text.as_str();
            if text == "-c" || text == "--config-env" {
                let setting = own
                    .get(at + 1)
                    .map_or("", |word| word.text.as_str())
                    .to_lowercase();
                let pager = setting == "core.pager=cat" || setting == "core.pager=";
                if let Some((_, command)) = setting.split_once("=!") {
                    self.script(command);
                }
                if !pager && !LOOKS.iter().any(|look| setting.starts_with(look)) {
                    self.add_firm(
                        Category::EXEC_FLAG,
                        "sets an option of git that may run a program",
                    );
                }
            } else if text.starts_with("--git-dir") || text.starts_with("--work-tree") {
                self.add_soft(Category::ENVIRONMENT, "takes git's settings from elsewhere");
            } else if text.starts_with("--exec-path=") || text.starts_with("--config-env=") {
                self.add_firm(Category::EXEC_FLAG, "makes git run other programs");
            }
        }
    }

    fn git_read(&mut self, rest: &[ShellWord]) {
        if let Some(target) = value(rest, "--output") {
            self.write(&target, WriteKind::Create);
        }
        if has(
            rest,
            "--ext-diff --textconv -O --open-files-in-pager --upload-pack",
        ) {
            self.add_soft(Category::EXEC_FLAG, "makes git run another program");
        }
    }

    fn git_push(&mut self, rest: &[ShellWord]) {
        let long = has(
            rest,
            "--force --force-with-lease --force-if-includes --mirror --prune",
        );
        let short = rest.iter().any(|word| {
            let text = word.text.as_str();
            text.starts_with('-') && !text.starts_with("--") && text.contains('f')
        });
        let refspec = operands(rest, "-o --push-option --repo")
            .iter()
            .any(|word| word.text.starts_with('+'));
        if long {
            self.add_firm(
                Category::GIT_FORCE_PUSH,
                "overwrites the history of a remote repository",
            );
        } else if short || refspec {
            self.add_firm(
                Category::GIT_FORCE_PUSH_SHORT,
                "overwrites the history of a remote repository",
            );
        }
        let deletes =
            has(rest, "--delete -d") || rest.iter().any(|word| word.text.starts_with(':'));
        let what = if deletes {
            "deletes branches of a remote repository"
        } else {
            "publishes commits"
        };
        self.facts.network = true;
        self.add_firm(Category::GIT_REMOTE, what);
        self.git_url(rest);
    }

    fn git_reset(&mut self, rest: &[ShellWord]) {
        if rest.iter().any(|word| {
            word.text.len() > 2 && "--hard".starts_with(word.text.as_str())
                || word.text == "--merge"
                || word.text == "--keep"
        }) {
            self.add_firm(
                Category::GIT_RESET,
                "throws away changes that were not committed",
            );
        }
        self.writes = true;
    }

    fn git_checkout(&mut self, rest: &[ShellWord]) {
        let words = operands(rest, "-b -B --orphan --conflict");
        let separated = rest.iter().any(|word| word.text == "--");
        let paths = words
            .iter()
            .any(|word| word.text == "." || word.text.contains(['*', '?']));
        if has(rest, "-f --force")
            || separated
            || paths
            || words.len() > 1 && !has(rest, "-b -B -t --track --orphan")
        {
            self.add_firm(
                Category::GIT_DISCARD,
                "throws away changes that were not committed",
            );
        }
        self.writes = true;
    }

    fn git_branch(&mut self, rest: &[ShellWord]) {
        let force = has(rest, "-f --force");
        if rest.iter().any(|word| {
            word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('D')
        }) {
            self.add_firm(
                Category::GIT_BRANCH_DELETE,
                "deletes a branch with its commits",
            );
        } else if has(rest, "-d --delete") && force {
            self.add_firm(
                Category::GIT_BRANCH_DELETE_LONG,
                "deletes a branch with its commits",
            );
        } else if force
            || rest
                .iter()
                .any(|word| matches!(word.text.as_str(), "-M" | "-C"))
        {
            self.add_firm(Category::GIT_DISCARD, "overwrites a branch");
        }
        let lists = has(
            rest,
            "--list -l -a --all -r --remotes -v --verbose --show-current --contains --merged --no-merged --sort --format --points-at",
        );
        if !lists && !rest.is_empty() {
            self.writes = true;
        }
    }

    fn git_tag(&mut self, rest: &[ShellWord]) {
        if has(rest, "-d --delete -f --force") {
            self.add_firm(Category::GIT_DISCARD, "deletes or moves a tag");
        } else if !rest.is_empty()
            && !has(
                rest,
                "-l --list -n --contains --merged --points-at -v --verify",
            )
        {
            self.writes = true;
        }
    }

    fn git_stash(&mut self, rest: &[ShellWord]) {
        match rest.first().map(|word| word.text.as_str()) {
            Some("list" | "show") => {}
            Some("drop" | "clear") => {
                self.add_firm(Category::GIT_DISCARD, "throws away stashed changes");
            }
            _ => self.writes = true,
        }
    }

    fn git_remote(&mut self, rest: &[ShellWord]) {
        match subcommand(rest, "").map(|(verb, _)| verb) {
            None | Some("show" | "get-url") => {}
            _ => {
                self.git_url(rest);
                self.writes = true;
            }
        }
    }

    fn git_config(&mut self, rest: &[ShellWord]) {
        let words = operands(rest, "-f --file --blob --type");
        if has(
            rest,
            "=--get =--get-all =--get-regexp =--list =-l =--get-urlmatch",
        ) || matches!(
            words.first().map(|word| word.text.as_str()),
            Some("get" | "list")
        ) || (words.len() == 1 && !has(rest, "--unset --unset-all --remove-section -e --edit"))
        {
            return;
        }
        let wide = has(rest, "--global --system -f --file");
        let key = words
            .first()
            .map(|word| word.text.to_lowercase())
            .unwrap_or_default();
        let key = if key == "set" {
            words
                .get(1)
                .map(|word| word.text.to_lowercase())
                .unwrap_or_default()
        } else {
            key
        };
        let looks = LOOKS.iter().any(|look| key.starts_with(look));
        if wide && !looks {
            self.add_firm(
                Category::PERSISTENCE,
                "changes git's settings for every project",
            );
        } else if wide {
            self.add_firm(
                Category::SYSTEM_CHANGE,
                "changes git's settings for every project",
            );
        } else if !looks
            && [
                "core.",
                "alias.",
                "filter.",
                "diff.",
                "merge.",
                "credential.",
                "include",
                "url.",
                "hook",
                "sequence.",
                "gpg.",
                "protocol.",
                "remote.",
                "pager.",
            ]
            .iter()
            .any(|part| key.starts_with(part))
        {
            self.add_firm(
                Category::PERSISTENCE,
                format!("{key} may make git run something later"),
            );
        }
        self.writes = true;
    }

    fn git_other(&mut self, verb: &str, rest: &[ShellWord]) {
        let first = rest.first().map_or("", |word| word.text.as_str());
        match (verb, first) {
            ("reflog", "" | "show") | ("worktree", "list") => {}
            ("symbolic-ref", _) if operands(rest, "-m").len() < 2 && !has(rest, "-d --delete") => {}
            ("reflog" | "update-ref", _) => {
                self.add_firm(Category::GIT_DISCARD, "changes or removes references");
            }
            ("bisect", "run") => {
                let line: Vec<&str> = rest[1..].iter().map(|word| word.text.as_str()).collect();
                self.script(&line.join(" "));
                self.writes = true;
            }
            ("rebase", _) => {
                if let Some(script) = value(rest, "-x --exec") {
                    self.nested(&script);
                }
                self.writes = true;
            }
            ("worktree", "remove" | "prune") => {
                self.add_firm(Category::GIT_DISCARD, "removes a working tree");
            }
            ("worktree", "add") => {
                if let Some(target) = operands(&rest[1..], "-b -B --reason").first() {
                    self.write(target, WriteKind::Create);
                }
            }
            _ => self.writes = true,
        }
    }

    fn git_work(&mut self, verb: &str, rest: &[ShellWord]) {
        if verb == "submodule" && rest.first().is_some_and(|word| word.text == "foreach") {
            let line: Vec<&str> = rest[1..].iter().map(|word| word.text.as_str()).collect();
            self.script(&line.join(" "));
        }
        if verb == "switch" && has(rest, "-f --force --discard-changes") {
            self.add_firm(
                Category::GIT_DISCARD,
                "throws away changes that were not committed",
            );
        }
        if matches!(verb, "fetch" | "pull" | "submodule") {
            self.git_url(rest);
            if has(rest, "--upload-pack") {
                self.add_firm(Category::EXEC_FLAG, "makes git run another program");
            }
        }
        if verb == "init"
            && let Some(target) =
                operands(rest, "-b --initial-branch --template --separate-git-dir").first()
        {
            self.write(target, WriteKind::Create);
        }
        self.writes = true;
    }

    /// URLs that make git run a program.
    fn git_url(&mut self, rest: &[ShellWord]) {
        self.facts.network = true;
        let runs = rest
            .iter()
            .any(|word| word.text.starts_with("ext::") || word.text.starts_with("fd::"));
        if runs
            || has(
                rest,
                "--upload-pack --receive-pack --exec --template --config =-c",
            )
        {
            self.add_firm(Category::EXEC_FLAG, "makes git run another program");
        }
    }
}
