//! Files: ways out of the workspace, and patterns that would like to be options.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{OutsideDir, commands, turn};
use crate::CliHarness;

fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"path": path, "content": "evil\n"}))
}

fn replace(path: &str) -> (&'static str, Value) {
    let arguments =
        json!({"mode": "replace", "path": path, "old_string": "precious", "new_string": "evil"});
    ("patch", arguments)
}

fn v4a(body: &str) -> (&'static str, Value) {
    let text = format!("*** Begin Patch\n{body}\n*** End Patch\n");
    ("patch", json!({"mode": "patch", "patch": text}))
}

/// Every change that the file tools know, aimed at this directory.
fn changes(dir: &str) -> Vec<(&'static str, Value)> {
    vec![
        write(&format!("{dir}/new.txt")),
        write(&format!("{dir}/victim.txt")),
        write(&format!("{dir}/deep/new.txt")),
        replace(&format!("{dir}/victim.txt")),
        v4a(&format!("*** Add File: {dir}/added.txt\n+evil")),
        v4a(&format!(
            "*** Update File: {dir}/victim.txt\n@@\n-precious\n+evil"
        )),
        v4a(&format!("*** Delete File: {dir}/victim.txt")),
        v4a(&format!(
            "*** Move File: {dir}/victim.txt -> {dir}/moved.txt"
        )),
        v4a(&format!("*** Move File: mine.txt -> {dir}/moved.txt")),
        v4a(&format!(
            "*** Update File: mine.txt\n*** Move to: {dir}/moved.txt\n@@\n-mine\n+evil"
        )),
        // The first part is harmless, the second is not: neither may happen.
        v4a(&format!(
            "*** Update File: mine.txt\n@@\n-mine\n+evil\n*** Add File: {dir}/added.txt\n+evil"
        )),
    ]
}

fn assert_refused(calls: &[(&str, Value)], seen: &[Value]) {
    for ((name, arguments), result) in calls.iter().zip(seen) {
        let refused = result["error"].is_string() || result.is_string();
        assert!(refused, "{name} {arguments}: {result}");
        assert_ne!(result["success"], true, "{name} {arguments}: {result}");
    }
}

#[test]
fn no_spelling_of_a_path_leads_a_change_out_of_the_workspace() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let work = setup.home.work();
    std::fs::write(work.join("mine.txt"), "mine\n").unwrap();
    std::fs::create_dir(work.join("sub")).unwrap();
    let absolute = outside.path().display().to_string();
    let relative = outside.relative_from(&work);
    for dir in [
        absolute.clone(),
        relative.clone(),
        format!("sub/../{relative}"),
        format!("./sub/./../sub/../{relative}"),
        format!("/proc/self/root{absolute}"),
        format!("/proc/self/cwd/{relative}"),
        format!("//{absolute}"),
    ] {
        let calls = changes(&dir);
        let seen = turn(&setup, &[], &calls);
        outside.assert_untouched(&(&dir, &seen));
        assert_refused(&calls, &seen);
        let mine = std::fs::read_to_string(work.join("mine.txt")).unwrap();
        assert_eq!(mine, "mine\n", "{dir}: half a patch was applied");
    }
}

#[test]
fn a_linked_directory_or_file_leads_no_change_out_of_the_workspace() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let work = setup.home.work();
    std::fs::write(work.join("mine.txt"), "mine\n").unwrap();
    symlink(outside.path(), work.join("link")).unwrap();
    symlink("link", work.join("chain")).unwrap();
    symlink("/", work.join("root")).unwrap();
    symlink(outside.join("victim.txt"), work.join("file.txt")).unwrap();
    symlink(outside.join("dangling.txt"), work.join("dangling.txt")).unwrap();
    let below_root = format!("root{}", outside.path().display());
    for dir in ["link", "chain", "link/../link", &below_root] {
        let calls = changes(dir);
        let seen = turn(&setup, &[], &calls);
        outside.assert_untouched(&(dir, &seen));
        assert_refused(&calls, &seen);
    }
    let calls = [
        write("file.txt"),
        replace("file.txt"),
        write("dangling.txt"),
        v4a("*** Update File: file.txt\n@@\n-precious\n+evil"),
    ];
    let seen = turn(&setup, &[], &calls);
    outside.assert_untouched(&seen);
    assert_refused(&calls, &seen);
    // Commands are judged by their text; the sandbox is what holds.
    let scripts = [
        "echo evil > link/new.txt",
        "echo evil > file.txt",
        "echo evil > dangling.txt",
        "cp mine.txt chain/copy.txt",
        "ln -sfn link other; echo evil >> other/victim.txt",
    ];
    let seen = commands(&setup, &[], &scripts);
    outside.assert_untouched(&seen);
    for (script, result) in scripts.iter().zip(&seen) {
        assert_ne!(result["exit_code"], 0, "{script}: {result}");
    }
}

/// Swaps `name` between what it is and a link to `target` until told to stop.
fn swapper(name: &Path, target: &Path, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (name, target, stop) = (name.to_owned(), target.to_owned(), Arc::clone(stop));
    let (aside, link) = (name.with_extension("aside"), name.with_extension("link"));
    std::thread::spawn(move || {
        symlink(&target, &link).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let _ = std::fs::rename(&name, &aside);
            let _ = std::fs::rename(&link, &name);
            std::thread::yield_now();
            let _ = std::fs::rename(&name, &link);
            let _ = std::fs::rename(&aside, &name);
            std::thread::yield_now();
        }
    })
}

#[test]
fn a_link_swapped_in_while_the_turn_runs_leads_nowhere() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let work = setup.home.work();
    let marker = "only-in-the-home-7719";
    setup
        .home
        .write("auth.json", format!("{{\"note\": \"{marker}\"}}\n"));
    for dir in ["reads", "writes"] {
        std::fs::create_dir(work.join(dir)).unwrap();
        std::fs::write(work.join(dir).join("victim.txt"), "precious\n").unwrap();
        std::fs::write(work.join(dir).join("auth.json"), "{}\n").unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = [
        swapper(&work.join("reads"), &setup.home.path(), &stop),
        swapper(&work.join("writes"), outside.path(), &stop),
    ];
    let mut calls = Vec::new();
    for round in 0..12 {
        calls.push((
            "read_file",
            json!({"path": "reads/auth.json", "limit": 100 + round}),
        ));
        calls.push((
            "search_files",
            json!({"pattern": "only-in", "path": "reads", "limit": 10 + round}),
        ));
        calls.push(write(&format!("writes/new{round}.txt")));
        calls.push(replace("writes/victim.txt"));
        calls.push((
            "terminal",
            json!({"command": "echo evil > writes/victim.txt; cat reads/auth.json"}),
        ));
    }
    let seen = turn(&setup, &[], &calls);
    stop.store(true, Ordering::Relaxed);
    for thread in swaps {
        thread.join().unwrap();
    }
    outside.assert_untouched(&seen);
    let sent = setup.server.last_request().body_text();
    assert!(!sent.contains(marker), "{sent}");
}

#[test]
fn a_pattern_is_never_an_option() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    let (script, mark) = (work.join("run.sh"), work.join("ran"));
    std::fs::write(
        &script,
        format!("#!/bin/sh\ntouch '{}'\ncat\n", mark.display()),
    )
    .unwrap();
    let mut mode = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let pre = format!("--pre={}", script.display());
    std::fs::create_dir(work.join("dir")).unwrap();
    std::fs::write(
        work.join("dir/a.txt"),
        format!("uses {pre} here\nand -e there\nand --files\n"),
    )
    .unwrap();
    std::fs::write(work.join("dir/-e"), "other\n").unwrap();
    let search =
        |pattern: &str, path: &str| ("search_files", json!({"pattern": pattern, "path": path}));
    let calls = [
        search(&pre, "dir"),
        search("-e", "dir"),
        search("--files", "dir"),
        search(&format!("-f{}", work.join("run.sh").display()), "dir"),
        search("other", &pre),
        (
            "search_files",
            json!({"pattern": "uses", "path": "dir", "file_glob": pre}),
        ),
        (
            "search_files",
            json!({"pattern": &pre, "path": "dir", "target": "files"}),
        ),
        (
            "search_files",
            json!({"pattern": "-e", "path": "dir", "target": "files"}),
        ),
    ];
    let seen = turn(&setup, &[], &calls);
    assert!(!mark.exists(), "a pattern was run: {seen:?}");
    for (at, expected) in [(0, 1), (1, 1), (2, 1), (3, 0), (5, 0), (6, 0), (7, 1)] {
        assert_eq!(
            seen[at]["total_count"], expected,
            "{}: {}",
            calls[at].1, seen[at]
        );
    }
}

#[test]
fn the_home_is_not_open_because_what_lies_above_it_is() {
    // The home of these tests is below a temporary directory, where everything may be written.
    let setup = CliHarness::new();
    let names = [
        "skills/x/SKILL.md",
        "memories/MEMORY.md",
        "cron/jobs.json",
        "scripts/x.sh",
        "hooks/x/handler.py",
        "plugins/x.py",
        "SOUL.md",
        "anything.txt",
    ];
    let paths = names.map(|name| setup.home.join(name).display().to_string());
    let mut calls: Vec<_> = paths.iter().map(|path| write(path)).collect();
    calls.extend(
        paths
            .iter()
            .map(|path| v4a(&format!("*** Add File: {path}\n+evil"))),
    );
    let seen = turn(&setup, &[], &calls);
    assert_refused(&calls, &seen);
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(!text.contains("evil"), "{path}");
    }
}

#[test]
fn where_a_session_went_is_not_its_workspace() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let go = format!("cd {}", outside.path().display());
    let code = "open('victim.txt', 'a').write('evil')";
    let calls = [
        ("terminal", json!({"command": go})),
        ("terminal", json!({"command": "echo evil > new.txt"})),
        ("execute_code", json!({"code": code})),
    ];
    let seen = turn(&setup, &["--yolo"], &calls);
    assert_eq!(seen[0]["exit_code"], 0, "{seen:?}");
    outside.assert_untouched(&seen);
}

#[test]
fn a_link_in_place_of_the_workspace_leads_nowhere() {
    // With every approval given only the sandbox is in the way; without, what asks is refused too.
    for flags in [&["--yolo"][..], &[]] {
        let (setup, outside) = (CliHarness::new(), OutsideDir::new());
        let work = setup.home.work();
        let swap = format!(
            "cd / && mv {0} {0}.was && ln -s {1} {0}",
            work.display(),
            outside.path().display()
        );
        let write_there = format!("cd {} && echo evil > new.txt", work.display());
        let code = "open('new.txt', 'w').write('evil')";
        let mut calls = vec![
            ("terminal", json!({"command": swap})),
            ("terminal", json!({"command": write_there})),
            ("execute_code", json!({"code": code})),
        ];
        if flags.is_empty() {
            calls.push(write("new.txt"));
        }
        let seen = turn(&setup, flags, &calls);
        assert_eq!(seen[0]["exit_code"], 0, "{seen:?}");
        outside.assert_untouched(&seen);
    }
}
