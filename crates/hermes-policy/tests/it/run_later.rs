//! Commands that are made up and run: none that runs unasked makes or changes a file that programs of the user
//! run by themselves later, whatever way it takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hermes_core::private::{RUN_LATER_IN_PROJECT, runs_later};
use hermes_policy::CommandClass;

use crate::generated::{Yard, have_tools};

/// Copies of such files under other names and in other directories, in packed form and in a branch.
const PLANT: &str = r"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b
mkdir -p from/plain from/tree/.vscode from/tree/.idea from/tree/.jj/repo from/flat .vscode .idea .jj/repo packed/.vscode
for name in tasks.json settings.json workspace.xml config.toml envrc; do echo made > from/plain/$name; cp from/plain/$name from/flat/; done
cp from/plain/tasks.json from/tree/.vscode/; cp from/plain/envrc from/tree/.envrc; cp from/plain/envrc from/flat/opencode.json
cp from/plain/tasks.json .vscode/tasks; cp from/plain/tasks.json packed/.vscode/tasks.json; cp from/plain/envrc packed/.envrc
gzip packed/.vscode/tasks.json packed/.envrc; cp from/plain/tasks.json .mcp.json; gzip .mcp.json; cp from/plain/envrc .exrc; xz .exrc
git init -q other; cd other; mkdir .vscode; cp ../from/plain/tasks.json .vscode/; cp ../from/plain/tasks.json tasks.json
git add -A; git commit -qm x; git format-patch -q --root --stdout > ../one.mbox; cd ..
git checkout -q -b with; cp from/plain/tasks.json .vscode/tasks.json; cp from/plain/tasks.json moved.json; git add -f .vscode/tasks.json moved.json
git commit -qm y; git checkout -q -; cp from/plain/tasks.json moved.json; git add moved.json; git commit -qm z
true";

/// `§` is the name of a file, `¶` its directory.
const WAYS: &[&str] = &[
    "echo x > §",
    "echo x >> §",
    "echo x | tee §",
    "cp from/plain/tasks.json §",
    "mv from/plain/tasks.json §",
    "ln -s from/plain/tasks.json §",
    "ln from/plain/tasks.json §",
    "touch §",
    "mkdir -p §",
    "dd of=§ < data.txt",
    "sort -o § data.txt",
    "uniq data.txt §",
    "xxd data.txt §",
    "find . -maxdepth 0 -fprint §",
    "git mv moved.json §",
    "git checkout with -- §",
    "git restore --source=with §",
    "git restore -s with -- ¶",
    "git checkout with ¶",
    "git clone ./other ¶",
    "git init ¶",
    "git diff --output=§ HEAD",
    "git format-patch -o ¶ -1",
    "rsync from/plain/tasks.json §",
    "rsync -r from/flat/ ¶",
    "cd ¶ && cp ../from/flat/* .",
    "cd ¶; mv ../from/flat/* .",
    "cd ¶ && echo x > tasks.json",
    "cp from/flat/* ¶",
    "cp -t ¶ from/flat/tasks.json",
    "cp -r from/flat/. ¶",
    "tar -cf § data.txt",
    "curl -so § https://127.0.0.1:1/x",
    "sed -n 1p data.txt > §",
    "awk '{print}' data.txt > §",
    "flock § true",
    "mkfifo §",
    "sqlite3 § 'select 1'",
];

/// The same without a name of its own.
const OTHER_WAYS: &[&str] = &[
    "gunzip packed/.vscode/tasks.json.gz",
    "gzip -d packed/.envrc.gz",
    "gunzip -f .mcp.json.gz",
    "xz -d .exrc.xz",
    "unxz -k .exrc.xz",
    "sed -i.json s/a/b/ .vscode/tasks",
    "sed --in-place=.json s/a/b/ .vscode/tasks",
    "split -l 1 -a 2 big.txt .vscode/tasks.js",
    "cd .vscode && split -l 1 -a 2 ../big.txt tasks.js",
    "split -l 1 -a 2 big.txt opencode.js",
    "cp -r from/tree/. .",
    "cp -a from/tree sub/",
    "cp -r from/tree new",
    "cp -r from/* sub",
    "cp -r from/tree/.[ij]* .",
    "cp from/flat/* .",
    "cp from/flat/opencode.json .",
    "cp from/flat/opencode.[j]son .",
    "mv from/tree new",
    "mv from/tree/.* sub",
    "cd from/tree && cp --parents .vscode/tasks.json ../../sub",
    "cd from/tree; cp --parents .vscode/tasks.json ../..",
    "rsync -a from/tree/ sub",
    "rsync -a from/tree sub",
    "rsync -aR from/tree/./.vscode/tasks.json sub",
    "git mv moved.json .vscode/tasks.json",
    "git mv -f moved.json .vscode/tasks.json",
    "git am one.mbox",
    "git am -q one.mbox",
    "git clone ./other .vscode",
    "git clone -q ./other sub/.idea",
    "cd sub && git clone ../other .vscode",
    "find from/tree -name '*.json' -exec cp {} .vscode ';'",
    "find from/tree -type f -print0 | xargs -0 cp -t sub",
    "x=.vscode; cp from/flat/tasks.json $x/",
    "for f in from/flat/*; do cp \"$f\" .vscode/; done",
    "cp from/plain/{tasks.json,envrc} .vscode",
    "cp from/plain/tasks.json .vscode/tasks.{json,x}",
];

fn watched(yard: &Yard) -> BTreeMap<PathBuf, Vec<u8>> {
    let work = yard.workspace();
    let mut state = yard.state();
    state.retain(|path, _| {
        let below = path.strip_prefix(&work).unwrap_or(Path::new(""));
        runs_later(&below.to_string_lossy()) && !below.starts_with("from")
    });
    state
}

#[test]
fn nothing_that_runs_unasked_makes_a_file_that_runs_later() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::planted(PLANT);
    let before = watched(&yard);
    let mut commands: Vec<String> = OTHER_WAYS.iter().map(|way| (*way).to_owned()).collect();
    let names = RUN_LATER_IN_PROJECT.iter().step_by(7);
    for name in names.chain(&[".vscode/tasks.json", ".idea/workspace.xml", "opencode.json"]) {
        let dir = name.rsplit_once('/').map_or(".", |(dir, _)| dir);
        let each = WAYS.iter().filter(|way| dir != "." || !way.contains('¶'));
        commands.extend(each.map(|way| way.replace('§', name).replace('¶', dir)));
    }
    let mut wrong = Vec::new();
    for command in &commands {
        if yard.class(command) > CommandClass::WorkspaceWrite {
            continue;
        }
        yard.bash(command);
        let after = watched(&yard);
        let made = after
            .iter()
            .find(|(path, text)| before.get(*path) != Some(text));
        if let Some((path, _)) = made {
            wrong.push(format!("{command:?} makes {}", path.display()));
        }
        yard.fill();
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The ways above do make such files where they are run: the test would notice.
#[test]
fn the_ways_do_make_files_that_run_later() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::planted(PLANT);
    let before = watched(&yard);
    let mut made = 0;
    for command in OTHER_WAYS {
        yard.bash(command);
        let after = watched(&yard);
        made += usize::from(
            after
                .iter()
                .any(|(path, text)| before.get(path) != Some(text)),
        );
        yard.fill();
    }
    assert!(
        made * 4 > OTHER_WAYS.len() * 3,
        "only {made} of {}",
        OTHER_WAYS.len()
    );
}
