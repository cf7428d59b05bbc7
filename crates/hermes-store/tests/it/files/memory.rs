use std::path::Path;
use std::process::{Command, Stdio};

use hermes_store::{MemoryFiles, MemoryLimits, MemoryTarget, PendingWrites, Subsystem};
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CHILD_DIR: &str = "HERMES_TEST_MEMORY_DIR";
const CHILD_NAME: &str = "HERMES_TEST_MEMORY_NAME";
const EACH: usize = 15;

fn roomy(dir: &Path) -> MemoryFiles {
    let limits = MemoryLimits {
        memory: 100_000,
        user: 100_000,
    };
    MemoryFiles::new(dir, limits)
}

fn add_many(dir: &Path, name: &str) {
    let files = roomy(dir);
    for n in 0..EACH {
        files
            .add(MemoryTarget::Memory, &format!("entry {n} of {name}"))
            .unwrap();
    }
}

/// What the other process of the next test does.
#[test]
#[ignore = "started by two_processes_lose_no_entry"]
fn child_process() {
    let (Some(dir), Ok(name)) = (std::env::var_os(CHILD_DIR), std::env::var(CHILD_NAME)) else {
        return;
    };
    add_many(Path::new(&dir), &name);
}

#[test]
fn two_processes_lose_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let children: Vec<_> = ["first", "second"]
        .iter()
        .map(|name| {
            Command::new(std::env::current_exe().unwrap())
                .args(["files::memory::child_process", "--exact", "--ignored"])
                .env(CHILD_DIR, dir.path())
                .env(CHILD_NAME, name)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    add_many(dir.path(), "third");
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let entries = roomy(dir.path()).entries(MemoryTarget::Memory).unwrap();
    assert_eq!(entries.len(), 3 * EACH);
}

/// The original as the other process.
const ADD_MANY: &str = "
import sys
from tools.memory_tool import load_on_disk_store
s = load_on_disk_store()
for n in range(int(sys.argv[1])):
    assert s.add('memory', f'entry {n} of theirs')['success']
";

#[test]
fn we_and_the_original_at_once_lose_no_entry() {
    let Some(oracle) = oracle::require("files::memory::we_and_the_original_at_once_lose_no_entry")
    else {
        return;
    };
    let home = TempHome::new();
    let count = EACH.to_string();
    let child = oracle
        .interpreter(&home)
        .args(["-c", ADD_MANY, &count])
        .spawn();
    let files = MemoryFiles::new(home.join("memories"), MemoryLimits::default());
    // Starting Python takes a while: wait until it has begun, so that both really write at once.
    while files.entries(MemoryTarget::Memory).unwrap().is_empty()
        && !home.exists("memories/MEMORY.md")
    {
        std::thread::yield_now();
    }
    for n in 0..EACH {
        files
            .add(MemoryTarget::Memory, &format!("entry {n} of ours"))
            .unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files.entries(MemoryTarget::Memory).unwrap().len(), 2 * EACH);
}

/// What the original makes of the memory of a home.
const READ: &str = "
import json
from tools.memory_tool import load_on_disk_store
s = load_on_disk_store()
print(json.dumps({t: {'entries': s._entries_for(t), 'block': s.format_for_system_prompt(t)} for t in ('memory', 'user')}))
";

/// Lets the original make changes; prints its results.
const CHANGE: &str = "
import json, sys
from tools.memory_tool import load_on_disk_store, memory_tool
s = load_on_disk_store()
print(json.dumps([json.loads(memory_tool(store=s, **c)) for c in json.loads(sys.argv[1])]))
";

fn ours(home: &TempHome) -> Value {
    let files = MemoryFiles::new(home.join("memories"), MemoryLimits::default());
    let of = |target| {
        json!({
            "entries": files.entries(target).unwrap(),
            "block": files.prompt_block(target).unwrap(),
        })
    };
    json!({"memory": of(MemoryTarget::Memory), "user": of(MemoryTarget::User)})
}

#[test]
fn the_original_reads_what_we_write() {
    let Some(oracle) = oracle::require("files::memory::the_original_reads_what_we_write") else {
        return;
    };
    let home = TempHome::new();
    let files = MemoryFiles::new(home.join("memories"), MemoryLimits::default());
    for text in [
        "Project lives in /srv/demo; uses uv.",
        "Multi\nline § note\n\nwith a gap",
        "Grüße aus 東京 🚀 👍",
    ] {
        files.add(MemoryTarget::Memory, text).unwrap();
    }
    files.add(MemoryTarget::User, &"x".repeat(399)).unwrap();
    files
        .replace(
            MemoryTarget::Memory,
            "/srv/demo",
            "Project lives in /srv/other.",
        )
        .unwrap();
    assert_eq!(oracle.json(&home, READ, []), ours(&home));
    // It may change them afterwards.
    let calls = json!([
        {"action": "remove", "target": "memory", "old_text": "Multi"},
        {"action": "add", "target": "user", "content": "from the original"},
    ]);
    let results = oracle.json(&home, CHANGE, [calls.to_string().as_str()]);
    for result in results.as_array().unwrap() {
        assert_eq!(result["success"], true, "{result}");
    }
    assert_eq!(oracle.json(&home, READ, []), ours(&home));
    assert_eq!(files.entries(MemoryTarget::Memory).unwrap().len(), 2);
}

#[test]
fn we_read_odd_files_as_the_original_does() {
    let Some(oracle) = oracle::require("files::memory::we_read_odd_files_as_the_original_does")
    else {
        return;
    };
    for text in [
        "",
        "\n§\n",
        "one\n§\n\n§\ntwo\n",
        "  one  \n§\none\n§\n two § three",
        "one\r\n§\r\ntwo\r\n",
        "§\nfirst\n§\nlast\n§",
        "[BLOCKED: by hand]\n§\nx",
        &"long ".repeat(600),
    ] {
        let home = TempHome::new();
        home.write("memories/MEMORY.md", text);
        assert_eq!(oracle.json(&home, READ, []), ours(&home), "{text:?}");
    }
}

#[test]
fn both_refuse_the_same_drift_and_answer_with_the_same_keys() {
    let Some(oracle) =
        oracle::require("files::memory::both_refuse_the_same_drift_and_answer_with_the_same_keys")
    else {
        return;
    };
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let home = TempHome::new();
    let files = MemoryFiles::new(home.join("memories"), MemoryLimits::default());
    let call = json!([{"action": "add", "target": "user", "content": "a"}]).to_string();
    let theirs = oracle.json(&home, CHANGE, [call.as_str()]);
    let saved = files.add(MemoryTarget::User, "b").unwrap().to_json();
    assert_eq!(keys(&theirs[0]), keys(&saved));

    let remove = json!([{"action": "remove", "target": "memory", "old_text": "o"}]).to_string();
    for text in ["one\n§\n\n§\ntwo", &"o".repeat(2_201), "one\n§\ntwo"] {
        home.write("memories/MEMORY.md", text);
        let theirs = oracle.json(&home, CHANGE, [remove.as_str()]);
        home.write("memories/MEMORY.md", text);
        let refused = files
            .remove(MemoryTarget::Memory, "o")
            .unwrap_err()
            .to_json();
        assert_eq!(keys(&theirs[0]), keys(&refused), "{text:.20}: {theirs}");
    }
    let full = json!([{"action": "add", "target": "memory", "content": "x".repeat(2_300)}]);
    let theirs = oracle.json(&home, CHANGE, [full.to_string().as_str()]);
    let refused = files
        .add(MemoryTarget::Memory, &"x".repeat(2_300))
        .unwrap_err();
    assert_eq!(keys(&theirs[0]), keys(&refused.to_json()));
}

#[test]
fn what_the_original_staged_can_be_carried_out() {
    let Some(oracle) =
        oracle::require("files::memory::what_the_original_staged_can_be_carried_out")
    else {
        return;
    };
    let home = TempHome::new();
    home.config("memory:\n  write_approval: true\n");
    let call = json!([{"action": "add", "target": "user", "content": "Likes tea."}]).to_string();
    let theirs = oracle.json(&home, CHANGE, [call.as_str()]);
    let pending = PendingWrites::new(&home.path());
    let writes = pending.list(Subsystem::Memory).unwrap();
    assert_eq!(theirs[0]["pending_id"], json!(writes[0].id), "{theirs}");
    let files = MemoryFiles::new(home.join("memories"), MemoryLimits::default());
    files.apply_pending(&writes[0].payload).unwrap();
    assert_eq!(files.entries(MemoryTarget::User).unwrap(), ["Likes tea."]);
}
