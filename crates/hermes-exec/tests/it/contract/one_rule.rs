//! One rule says what runs later, for commands and for tools that write files themselves: whatever a command cannot
//! put in place, however it tries, is what such a tool has to ask about.

use std::path::Path;

use super::run_later::{Place, git, place, repository};
use hermes_core::private::{RUN_LATER_IN_GIT, RUN_LATER_IN_PROJECT};

/// Ways to get a file called `$P` into place. `$N` is different for each.
const WAYS: &[&str] = &[
    "mkdir -p $(dirname $P); echo evil > $P",
    "echo evil > x$N; mkdir -p $(dirname $P); mv -f x$N $P",
    "echo evil > x$N; mkdir -p $(dirname $P); ln -sfn $PWD/x$N $P",
    "echo evil > x$N; mkdir -p $(dirname $P); ln -f x$N $P",
    // The directory around it, and the whole way to it.
    "D=$(dirname $P); mkdir -p x$N $(dirname $D); echo evil > x$N/$(basename $P); mv -T x$N $D",
    "D=$(dirname $P); mkdir -p x$N $(dirname $D); echo evil > x$N/$(basename $P); ln -sfn $PWD/x$N $D",
    "T=${P%%/*}; mkdir -p x$N/$(dirname $P); echo evil > x$N/$P; mv -T x$N/$T $T || cp -rT x$N/$T $T",
    "mkdir -p x$N/$(dirname $P); echo evil > x$N/$P; tar -C x$N -cf x$N.tar .; tar -xf x$N.tar",
    // A file that is there, exchanged for another; a directory that is there, left and made again.
    "rm -rf $P; mkdir -p $(dirname $P); echo evil > $P",
    "T=${P%%/*}; mv $T y$N; mkdir -p $(dirname $P); echo evil > $P",
    // It comes while another process still runs, and from another directory.
    "(cd /tmp; mkdir -p $(dirname $W/$P); echo evil > $W/$P) & wait",
];

/// What a workspace with a repository and a submodule without hooks has.
fn prepared() -> Option<Place> {
    let place = place("one rule for commands and tools")?;
    let work = place.path.join("work");
    repository(&place.path.join("library"));
    let from = place.path.join("library");
    let add = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
    ];
    git(
        &work,
        &[&add[..], &[from.to_str().unwrap(), "library"]].concat(),
    );
    repository(&work.join("nested"));
    for dir in [
        ".git/hooks",
        ".git/modules/library/hooks",
        "nested/.git/hooks",
    ] {
        std::fs::remove_dir_all(work.join(dir)).unwrap();
    }
    git(&work, &["config", "core.hooksPath", "tools/hooks"]);
    git(&work, &["config", "filter.f.clean", "./scripts/clean %f"]);
    git(&work, &["config", "include.path", "../shared.gitconfig"]);
    std::fs::write(work.join(".envrc"), "mine").unwrap();
    std::fs::create_dir_all(work.join("pkg/app/.vscode")).unwrap();
    std::fs::write(work.join("pkg/app/.vscode/tasks.json"), "mine").unwrap();
    Some(place)
}

/// What runs later in it.
fn run_later() -> Vec<String> {
    let mut paths = Vec::new();
    for name in RUN_LATER_IN_PROJECT {
        for project in ["", "pkg/app/", "nested/", "made/"] {
            paths.push(format!("{project}{name}"));
        }
    }
    for name in RUN_LATER_IN_GIT {
        for dir in [".git", ".git/modules/library", "nested/.git"] {
            let inside = if *name == "hooks" {
                "/post-checkout"
            } else {
                ""
            };
            paths.push(format!("{dir}/{name}{inside}"));
        }
    }
    let named = [
        "tools/hooks/pre-commit",
        "scripts/clean",
        "shared.gitconfig",
    ];
    paths.extend(named.map(str::to_owned));
    paths
}

/// What does not.
const FREE: &[&str] = &[
    "src/main.rs",
    "settings.json",
    "pkg/app/tasks.json",
    "pkg/app/.vscode/extensions.json",
    ".github/workflows/ci.yml",
    "tools/run",
    "scripts/other",
    "docs/config",
    "docs/hooks/x",
    ".gitignore",
];

fn is_evil(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("evil"))
        || path.read_dir().is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| is_evil(&entry.path())))
        })
}

#[tokio::test]
async fn what_commands_cannot_put_in_place_tools_ask_about() {
    for way in WAYS {
        let Some(place) = prepared() else {
            return;
        };
        let work = place.path.join("work");
        let paths = run_later();
        for path in &paths {
            assert!(place.sandbox.runs_later(&work, &work.join(path)), "{path}");
        }
        for path in FREE {
            assert!(!place.sandbox.runs_later(&work, &work.join(path)), "{path}");
        }
        let all = paths.iter().map(String::as_str).chain(FREE.iter().copied());
        let steps: Vec<String> = all
            .map(|path| format!("N=$((N+1)); P={path}; {{ {way}; }}\n"))
            .collect();
        let start = format!("exec 2> /dev/null; W={}; N=0\n", work.display());
        let script = start + &steps.concat();
        let said = place.run(&work, &script).await;
        for path in &paths {
            assert!(!is_evil(&work.join(path)), "{path} by {way}: {said}");
        }
        if way.starts_with("mkdir") || way.starts_with("echo") {
            for path in FREE {
                assert!(is_evil(&work.join(path)), "{path} by {way}: {said}");
            }
        }
    }
}

/// What git would take for a repository is one whatever it is called.
#[tokio::test]
async fn a_directory_becomes_a_repository_by_its_last_part() {
    let Some(place) = prepared() else {
        return;
    };
    let work = place.path.join("work");
    let parts = ["HEAD", "objects/x", "refs/x"];
    for last in parts {
        let dir = work.join(format!("data-{}", &last[..4]));
        for part in parts.iter().filter(|part| **part != last) {
            let path = dir.join(part);
            assert!(!place.sandbox.runs_later(&work, &path), "{part}");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert!(place.sandbox.runs_later(&work, &dir.join(last)), "{last}");
        assert!(!place.sandbox.runs_later(&work, &dir.join("config")));
        std::fs::create_dir_all(dir.join(last)).unwrap();
        assert!(place.sandbox.runs_later(&work, &dir.join("config")));
    }
}
