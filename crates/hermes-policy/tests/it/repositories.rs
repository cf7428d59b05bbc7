//! Repositories that are made up: git is not called harmless where one of them makes it run something.

use hermes_policy::CommandClass;

use crate::generated::{Draw, Yard, cases, have_tools, number};

const PLANT: &str = r"
git config --global user.name a; git config --global user.email b
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b
git init -q g; cd g; echo a > f; echo '* diff=x filter=x merge=x' > .gitattributes; git add f; git commit -qm x; echo b >> f
mkdir h; cp ../bin/mark h/post-checkout; cp ../bin/mark h/pre-commit; cp ../bin/mark h/post-index-change; cp ../bin/mark run; cd ..
mkdir -p split/objects split/refs bare; printf '[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n' > split/config
echo 'ref: refs/heads/main' > bare/HEAD; echo ../split > bare/commondir
printf '[core]\nbare = false\nworktree = ..\nfsmonitor = mark\n' > bare/config.worktree
git init -q outer; mkdir -p outer/in/.git; git -C outer config core.fsmonitor mark
git init -q paused; cd paused; echo a > f; git add f; git commit -qm x; commit=$(git rev-parse HEAD); mkdir .git/rebase-merge
cd .git/rebase-merge; echo 'exec mark' > git-rebase-todo; git -C ../.. symbolic-ref HEAD > head-name; echo $commit > onto; echo $commit > orig-head
touch interactive; cd ../../..
git init -q away; cd away; echo a > id_ed25519; git add id_ed25519; git commit -qm x; git config core.worktree ../../../.ssh; cd ..
git init -q empty-hooks; git -C empty-hooks config core.hooksPath h; mkdir empty-hooks/h
git init -q collects; cd collects; for i in 1 2 3 4; do echo $i > f; git add f; git commit -qm $i; done
git config gc.auto 1; git config gc.autoDetach false; git config gc.recentObjectsHook mark; cd ..
true";

const FIXED: &[&str] = &[
    "git -C bare status",
    "cd bare && git status",
    "cd outer/in && git status",
    "git -C outer/in diff",
    "git -C paused rebase --skip",
    "cd paused && git rebase --skip",
    "git -C away diff",
    "cd away && git diff HEAD",
    "cp bin/mark empty-hooks/h/pre-commit && git -C empty-hooks commit --allow-empty -m x",
    "cd empty-hooks && cp ../bin/mark h/pre-commit; git commit --allow-empty -m x",
    "git -C collects commit --allow-empty -m x",
];

/// Pieces of settings that git reads in different ways depending on what is around them.
const PIECES: &[&str] = &[
    "[core]",
    "[user]",
    "[core",
    "[gc]",
    "[http]",
    "[branch \"a\"]",
    "[diff \"x\"]",
    "[filter \"x\"]",
    "[include]",
    "[alias]",
    "]",
    "\"",
    "\\",
    "#",
    ";",
    " ",
    "\t",
    "\n",
    "\n\t",
    "\r\n",
    "=",
    "fsmonitor = mark",
    "fsmonitor",
    "hooksPath = h",
    "hooksPath = \"h\"",
    "hooksPath = h # x",
    "hooksPath = ~/work/g/h",
    "textconv = mark",
    "clean = mark",
    "external = mark",
    "name = a",
    "auto = 0",
    "path = ../evil",
    "pager = mark",
    "mark",
    "true",
];

const VERBS: &[&str] = &[
    "status",
    "diff",
    "diff HEAD",
    "commit --allow-empty -m x",
    "add f",
    "checkout -b n",
    "log -p -1",
    "stash",
];

fn judge(yard: &Yard, command: &str, around: &str) -> Option<String> {
    let class = yard.class(command);
    if class > CommandClass::WorkspaceWrite {
        return None;
    }
    let output = yard.bash(command);
    let has_run = yard.mark().exists() || output.contains("planted-secret");
    let _ = std::fs::remove_file(yard.mark());
    has_run.then(|| format!("{command:?} is {class} {around}"))
}

#[test]
fn git_is_not_called_harmless_where_a_repository_runs_something() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::planted(PLANT);
    let mut wrong: Vec<String> = FIXED
        .iter()
        .filter_map(|command| judge(&yard, command, ""))
        .collect();
    yard.fill();
    let config = yard.workspace().join("g/.git/config");
    let plain = std::fs::read_to_string(&config).unwrap();
    let mut draw = Draw(number("HERMES_POLICY_SEED").unwrap_or(4_711) as u64 | 1);
    let mut ran = 0;
    for _ in 0..cases() {
        let added: String = (0..=draw.below(7)).map(|_| draw.of(PIECES)).collect();
        std::fs::write(&config, format!("{plain}{added}\n")).unwrap();
        let command = format!("git -C g {}", draw.of(VERBS));
        ran += usize::from(yard.class(&command) <= CommandClass::WorkspaceWrite);
        wrong.extend(judge(&yard, &command, &format!("with {added:?}")));
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(ran > 0, "nothing was tried");
}

/// The repositories above do run something: the test would notice.
#[test]
fn the_repositories_do_run_something() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::planted(PLANT);
    let mut fired = Vec::new();
    for command in FIXED {
        let output = yard.bash(command);
        fired.push(yard.mark().exists() || output.contains("planted-secret"));
        yard.fill();
    }
    let count = fired.iter().filter(|fired| **fired).count();
    assert!(count + 1 >= FIXED.len(), "{fired:?}");
}
