//! `hermes profile`, alone and with the original on the same home.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::FinishedProgram;
use hermes_testkit::terminal::TerminalBuilder;
use pretty_assertions::assert_eq;

use crate::auth::AuthOutput as _;
use crate::hermes;

fn profile(home: &TempHome, args: &[&str]) -> FinishedProgram {
    hermes(home).args(["profile"]).args(args).run()
}

fn names(home: &TempHome) -> Vec<String> {
    let listed = profile(home, &["list", "--json"]).ok().json();
    let rows = listed.as_array().unwrap().clone();
    rows.iter()
        .map(|row| {
            let mark = if row["active"] == true { "*" } else { "" };
            format!("{mark}{}", row["name"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn profiles_are_made_used_renamed_and_deleted() {
    let home = TempHome::new();
    profile(&home, &["create", "Coder", "--description", "writes code"]).done();
    assert_eq!(names(&home), ["*default", "coder"]);
    profile(&home, &["use", "coder"]).done();
    assert_eq!(home.read("active_profile"), "coder\n");
    let path = hermes(&home).args(["config", "path"]).run().ok().stdout;
    assert!(path.contains("profiles/coder/config.yaml"), "{path}");
    let shown = profile(&home, &["show", "--json"]).ok().json();
    assert_eq!(shown["description"], "writes code");
    profile(&home, &["rename", "coder", "author"]).done();
    assert_eq!(names(&home), ["default", "*author"]);
    profile(&home, &["delete", "author", "--yes"]).done();
    assert_eq!(names(&home), ["*default"]);
    assert!(!home.exists("active_profile") && !home.exists("profiles/author"));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let home = TempHome::new();
    profile(&home, &["create", "one"]).done();
    for (args, code) in [
        (&["create", "a/b"][..], 64),
        (&["create", "../x"], 64),
        (&["create", "default"], 64),
        (&["create", "hermes"], 64),
        (&["create", "one"], 1),
        (&["use", "nosuch"], 4),
        (&["delete", "default", "--yes"], 64),
        (&["rename", "default", "x"], 64),
        (&["rename", "one", "default"], 64),
        (&["show", "nosuch"], 4),
        (&["delete", "one"], 64),
    ] {
        let run = profile(&home, args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
    }
    assert_eq!(names(&home), ["*default", "one"]);
}

#[test]
fn a_profile_that_is_gone_can_be_left() {
    let home = TempHome::new();
    profile(&home, &["create", "one"]).done();
    profile(&home, &["use", "one"]).done();
    std::fs::remove_dir_all(home.join("profiles/one")).unwrap();
    assert_eq!(hermes(&home).args(["status"]).run().code, Some(4));
    let listed = profile(&home, &["list"]).ok();
    assert!(
        listed.stderr.contains("hermes profile use default"),
        "{}",
        listed.stderr
    );
    profile(&home, &["use", "default"]).done();
    hermes(&home).args(["status"]).run().done();
}

#[test]
fn deleting_at_a_terminal_needs_the_name() {
    let home = TempHome::new();
    profile(&home, &["create", "one"]).done();
    for (typed, code, left) in [("yes\r", 5, true), ("one\r", 0, false)] {
        let mut terminal = TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), &home)
            .args(["profile", "delete", "one"])
            .start();
        terminal.wait_for("type one to delete it:");
        terminal.press(typed);
        assert_eq!(terminal.leave().0, code);
        assert_eq!(home.exists("profiles/one"), left);
    }
}

#[test]
fn a_clone_has_settings_and_memory_but_no_conversations() {
    let home = TempHome::new();
    home.config("agent:\n  max_turns: 5\n")
        .env_file("A_TOKEN=1\n");
    home.write("memories/MEMORY.md", "the boat\n");
    home.write("skills/x/SKILL.md", "---\nname: x\n---\n");
    home.write("state.db", "not a copy");
    home.write("sessions/a.json", "{}");
    home.write("auth.json", "{}");
    profile(&home, &["create", "some", "--clone"]).done();
    profile(&home, &["create", "all", "--clone-all"]).done();
    for name in ["some", "all"] {
        let at = |path: &str| format!("profiles/{name}/{path}");
        assert!(home.read(at("config.yaml")).contains("max_turns: 5"));
        assert_eq!(home.read(at(".env")), "A_TOKEN=1\n");
        assert_eq!(home.read(at("memories/MEMORY.md")), "the boat\n");
        assert!(home.exists(at("skills/x/SKILL.md")));
        assert!(!home.exists(at("state.db")) && !home.exists(at("sessions/a.json")));
        assert!(!home.exists(at("profiles")));
    }
    assert!(home.exists("profiles/all/auth.json") && !home.exists("profiles/some/auth.json"));
}

#[test]
fn an_archive_holds_no_secrets_unless_asked_and_comes_back() {
    let home = TempHome::new();
    profile(&home, &["create", "one"]).done();
    home.write("profiles/one/.env", "A_TOKEN=super-secret\n");
    home.write("profiles/one/auth.json", "{\"k\": \"super-secret\"}");
    home.write("profiles/one/mcp-tokens/x.json", "super-secret");
    home.write("profiles/one/memories/MEMORY.md", "the boat\n");
    std::os::unix::fs::symlink("/etc", home.join("profiles/one/skills/link")).unwrap();
    hermes(&home).args(["-p", "one", "sessions", "list"]).run();
    let run = profile(&home, &["export", "one"]).ok();
    assert!(
        run.stderr.contains("1 symbolic link left out"),
        "{}",
        run.stderr
    );
    assert_eq!(
        profile(&home, &["export", "one"]).code,
        Some(1),
        "it is there already"
    );
    let archive = home.work().join("one.tar.gz");
    let members = members(&archive);
    assert!(
        members.contains(&"one/memories/MEMORY.md".to_owned()),
        "{members:?}"
    );
    for secret in ["one/.env", "one/auth.json", "one/mcp-tokens"] {
        assert!(
            !members.iter().any(|name| name.starts_with(secret)),
            "{members:?}"
        );
    }
    profile(&home, &["export", "one", "--with-secrets", "--force"]).done();
    assert!(self::members(&archive).contains(&"one/.env".to_owned()));
    profile(&home, &["import", "one.tar.gz", "--name", "two"]).done();
    assert_eq!(home.read("profiles/two/memories/MEMORY.md"), "the boat\n");
    assert_eq!(home.read("profiles/two/.env"), "A_TOKEN=super-secret\n");
    assert_eq!(
        profile(&home, &["import", "one.tar.gz"]).code,
        Some(1),
        "one exists"
    );
    assert_eq!(profile(&home, &["import", "none.tar.gz"]).code, Some(4));
}

fn members(archive: &Path) -> Vec<String> {
    let file = std::fs::File::open(archive).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let names = tar.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        entry.path().unwrap().display().to_string()
    });
    names.collect()
}

/// An archive with one hostile member, written byte by byte: the crate would refuse to.
fn hostile(path: &Path, name: &str, kind: tar::EntryType, link: Option<&str>) {
    let file = std::fs::File::create(path).unwrap();
    let mut out = GzEncoder::new(file, Compression::fast());
    for (name, kind, link) in [("p/", tar::EntryType::Directory, None), (name, kind, link)] {
        let mut header = tar::Header::new_ustar();
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(link) = link {
            bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        header.set_cksum();
        out.write_all(header.as_bytes()).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
    out.finish().unwrap();
}

#[test]
fn hostile_archives_write_nothing() {
    let home = TempHome::new();
    let archive = home.work().join("bad.tar.gz");
    for (name, kind, link) in [
        ("p/../../../evil", tar::EntryType::Regular, None),
        ("/tmp/hermes-evil", tar::EntryType::Regular, None),
        ("p/link", tar::EntryType::Symlink, Some("/etc/passwd")),
        ("p/hard", tar::EntryType::Link, Some("/etc/passwd")),
        ("p/fifo", tar::EntryType::Fifo, None),
        ("other/file", tar::EntryType::Regular, None),
        ("p/a\\..\\b", tar::EntryType::Regular, None),
    ] {
        hostile(&archive, name, kind, link);
        let run = profile(&home, &["import", "bad.tar.gz"]);
        assert_eq!(run.code, Some(1), "{name}: {}", run.stdout);
        assert_eq!(names(&home), ["*default"], "{name}");
        let left = std::fs::read_dir(home.join("profiles")).unwrap().count();
        assert_eq!(left, 0, "{name}");
    }
    std::fs::write(&archive, "no archive").unwrap();
    assert_eq!(profile(&home, &["import", "bad.tar.gz"]).code, Some(1));
}

#[test]
fn profiles_go_both_ways() {
    let Some(oracle) = oracle::require("profiles_go_both_ways") else {
        return;
    };
    let home = TempHome::new();
    let theirs = |args: &[&str]| oracle.hermes(&home, args.iter().copied()).ok().stdout;
    profile(&home, &["create", "ours"]).done();
    theirs(&["profile", "create", "theirs", "--no-alias"]);
    assert_eq!(names(&home), ["*default", "ours", "theirs"]);
    profile(&home, &["use", "ours"]).done();
    assert!(theirs(&["profile", "list"]).contains("◆ours"));
    theirs(&["profile", "use", "theirs"]);
    assert_eq!(names(&home), ["default", "ours", "*theirs"]);
    home.write("profiles/ours/memories/MEMORY.md", "the boat\n");
    profile(&home, &["export", "ours", "-o", "ours.tar.gz"]).done();
    let archive = home.work().join("ours.tar.gz");
    let archive = archive.to_str().unwrap();
    theirs(&["profile", "import", archive, "--name", "copied"]);
    assert_eq!(
        home.read("profiles/copied/memories/MEMORY.md"),
        "the boat\n"
    );
    let back = home.work().join("back.tar.gz");
    theirs(&["profile", "export", "copied", "-o", back.to_str().unwrap()]);
    profile(&home, &["import", "back.tar.gz", "--name", "again"]).done();
    assert_eq!(home.read("profiles/again/memories/MEMORY.md"), "the boat\n");
    profile(&home, &["delete", "theirs", "-y"]).done();
    assert!(theirs(&["profile", "list"]).contains("◆default"));
}

/// Secrets of every kind, in files of every kind: none leaves with an export that has no keys.
#[test]
fn an_export_without_keys_contains_no_keys_anywhere() {
    let home = TempHome::new();
    let secrets = [
        "own-endpoint-4711-abcdef",
        "sk-or-0123456789abcdefghij",
        "hush-header-value-0815",
        "bot-token-998877665544",
        "plain-env-secret-123456",
        "webhook-signing-secret-1",
        "sk-commented-0123456789abcd",
    ];
    home.write(
        "profiles/one/config.yaml",
        "# old: api_key: sk-commented-0123456789abcd\nmodel:\n  default: m # keep\n  api_key: own-endpoint-4711-abcdef\n\
         custom_providers:\n  - name: a\n    base_url: http://x/v1\n    api_key: sk-or-0123456789abcdefghij\n\
         mcp_servers:\n  a:\n    url: http://x\n    headers:\n      X-Auth: hush-header-value-0815\n\
         telegram:\n  token: bot-token-998877665544\n",
    );
    home.write(
        "profiles/one/.env",
        "LAB_PASSWORD=plain-env-secret-123456\n",
    );
    home.write(
        "profiles/one/.env.bak",
        "LAB_PASSWORD=plain-env-secret-123456\n",
    );
    home.write(
        "profiles/one/skills/a/.env",
        "X_API_KEY=sk-or-0123456789abcdefghij\n",
    );
    home.write(
        "profiles/one/skills/a/SKILL.md",
        "use plain-env-secret-123456 and sk-or-0123456789abcdefghij\n",
    );
    home.write(
        "profiles/one/scripts/run.sh",
        "curl -H 'Authorization: Bearer own-endpoint-4711-abcdef' x\n",
    );
    home.write(
        "profiles/one/webhook_subscriptions.json",
        r#"{"a": {"secret": "webhook-signing-secret-1", "prompt": "p"}}"#,
    );
    home.write(
        "profiles/one/memories/MEMORY.md",
        "the token is bot-token-998877665544\n",
    );
    let out = home.join("one.tar.gz");
    let _ = hermes(&home)
        .args(["profile", "export", "one", "-o", out.to_str().unwrap()])
        .run()
        .ok();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(
        std::fs::File::open(&out).unwrap(),
    ));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {name}: {text}");
        }
        names.push(name);
    }
    assert!(
        names.iter().any(|name| name == "one/config.yaml"),
        "{names:?}"
    );
    assert!(names.iter().all(|name| !name.contains(".env")), "{names:?}");
    let imported = hermes(&home)
        .args(["profile", "import", out.to_str().unwrap(), "--name", "two"])
        .run();
    let _ = imported.ok();
    let config = home.read("profiles/two/config.yaml");
    assert!(
        config.contains("default: m # keep") && config.contains("base_url: http://x/v1"),
        "{config}"
    );
}
