//! Files that a person's shell, editor or git runs later: no confined command makes or changes one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use hermes_core::private::{RUN_LATER_IN_GIT, RUN_LATER_IN_PROJECT};
use hermes_exec::git::ForeignRepository;
use hermes_exec::local::LocalEnvironment;
use hermes_exec::sandbox::{Sandbox, SandboxChoice};
use hermes_exec::{Confine as _, Exec};

use super::attacks::Prison;
use super::confined::{outside, settings};
use crate::support;

pub(crate) fn git(dir: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.org",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

pub(crate) fn repository(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "--quiet", "-b", "main"]);
    git(dir, &["config", "user.name", "T"]);
    git(dir, &["config", "user.email", "t@example.org"]);
    std::fs::write(dir.join("file"), "one\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "--quiet", "-m", "first"]);
}

/// Everything below `dir` that is no directory, with what it holds.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

#[test]
fn settings_and_hooks_of_repositories_stay_and_git_works() {
    let test = "settings_and_hooks_of_repositories_stay_and_git_works";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let work = prison.path("work");
    std::fs::remove_dir_all(work.join(".git")).unwrap();
    repository(&prison.path("library"));
    repository(&work);
    repository(&work.join("nested"));
    let library = prison.path("library").display().to_string();
    git(&work, &["submodule", "--quiet", "add", &library, "sub"]);
    git(&work, &["commit", "--quiet", "-am", "submodule"]);
    let held = |name: &str| contents(&work.join(name));
    let kept = [".git/hooks", "nested/.git/hooks", ".git/modules/sub/hooks"];
    let configs = [
        ".git/config",
        "nested/.git/config",
        ".git/modules/sub/config",
        "sub/.git",
    ];
    let before: Vec<_> = kept.iter().map(|name| held(name)).collect();
    let read = |name: &str| std::fs::read(work.join(name)).unwrap();
    let before_configs: Vec<_> = configs.iter().map(|name| read(name)).collect();
    for dir in [".git", "nested/.git", ".git/modules/sub"] {
        let script = format!(
            "d={dir}; echo evil > $d/hooks/pre-commit; echo evil >> $d/config; git config -f $d/config core.fsmonitor evil; \
             mv $d/hooks $d/h; mkdir $d/hooks; echo evil > $d/hooks/post-checkout; \
             mv $d $d-was; mkdir -p $d/hooks; echo evil > $d/hooks/post-checkout; cp -r $d-was/* $d; echo evil > $d/config; \
             rm -rf $d/hooks $d/config; ln -sfn /tmp $d/hooks; mv $d/config.lock $d/config; chmod 777 $d/config; \
             echo 'gitdir: /tmp/evil' > sub/.git; mv sub gone; mv nested gone2; true"
        );
        for said in [prison.run(&script), prison.run_at_once(&script)] {
            assert_eq!(said.code, Some(0), "{}", said.text);
        }
    }
    for (name, before) in kept.iter().zip(before) {
        assert_eq!(held(name), before, "{name}");
    }
    for (name, before) in configs.iter().zip(before_configs) {
        assert_eq!(read(name), before, "{name}");
    }
    let said = prison.run(
        "echo two >> file && git add file && git commit --quiet -m second && git checkout --quiet -b other && \
         git stash list && git tag x && git branch -d main; git log --format=%s | head -1; git gc --quiet; \
         git -C nested commit --quiet --allow-empty -m n && git status --short | grep -v '??'",
    );
    assert!(said.text.contains("second\n"), "{}", said.text);
    assert!(!said.text.contains("Read-only"), "{}", said.text);
}

#[test]
fn what_installed_hooks_and_direnv_run_stays() {
    let test = "what_installed_hooks_and_direnv_run_stays";
    let Some(prison) = Prison::new(test, |settings| {
        settings.own_commands = vec!["./tools/notify --now".to_owned()];
    }) else {
        return;
    };
    let work = prison.path("work");
    std::fs::remove_dir_all(work.join(".git")).unwrap();
    repository(&work);
    let write = |name: &str, text: &str| {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(
        ".git/hooks/pre-commit",
        "#!/bin/sh\n./scripts/lint.sh && python3 tools/check.py && lefthook run pre-commit && ./tools/late.sh\n",
    );
    std::os::unix::fs::symlink("../../scripts/push.sh", work.join(".git/hooks/pre-push")).unwrap();
    write(".husky/pre-commit", "npx lint-staged\n");
    write(".envrc", "source_env .envrc.mine\nuse flake\n. ./env\n");
    let kept = [
        "scripts/lint.sh",
        "tools/check.py",
        "lefthook.yml",
        "scripts/push.sh",
        ".lintstagedrc",
        ".envrc.mine",
        "flake.nix",
        "env",
        "tools/notify",
    ];
    for name in kept {
        write(name, "as before\n");
    }
    write("src/main.rs", "as before\n");
    for name in kept {
        let script = format!("echo evil > {name}; mv {name} {name}.was; echo evil > {name}; true");
        prison.run(&script);
        prison.run_at_once(&script);
    }
    for name in kept {
        let text = std::fs::read_to_string(work.join(name)).unwrap();
        assert_eq!(text, "as before\n", "{name}");
    }
    prison.run("echo mine > src/main.rs; echo mine > scripts/other.sh");
    assert_eq!(
        std::fs::read_to_string(work.join("src/main.rs")).unwrap(),
        "mine\n"
    );
    assert!(work.join("scripts/other.sh").exists());
}

#[tokio::test]
async fn what_installed_hooks_and_direnv_run_is_not_put_there() {
    let Some(place) = place("what_installed_hooks_and_direnv_run_is_not_put_there") else {
        return;
    };
    let work = place.path.join("work");
    let hook = "#!/bin/sh\npython3 tools/late.py; pre-commit run\n";
    std::fs::write(work.join(".git/hooks/pre-commit"), hook).unwrap();
    std::fs::write(work.join(".envrc"), "source_env_if_exists .envrc.mine\n").unwrap();
    let names = ["tools/late.py", ".pre-commit-config.yaml", ".envrc.mine"];
    for name in names {
        let script = format!("mkdir -p tools; echo evil > {name}");
        let text = place.run(&work, &script).await;
        assert!(!work.join(name).exists(), "{name}: {text}");
    }
    place.run(&work, "echo mine > tools/other.py").await;
    assert!(work.join("tools/other.py").exists());
}

pub(crate) struct Place {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) env: LocalEnvironment,
}

pub(crate) fn place(test: &str) -> Option<Place> {
    let dir = outside();
    let path = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(path.join("home/.hermes")).unwrap();
    repository(&path.join("work"));
    let sandbox = Arc::new(Sandbox::detect(settings(SandboxChoice::Landlock, &path)));
    if !sandbox.enforces() {
        hermes_testkit::oracle::skip(&sandbox.posture(), test);
        return None;
    }
    let env = LocalEnvironment::new(
        support::settings(&path.join("home/.hermes")),
        sandbox.clone(),
    )
    .unwrap();
    Some(Place {
        _dir: dir,
        path,
        sandbox,
        env,
    })
}

impl Place {
    pub(crate) async fn run(&self, cwd: &Path, script: &str) -> String {
        let mut command = Exec::new(script, cwd);
        command.confinement = self.sandbox.confinement(cwd);
        support::run(&self.env, command).await.1
    }
}

#[tokio::test]
async fn what_would_run_later_is_not_made_either() {
    let Some(place) = place("what_would_run_later_is_not_made_either") else {
        return;
    };
    let work = place.path.join("work");
    std::fs::remove_dir_all(work.join(".git/hooks")).unwrap();
    let names: Vec<String> = RUN_LATER_IN_PROJECT
        .iter()
        .map(|&name| name.to_owned())
        .chain(RUN_LATER_IN_GIT.iter().map(|name| format!(".git/{name}")))
        .filter(|name| !work.join(name).exists())
        .collect();
    for name in &names {
        let script = format!(
            "mkdir -p $(dirname {name}); mkdir {name}; echo evil > {name}/pre-commit || echo evil > {name}; true"
        );
        place.run(&work, &script).await;
        let script = format!("mkdir -p $(dirname {name}); echo evil > {name}; true");
        let text = place.run(&work, &script).await;
        assert!(!work.join(name).exists(), "{name}: {text}");
        assert!(text.contains("put-aside"), "{name}: {text}");
    }
    let text = place
        .run(&work, "git status --short | head -1; git log --format=%s")
        .await;
    assert!(text.ends_with("first\n"), "{text}");
}

#[tokio::test]
async fn a_home_as_workspace_gets_no_new_start_files() {
    let Some(place) = place("a_home_as_workspace_gets_no_new_start_files") else {
        return;
    };
    let home = place.path.join("home");
    repository(&home.join("code/project"));
    std::fs::create_dir_all(home.join(".config/there")).unwrap();
    std::fs::write(home.join(".profile"), "# mine\n").unwrap();
    let names = [
        ".bash_profile",
        ".bashrc",
        ".zshrc",
        ".zshenv",
        ".gitconfig",
        ".config/git/config",
        ".config/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".config/fish/config.fish",
        "bin/ls",
        ".local/bin/ls",
        ".ssh/rc",
        ".vimrc",
        ".tmux.conf",
        ".inputrc",
        ".npmrc",
        ".some-future-tool",
        ".git/hooks/pre-commit",
        ".profile",
        ".pam_environment",
        "code/project/.git/hooks/pre-commit",
        "code/project/.git/config",
    ];
    let before: Vec<_> = names
        .iter()
        .map(|name| std::fs::read(home.join(name)).ok())
        .collect();
    for (name, before) in names.iter().zip(before) {
        let text = place
            .run(
                &home,
                &format!("mkdir -p $(dirname {name}); echo evil > {name}; true"),
            )
            .await;
        assert_eq!(
            std::fs::read(home.join(name)).ok(),
            before,
            "{name}: {text}"
        );
    }
    let all = names
        .map(|name| format!("mkdir -p $(dirname {name}); echo evil > {name}"))
        .join("; ");
    place.run(&home, &format!("{all}; true")).await;
    for name in [".bash_profile", ".gitconfig", "bin", ".local", ".git"] {
        assert!(!home.join(name).exists(), "{name}");
    }
    let text = place
        .run(&home, "echo note > notes && mkdir new && echo x > new/x && sed -i s/note/more/ notes && cat notes new/x && mv notes n2 && rm -r n2 new && echo done")
        .await;
    assert_eq!(text, "more\nx\ndone\n");
    let text = place.run(&home, "cd code/project && echo 2 >> file && git commit --quiet -am 2 && git log --format=%s | head -1").await;
    assert_eq!(text, "2\n");
}

/// Every way in which a repository can name a program, or another file that does.
const KEYS: &[&str] = &[
    "core.fsmonitor",
    "core.hooksPath",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "core.attributesFile",
    "diff.external",
    "diff.x.textconv",
    "diff.x.command",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "pager.diff",
    "pager.rev-parse",
    "alias.diff",
    "alias.rev-parse",
    "credential.helper",
    "gpg.program",
    "interactive.diffFilter",
    "merge.x.driver",
    "sequence.editor",
    "uploadpack.packObjectsHook",
    "include.path",
    "includeIf.gitdir:/.path",
    "remote.origin.uploadpack",
    "diff.submodule",
    "status.submoduleSummary",
];

/// None of them counts.
#[tokio::test]
async fn a_look_at_a_repository_runs_nothing_of_it() {
    let dir = outside();
    let path = dir.path().canonicalize().unwrap();
    let marker = path.join("marker");
    let evil = path.join("evil.sh");
    std::fs::write(
        &evil,
        format!("#!/bin/sh\ntouch {}\ncat\nexit 0\n", marker.display()),
    )
    .unwrap();
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let evil = evil.display().to_string();
    for &key in KEYS {
        let repo = path.join(format!("repo-{}", key.replace(['.', ':', '/'], "-")));
        repository(&repo);
        std::fs::write(repo.join(".gitattributes"), "* filter=x diff=x merge=x\n").unwrap();
        std::fs::write(repo.join(".git/info/attributes"), "* filter=x diff=x\n").unwrap();
        let value = value_of(key, &path, &evil);
        git(&repo, &["config", key, &value]);
        git(&repo, &["config", "filter.x.required", "true"]);
        std::fs::copy(&evil, repo.join(".git/hooks/post-index-change")).unwrap();
        std::fs::write(repo.join("file"), "two\n").unwrap();
        looked_at(&repo, &path, &marker, key).await;
    }
    // A submodule has settings of its own, and so has a worktree.
    let outer = path.join("outer");
    repository(&outer);
    let library = path.join("library");
    repository(&library);
    git(
        &outer,
        &[
            "submodule",
            "--quiet",
            "add",
            &library.display().to_string(),
            "sub",
        ],
    );
    git(&outer, &["commit", "--quiet", "-am", "sub"]);
    git(&outer.join("sub"), &["config", "core.fsmonitor", &evil]);
    std::fs::write(outer.join("sub/file"), "changed\n").unwrap();
    std::fs::write(outer.join("file"), "two\n").unwrap();
    looked_at(&outer, &path, &marker, "submodule").await;
    git(&outer, &["worktree", "add", "--quiet", "../tree"]);
    git(&outer, &["config", "extensions.worktreeConfig", "true"]);
    let tree = path.join("tree");
    git(&tree, &["config", "--worktree", "core.fsmonitor", &evil]);
    let _ = std::fs::remove_file(&marker);
    std::fs::write(tree.join("file"), "two\n").unwrap();
    looked_at(&tree, &path, &marker, "worktree").await;
}

/// What the key is set to: the program, or where it is named.
fn value_of(key: &str, path: &Path, evil: &str) -> String {
    match key {
        "include.path" | "includeIf.gitdir:/.path" => {
            let included = path.join("included");
            std::fs::write(
                &included,
                format!("[core]\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n"),
            )
            .unwrap();
            included.display().to_string()
        }
        "core.hooksPath" => {
            let hooks = path.join("hooks");
            std::fs::create_dir_all(&hooks).unwrap();
            for name in [
                "post-index-change",
                "pre-commit",
                "fsmonitor-watchman",
                "reference-transaction",
            ] {
                std::fs::copy(evil, hooks.join(name)).unwrap();
            }
            hooks.display().to_string()
        }
        "diff.submodule" => "log".to_owned(),
        _ => evil.to_owned(),
    }
}

async fn looked_at(repo: &Path, path: &Path, marker: &Path, key: &str) {
    let _ = std::fs::remove_file(marker);
    let own = path.join("own");
    let repository = ForeignRepository::around(repo, &own)
        .await
        .unwrap()
        .unwrap();
    let text = repository.diff(repo, false, None).await.unwrap();
    assert!(text.contains("+two"), "{key}: {text}");
    repository.diff(repo, true, None).await.unwrap();
    repository.diff(repo, false, Some("file")).await.unwrap();
    assert!(!marker.exists(), "{key}");
}

#[tokio::test]
async fn a_repository_without_a_commit_can_be_looked_at() {
    let dir = outside();
    git(dir.path(), &["init", "--quiet"]);
    std::fs::write(dir.path().join("new"), "first words\n").unwrap();
    git(dir.path(), &["add", "."]);
    let own = dir.path().join("own");
    let repository = ForeignRepository::around(dir.path(), &own)
        .await
        .unwrap()
        .unwrap();
    let text = repository.diff(dir.path(), false, None).await.unwrap();
    assert!(text.contains("+first words"), "{text}");
}
