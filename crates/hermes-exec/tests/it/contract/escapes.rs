//! What a hostile command tries beyond its workspace: private files, other processes, terminals, sockets.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use hermes_core::private::{PERSONAL, SYSTEM};
use hermes_exec::Confine as _;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::attacks::{Prison, give};

const SECRET: &str = "top-secret-of-the-person";

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Everything on the list, with a secret in it: a file, or a directory with files and a link to one elsewhere.
fn keys(home: &Path) {
    let elsewhere = home.join("dotfiles/key");
    write(&elsewhere, SECRET);
    std::os::unix::fs::symlink(&elsewhere, home.join(".netrc")).unwrap();
    for (at, name) in PERSONAL.iter().enumerate() {
        let path = home.join(name);
        if path.exists() {
            continue;
        }
        if at % 2 == 0 || name.contains('.') && Path::new(name).extension().is_some() {
            write(&path, SECRET);
        } else {
            write(&path.join("inner/deep"), SECRET);
        }
    }
    write(&home.join("code/other/.env"), SECRET);
    write(&home.join("code/other/.env.local"), SECRET);
    write(&home.join("code/other/.env.example"), "an example\n");
}

const READ_ALL: &str = "grep -rsh top-secret ~ ; cat ~/.netrc ~/dotfiles/key ~/code/other/.env*; \
    find ~ -type f -exec cat {} + 2>/dev/null; ln ~/.ssh/* . ; ln -s ~/.aws there; cat there/* ./id* ; \
    mv ~/.ssh gone; cat gone/*; cp -r ~/.gnupg copied; cat copied/*; tar -cf - -C ~ .aws .kube .mozilla";

/// What editors and people leave next to a secret of another project, and where else projects keep theirs.
const COPIES: &[&str] = &[
    ".env~",
    "#.env#",
    ".#.env",
    ".env.swp",
    ".id_rsa.swp",
    ".id_rsa.un~",
    "server.pem.bak",
    "credentials.json.bak.1",
    ".npmrc.orig",
    "secrets.yml.gz",
    "Copy of credentials.json",
    "tls.key",
    "deploy_ed25519",
    "ssh_host_rsa_key",
    ".streamlit/secrets.toml",
    ".kamal/.secrets",
    ".config/app/prod.env",
    "deploy/prod.env",
    "client_secret_1.apps.example.json",
    "secrets/db_password",
    "new_user_credentials.csv",
];

#[test]
fn copies_of_secrets_in_other_projects_cannot_be_read() {
    let name = "copies_of_secrets_in_other_projects_cannot_be_read";
    let Some(prison) = Prison::new(name, |_| {}) else {
        return;
    };
    let other = prison.path("home/code/other");
    for name in COPIES {
        write(&other.join(name), &format!("{SECRET} {name}\n"));
    }
    write(&other.join("src/main.rs~"), "an example\n");
    let thrown_away = prison.path("home/.local/share/Trash/files/notes");
    write(&thrown_away, SECRET);
    let script = "find ~ -type f -exec cat {} + 2>/dev/null; grep -rsh top-secret ~";
    for said in [prison.run(script), prison.run_at_once(script)] {
        assert!(!said.text.contains(SECRET), "{}", said.text);
        assert!(said.text.contains("an example"), "{}", said.text);
    }
    // Tools that read files themselves have the same rule.
    let private = prison.sandbox.private_files(&prison.path("work"));
    for name in COPIES {
        let path = other.join(name);
        let is_listed = path.ancestors().any(|path| private.contains(path));
        assert!(is_listed, "{name}");
    }
}

#[test]
fn the_init_of_a_command_is_not_open_to_it() {
    let Some(prison) = Prison::new("the_init_of_a_command_is_not_open_to_it", |_| {}) else {
        return;
    };
    let said = prison.run("test \"$(readlink /proc/self/ns/pid)\" && cat /proc/1/maps; echo over");
    assert!(!said.text.contains("r-xp"), "{}", said.text);
    assert!(said.text.contains("over"), "{}", said.text);
}

#[test]
fn private_files_of_the_person_cannot_be_read() {
    let Some(prison) = Prison::new("private_files_of_the_person_cannot_be_read", |_| {}) else {
        return;
    };
    keys(&prison.path("home"));
    write(&prison.path("work/.env"), "OWN=1\n");
    for said in [prison.run(READ_ALL), prison.run_at_once(READ_ALL)] {
        assert!(!said.text.contains(SECRET), "{}", said.text);
        assert!(said.text.contains("an example"), "{}", said.text);
    }
    // What belongs to the project is the project's.
    assert_eq!(prison.run("cat .env").text, "OWN=1\n");
    // The same from the home itself, where everything else can be written.
    for said in prison.run_in(&prison.path("home"), READ_ALL) {
        assert!(!said.text.contains(SECRET), "{}", said.text);
    }
    // What has come since.
    let late = prison.path("home/.vercel");
    let _ = std::fs::remove_file(&late).or_else(|_| std::fs::remove_dir_all(&late));
    prison.run("true");
    write(&late.join("auth.json"), SECRET);
    write(&prison.path("home/code/third/.env"), SECRET);
    let said = prison.run("cat ~/.vercel/* ~/code/third/.env");
    assert!(!said.text.contains(SECRET), "{}", said.text);
}

/// Stores that are on no list, other projects wherever they lie, and a bound that a command tries to use up.
#[test]
fn private_files_are_known_by_what_they_are() {
    let test = "private_files_are_known_by_what_they_are";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let names = [
        "home/.config/some-tool/credentials.json",
        "home/.some-tool/auth.json",
        "home/.some-tool/deep/access_token",
        "home/.local/share/some-tool/cookies.sqlite",
        "home/keys/server.pem",
        "home/Documents/all.kdbx",
        "home/backup/.ssh/id_rsa",
        "home/code/a/b/c/d/e/.env",
        "home/code/x/config/secrets.yml",
        "home/zz/other/.env",
        "other/.env",
        "other/deploy/.env.production",
    ];
    for name in names {
        write(&prison.path(name), SECRET);
    }
    write(&prison.path("home/.some-tool/owner-only"), SECRET);
    let owner_only = prison.path("home/.some-tool/owner-only");
    std::fs::set_permissions(&owner_only, std::fs::Permissions::from_mode(0o600)).unwrap();
    write(&prison.path("home/.config/some-tool/config.toml"), "open\n");
    write(&prison.path("work/config/secrets.yml"), "of the project\n");
    let all = prison.path("");
    let script = format!(
        "grep -rsh top-secret {} ; find {0} -type f -exec cat {{}} + 2>/dev/null",
        all.display()
    );
    for said in [prison.run(&script), prison.run_at_once(&script)] {
        assert!(!said.text.contains(SECRET), "{}", said.text);
    }
    let said = prison.run("cat ~/.config/some-tool/config.toml config/secrets.yml");
    assert_eq!(said.text, "open\nof the project\n");
    // In the home itself a command can make as many directories as it likes.
    let home = prison.path("home");
    prison.run_in(&home, "for i in $(seq 700); do mkdir -p a$i; done");
    for said in prison.run_in(&home, "cat zz/other/.env code/a/b/c/d/e/.env keys/*") {
        assert!(!said.text.contains(SECRET), "{}", said.text);
    }
}

#[test]
fn a_person_can_open_what_is_private() {
    let Some(prison) = Prison::new("a_person_can_open_what_is_private", |settings| {
        let home = settings.user_home.clone().unwrap();
        settings.readable = vec![home.join(".kube"), home.join(".ssh/known_hosts")];
    }) else {
        return;
    };
    for name in [".kube/config", ".ssh/known_hosts"] {
        write(&prison.path("home").join(name), "opened\n");
    }
    write(&prison.path("home/.ssh/id_rsa"), SECRET);
    let script = "cat ~/.kube/config ~/.ssh/known_hosts; cat ~/.ssh/id_rsa";
    let home = prison.path("home");
    let mut all = vec![prison.run(script), prison.run_at_once(script)];
    all.extend(prison.run_in(&home, script));
    for said in all {
        assert_eq!(said.text.matches("opened\n").count(), 2, "{}", said.text);
        assert!(!said.text.contains(SECRET), "{}", said.text);
    }
}

#[test]
fn passwords_of_the_machine_cannot_be_read() {
    let Some(prison) = Prison::new("passwords_of_the_machine_cannot_be_read", |_| {}) else {
        return;
    };
    for path in SYSTEM {
        let script = format!("find {path} -type f -exec cat {{}} + 2>/dev/null | wc -c");
        for said in [prison.run(&script), prison.run_at_once(&script)] {
            assert_eq!(said.text.trim(), "0", "{path}");
        }
    }
    assert_ne!(prison.run("wc -c < /etc/passwd").text.trim(), "0");
}

#[test]
fn modes_owners_and_times_of_others_files_stay() {
    let Some(prison) = Prison::new("modes_owners_and_times_of_others_files_stay", |_| {}) else {
        return;
    };
    let targets = ["home/notes.txt", "home/.hermes/.env", "home/.hermes"];
    let looks = |name: &str| {
        let data = prison.path(name).metadata().unwrap();
        (
            data.permissions().mode(),
            data.uid(),
            data.mtime(),
            data.mtime_nsec(),
        )
    };
    let before: Vec<_> = targets.iter().map(|name| looks(name)).collect();
    for name in targets {
        let path = prison.path(name);
        let path = path.display();
        let script = format!(
            "chmod 666 {path}; chown 54321 {path}; touch -d @1 {path}; touch -h -d @1 {path}; \
             python3 -c 'import os; os.setxattr(\"{path}\", \"user.x\", b\"y\")'; \
             cd {path}/.. && chmod 777 ."
        );
        for said in [prison.run(&script), prison.run_at_once(&script)] {
            assert_ne!(said.code, Some(0), "{name}");
        }
        for _ in prison.run_in(&prison.path("home"), &script.replace("cd ", "false; cd ")) {}
    }
    let own = "home/notes.txt";
    for (name, before) in targets.iter().zip(before) {
        // In the home itself its visible files are the workspace's.
        assert!(*name == own || looks(name) == before, "{name}");
    }
    let said = prison.run("touch a && chmod 755 a && touch -d @5 a && stat -c '%a %Y' a");
    assert_eq!(said.text, "755 5\n");
}

#[test]
fn other_processes_are_neither_signalled_nor_limited() {
    let test = "other_processes_are_neither_signalled_nor_limited";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = other.id();
    let limits = || std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let nice = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest = stat.rsplit_once(')').unwrap().1.to_owned();
        rest.split_whitespace().nth(16).unwrap().to_owned()
    };
    let mask = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"));
        line.unwrap().to_owned()
    };
    let before = (limits(), nice(), mask());
    let script = format!(
        r#"python3 - <<'END'
import ctypes, fcntl, os, resource, signal
pid = {pid}
libc = ctypes.CDLL(None, use_errno=True)
def tried(act):
    try:
        act()
    except Exception as error:
        print(type(error).__name__)
tried(lambda: os.kill(pid, 9))
tried(lambda: os.kill(-pid, 9))
tried(lambda: libc.syscall(234, pid, pid, 9))
tried(lambda: libc.syscall(200, pid, 9))
tried(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
tried(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
tried(lambda: os.sched_setaffinity(pid, {{0}}))
tried(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
tried(lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
def own_signal():
    r, w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, pid)
    fcntl.fcntl(r, 10, 9)
    fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(w, b"x")
tried(own_signal)
print("tried")
END"#
    );
    for said in [prison.run(&script), prison.run_at_once(&script)] {
        assert!(said.text.ends_with("tried\n"), "{}", said.text);
        assert!(other.try_wait().unwrap().is_none(), "{}", said.text);
        assert_eq!((limits(), nice(), mask()), before, "{}", said.text);
    }
    other.kill().unwrap();
    other.wait().unwrap();
    // Its own processes are its own.
    let own = "sleep 100 & prlimit --pid $$ >/dev/null; renice 5 $! >/dev/null; kill -9 $!; \
        { wait $!; } 2>/dev/null; echo $?";
    assert_eq!(prison.run(own).text, "137\n");
}

#[test]
fn other_terminals_are_out_of_reach() {
    let Some(prison) = Prison::new("other_terminals_are_out_of_reach", |_| {}) else {
        return;
    };
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&name)
        .unwrap();
    let script = format!(
        "echo password: > {name}; echo x > /proc/{}/fd/0; for t in /dev/pts/[0-9]* /dev/tty[0-9]* /dev/ttyS* /dev/console; \
         do echo password: > $t; done; true",
        std::process::id()
    );
    prison.run(&script);
    prison.run_at_once(&script);
    let mut flags = rustix::fs::fcntl_getfl(&near).unwrap();
    flags |= rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&near, flags).unwrap();
    let mut seen = [0; 64];
    assert!(
        rustix::io::read(&near, &mut seen).is_err(),
        "something was written to {name}"
    );
    drop(far);
    // New ones are its own.
    let own = "python3 -c 'import pty,os; pty.spawn([\"sh\",\"-c\",\"tty; echo inner\"])'";
    let said = prison.run(own);
    assert!(
        said.text.contains("inner") && said.text.contains("/dev/pts/"),
        "{}",
        said.text
    );
}

#[test]
fn sockets_of_others_are_out_of_reach() {
    let Some(prison) = Prison::new("sockets_of_others_are_out_of_reach", |_| {}) else {
        return;
    };
    let temporary = tempfile::Builder::new()
        .prefix("agent-")
        .tempdir_in("/tmp")
        .unwrap();
    let outside = [
        temporary.path().join("agent.1"),
        prison.path("home/run/bus"),
        prison.path("elsewhere.sock"),
    ];
    std::fs::create_dir(prison.path("home/run")).unwrap();
    let mut listeners: Vec<UnixListener> = outside
        .iter()
        .map(|path| UnixListener::bind(path).unwrap())
        .collect();
    let own = prison.path("work/own.sock");
    listeners.push(UnixListener::bind(&own).unwrap());
    let connect = |path: &str| {
        format!(
            "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect({path}); print(\"connected\")'"
        )
    };
    for path in &outside {
        let script = connect(&format!("\"{}\"", path.display()));
        let mut all = vec![prison.run(&script), prison.run_at_once(&script)];
        all.extend(prison.run_in(&prison.path("home"), &script));
        for said in all {
            assert!(
                !said.text.contains("connected\n"),
                "{}: {}",
                path.display(),
                said.text
            );
        }
    }
    let said = prison.run(&connect(&format!("\"{}\"", own.display())));
    assert_eq!(said.text, "connected\n");
    let name = format!("hermes-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let said = prison.run(&connect(&format!("\"\\0{name}\"")));
    assert!(!said.text.contains("connected\n"), "{}", said.text);
}

/// A service that starts while a command runs.
#[test]
fn sockets_that_come_later_are_out_of_reach() {
    let test = "sockets_that_come_later_are_out_of_reach";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let dir = Path::new("/run").join(format!("hermes-test-{}", std::process::id()));
    if std::fs::create_dir(&dir).is_err() {
        hermes_testkit::oracle::skip("/run is not ours to write to", test);
        return;
    }
    let emacs = format!("/tmp/emacs{}", rustix::process::getuid().as_raw());
    let sockets = [
        dir.join("late.sock"),
        Path::new(&emacs).join(format!("hermes-test-{}", std::process::id())),
    ];
    let [first, second] = sockets.clone().map(|path| path.display().to_string());
    let script = format!(
        "touch started; while [ ! -e go ]; do sleep 0.02; done; python3 - <<'END'\nimport socket\n\
         for path in ['{first}', '{second}']:\n    try:\n        socket.socket(socket.AF_UNIX).connect(path)\n        \
         print('connected')\n    except OSError:\n        print('refused')\nEND"
    );
    let [started, go] = ["work/started", "work/go"].map(|name| prison.path(name));
    let said = std::thread::scope(|scope| {
        let running = scope.spawn(|| prison.run(&script));
        for _ in 0..3000 {
            if started.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _listeners: Vec<UnixListener> = sockets
            .iter()
            .map(|path| UnixListener::bind(path).unwrap())
            .collect();
        std::fs::write(&go, "").unwrap();
        running.join().unwrap()
    });
    for path in &sockets {
        std::fs::remove_file(path).unwrap();
    }
    std::fs::remove_dir(&dir).unwrap();
    assert_eq!(said.text, "refused\nrefused\n");
}

#[test]
fn a_multiplexer_of_the_person_runs_nothing() {
    let test = "a_multiplexer_of_the_person_runs_nothing";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let dir = tempfile::Builder::new()
        .prefix("mux-")
        .tempdir_in("/tmp")
        .unwrap();
    let socket = dir.path().join("s");
    let started = Command::new("tmux")
        .arg("-S")
        .arg(&socket)
        .args(["-f", "/dev/null", "new-session", "-d", "sleep 1000"])
        .status();
    if !started.is_ok_and(|status| status.success()) {
        hermes_testkit::oracle::skip("no tmux here", test);
        return;
    }
    let marker = prison.path("home/marker");
    let script = format!(
        "tmux -S {} new-session -d 'touch {}'; sleep 0.3",
        socket.display(),
        marker.display()
    );
    prison.run(&script);
    prison.run_at_once(&script);
    let _ = Command::new("tmux")
        .arg("-S")
        .arg(&socket)
        .arg("kill-server")
        .status();
    assert!(!marker.exists());
}

/// A home of Hermes two levels below a directory that everybody may write to.
#[test]
fn the_way_to_the_home_cannot_be_swapped() {
    let shared = tempfile::Builder::new()
        .prefix("shared-")
        .tempdir_in("/tmp")
        .unwrap();
    let root = shared.path().canonicalize().unwrap();
    let home = root.join("a/b/.hermes");
    write(&home.join("config.yaml"), "before\n");
    write(&home.join(".env"), SECRET);
    let Some(prison) = Prison::new("the_way_to_the_home_cannot_be_swapped", |settings| {
        settings.homes = vec![home.clone()];
    }) else {
        return;
    };
    let script = format!(
        "cd {0}; mv a was; mkdir -p a/b/.hermes; echo evil > a/b/.hermes/config.yaml; \
         mv a/b a/c; mkdir -p a/b/.hermes; echo evil > a/b/.hermes/config.yaml; \
         mv a/b/.hermes a/b/old; mkdir a/b/.hermes; echo evil > a/b/.hermes/config.yaml; \
         rm -rf a; ln -sfn /etc a; cd /tmp; mv {0} /tmp/swapped-{1}; cat {0}/a/b/.hermes/.env was/b/.hermes/.env",
        root.display(),
        std::process::id()
    );
    for said in [prison.run(&script), prison.run_at_once(&script)] {
        assert!(!said.text.contains(SECRET), "{}", said.text);
        let text = std::fs::read_to_string(home.join("config.yaml"));
        assert_eq!(text.unwrap(), "before\n", "{}", said.text);
    }
    let _ = std::fs::remove_dir_all(format!("/tmp/swapped-{}", std::process::id()));
}

/// A home that is named through links which lie where everybody may write.
#[test]
fn links_on_the_way_to_the_home_cannot_be_swapped() {
    let test = "links_on_the_way_to_the_home_cannot_be_swapped";
    let shared = tempfile::Builder::new()
        .prefix("shared-")
        .tempdir_in("/tmp")
        .unwrap();
    let root = shared.path().canonicalize().unwrap();
    write(&root.join("real/.hermes/config.yaml"), "before\n");
    std::os::unix::fs::symlink("real", root.join("first")).unwrap();
    std::os::unix::fs::symlink(root.join("first/.hermes"), root.join("second")).unwrap();
    let named = root.join("second");
    let Some(prison) = Prison::new(test, |settings| settings.homes = vec![named.clone()]) else {
        return;
    };
    let script = format!(
        "cd {}; for l in first second; do rm -f $l; mv $l was; ln -sfn /tmp $l; mkdir -p $l; echo evil > $l/config.yaml; \
         mkdir -p $l/.hermes; echo evil > $l/.hermes/config.yaml; done; mv real gone; true",
        root.display()
    );
    for said in [prison.run(&script), prison.run_at_once(&script)] {
        let text = std::fs::read_to_string(named.join("config.yaml"));
        assert_eq!(text.unwrap(), "before\n", "{}", said.text);
    }
}

/// Processes that stand in `dir`.
fn standing_in(dir: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir))
        .count()
}

fn until_nobody_stands_in(dir: &Path) {
    for _ in 0..3000 {
        if standing_in(dir) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} processes live on", standing_in(dir));
}

#[test]
fn nothing_outlives_its_command() {
    let Some(prison) = Prison::new("nothing_outlives_its_command", |_| {}) else {
        return;
    };
    let script = "(setsid sleep 1000 &) ; setsid nohup env -i bash -c 'trap \"\" TERM HUP; sleep 1000' </dev/null >/dev/null 2>&1 & \
        sleep 1000 & disown; echo over";
    assert_eq!(
        prison.run(&format!("{{ {script}; }} 2>/dev/null")).text,
        "over\n"
    );
    until_nobody_stands_in(&prison.path("work"));
}

/// As when Hermes is killed: nobody is left at the other end.
#[test]
fn commands_end_with_whoever_asked_for_them() {
    use std::os::fd::{AsFd as _, OwnedFd};

    let Some(prison) = Prison::new("commands_end_with_whoever_asked_for_them", |_| {}) else {
        return;
    };
    let launch =
        prison.launch("setsid sleep 1000 & trap '' TERM; echo ready; sleep 1000; sleep 1000");
    for limits in [prison.limits(), hermes_exec::Confinement::Off] {
        let ahead = prison
            .sandbox
            .prepare_helper(&launch, &limits)
            .unwrap()
            .unwrap();
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
        assert!(standing_in(&prison.path("work")) >= 2);
        drop(near);
        assert!(helper.wait().unwrap().success());
        until_nobody_stands_in(&prison.path("work"));
    }
    // Ours to look at: it was a child of this process.
    while rustix::process::wait(rustix::process::WaitOptions::NOHANG)
        .is_ok_and(|done| done.is_some())
    {}
}
