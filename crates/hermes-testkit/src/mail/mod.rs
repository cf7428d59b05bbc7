//! A real mail server for one test: Dovecot for IMAP, Exim for SMTP, as `cargo xtask setup` unpacked them.
//!
//! Every address of `example.test` and `elsewhere.test` is a mailbox with the password [`PASSWORD`]. Mail
//! from whoever logs in to SMTP is stamped as proven (`dmarc=pass`), all other mail as failed; one that says
//! `EHLO nostamp.test` is not stamped. What [`RECORDED`] sends is also put into its `Sent`, as large providers do.

mod config;
mod post;
mod proxy;
mod read;

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

pub use post::TestMail;
pub use proxy::{MailFault, MailProxy};

/// Of every mailbox.
pub const PASSWORD: &str = "geheim";
/// The mailbox that has a `Sent` kept by the server.
pub const RECORDED: &str = "recorded@example.test";
/// What the server calls itself in `Authentication-Results`.
pub const AUTHSERV_ID: &str = "mx.example.test";

/// A mail server with directories and ports of its own. It ends with the value.
#[derive(Debug)]
pub struct MailServer {
    dir: TempDir,
    root: PathBuf,
    ports: Ports,
    dovecot: Option<Child>,
    exim: Option<Child>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub imap: u16,
    pub imaps: u16,
    pub smtp: u16,
    pub smtps: u16,
}

impl MailServer {
    /// `None`: it is not unpacked here; the test is reported as skipped.
    pub fn start(test: &str) -> Option<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let workspace = manifest.ancestors().nth(2).expect("the workspace");
        let home = workspace.join("target/mail");
        if !home.join(".installed").exists() {
            crate::oracle::skip("target/mail is missing, run cargo xtask setup", test);
            return None;
        }
        let root = home.join("root");
        let mut log = String::new();
        for _ in 0..3 {
            // Another test may take a port between choosing and using it.
            match Self::try_start(&root) {
                Ok(server) => return Some(server),
                Err(said) => log = said,
            }
        }
        panic!("the mail server does not start:\n{log}")
    }

    /// `Err`: what the servers wrote before they ended.
    fn try_start(root: &Path) -> Result<Self, String> {
        let dir = tempfile::Builder::new()
            .prefix("hermes-mail-")
            .tempdir()
            .expect("a directory");
        let ports = free_ports();
        config::write(dir.path(), root, ports);
        let mut server = Self {
            dir,
            root: root.to_owned(),
            ports,
            dovecot: None,
            exim: None,
        };
        server.spawn_imap();
        server.start_smtp();
        let deadline = Instant::now() + Duration::from_secs(20);
        let listening = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        while ![ports.imap, ports.imaps, ports.smtp, ports.smtps]
            .map(listening)
            .iter()
            .all(|up| *up)
        {
            let ended = |child: &mut Option<Child>| {
                child
                    .as_mut()
                    .is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
            };
            if ended(&mut server.dovecot) || ended(&mut server.exim) {
                return Err(server.log());
            }
            assert!(
                Instant::now() < deadline,
                "no mail server:\n{}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// The certificate of the server, for whoever is to trust it.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// What both servers wrote, for messages of failed tests.
    pub fn log(&self) -> String {
        [
            "dovecot.log",
            "dovecot.out",
            "exim.out",
            "spool/mainlog",
            "spool/paniclog",
        ]
        .iter()
        .filter_map(|name| std::fs::read_to_string(self.dir.path().join(name)).ok())
        .collect()
    }

    /// Returns when it can be reached.
    pub fn start_imap(&mut self) {
        self.spawn_imap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let lmtp = self.dir.path().join("run/lmtp");
        while TcpStream::connect(("127.0.0.1", self.ports.imaps)).is_err()
            || std::os::unix::net::UnixStream::connect(&lmtp).is_err()
        {
            assert!(Instant::now() < deadline, "no dovecot:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn spawn_imap(&mut self) {
        let conf = self.dir.path().join("dovecot.conf");
        let child = self
            .command("usr/bin/doveconf")
            .arg("-c")
            .arg(&conf)
            .args(["-m", "master", "-e"])
            .arg(self.root.join("usr/sbin/dovecot"))
            .arg("-F")
            .arg("-c")
            .arg(&conf)
            .stdout(self.output("dovecot.out"))
            .stderr(self.output("dovecot.out"))
            .spawn()
            .expect("dovecot");
        self.dovecot = Some(child);
    }

    fn start_smtp(&mut self) {
        let dir = self.dir.path();
        let child = Command::new(dir.join("exim/exim4"))
            .env_clear()
            .envs(config::exim_environment(dir))
            .arg("-C")
            .arg(dir.join("exim.conf"))
            .arg("-bdf")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(self.output("exim.out"))
            .stderr(self.output("exim.out"))
            .spawn()
            .expect("exim");
        self.exim = Some(child);
    }

    /// The IMAP server goes, with every connection.
    pub fn stop_imap(&mut self) {
        end(self.dovecot.take());
    }

    /// The mails in the mailbox of an address, oldest first, with all their headers;
    /// lines end as on this machine.
    pub fn mailbox(&self, address: &str) -> Vec<String> {
        self.folder(address, "")
    }

    /// The mails in a folder of an address.
    pub fn folder(&self, address: &str, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut home = self.dir.path().join("mail").join(address);
        if !folder.is_empty() {
            home = home.join(format!(".{folder}"));
        }
        for name in ["new", "cur"] {
            for entry in std::fs::read_dir(home.join(name))
                .into_iter()
                .flatten()
                .flatten()
            {
                found.push((entry.file_name(), entry.path()));
            }
        }
        found.sort_by_key(|(name, _)| delivered(&name.to_string_lossy()));
        let read = |path: &Path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
        };
        found.iter().map(|(_, path)| read(path)).collect()
    }

    /// The flags of the mails in a mailbox, oldest first, as Maildir has them (`S`: seen).
    pub fn flags(&self, address: &str) -> Vec<String> {
        let home = self.dir.path().join("mail").join(address);
        let mut names: Vec<String> = ["new", "cur"]
            .iter()
            .flat_map(|name| {
                std::fs::read_dir(home.join(name))
                    .into_iter()
                    .flatten()
                    .flatten()
            })
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_by_key(|name| delivered(name));
        let flags = |name: &String| {
            name.split_once(":2,")
                .map_or(String::new(), |(_, flags)| flags.to_owned())
        };
        names.iter().map(flags).collect()
    }

    /// The mailbox is created again: its ids begin again. It keeps its mails.
    pub fn renumber(&self, address: &str) {
        let home = self.dir.path().join("mail").join(address);
        for name in [
            "dovecot-uidlist",
            "dovecot-uidvalidity",
            "dovecot.index",
            "dovecot.index.log",
            "dovecot.index.cache",
        ] {
            let _ = std::fs::remove_file(home.join(name));
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.root.join(program));
        command
            .env_clear()
            .envs(config::environment(self.dir.path(), &self.root))
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    fn output(&self, name: &str) -> Stdio {
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(name))
            .expect("a file for output")
            .into()
    }
}

/// When a mail came, by the name of its file (`seconds.MmicrosecondsP…`): the numbers have no
/// leading zeros, so that the names do not sort by it.
fn delivered(name: &str) -> (u64, u64, String) {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    let micros = name.split_once(".M").map_or(0, |(_, rest)| number(rest));
    (number(name), micros, name.to_owned())
}

impl Drop for MailServer {
    fn drop(&mut self) {
        end(self.exim.take());
        end(self.dovecot.take());
    }
}

fn end(child: Option<Child>) {
    let Some(mut child) = child else { return };
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // With the processes that it started: they are of its group.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn free_ports() -> Ports {
    let listeners: Vec<TcpListener> = (0..4)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a port"))
        .collect();
    let port = |at: usize| listeners[at].local_addr().expect("an address").port();
    Ports {
        imap: port(0),
        imaps: port(1),
        smtp: port(2),
        smtps: port(3),
    }
}
