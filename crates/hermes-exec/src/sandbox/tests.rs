//! Choice of tier, paths and rules.

use std::collections::BTreeSet;

use super::rules::{AccessRight, FileRules};
use super::*;

fn settings(choice: SandboxChoice) -> SandboxSettings {
    SandboxSettings {
        choice,
        unknown: None,
        network: true,
        writable: Vec::new(),
        unreadable: Vec::new(),
        readable: Vec::new(),
        sockets: Vec::new(),
        limits: ResourceLimits::default(),
        homes: Vec::new(),
        user_home: None,
        own_commands: Vec::new(),
        helper: None,
    }
}

#[test]
fn the_tier_follows_from_what_is_asked_and_what_is_there() {
    use SandboxChoice::{Auto, Bubblewrap, Landlock, Off};
    let bwrap = || Some(PathBuf::from("/usr/bin/bwrap"));
    for (choice, landlock, bwrap, active, refuses) in [
        (Auto, true, bwrap(), SandboxTier::Landlock, false),
        (Auto, false, bwrap(), SandboxTier::Bubblewrap, false),
        (Auto, false, None, SandboxTier::None, false),
        (Landlock, true, None, SandboxTier::Landlock, false),
        (Landlock, false, bwrap(), SandboxTier::None, true),
        (Bubblewrap, true, bwrap(), SandboxTier::Bubblewrap, false),
        (Bubblewrap, true, None, SandboxTier::None, true),
        (Off, true, bwrap(), SandboxTier::None, false),
    ] {
        let sandbox = Sandbox::for_machine(settings(choice), landlock, bwrap);
        let posture = sandbox.describe();
        assert_eq!(
            (posture.active, posture.refuses),
            (active, refuses),
            "{posture}"
        );
        // If it is not what was asked for, the reason is given.
        let as_asked = active != SandboxTier::None && (choice != Auto || landlock);
        assert_eq!(posture.why.is_empty(), as_asked, "{posture}");
        let limits = sandbox.confinement(Path::new("/tmp"));
        assert_eq!(
            limits.is_off(),
            active == SandboxTier::None && !refuses,
            "{posture}"
        );
    }
}

#[test]
fn words_of_the_configuration() {
    let mut config = Config::default();
    let home = Home::at("/somewhere/.hermes");
    assert_eq!(
        SandboxSettings::from_config(&home, &config).choice,
        SandboxChoice::Auto
    );
    config.terminal.sandbox = "BUBBLEWRAP".into();
    assert_eq!(
        SandboxSettings::from_config(&home, &config).choice,
        SandboxChoice::Bubblewrap
    );
    config.terminal.sandbox = "bublewrap".into();
    let settings = SandboxSettings::from_config(&home, &config);
    assert_eq!(settings.unknown.as_deref(), Some("bublewrap"));
    assert!(Sandbox::detect(settings).describe().refuses);
}

#[test]
fn a_workspace_is_the_project_and_never_everything() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    let project = home.join("code/project");
    std::fs::create_dir_all(project.join("src/deep")).unwrap();
    std::fs::create_dir(project.join(".git")).unwrap();
    std::fs::create_dir(home.join(".git")).unwrap();
    let of = |cwd: &Path| paths::workspace(cwd, Some(&home));
    assert_eq!(of(&project.join("src/deep")), Some(project.clone()));
    // A repository of dotfiles does not make the whole home a project.
    assert_eq!(of(&home.join("code")), Some(home.join("code")));
    assert_eq!(of(&home), Some(home.clone()));
    assert_eq!(of(Path::new("/")), None);
    assert_eq!(of(home.parent().unwrap()), None);
}

/// A Hermes home with a secret, beside a project.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    for name in [
        "u/.hermes/skills",
        "u/.hermes/profiles/p/skills",
        "u/.ssh",
        "u/project",
    ] {
        std::fs::create_dir_all(path.join(name)).unwrap();
    }
    for name in [
        "u/.hermes/.env",
        "u/.hermes/new-store.json",
        "u/notes",
        "u/.bashrc",
    ] {
        std::fs::write(path.join(name), "").unwrap();
    }
    std::os::unix::fs::symlink(".hermes", path.join("u/link")).unwrap();
    (dir, path)
}

fn granted(files: &FileRules, access: AccessRight, below: &Path) -> BTreeSet<String> {
    files
        .resolve()
        .rules
        .into_iter()
        .filter(|rule| rule.access == access)
        .filter_map(|rule| {
            let path = rule.path.strip_prefix(below).ok()?;
            Some(path.to_string_lossy().into_owned())
        })
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn everything_but_the_secrets_is_spelled_out() {
    let (_dir, path) = tree();
    let files = FileRules {
        writable: vec![path.join("u/project")],
        unreadable: Vec::new(),
        private: vec![
            PrivateDir::agent_home(&path.join("u/.hermes")),
            PrivateDir::agent_home(&path.join("u/.hermes/profiles/p")),
        ],
        user_home: Some(path.join("u")),
        ..FileRules::default()
    };
    assert_eq!(
        granted(&files, AccessRight::Read, &path),
        set(&[
            "u/.bashrc",
            "u/.hermes/profiles/p/skills",
            "u/.hermes/skills",
            "u/.ssh",
            "u/notes",
            "u/project",
        ])
    );
    assert_eq!(
        granted(&files, AccessRight::Write, &path),
        set(&["u/project"])
    );
}

#[test]
fn sockets_of_others_are_for_commands_where_a_person_works() {
    let (_dir, path) = tree();
    std::fs::create_dir(path.join("u/.screen")).unwrap();
    let mut settings = settings(SandboxChoice::Landlock);
    settings.user_home = Some(path.join("u"));
    settings.sockets = vec![path.join("u/notes")];
    let sandbox = Sandbox::for_machine(settings.clone(), true, None);
    for (cwd, open) in [
        ("u/project", &["u/notes", "u/project"][..]),
        ("u", &["u/notes"]),
    ] {
        let confinement = sandbox.confinement(&path.join(cwd));
        let spec = sandbox.spec(&mut Launch::default(), &confinement);
        let files = spec.files.unwrap();
        assert_eq!(
            granted(&files, AccessRight::Connect, &path),
            set(open),
            "{cwd}"
        );
        // A long-running command does not see new sockets in temporary directories.
        let is_temporary = |place: &PathBuf| paths::is_temporary(place);
        assert!(!files.connectable.iter().any(is_temporary), "{cwd}");
        assert!(files.hidden.contains(&path.join("u/.screen")), "{cwd}");
    }
    let found = sockets::connectable(&settings, &["/tmp".into()]);
    assert!(found.contains(&"/tmp".into()));
}

#[test]
fn a_home_as_workspace_keeps_its_hidden_entries() {
    let (_dir, path) = tree();
    let files = FileRules {
        writable: vec![path.join("u")],
        unreadable: vec![path.join("u/notes")],
        private: vec![PrivateDir::agent_home(&path.join("u/.hermes"))],
        user_home: Some(path.join("u")),
        ..FileRules::default()
    };
    assert_eq!(
        granted(&files, AccessRight::Write, &path),
        set(&["u/project"])
    );
}

#[test]
fn refusals_are_told_from_other_failures() {
    let sandbox = Sandbox::for_machine(settings(SandboxChoice::Auto), true, None);
    let limits = |network| Confinement::Workspace {
        writable: vec!["/tmp".into()],
        unreadable: vec!["/etc/hostname".into()],
        network,
    };
    let of = |exit, text: &str, network| sandbox.blocked(exit, text, &limits(network));
    let home = std::env::temp_dir();
    let home = home.display();
    assert_eq!(of(0, "bash: /root/x: Permission denied", true), None);
    assert_eq!(of(1, "some test failed", true), None);
    assert_eq!(
        of(1, &format!("bash: {home}/x: Permission denied"), true),
        None
    );
    assert_eq!(of(127, "bash: nope: command not found", true), None);
    assert!(
        of(1, "cat: /etc/hostname: Permission denied", true)
            .unwrap()
            .contains("/etc/hostname")
    );
    let words =
        "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.";
    assert!(of(1, words, true).unwrap().contains("system call"));
    let mount = of(1, "unshare: unshare failed: Operation not permitted", true);
    assert!(mount.unwrap().contains("system call"));
    let curl = "curl: (6) Could not resolve host: example.org";
    assert_eq!(of(6, curl, true), None);
    assert!(of(6, curl, false).unwrap().contains("network"));
    assert_eq!(sandbox.blocked(1, curl, &Confinement::Off), None);
    let covered = "bash: .ssh/config: Read-only file system";
    assert!(of(1, covered, true).unwrap().contains("writing"));
    let above = "touch: cannot touch '../other/x': Permission denied";
    assert!(of(1, above, true).unwrap().contains("../other/x"));
    assert_eq!(of(1, "cat: x/y: Permission denied", true), None);
    if rustix::process::getuid().is_root() {
        let text = "/bin/bash: line 1: /usr/local/evil: Permission denied";
        assert!(of(1, text, true).unwrap().contains("/usr/local/evil"));
        let text = "touch: cannot touch '/usr/local/with space': Read-only file system\n";
        assert!(of(1, text, true).unwrap().contains("with space"));
    }
}

/// An access that bypasses `tracked_fs` would be cached for as long as nothing else changes.
#[test]
fn every_look_is_noted() {
    let sources = [
        include_str!("git_index.rs"),
        include_str!("git_settings.rs"),
        include_str!("forbidden_paths.rs"),
        include_str!("mounts.rs"),
        include_str!("other_homes.rs"),
        include_str!("paths.rs"),
        include_str!("protect.rs"),
        include_str!("repositories.rs"),
        include_str!("sockets.rs"),
        include_str!("start_files.rs"),
        include_str!("survey.rs"),
    ];
    let past = [
        "canonicalize(",
        "symlink_metadata(",
        "read_dir(",
        "fs::read(",
        "read_link(",
        ".exists()",
        ".try_exists()",
        "fs::metadata(",
    ];
    for source in sources {
        let code = source.split("#[cfg(test)]").next().unwrap();
        for line in code.lines() {
            assert!(!past.iter().any(|call| line.contains(call)), "{line}");
        }
    }
}
