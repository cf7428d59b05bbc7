//! What a hostile command tries, inside the default sandbox.

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hermes_exec::sandbox::{ResourceLimits, Sandbox, SandboxChoice, SandboxSettings};
use hermes_exec::{Confine, Confinement, HelperStart, Launch};
use hermes_testkit::oracle::skip;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::confined::{outside, settings};
use super::rig;

pub(crate) struct Prison {
    pub(crate) sandbox: Sandbox,
    dir: tempfile::TempDir,
}

/// Secrets of other projects are covered two levels up: those of other tests come and go, and bubblewrap cannot
/// cover a file that is removed while it starts.
const APART: &str = "apart/from";

/// What a command said and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Prison {
    pub(crate) fn new(test: &str, change: impl FnOnce(&mut SandboxSettings)) -> Option<Self> {
        let dir = outside();
        let path = dir.path().canonicalize().unwrap().join(APART);
        std::fs::create_dir_all(path.join("home/.hermes/skills/demo")).unwrap();
        std::fs::create_dir_all(path.join("work/.git/hooks")).unwrap();
        std::fs::write(path.join("home/.hermes/.env"), "KEY=top-secret\n").unwrap();
        std::fs::write(path.join("home/.hermes/auth.json"), "top-secret").unwrap();
        std::fs::write(path.join("home/.hermes/skills/demo/SKILL.md"), "a skill\n").unwrap();
        std::fs::write(path.join("home/notes.txt"), "notes\n").unwrap();
        let mut settings = settings(SandboxChoice::Landlock, &path);
        change(&mut settings);
        let programs = match settings.choice {
            SandboxChoice::Bubblewrap => rig::unpacked(test)?.join("usr/bin"),
            _ => PathBuf::new(),
        };
        let sandbox = Sandbox::detect_on(settings, programs.as_os_str());
        if sandbox.enforces() {
            return Some(Self { sandbox, dir });
        }
        skip(&sandbox.posture(), test);
        None
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().canonicalize().unwrap();
        dir.join(APART).join(name)
    }

    pub(crate) fn limits(&self) -> Confinement {
        self.sandbox.confinement(&self.path("work"))
    }

    pub(crate) fn launch(&self, script: &str) -> Launch {
        let home = self.path("home");
        Launch {
            program: "/bin/bash".into(),
            args: vec!["-c".into(), format!("exec 2>&1\n{script}").into()],
            env: [
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), home.into_os_string()),
                ("LC_ALL".into(), "C".into()),
            ]
            .into(),
            cwd: self.path("work"),
            terminal: false,
        }
    }

    /// As most commands run: by a helper that was started before, where there can be one.
    pub(crate) fn run(&self, script: &str) -> Said {
        let launch = self.launch(script);
        match self
            .sandbox
            .prepare_helper(&launch, &self.limits())
            .unwrap()
        {
            Some(ahead) => obey(&ahead),
            None => self.run_at_once(script),
        }
    }

    /// As those with a terminal run, and those in the background.
    pub(crate) fn run_at_once(&self, script: &str) -> Said {
        let launch = self
            .sandbox
            .wrap(self.launch(script), &self.limits())
            .unwrap();
        start(Command::new(&launch.program), &launch)
    }

    /// The same in another directory, both ways.
    pub(crate) fn run_in(&self, cwd: &Path, script: &str) -> [Said; 2] {
        let limits = self.sandbox.confinement(cwd);
        let mut launch = self.launch(script);
        cwd.clone_into(&mut launch.cwd);
        let ahead = self
            .sandbox
            .prepare_helper(&launch, &limits)
            .unwrap()
            .unwrap();
        let launch = self.sandbox.wrap(launch, &limits).unwrap();
        [obey(&ahead), start(Command::new(&launch.program), &launch)]
    }

    fn blocked(&self, said: &Said) -> Option<String> {
        self.sandbox
            .blocked(said.code.unwrap_or(1), &said.text, &self.limits())
    }
}

pub(crate) fn obey(ahead: &HelperStart) -> Said {
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
    let mut pid = [0; 4];
    (&near).read_exact(&mut pid).unwrap();
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    let pid = Pid::from_raw(i32::from_le_bytes(pid));
    let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
    drop(near);
    assert!(helper.wait().unwrap().success());
    Said {
        code: status.exit_status(),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// The order, and the streams of the command with it.
pub(crate) fn give(socket: &UnixStream, order: &[u8], streams: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(streams)));
    let pieces = [IoSlice::new(order)];
    let sent = sendmsg(socket, &pieces, &mut beside, SendFlags::empty()).unwrap();
    let mut socket = socket;
    socket.write_all(&order[sent..]).unwrap();
}

fn start(mut command: Command, launch: &Launch) -> Said {
    let output = command
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.cwd)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    said(&output)
}

fn said(output: &Output) -> Said {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Said {
        code: output.status.code(),
        text: text.into_owned(),
    }
}

#[test]
fn what_is_started_at_once_is_confined_the_same() {
    let test = "what_is_started_at_once_is_confined_the_same";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    for attack in [
        "echo x > ../home/evil",
        "cat ../home/.hermes/.env",
        "mount -t tmpfs none .",
        "unshare -U true",
    ] {
        for said in [prison.run(attack), prison.run_at_once(attack)] {
            assert_ne!(said.code, Some(0), "{attack}: {}", said.text);
            assert!(!said.text.contains("top-secret"), "{attack}");
        }
    }
    assert!(!prison.path("home/evil").exists());
    let inside = "echo fine > inside && cat inside";
    assert_eq!(prison.run(inside).text, prison.run_at_once(inside).text);
}

#[test]
fn writing_is_for_the_workspace() {
    let Some(prison) = Prison::new("writing_is_for_the_workspace", |_| {}) else {
        return;
    };
    let said = prison.run("echo fine > inside && mkdir -p a/b && mv inside a/b/ && ln -s x y && cat a/b/inside && t=$(mktemp) && echo t > $t && rm $t");
    assert_eq!((said.code, said.text.as_str()), (Some(0), "fine\n"));
    for target in [
        "home/evil",
        "home/.bashrc",
        "home/.hermes/skills/demo/SKILL.md",
        "home/.hermes/config.yaml",
    ] {
        let path = prison.path(target);
        let said = prison.run(&format!("echo evil > '{}'", path.display()));
        assert_ne!(said.code, Some(0), "{target}");
        let why = prison.blocked(&said).unwrap();
        assert!(why.contains(target), "{why}");
    }
    assert!(!prison.path("home/evil").exists());
    let moved = prison.run("mv ../home/notes.txt . ; rm -f ../home/notes.txt; truncate -s 0 ../home/notes.txt; chmod 777 ../home/nothing");
    assert_ne!(moved.code, Some(0));
    assert_eq!(
        std::fs::read_to_string(prison.path("home/notes.txt")).unwrap(),
        "notes\n"
    );
}

#[test]
fn secrets_of_the_home_cannot_be_read() {
    let Some(prison) = Prison::new("secrets_of_the_home_cannot_be_read", |_| {}) else {
        return;
    };
    let said = prison.run("cat ~/notes.txt ~/.hermes/skills/demo/SKILL.md");
    assert_eq!(said.text, "notes\na skill\n");
    for script in [
        "cat ~/.hermes/.env",
        "cat ~/.hermes/auth.json",
        "cp ~/.hermes/.env stolen; cat stolen",
        "ln -s ~/.hermes/.env link; cat link",
        "ln ~/.hermes/.env hard; cat hard",
        "mv ~/.hermes/.env moved; cat moved",
        "mv ~/.hermes moved; cat moved/.env",
        "cd ~/.hermes && cat ./.env",
        "bash ~/.hermes/.env; . ~/.hermes/.env; echo $KEY",
        "tar -cf - ~/.hermes",
        "cat /proc/self/root$HOME/.hermes/.env",
        "cat /proc/self/cwd/../home/.hermes/.env",
        "cat /proc/$PPID/root$HOME/.hermes/.env",
    ] {
        let said = prison.run(script);
        assert!(!said.text.contains("top-secret"), "{script}: {}", said.text);
        assert!(!said.text.contains("KEY="), "{script}: {}", said.text);
    }
    let said = prison.run("cat ~/.hermes/.env");
    assert!(
        prison.blocked(&said).unwrap().contains("reading"),
        "{}",
        said.text
    );
}

#[test]
fn links_lead_nowhere_new() {
    let Some(prison) = Prison::new("links_lead_nowhere_new", |_| {}) else {
        return;
    };
    // A secret that is itself a link is hidden where it lies.
    let elsewhere = prison.path("dotfiles");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("env"), "top-secret").unwrap();
    std::fs::remove_file(prison.path("home/.hermes/.env")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("env"), prison.path("home/.hermes/.env")).unwrap();
    let said = prison.run("cat ~/.hermes/.env ../dotfiles/env");
    assert!(!said.text.contains("top-secret"), "{}", said.text);
    // A link in the workspace that is swapped while the command runs.
    let swap = "mkdir real; ln -sfn real swap; \
        (i=0; while [ $i -lt 300 ]; do ln -sfn ../home swap; ln -sfn real swap; i=$((i+1)); done) & \
        i=0; while [ $i -lt 300 ]; do echo evil 2>/dev/null > swap/swapped; i=$((i+1)); done; wait";
    prison.run(swap);
    assert!(!prison.path("home/swapped").exists());
}

#[test]
fn other_processes_are_out_of_reach() {
    let Some(prison) = Prison::new("other_processes_are_out_of_reach", |_| {}) else {
        return;
    };
    // This test is the parent: its environment, memory and life are what is attacked.
    let me = std::process::id();
    for file in ["environ", "mem", "maps"] {
        let said = prison.run(&format!("cat /proc/{me}/{file}"));
        assert_ne!(said.code, Some(0), "{file}");
        // It is not even listed where the command has a table of processes of its own.
        let refused = ["ermission denied", "No such file"];
        assert!(
            refused.iter().any(|words| said.text.contains(words)),
            "{}",
            said.text
        );
    }
    let said = prison.run(&format!(
        "kill -0 {me}; kill -9 {me}; kill -9 -{me}; echo alive"
    ));
    let refused = ["not permitted", "No such process"];
    assert!(
        said.text.ends_with("alive\n") && refused.iter().any(|words| said.text.contains(words)),
        "{}",
        said.text
    );
    // Its own children are its own.
    let said = prison.run("sleep 100 & kill $! && wait $!; echo $?; cat /proc/self/environ | tr '\\0' '\\n' | grep -c PATH");
    assert_eq!(said.text, "143\n1\n");
}

#[test]
fn the_loader_obeys_nobody_before_the_limits() {
    let Some(prison) = Prison::new("the_loader_obeys_nobody_before_the_limits", |_| {}) else {
        return;
    };
    let mut launch = prison.launch("echo \"$LD_PRELOAD\"");
    launch
        .env
        .insert("LD_PRELOAD".into(), "/nonexistent/evil.so".into());
    let wrapped = prison.sandbox.wrap(launch, &prison.limits()).unwrap();
    assert!(!wrapped.env.contains_key(std::ffi::OsStr::new("LD_PRELOAD")));
    let said = start(Command::new(&wrapped.program), &wrapped);
    // Only the command itself complains, once.
    assert_eq!(
        said.text.matches("cannot be preloaded").count(),
        1,
        "{}",
        said.text
    );
    assert!(
        said.text.contains("\n/nonexistent/evil.so")
            || said.text.starts_with("/nonexistent/evil.so")
    );
}

#[test]
fn the_kernel_is_out_of_reach() {
    let Some(prison) = Prison::new("the_kernel_is_out_of_reach", |_| {}) else {
        return;
    };
    for script in [
        "unshare -U true",
        "unshare -r true",
        "mount -t tmpfs x /mnt",
        "mknod disk b 254 0 && cat disk",
        "chroot . /bin/true",
    ] {
        let said = prison.run(script);
        assert_ne!(said.code, Some(0), "{script}: {}", said.text);
    }
    let devices = prison.run("for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mem /dev/kmsg; do [ -e $d ] && head -c1 $d; done; true");
    assert!(
        devices
            .text
            .lines()
            .all(|line| line.contains("ermission denied") || line.contains("not permitted")),
        "{}",
        devices.text
    );
}

#[test]
fn the_network_can_be_off() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    let Some(prison) = Prison::new("the_network_can_be_off", |_| {}) else {
        return;
    };
    assert_eq!(prison.run(&connect).text, "connected\n");
    let Some(prison) = Prison::new("the_network_can_be_off", |settings| {
        settings.network = false;
    }) else {
        return;
    };
    let said = prison.run(&connect);
    assert_ne!(said.code, Some(0));
    assert!(!said.text.contains("connected\n"), "{}", said.text);
    let said = Said {
        code: Some(6),
        text: "curl: (6) Could not resolve host: example.org".to_owned(),
    };
    assert!(prison.blocked(&said).unwrap().contains("network"));
}

#[test]
fn memory_and_files_have_limits() {
    let limits = ResourceLimits {
        processes: 0,
        memory: 200 << 20,
        file: 1 << 20,
    };
    let Some(prison) = Prison::new("memory_and_files_have_limits", |settings| {
        settings.limits = limits;
    }) else {
        return;
    };
    let said = prison.run("head -c 500000000 /dev/zero | tail | wc -c");
    assert!(said.text.contains("memory"), "{}", said.text);
    let said = prison.run("head -c 5000000 /dev/zero > big; stat -c %s big");
    assert_eq!(said.text.lines().last(), Some("1048576"), "{}", said.text);
}

#[test]
fn a_fork_bomb_stays_small() {
    const WHO: u32 = 54_321;
    let limits = ResourceLimits {
        processes: 40,
        ..ResourceLimits::default()
    };
    let test = "a_fork_bomb_stays_small";
    let Some(prison) = Prison::new(test, |settings| settings.limits = limits) else {
        return;
    };
    // The limit counts an account's processes and does not bind root: an account of its own.
    if !rig::is_root() {
        skip("only root can start it as an account of its own", test);
        return;
    }
    let bomb = "n=0; bomb() { n=$((n+1)); bomb 2>/dev/null & bomb 2>/dev/null & sleep 1; }; bomb; echo over";
    let mut launch = prison.launch(bomb);
    launch.cwd = "/tmp".into();
    let launch = prison.sandbox.wrap(launch, &prison.limits()).unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--clear-groups".to_owned(),
        format!("--reuid={WHO}"),
        format!("--regid={WHO}"),
    ]);
    open_up(&launch.program);
    let mut child = command
        .arg(&launch.program)
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    for _ in 0..15 {
        most = most.max(pids_of(WHO).len());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // All at once and again: the last ones have no room to start new ones.
    while let pids = pids_of(WHO)
        && !pids.is_empty()
    {
        for pid in pids {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    child.wait().unwrap();
    assert!(most <= 40, "{most} processes");
    assert!(most > 10, "it did not even start: {most}");
}

/// Another account must be able to start the helper.
fn open_up(program: &std::ffi::OsStr) {
    let readable = Command::new("setpriv")
        .args([
            "--reuid=54321",
            "--regid=54321",
            "--clear-groups",
            "test",
            "-x",
        ])
        .arg(program)
        .status()
        .unwrap();
    assert!(
        readable.success(),
        "{} is not for others",
        Path::new(program).display()
    );
}

fn pids_of(user: u32) -> Vec<Pid> {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user))
        // Not those that only wait to be collected.
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("status"))
                .is_ok_and(|text| !text.contains("State:\tZ"))
        })
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

#[test]
fn a_named_sandbox_that_is_missing_fails_closed() {
    let dir = outside();
    let mut settings = settings(SandboxChoice::Auto, dir.path());
    settings.unknown = Some("fort-knox".to_owned());
    let sandbox = Sandbox::detect(settings);
    assert!(!sandbox.enforces());
    let limits = sandbox.confinement(dir.path());
    assert!(!limits.is_off());
    let launch = Launch {
        program: "/bin/true".into(),
        args: Vec::new(),
        env: [].into(),
        cwd: "/".into(),
        terminal: false,
    };
    let error = sandbox.wrap(launch, &limits).unwrap_err();
    assert!(error.to_string().contains("fort-knox"), "{error}");
    assert!(error.to_string().contains("nothing was run"), "{error}");
}

/// The person works in the home itself, where the secrets are.
#[test]
fn a_home_as_workspace_keeps_secrets_and_keys() {
    let test = "a_home_as_workspace_keeps_secrets_and_keys";
    let Some(prison) = Prison::new(test, |_| {}) else {
        return;
    };
    let home = prison.path("home");
    for name in [".ssh/id", ".cargo/registry/x", ".bashrc"] {
        let path = home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "before\n").unwrap();
    }
    let limits = prison.sandbox.confinement(&home);
    let run = |script: &str| {
        let mut launch = prison.launch(script);
        launch.cwd.clone_from(&home);
        let launch = prison.sandbox.wrap(launch, &limits).unwrap();
        start(Command::new(&launch.program), &launch)
    };
    let said = run(
        "mkdir new && echo hello > new/file && echo top > top && cat new/file top notes.txt .hermes/skills/demo/SKILL.md; echo c > .cargo/registry/y",
    );
    let own_view = said.text == "hello\ntop\nnotes\na skill\n";
    if !own_view {
        // Without a view of its own the home's top level stays as it is; the rest holds all the same.
        skip(
            &format!("no mount namespace here: {}", said.text.trim()),
            test,
        );
    }
    assert!(!own_view || home.join(".cargo/registry/y").exists());
    let key = run("cat .ssh/id");
    assert!(!key.text.contains("before"), "{}", key.text);
    for script in [
        "cat .hermes/.env .hermes/auth.json",
        "echo evil > .hermes/.env",
        "rm -rf .hermes",
        "mv .hermes away; cat away/.env",
        "echo evil >> .bashrc",
        "echo evil > .ssh/authorized_keys",
        "echo evil > .cargo/config.toml",
        "umount .hermes/.env; umount -l .hermes; cat .hermes/.env",
        "echo evil > .hermes/skills/demo/SKILL.md",
    ] {
        let said = run(script);
        assert!(!said.text.contains("top-secret"), "{script}: {}", said.text);
    }
    let env = std::fs::read_to_string(home.join(".hermes/.env")).unwrap();
    assert_eq!(env, "KEY=top-secret\n");
    let skill = std::fs::read_to_string(home.join(".hermes/skills/demo/SKILL.md")).unwrap();
    assert_eq!(skill, "a skill\n");
    assert_eq!(
        std::fs::read_to_string(home.join(".bashrc")).unwrap(),
        "before\n"
    );
    assert!(!home.join(".ssh/authorized_keys").exists());
    assert!(!home.join(".cargo/config.toml").exists());
}

/// The same walls, built by bubblewrap.
#[test]
fn bubblewrap_holds_too() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(prison) = Prison::new("bubblewrap_holds_too", |settings| {
        settings.choice = SandboxChoice::Bubblewrap;
        settings.network = false;
    }) else {
        return;
    };
    let said =
        prison.run("echo fine > inside; cat inside ~/notes.txt ~/.hermes/skills/demo/SKILL.md");
    assert_eq!(said.text, "fine\nnotes\na skill\n");
    for script in [
        "cat ~/.hermes/.env ~/.hermes/auth.json",
        "echo evil > ~/evil",
        "echo evil > .git/hooks/pre-commit",
        "echo evil > ~/.hermes/skills/demo/SKILL.md",
        "mount -t tmpfs x /mnt",
        &format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        &format!("kill -0 {}", std::process::id()),
    ] {
        let said = prison.run(script);
        assert_ne!(said.code, Some(0), "{script}: {}", said.text);
        assert!(!said.text.contains("top-secret"), "{script}: {}", said.text);
    }
    let said = prison.run("echo evil > ~/evil");
    let blocked = prison.blocked(&said);
    assert!(
        blocked.is_some_and(|why| why.contains("home/evil")),
        "{}",
        said.text
    );
    assert!(!prison.path("work/.git/hooks/pre-commit").exists());
    assert!(!prison.path("home/evil").exists());
}
