//! What a person's git, shell or editor would run after a command has left something behind: each case is played
//! to its end, by the person's own git.

use std::path::Path;
use std::process::Command;

use hermes_exec::{Confine as _, Environment as _};

use super::attacks::{Prison, give};
use super::run_later::{Place, place, repository};
use crate::behaviour::start;

/// A program that leaves a mark, for whoever runs it.
const EVIL: &str = "printf '#!/bin/sh\\ntouch \"$MARK\"\\n' > \"$PWD/evil.sh\"; chmod +x evil.sh; E=$PWD/evil.sh\n";

struct Plant {
    name: &'static str,
    /// By the person, before.
    before: &'static str,
    /// By the command, one after another.
    scripts: &'static [&'static str],
    /// Where the person acts then, and how.
    dir: &'static str,
    act: &'static str,
}

const STATUS: &str = "git status; git diff; git log -1";
const COMMIT: &str = "git commit -q --allow-empty -m x; git checkout -q -b other";

const PLANTS: &[Plant] = &[
    Plant {
        name: "a repository where there was none",
        before: "rm -rf .git",
        scripts: &["git init -q .; git config core.fsmonitor $E"],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "hooks of a new repository",
        before: "rm -rf .git",
        scripts: &["git init -q .; cp $E .git/hooks/pre-commit; cp $E .git/hooks/post-checkout"],
        dir: ".",
        act: COMMIT,
    },
    Plant {
        name: "a new repository in another",
        before: "true",
        scripts: &["mkdir new; cd new; git init -q .; git config core.fsmonitor $E"],
        dir: "new",
        act: STATUS,
    },
    Plant {
        name: "a file that says where the repository is",
        before: "rm -rf .git",
        scripts: &[
            "G=$(mktemp -d); git init -q --bare $G; git --git-dir=$G config core.bare false; \
             git --git-dir=$G config core.fsmonitor $E; echo \"gitdir: $G\" > .git",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "a link to a repository elsewhere",
        before: "rm -rf .git",
        scripts: &[
            "G=$(mktemp -d); git init -q --bare $G; git --git-dir=$G config core.bare false; \
             git --git-dir=$G config core.fsmonitor $E; ln -s $G .git",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "a directory that git takes for a repository",
        before: "true",
        scripts: &[
            "mkdir docs; cd docs; git init -q --bare .; git config core.bare false; git config core.worktree .; \
             git config core.fsmonitor $E",
        ],
        dir: "docs",
        act: STATUS,
    },
    Plant {
        name: "a repository that only the index names",
        before: "true",
        scripts: &[
            "D=a/b/c/d/e/f/g/h/node_modules/sub; mkdir -p $D; git init -q $D; git -C $D commit -q --allow-empty -m x; \
             git -C $D config core.fsmonitor $E; \
             git update-index --add --cacheinfo 160000,$(git -C $D rev-parse HEAD),$D",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "where the hooks are",
        before: "mkdir -p tools/hooks; git config core.hooksPath tools/hooks",
        scripts: &[
            "cp $E tools/hooks/pre-commit; mv tools t2; mkdir -p tools/hooks; cp $E tools/hooks/pre-commit",
        ],
        dir: ".",
        act: COMMIT,
    },
    Plant {
        name: "settings that are included",
        before: "echo '[alias]' > shared.gitconfig; git config include.path ../shared.gitconfig",
        scripts: &[
            "git config -f shared.gitconfig core.fsmonitor $E; printf '[core]\\nfsmonitor=%s\\n' $E >> shared.gitconfig",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "a submodule in a directory of others' code",
        before: "git -c protocol.file.allow=always submodule -q add ../library vendor/library; git commit -qam s",
        scripts: &[
            "G=$(mktemp -d); cp -r .git/modules/vendor/library/. $G; git config -f $G/config core.fsmonitor $E; \
             git config -f $G/config core.worktree $PWD/vendor/library; echo \"gitdir: $G\" > vendor/library/.git",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "more directories than are looked at",
        before: "mkdir -p zz; git init -q zz/nested; git -C zz/nested commit -q --allow-empty -m x",
        scripts: &[
            "for i in $(seq 700); do mkdir -p a$i; done",
            "git -C zz/nested config core.fsmonitor $E",
        ],
        dir: "zz/nested",
        act: STATUS,
    },
    Plant {
        name: "hooks in a directory that is named and not there",
        before: "git config core.hooksPath tools/hooks",
        scripts: &["mkdir -p tools/hooks; cp $E tools/hooks/pre-commit"],
        dir: ".",
        act: COMMIT,
    },
    Plant {
        name: "a directory that is named, moved into place",
        before: "git config core.hooksPath tools/hooks",
        scripts: &["mkdir -p x/hooks; cp $E x/hooks/pre-commit; mv x tools"],
        dir: ".",
        act: COMMIT,
    },
    Plant {
        name: "settings that are included and not there",
        before: "git config include.path ../shared.gitconfig",
        scripts: &["printf '[core]\\nfsmonitor=%s\\n' $E > x; mv x shared.gitconfig"],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "a program that a filter names and that is not there",
        before: "git config filter.f.clean './scripts/clean.sh %f'; echo '*.txt filter=f' > .gitattributes; echo a > a.txt",
        scripts: &["mkdir scripts; cp $E scripts/clean.sh"],
        dir: ".",
        act: "git add a.txt; git status",
    },
    Plant {
        name: "hooks that the person's settings name for every repository",
        before: "git config --global core.hooksPath my-hooks",
        scripts: &["mkdir my-hooks; cp $E my-hooks/pre-commit"],
        dir: ".",
        act: "git commit -q --allow-empty -m x; git config --global --unset core.hooksPath",
    },
    Plant {
        name: "hooks of a submodule that has none",
        before: "git -c protocol.file.allow=always submodule -q add ../library library; git commit -qam s; rm -rf .git/modules/library/hooks",
        scripts: &["mkdir .git/modules/library/hooks; cp $E .git/modules/library/hooks/pre-commit"],
        dir: "library",
        act: COMMIT,
    },
    Plant {
        name: "the directory of a submodule to come",
        before: "printf '[submodule \"new\"]\\npath = new\\nurl = ../library\\n' > .gitmodules; git add .; git update-index --add --cacheinfo 160000,$(git -C ../library rev-parse HEAD),new; git commit -qm s; git config submodule.new.url ../library",
        scripts: &[
            "git -c protocol.file.allow=always clone -q --bare ../library .git/modules/new; git --git-dir=.git/modules/new config core.bare false; cp $E .git/modules/new/hooks/post-checkout",
        ],
        dir: ".",
        act: "git -c protocol.file.allow=always submodule -q update --init; git status",
    },
    Plant {
        name: "a directory whose git data lies elsewhere",
        before: "true",
        scripts: &[
            "mkdir -p store/objects store/refs part; printf '[core]\\nrepositoryformatversion=1\\n[extensions]\\nworktreeConfig=true\\n' > store/config; \
             echo 'ref: refs/heads/main' > part/HEAD; echo ../store > part/commondir; \
             printf '[core]\\nbare=false\\nworktree=..\\nfsmonitor=%s\\n' $E > part/config.worktree",
        ],
        dir: "part",
        act: "git status",
    },
    Plant {
        name: "the same, with its data in a temporary directory",
        before: "true",
        scripts: &[
            "G=$(mktemp -d); mkdir $G/objects $G/refs part; printf '[core]\\nrepositoryformatversion=0\\nbare=true\\n[remote \"origin\"]\\nurl=.\\nuploadpack=%s\\n' $E > $G/config; \
             echo 'ref: refs/heads/main' > part/HEAD; echo $G > part/commondir",
        ],
        dir: "part",
        act: "git fetch",
    },
    Plant {
        name: "a repository below what looks like one",
        before: "true",
        scripts: &[
            "mkdir -p fake/objects fake/refs fake/.x; echo x > fake/HEAD; git init -q fake/.x/new; git -C fake/.x/new config core.fsmonitor $E",
        ],
        dir: "fake/.x/new",
        act: STATUS,
    },
    Plant {
        name: "steps of a rebase that was never begun",
        before: "git commit -q --allow-empty -m x",
        scripts: &[
            "H=$(git rev-parse HEAD); mkdir .git/rebase-merge; cd .git/rebase-merge; echo \"exec $E\" > git-rebase-todo; git symbolic-ref HEAD > head-name; \
             echo $H > onto; echo $H > orig-head; touch interactive",
        ],
        dir: ".",
        act: "git rebase --continue",
    },
    Plant {
        name: "steps added to a rebase",
        before: "for i in 1 2 3; do echo $i > f; git add f; git commit -qm $i; done; GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2",
        scripts: &["echo \"x $E\" >> .git/rebase-merge/git-rebase-todo"],
        dir: ".",
        act: "git rebase --continue",
    },
    Plant {
        name: "a new repository whose pushes go to one with hooks",
        before: "true",
        scripts: &[
            "G=$(mktemp -d); git init -q --bare $G; cp $E $G/hooks/post-receive; git init -q new; cd new; git commit -q --allow-empty -m x; \
             git remote add origin $G; git config push.default current",
        ],
        dir: "new",
        act: "git push origin HEAD:main",
    },
    Plant {
        name: "a remote in its old form",
        before: "git commit -q --allow-empty -m x",
        scripts: &[
            "G=$(mktemp -d); git init -q --bare $G; cp $E $G/hooks/post-receive; mkdir -p .git/remotes; printf 'URL: %s\\nPush: HEAD:refs/heads/x\\n' $G > .git/remotes/origin",
        ],
        dir: ".",
        act: "git push",
    },
    Plant {
        name: "a branch whose remote is a directory",
        before: "true",
        scripts: &[
            "G=$(mktemp -d); git init -q --bare $G; cp $E $G/hooks/post-receive; git init -q new; cd new; git commit -q --allow-empty -m x; \
             git config branch.$(git branch --show-current).pushRemote $G; git config push.default current",
        ],
        dir: "new",
        act: "git push",
    },
    Plant {
        name: "a section that ends before its line does",
        before: "true",
        scripts: &["git init -q new; printf '[core]fsmonitor=%s #]\\n' $E >> new/.git/config"],
        dir: "new",
        act: STATUS,
    },
    Plant {
        name: "a new repository beside more directories than are looked at by name",
        before: "for i in $(seq 900); do mkdir -p many/d$i; done",
        scripts: &["git init -q zz/new; git -C zz/new config core.fsmonitor $E"],
        dir: "zz/new",
        act: STATUS,
    },
    Plant {
        name: "a new repository behind more new directories than are looked at by name",
        before: "true",
        scripts: &[
            "for i in $(seq 900); do mkdir -p a/d$i; done; mkdir -p zz/new",
            "git init -q zz/new; git -C zz/new config core.fsmonitor $E",
        ],
        dir: "zz/new",
        act: STATUS,
    },
    Plant {
        name: "a new repository deep below",
        before: "true",
        scripts: &["D=a/b/c/d/e/f/g/h/i/j; git init -q $D; git -C $D config core.fsmonitor $E"],
        dir: "a/b/c/d/e/f/g/h/i/j",
        act: STATUS,
    },
    Plant {
        name: "a new repository among the packages of others",
        before: "mkdir -p node_modules/package",
        scripts: &[
            "git init -q node_modules/package; git -C node_modules/package config core.fsmonitor $E",
        ],
        dir: "node_modules/package",
        act: STATUS,
    },
    Plant {
        name: "a new repository in a hidden directory",
        before: "true",
        scripts: &["git init -q .hidden/new; git -C .hidden/new config core.fsmonitor $E"],
        dir: ".hidden/new",
        act: STATUS,
    },
    Plant {
        name: "a repository that is moved where nobody looked",
        before: "mkdir -p build",
        scripts: &[
            "G=$(mktemp -d); git init -q $G/new; git -C $G/new config core.fsmonitor $E; mv $G/new build/",
        ],
        dir: "build/new",
        act: STATUS,
    },
    Plant {
        name: "a repository around all caches",
        before: "mkdir -p ../home/.cache/tool",
        scripts: &["git init -q ../home/.cache; git -C ../home/.cache config core.fsmonitor $E"],
        dir: "../home/.cache/tool",
        act: STATUS,
    },
    Plant {
        name: "all caches as a repository",
        before: "mkdir -p ../home/.cache/tool",
        scripts: &[
            "cd ../home/.cache; git init -q --bare b; cp -r b/HEAD b/objects b/refs b/config .; \
             git config -f config core.bare false; git config -f config core.worktree $PWD; git config -f config core.fsmonitor $E",
        ],
        dir: "../home/.cache/tool",
        act: STATUS,
    },
    Plant {
        name: "settings that belong to another repository",
        before: "true",
        scripts: &[
            "G=$(mktemp -d); cp -r .git/. $G; git config -f $G/config core.fsmonitor $E; echo $G > .git/commondir",
        ],
        dir: ".",
        act: STATUS,
    },
    Plant {
        name: "a further work tree",
        before: "true",
        scripts: &[
            "git worktree add -q tree 2>/dev/null; git config -f .git/worktrees/tree/config.worktree core.fsmonitor $E; \
             G=$(mktemp -d); cp -r .git/. $G; git config -f $G/config core.fsmonitor $E; echo $G > .git/worktrees/tree/commondir",
        ],
        dir: "tree",
        act: STATUS,
    },
];

fn as_person(place: &Place, dir: &Path, script: &str) -> bool {
    let mark = place.path.join("mark");
    let _ = std::fs::remove_file(&mark);
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .env("MARK", &mark)
        .env("HOME", place.path.join("home"))
        .envs([
            ("GIT_AUTHOR_NAME", "T"),
            ("GIT_AUTHOR_EMAIL", "t@example.org"),
            ("GIT_COMMITTER_NAME", "T"),
            ("GIT_COMMITTER_EMAIL", "t@example.org"),
        ])
        .output()
        .unwrap();
    assert!(
        done.status.code().is_some(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    mark.exists()
}

#[tokio::test]
async fn what_a_command_leaves_behind_runs_nothing() {
    let names = "GIT_AUTHOR_NAME=T GIT_AUTHOR_EMAIL=t@example.org GIT_COMMITTER_NAME=T GIT_COMMITTER_EMAIL=t@example.org";
    for plant in PLANTS {
        let Some(place) = place("what_a_command_leaves_behind_runs_nothing") else {
            return;
        };
        repository(&place.path.join("library"));
        let work = place.path.join("work");
        assert!(!as_person(&place, &work, plant.before), "{}", plant.name);
        let mut said = String::new();
        for script in plant.scripts {
            said += &place
                .run(&work, &format!("export {names}\n{EVIL}{script}\ntrue"))
                .await;
        }
        let dir = work.join(plant.dir);
        assert!(
            !as_person(&place, &dir, plant.act),
            "{}: {said}",
            plant.name
        );
    }
}

/// Repositories that commands make in the usual way stay as they are.
#[tokio::test]
async fn new_repositories_work() {
    let Some(place) = place("new_repositories_work") else {
        return;
    };
    repository(&place.path.join("library"));
    let work = place.path.join("work");
    let text = place
        .run(
            &work,
            "git init -q one; git clone -q ../library two; git init -q --bare three.git; cd two; \
             git config user.name T; git config user.email t@example.org; git commit -q --allow-empty -m more; git log --format=%s",
        )
        .await;
    assert_eq!(text, "more\nfirst\n");
    for name in [
        "one/.git/config",
        "two/.git/config",
        "three.git/config",
        "two/.git/hooks",
    ] {
        assert!(work.join(name).exists(), "{name}");
    }
    let text = place
        .run(
            &work,
            "git -C two log --format=%s; git -C one status --short",
        )
        .await;
    assert_eq!(text, "more\nfirst\n");
}

/// What is put aside is what the command made, never what a link of its leads to.
#[tokio::test]
async fn nothing_elsewhere_is_renamed() {
    let Some(place) = place("nothing_elsewhere_is_renamed") else {
        return;
    };
    let work = place.path.join("work");
    let theirs = place.path.join("home/.config/Code/User");
    std::fs::create_dir_all(&theirs).unwrap();
    for name in ["settings.json", "tasks.json"] {
        std::fs::write(theirs.join(name), "{}").unwrap();
    }
    let text = place
        .run(
            &work,
            &format!("ln -s {} .vscode; ln -s /etc .idea", theirs.display()),
        )
        .await;
    assert!(text.contains("put-aside"), "{text}");
    for name in ["settings.json", "tasks.json"] {
        assert!(theirs.join(name).exists(), "{name}");
    }
    assert!(!work.join(".vscode").is_symlink());
}

/// Links and visible files of a home from which something is run.
#[tokio::test]
async fn a_home_as_workspace_keeps_what_its_start_files_lead_to() {
    let Some(place) = place("a_home_as_workspace_keeps_what_its_start_files_lead_to") else {
        return;
    };
    let home = place.path.join("home");
    let at = |name: &str| home.join(name);
    std::fs::create_dir_all(at("dotfiles/nvim")).unwrap();
    std::fs::create_dir_all(at(".config")).unwrap();
    std::fs::create_dir_all(at(".cache")).unwrap();
    for name in [
        "dotfiles/bashrc",
        "dotfiles/nvim/init.lua",
        "shell/aliases.sh",
        "githooks/pre-commit",
    ] {
        std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        std::fs::write(at(name), "# mine\n").unwrap();
    }
    std::os::unix::fs::symlink("dotfiles/bashrc", at(".bashrc")).unwrap();
    std::os::unix::fs::symlink("../dotfiles/nvim", at(".config/nvim")).unwrap();
    std::fs::write(at(".profile"), "source \"$HOME/shell/aliases.sh\"\n").unwrap();
    std::fs::write(at(".gitconfig"), "[core]\n\thooksPath = ~/githooks\n").unwrap();
    std::fs::write(at(".cache/prompt.zsh"), "# mine\n").unwrap();
    let script = "for f in dotfiles/bashrc dotfiles/nvim/init.lua shell/aliases.sh githooks/pre-commit .cache/prompt.zsh; do \
        echo evil >> $f; rm -f $f; echo evil > $f; done; rm .bashrc; echo evil > .bashrc; mv dotfiles d2; mkdir dotfiles; \
        echo evil > dotfiles/bashrc; echo evil > .cache/other.zsh; echo fine > notes; true";
    let text = place.run(&home, script).await;
    for name in [
        "dotfiles/bashrc",
        "dotfiles/nvim/init.lua",
        "shell/aliases.sh",
        "githooks/pre-commit",
        ".bashrc",
        ".cache/prompt.zsh",
    ] {
        let held = std::fs::read_to_string(at(name)).unwrap_or_default();
        assert_eq!(held, "# mine\n", "{name}: {text}");
    }
    assert!(!at(".cache/other.zsh").exists());
    assert!(at(".bashrc").is_symlink());
    assert_eq!(std::fs::read_to_string(at("notes")).unwrap(), "fine\n");
}

/// What start-up files name, where the person's directory is not the workspace and where it is not there yet.
#[tokio::test]
async fn what_start_files_name_is_kept_and_not_made() {
    let Some(place) = place("what_start_files_name_is_kept_and_not_made") else {
        return;
    };
    let home = place.path.join("home");
    let at = |name: &str| home.join(name);
    for name in ["dotfiles", "tools", "lib", "work"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("dotfiles/bashrc"), "# mine\n").unwrap();
    std::fs::write(at("tools/mine"), "# mine\n").unwrap();
    std::os::unix::fs::symlink("dotfiles/bashrc", at(".bashrc")).unwrap();
    std::fs::write(
        at(".profile"),
        "PATH=\"$HOME/tools:$HOME/later/bin:$PATH\"\n[ -f ~/lib/a.sh ] && . ~/lib/a.sh\nalias w='cd ~/work/new'\n",
    )
    .unwrap();
    let script = "echo evil > ~/dotfiles/bashrc; rm -f ~/dotfiles/bashrc; echo evil > ~/tools/ls; mkdir -p ~/later/bin; \
        echo evil > ~/later/bin/ls; echo evil > ~/lib/a.sh; mkdir -p ~/work/new; echo fine > ~/work/new/notes; \
        echo fine > ~/dotfiles/notes; true";
    let with_home = format!("export HOME={}; {script}", home.display());
    for cwd in [&home, &at("dotfiles")] {
        let text = place.run(cwd, &with_home).await;
        let held = std::fs::read_to_string(at("dotfiles/bashrc")).unwrap_or_default();
        assert_eq!(held, "# mine\n", "{text}");
        for name in ["tools/ls", "later/bin/ls", "lib/a.sh"] {
            assert!(!at(name).exists(), "{name}: {text}");
        }
        let notes = std::fs::read_to_string(at("dotfiles/notes"));
        assert_eq!(notes.unwrap(), "fine\n", "{text}");
    }
    assert_eq!(
        std::fs::read_to_string(at("work/new/notes")).unwrap(),
        "fine\n"
    );
}

/// What a process puts in place of the files by which it is looked after leads nowhere, and holds nobody up.
#[tokio::test]
async fn links_in_place_of_our_files_are_not_followed() {
    let Some(place) = place("links_in_place_of_our_files_are_not_followed") else {
        return;
    };
    let work = place.path.join("work");
    let private = place.path.join("home/.ssh/id_rsa");
    std::fs::create_dir_all(private.parent().unwrap()).unwrap();
    std::fs::write(&private, "private words\n").unwrap();
    let dir = place.path.join("home/.hermes/processes/planter");
    let script = format!(
        "cd {}; rm -f log exit; ln -s {} log; mkfifo exit; touch {}/ready; sleep 1000",
        dir.display(),
        private.display(),
        work.display()
    );
    let mut command = start("planter", &script, &work);
    command.confinement = place.sandbox.confinement(&work);
    let process = place.env.spawn(command).await.unwrap();
    until(|| work.join("ready").exists(), "it did not start");
    let read = process.read(0, 1000).await;
    let text = read.map_or_else(
        |error| error.to_string(),
        |chunk| String::from_utf8_lossy(&chunk.bytes).into_owned(),
    );
    assert!(!text.contains("private"), "{text}");
    std::fs::write(work.join(".envrc"), "evil").unwrap();
    let found = place.env.adopt(process.record()).await.unwrap().unwrap();
    let after = work.join(".envrc.put-aside");
    until(|| after.exists(), "it is not looked after");
    found.kill(std::time::Duration::ZERO).await.unwrap();
    let held = std::fs::read_to_string(&private).unwrap();
    assert_eq!(held, "private words\n");
}

/// A command that leaves a pipe where its state is read does not hold us up, and one that leaves a link in a
/// directory that serves again gets nothing written through it.
#[tokio::test]
async fn what_is_left_in_the_directory_of_a_call_is_harmless() {
    let Some(place) = place("what_is_left_in_the_directory_of_a_call_is_harmless") else {
        return;
    };
    let work = place.path.join("work");
    let theirs = work.join("theirs");
    std::fs::write(&theirs, "mine").unwrap();
    let find = "S=$(tr '\\0' '\\n' < /proc/$$/cmdline | grep -o '/[^ ]*/state' | head -1); D=$(dirname $S)";
    let text = place
        .run(
            &work,
            &format!("{find}; rm -f $S; mkfifo $S; echo made $(ls $D); exec sleep 0"),
        )
        .await;
    assert!(text.contains("made state"), "{text}");
    let link = format!(
        "{find}; ln -s {} $D/command; exec sleep 0",
        theirs.display()
    );
    place.run(&work, &link).await;
    let long = format!("echo ran # {}", "x".repeat(200_000));
    assert_eq!(place.run(&work, &long).await, "ran\n");
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "mine");
}

fn until(holds: impl Fn() -> bool, what: &str) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}");
}

/// As when Hermes is killed in the middle of a command: its helper sees to what is left.
#[test]
fn nothing_is_left_when_nobody_looks_any_more() {
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::net::UnixStream;

    let test = "nothing_is_left_when_nobody_looks_any_more";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let launch = prison.launch(
        "git init -q new; git -C new config core.fsmonitor evil; echo evil > .envrc; echo /tmp > .git/commondir; \
         echo ready; while :; do sleep 1; done",
    );
    let ahead = prison
        .sandbox
        .prepare_helper(&launch, &prison.limits())
        .unwrap();
    let ahead = ahead.unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let mut helper = Command::new(&ahead.helper.program)
        .args(&ahead.helper.args)
        .env_clear()
        .current_dir(&ahead.helper.cwd)
        .stdin(OwnedFd::from(far))
        .spawn()
        .unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    give(
        &near,
        &ahead.request,
        &[null.as_fd(), writer.as_fd(), writer.as_fd()],
    );
    drop(writer);
    let mut ready = [0; 6];
    std::io::Read::read_exact(&mut reader, &mut ready).unwrap();
    assert!(prison.path("work/.envrc").exists());
    drop(near);
    assert!(helper.wait().unwrap().success());
    for name in ["work/.envrc", "work/.git/commondir", "work/new/.git/config"] {
        assert!(!prison.path(name).exists(), "{name}");
    }
    // Ours to look at: it was a child of this process.
    while rustix::process::wait(rustix::process::WaitOptions::NOHANG)
        .is_ok_and(|done| done.is_some())
    {}
}

/// A process in the background goes on when Hermes ends, and is looked after by the next one.
#[test]
fn a_process_that_is_found_again_is_looked_after() {
    let test = "a_process_that_is_found_again_is_looked_after";
    let Some(place) = place(test) else {
        return;
    };
    let work = place.path.join("work");
    let (gone, left) = (work.join(".envrc"), work.join(".envrc.put-aside"));
    let script = "echo evil > .envrc; echo planted; read go; echo evil > .nvim.lua; read stop";
    let first = tokio::runtime::Runtime::new().unwrap();
    let record = first.block_on(async {
        let mut command = start("planter", script, &work);
        command.confinement = place.sandbox.confinement(&work);
        place.env.spawn(command).await.unwrap().record()
    });
    first.shutdown_background();
    until(|| gone.exists() || left.exists(), "nothing was planted");
    let second = tokio::runtime::Runtime::new().unwrap();
    let found = second.block_on(async { place.env.adopt(record).await });
    let found = found.unwrap().unwrap();
    until(|| !gone.exists() && left.exists(), "it was left");
    second
        .block_on(async { found.write("go\n".into()).await })
        .unwrap();
    let later = work.join(".nvim.lua.put-aside");
    until(|| later.exists(), "it is not looked after");
    let kept = place.path.join("home/.hermes/processes/planter.awaited");
    second
        .block_on(async { found.kill(std::time::Duration::ZERO).await })
        .unwrap();
    until(|| !kept.exists(), "it is looked after for ever");
}
