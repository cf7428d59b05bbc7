//! What `cargo xtask setup` unpacked under target/exec: sshd, podman, bubblewrap from Debian, nothing
//! of it installed.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hermes_testkit::oracle::skip;
use rustix::fs::{FlockOperation, flock};

/// The unpacked packages, or a skip on record.
pub(crate) fn unpacked(test: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let root = workspace.join("target/exec/root");
    if root.join("usr/bin/bwrap").exists() {
        return Some(root);
    }
    skip("target/exec is missing, run cargo xtask setup", test);
    None
}

/// Where its libraries are.
pub(crate) fn libraries(root: &Path) -> String {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let dirs = [
        root.join("usr/lib").join(&triple),
        root.join("lib").join(&triple),
    ];
    dirs.map(|dir| dir.display().to_string()).join(":")
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

pub(crate) fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// An sshd of our own on loopback.
pub(crate) struct Sshd {
    child: Child,
    pub(crate) port: u16,
    dir: tempfile::TempDir,
}

impl Sshd {
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The home that people have there: not the one they have here.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir().join("home")
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keygen(path: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Starts it and waits until it listens. `None`: a skip on record, with the reason.
pub(crate) fn sshd(test: &str) -> Option<Sshd> {
    let root = unpacked(test)?;
    if Command::new("ssh").arg("-V").output().is_err() {
        skip("no ssh on PATH, cargo xtask test brings one", test);
        return None;
    }
    let dir = tempfile::Builder::new()
        .prefix("hermes-sshd-")
        .tempdir_in("/tmp")
        .unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("home")).unwrap();
    keygen(&at("host"));
    keygen(&at("user"));
    std::fs::copy(at("user.pub"), at("authorized")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nPidFile {0}/pid\n\
         AuthorizedKeysFile {0}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         PermitRootLogin yes\nPrintMotd no\nMaxSessions 50\nMaxStartups 50\n\
         Subsystem sftp internal-sftp\nSetEnv FROM_SSHD=yes\n",
        dir.path().display()
    );
    write(&at("config"), &config, 0o600);
    let mut command = command_of(&root, &at("passwd"), &at("home"));
    let log = std::fs::File::create(at("log")).unwrap();
    command.args(["-D", "-e", "-f"]).arg(at("config"));
    let child = command
        .env("LD_LIBRARY_PATH", libraries(&root))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut sshd = Sshd { child, port, dir };
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(sshd);
        }
        if sshd.child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(sshd.dir().join("log")).unwrap_or_default();
    skip(&format!("sshd does not start: {}", log.trim()), test);
    None
}

/// Root's sshd wants an account of its own: it gets one in a view of the files made for it.
fn command_of(root: &Path, passwd: &Path, home: &Path) -> Command {
    let sshd = root.join("usr/sbin/sshd");
    if !is_root() {
        return Command::new(sshd);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let ours = "\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n";
    write(passwd, &(accounts.trim_end().to_owned() + ours), 0o644);
    let mut command = Command::new(root.join("usr/bin/bwrap"));
    command
        .args(["--dev-bind", "/", "/", "--ro-bind"])
        .arg(passwd)
        .args(["/etc/passwd", "--bind"])
        .arg(home)
        .args(["/root", "--tmpfs", "/run", "--dir", "/run/sshd"])
        .arg("--die-with-parent")
        .arg(sshd);
    command
}

/// A podman with a store of its own and one image.
pub(crate) struct Podman {
    pub(crate) program: PathBuf,
    dir: tempfile::TempDir,
    _lock: std::fs::File,
}

const PODMAN: &str = "hermes-podman-";
pub(crate) const IMAGE: &str = "localhost/hermes-test:latest";

impl Podman {
    pub(crate) fn run(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.program)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "-f", "-a", "-t", "0"]);
        let _ = self.run(&["rmi", "-f", "-a"]);
        unmount_below(self.dir.path());
    }
}

/// What is still mounted below a directory keeps it from being removed.
fn unmount_below(dir: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut places: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|place| Path::new(place).starts_with(dir))
        .collect();
    // The innermost first.
    places.sort_by_key(|place| std::cmp::Reverse(place.len()));
    for place in places {
        let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Removes what tests left that were killed: nobody holds its lock.
fn sweep_podmans() {
    for entry in std::fs::read_dir("/tmp").unwrap().flatten() {
        let path = entry.path();
        let named = entry.file_name().to_string_lossy().starts_with(PODMAN);
        let lock = named.then(|| std::fs::File::open(&path));
        if let Some(Ok(lock)) = lock
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = Command::new(path.join("podman"))
                .args(["rm", "-f", "-a", "-t", "0"])
                .output();
            unmount_below(&path);
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// A working podman with the image in it. `None`: a skip on record, with what the kernel said.
pub(crate) fn podman(test: &str) -> Option<Podman> {
    let root = unpacked(test)?;
    let image = root.parent()?.join("image.tar");
    sweep_podmans();
    let dir = tempfile::Builder::new()
        .prefix(PODMAN)
        .tempdir_in("/tmp")
        .unwrap();
    let lock = std::fs::File::open(dir.path()).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let at = |name: &str| dir.path().join(name);
    let shown = |path: PathBuf| path.display().to_string();
    std::fs::create_dir_all(at("home/.config/containers")).unwrap();
    for name in ["run", "store"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let libraries = libraries(&root);
    // podman starts both without the variables that it has itself.
    for (name, program) in [("runc", "usr/sbin/runc"), ("conmon", "usr/bin/conmon")] {
        let program = shown(root.join(program));
        let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} \"$@\"\n");
        write(&at(name), &script, 0o755);
    }
    let conf = format!(
        "[containers]\nnetns = \"host\"\npids_limit = 0\n\
         default_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]\ninit_path = \"{}\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"runc\"\n\
         conmon_path = [\"{}\"]\n[engine.runtimes]\nrunc = [\"{}\"]\n",
        shown(root.join("usr/bin/catatonit")),
        shown(at("conmon")),
        shown(at("runc")),
    );
    write(&at("containers.conf"), &conf, 0o644);
    let store = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        shown(at("store")),
        shown(at("run"))
    );
    write(&at("storage.conf"), &store, 0o644);
    let policy = "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}";
    write(&at("home/.config/containers/policy.json"), policy, 0o644);
    let wrapper = format!(
        "#!/bin/sh\nexport HOME={0}/home XDG_RUNTIME_DIR={0}/run CONTAINERS_CONF={0}/containers.conf \
         CONTAINERS_STORAGE_CONF={0}/storage.conf LD_LIBRARY_PATH={libraries}\nexec {1} \"$@\"\n",
        dir.path().display(),
        shown(root.join("usr/bin/podman")),
    );
    write(&at("podman"), &wrapper, 0o755);
    let podman = Podman {
        program: at("podman"),
        dir,
        _lock: lock,
    };
    // Detached: what a container leaves behind by itself is not seen to by an unpacked podman, which
    // waits long for it.
    let works = podman
        .run(&["import", &image.display().to_string(), IMAGE])
        .and_then(|_| podman.run(&["run", "-d", IMAGE, "sleep", "1000"]))
        .and_then(|id| podman.run(&["rm", "-f", "-t", "0", &id]));
    match works {
        Ok(_) => Some(podman),
        Err(why) => {
            let why = why.lines().last().unwrap_or_default().to_owned();
            skip(&format!("podman cannot run containers here: {why}"), test);
            None
        }
    }
}
