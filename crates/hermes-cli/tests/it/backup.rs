//! `hermes backup` and `hermes import`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hermes_core::clock::SystemClock;
use hermes_store::Store;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::FinishedProgram;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::hermes;

fn session(id: &str, messages: usize) -> Value {
    let messages: Vec<Value> = (0..messages)
        .map(|n| json!({"role": "user", "content": format!("words {n}"), "timestamp": 1_735_700_000.0}))
        .collect();
    json!({"id": id, "source": "cli", "started_at": 1_735_700_000.0, "messages": messages})
}

fn import_session(home: &TempHome, id: &str) {
    let file = home.user().join("in.jsonl");
    std::fs::write(&file, session(id, 3).to_string()).unwrap();
    drop(
        hermes(home)
            .args(["sessions", "import", file.to_str().unwrap()])
            .run()
            .ok(),
    );
}

/// A home with a little of everything.
fn filled() -> TempHome {
    let home = TempHome::new();
    home.config("model:\n  default: m\n");
    home.env_file("OPENROUTER_API_KEY=sk-or-v1-abc\n");
    home.write("skills/cat/a/SKILL.md", "---\nname: a\n---\nbody\n");
    home.write("memories/MEMORY.md", "likes tea");
    home.write("memories/MEMORY.md.lock", "");
    home.write("cache/big.bin", vec![0; 10_000]);
    home.write("profiles/work/config.yaml", "model: {}\n");
    home.write("gateway.pid", "{}");
    import_session(&home, "20250101_a");
    home
}

fn backup(home: &TempHome) -> PathBuf {
    let path = home.work().join("home.zip");
    drop(
        hermes(home)
            .args(["backup", "-o", path.to_str().unwrap()])
            .run()
            .ok(),
    );
    path
}

fn import(home: &TempHome, zip: &Path, more: &[&str]) -> FinishedProgram {
    hermes(home)
        .args(["import", zip.to_str().unwrap()])
        .args(more)
        .run()
}

fn names(zip: &Path) -> Vec<String> {
    let archive = ZipArchive::new(File::open(zip).unwrap()).unwrap();
    let mut names: Vec<String> = archive
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    names.sort();
    names
}

fn ids(home: &TempHome) -> Vec<String> {
    let list = hermes(home)
        .args(["sessions", "list", "--json"])
        .run()
        .ok()
        .json();
    let rows = list.as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned())
        .collect()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_home_goes_into_a_file_and_comes_out_elsewhere() {
    let home = filled();
    let zip = backup(&home);
    assert_eq!(mode(&zip), 0o600);
    assert_eq!(
        names(&zip),
        [
            ".env",
            "config.yaml",
            "memories/MEMORY.md",
            "profiles/work/config.yaml",
            "skills/cat/a/SKILL.md",
            "state.db",
        ]
    );
    let other = TempHome::new();
    let report = import(&other, &zip, &["--json"]).ok().json();
    assert_eq!(
        (&report["files"], &report["previous"]),
        (&json!(6), &Value::Null)
    );
    assert_eq!(ids(&other), ["20250101_a"]);
    assert_eq!(other.read("memories/MEMORY.md"), "likes tea");
    assert_eq!(other.read("config.yaml"), home.read("config.yaml"));
    for file in [".env", "config.yaml", "state.db"] {
        assert_eq!(mode(&other.join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&other.path()), 0o700);
}

#[test]
fn a_home_that_is_there_is_replaced_only_when_forced_and_then_kept() {
    let home = filled();
    let zip = backup(&home);
    let other = TempHome::new();
    other.config("model:\n  default: precious\n");
    import_session(&other, "20260202_b");
    let done = import(&other, &zip, &[]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    assert!(done.stderr.contains("--force"), "{}", done.stderr);
    assert_eq!(ids(&other), ["20260202_b"]);
    let report = import(&other, &zip, &["-f", "--json"]).ok().json();
    assert_eq!(ids(&other), ["20250101_a"]);
    let previous = PathBuf::from(report["previous"].as_str().unwrap());
    assert!(
        std::fs::read_to_string(previous.join("config.yaml"))
            .unwrap()
            .contains("precious")
    );
    assert!(previous.join("state.db").is_file());
    // Nothing half done is left beside it.
    let beside = std::fs::read_dir(other.path().parent().unwrap()).unwrap();
    assert!(!beside.flatten().any(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(".hermes-import")
    }));
}

#[test]
fn a_database_that_is_being_written_is_copied_whole() {
    let home = filled();
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(std::sync::Barrier::new(2));
    let writer = {
        let (stop, begun, path) = (Arc::clone(&stop), Arc::clone(&begun), home.join("state.db"));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let store = Store::open(path, Arc::new(SystemClock)).unwrap();
                let mut number = 0;
                while number == 0 || !stop.load(Ordering::SeqCst) {
                    let sessions = vec![session(&format!("busy_{number:05}"), 20)];
                    store.import(sessions).await.unwrap();
                    if number == 0 {
                        begun.wait();
                    }
                    number += 1;
                }
                store.close().await.unwrap();
                number
            })
        })
    };
    begun.wait();
    let zip = backup(&home);
    stop.store(true, Ordering::SeqCst);
    let written: usize = writer.join().unwrap();
    let other = TempHome::new();
    drop(import(&other, &zip, &[]).ok());
    let check = hermes(&other)
        .args(["sessions", "repair", "--check-only", "--json"])
        .run()
        .ok();
    assert_eq!(check.json()["healthy"], true);
    let stats = hermes(&other)
        .args(["sessions", "stats", "--json"])
        .run()
        .ok()
        .json();
    let sessions = stats["sessions"].as_u64().unwrap() as usize;
    assert!(sessions >= 2 && sessions <= written + 1, "{stats}");
    // Every session that is there is there with all its messages.
    assert_eq!(stats["messages"], json!((sessions - 1) * 20 + 3));
}

#[test]
fn a_quick_copy_stays_in_the_home() {
    let home = filled();
    let report = hermes(&home)
        .args(["backup", "--quick", "--label", "before-x", "--json"])
        .run()
        .ok()
        .json();
    let dir = PathBuf::from(report["path"].as_str().unwrap());
    assert!(
        dir.starts_with(home.join("state-snapshots")) && dir.ends_with(dir.file_name().unwrap())
    );
    assert!(dir.to_str().unwrap().ends_with("-before-x"));
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["label"], "before-x");
    assert_eq!(mode(&dir.join(".env")), 0o600);
    assert!(dir.join("state.db").is_file());
    // It is no part of the next backup.
    assert!(
        !names(&backup(&home))
            .iter()
            .any(|name| name.starts_with("state-snapshots"))
    );
    let done = hermes(&home).args(["backup", "-q", "-l", "../x"]).run();
    assert_eq!(done.code, Some(64));
}

/// A zip of these files, made by hand.
fn archive(
    dir: &Path,
    files: &[(&str, &[u8])],
    more: impl FnOnce(&mut ZipWriter<File>),
) -> PathBuf {
    let path = dir.join("made.zip");
    let mut zip = ZipWriter::new(File::create(&path).unwrap());
    for (name, bytes) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    more(&mut zip);
    zip.finish().unwrap();
    path
}

#[test]
fn archives_that_lead_elsewhere_are_refused_whole() {
    let home = TempHome::new();
    let dir = home.work();
    let outside = home.path().parent().unwrap().join("evil");
    let absolute = outside.to_str().unwrap().to_owned();
    for name in [
        "../evil",
        "skills/../../evil",
        absolute.as_str(),
        "a\\..\\evil",
        "skills//x",
    ] {
        let zip = archive(&dir, &[("config.yaml", b"a: 1\n"), (name, b"x")], |_| ());
        let done = import(&home, &zip, &[]);
        assert_eq!(done.code, Some(1), "{name}: {}", done.stderr);
        assert!(
            done.stderr.contains("nothing was changed"),
            "{name}: {}",
            done.stderr
        );
    }
    let linked = archive(&dir, &[("config.yaml", b"a: 1\n")], |zip| {
        zip.add_symlink("skills", "/etc", SimpleFileOptions::default())
            .unwrap();
    });
    let done = import(&home, &linked, &[]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("link"), "{}", done.stderr);
    let both = archive(
        &dir,
        &[("config.yaml", b"a: 1\n"), ("a", b"x"), ("a/b", b"x")],
        |_| (),
    );
    assert_eq!(import(&home, &both, &[]).code, Some(1));
    assert!(!outside.exists() && !home.exists("config.yaml"));
}

#[test]
fn what_is_no_backup_is_refused() {
    let home = TempHome::new();
    let dir = home.work();
    assert_eq!(import(&home, &dir.join("nosuch.zip"), &[]).code, Some(4));
    let text = dir.join("text.zip");
    std::fs::write(&text, "no zip at all").unwrap();
    assert_eq!(import(&home, &text, &[]).code, Some(1));
    let empty = archive(&dir, &[("readme.txt", b"hello")], |_| ());
    let done = import(&home, &empty, &[]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.stderr.contains("it is not a backup"),
        "{}",
        done.stderr
    );
    let broken = archive(&dir, &[("state.db", &[b'x'; 5000])], |_| ());
    let done = import(&home, &broken, &[]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("damaged"), "{}", done.stderr);
    assert!(!home.exists("state.db"));
}

#[test]
fn archives_that_lie_about_their_size_are_refused() {
    let home = TempHome::new();
    let zip = archive(&home.work(), &[("config.yaml", b"a: 1\n")], |_| ());
    let mut bytes = Vec::new();
    File::open(&zip).unwrap().read_to_end(&mut bytes).unwrap();
    // The size in the list of contents: 3 GB out of five bytes.
    let entry = bytes
        .windows(4)
        .position(|four| four == b"PK\x01\x02")
        .unwrap();
    bytes[entry + 24..entry + 28].copy_from_slice(&3_000_000_000_u32.to_le_bytes());
    std::fs::write(&zip, &bytes).unwrap();
    let done = import(&home, &zip, &[]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("times its size"), "{}", done.stderr);
    // A little too little.
    bytes[entry + 24..entry + 28].copy_from_slice(&3_u32.to_le_bytes());
    std::fs::write(&zip, &bytes).unwrap();
    let done = import(&home, &zip, &[]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(!home.exists("config.yaml"));
}

#[test]
fn state_of_another_machine_is_not_taken_over() {
    let home = TempHome::new();
    let zip = archive(
        &home.work(),
        &[
            (".hermes/config.yaml", b"a: 1\n"),
            (".hermes/gateway_state.json", b"{}"),
            (".hermes/gateway.pid", b"{}"),
            (".hermes/skills/a/Cargo.lock", b"x"),
        ],
        |_| (),
    );
    let report = import(&home, &zip, &["--json"]).ok().json();
    assert_eq!(report["skipped"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(home.read("config.yaml"), "a: 1\n");
    assert!(home.exists("skills/a/Cargo.lock"));
    assert!(!home.exists("gateway_state.json"));
}

#[test]
fn a_gateway_at_work_is_not_pulled_from_under() {
    let home = filled();
    let zip = backup(&home);
    let lock = hermes_config::fs::FileLock::try_acquire(&home.join("gateway.lock")).unwrap();
    let done = import(&home, &zip, &["-f"]);
    assert_eq!(done.code, Some(75), "{}", done.stderr);
    drop(lock);
    drop(import(&home, &zip, &["-f"]).ok());
}

#[test]
fn backups_go_both_ways_between_the_programs() {
    let Some(oracle) = oracle::require("backups_go_both_ways_between_the_programs") else {
        return;
    };
    let home = filled();
    let theirs = home.work().join("theirs.zip");
    drop(
        oracle
            .hermes(&home, ["backup", "-o", theirs.to_str().unwrap()])
            .ok(),
    );
    let other = TempHome::new();
    drop(import(&other, &theirs, &[]).ok());
    assert_eq!(ids(&other), ["20250101_a"]);
    assert_eq!(
        other.read("skills/cat/a/SKILL.md"),
        home.read("skills/cat/a/SKILL.md")
    );
    let ours = backup(&home);
    let third = TempHome::new();
    drop(
        oracle
            .hermes(&third, ["import", ours.to_str().unwrap(), "--force"])
            .ok(),
    );
    assert_eq!(ids(&third), ["20250101_a"]);
    assert_eq!(third.read("memories/MEMORY.md"), "likes tea");
}
