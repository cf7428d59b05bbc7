use super::*;

fn guard(root: &Path) -> FileGuard {
    FileGuard::new(&Home::at(root), &[], &[])
}

#[test]
fn credentials_devices_and_processes_are_not_read() {
    let guard = guard(Path::new("/h/.hermes"));
    for path in [
        "/h/.hermes/.env",
        "/h/.hermes/auth.json",
        "/h/.hermes/Auth.JSON",
        "/h/.hermes/profiles/work/.env",
        "/h/.hermes/profiles/work/mcp-tokens/x.json",
        "/h/.hermes/skills/.hub/lock.json",
        "/p/.env.local",
        "/p/.envrc",
        "/x/.ssh/id_ed25519",
        "/etc/shadow",
        "/etc/sudoers.d/admins",
        "/etc/ssh/ssh_host_ed25519_key",
        "/dev/stdin",
        "/dev/zero",
        "/proc/self/environ",
        "/proc/1/task/1/maps",
        "/proc/self/fd/0",
    ] {
        assert!(guard.unreadable(Path::new(path)).is_some(), "{path}");
    }
    for path in [
        "/h/.hermes/config.yaml",
        "/h/.hermes/memories/MEMORY.md",
        "/p/.env.example",
        "/h/.hermes/cache/tool-results/x.txt",
        "/x/.ssh/id_ed25519.pub",
        "/p/auth.json",
        "/etc/passwd",
        "/etc/ssh/sshd_config",
        "/proc/cpuinfo",
    ] {
        assert_eq!(guard.unreadable(Path::new(path)), None, "{path}");
    }
}

#[test]
fn the_system_and_the_home_are_not_written() {
    let guard = guard(Path::new("/h/.hermes"));
    for path in [
        "/etc/passwd",
        "/etc/cron.d/x",
        "/boot/x",
        "/usr/lib/systemd/system/x.service",
        "/run/docker.sock",
        "/dev/sda",
        "/h/.hermes/config.yaml",
        "/h/.hermes/.env",
        "/h/.hermes/auth.json",
        "/h/.hermes/state.db",
        "/h/.hermes/state.db-wal",
        "/h/.hermes/sessions/x.json",
        "/h/.hermes/profiles/work/config.yaml",
    ] {
        assert!(guard.unwritable(Path::new(path)).is_some(), "{path}");
    }
    for path in ["/p/etc/passwd", "/p/.env", "/h/.hermes/skills/a/SKILL.md"] {
        assert_eq!(guard.unwritable(Path::new(path)), None, "{path}");
    }
}

#[test]
fn other_profiles_are_told_apart() {
    let own = guard(Path::new("/h/.hermes/profiles/work"));
    let profile = |path: &str| own.other_profile(Path::new(path));
    assert_eq!(
        profile("/h/.hermes/skills/a/SKILL.md").as_deref(),
        Some("default")
    );
    assert_eq!(
        profile("/h/.hermes/profiles/play/cron/x").as_deref(),
        Some("play")
    );
    assert_eq!(profile("/h/.hermes/profiles/work/skills/a"), None);
    assert_eq!(profile("/h/.hermes/notes/a"), None);
    assert_eq!(profile("/p/skills/a"), None);
}

#[test]
fn a_safe_root_is_the_only_place_to_write() {
    let guard = FileGuard::new(&Home::at("/h/.hermes"), &["/srv/data".into()], &[]);
    assert_eq!(guard.unwritable(Path::new("/srv/data/x")), None);
    assert!(guard.unwritable(Path::new("/srv/database/x")).is_some());
}

#[test]
fn private_files_of_the_person_are_not_read_unless_opened() {
    let home = Home::at("/h/.hermes");
    let person = home.expand_user("~");
    let closed = FileGuard::new(&home, &[], &[]);
    let opened = FileGuard::new(&home, &[], &[person.join(".kube"), "/srv/app/.env".into()]);
    for name in hermes_core::private::PERSONAL {
        let path = person.join(name).join("x");
        assert!(closed.unreadable(&path).is_some(), "{name}");
        assert_eq!(
            opened.unreadable(&path).is_none(),
            *name == ".kube",
            "{name}"
        );
    }
    assert!(closed.unreadable(Path::new("/srv/app/.env")).is_some());
    assert_eq!(opened.unreadable(Path::new("/srv/app/.env")), None);
    // What is Hermes' own is not the person's to open by this.
    assert!(opened.unreadable(Path::new("/h/.hermes/.env")).is_some());
}
