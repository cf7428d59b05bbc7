//! Real MCP servers, installed by `cargo xtask setup`: started, killed and started again on the
//! same port.
//!
//! A test that needs them starts with `let Some(peers) = peers::require("name") else { return };`.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::oracle;

/// How long a server may take until it listens, on a busy machine.
const START: Duration = Duration::from_mins(1);

/// Where everything is installed.
#[derive(Clone, Debug)]
pub struct Peers {
    workspace: PathBuf,
    node: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `server-everything` over streamable HTTP.
    Everything,
    /// `server-everything` over HTTP+SSE.
    EverythingSse,
    /// supergateway 3.4.3 around our Python server over stdio, with sessions.
    Gateway3,
    /// supergateway 4, the same.
    Gateway4,
    /// The Python SDK 1.26: sessions.
    PythonLegacy,
    /// The same over HTTP+SSE.
    PythonSse,
    /// The Python SDK 2.3: both eras.
    PythonModern,
}

/// The installed servers, or a skip on record. Panics when they are missing under `CI=true`.
pub fn require(test: &str) -> Option<Peers> {
    let found = find();
    if found.is_none() {
        oracle::skip("mcp-servers", test);
    }
    found
}

fn find() -> Option<Peers> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let modules = workspace.join("target/mcp/node_modules");
    let python = |name| {
        workspace
            .join("target/mcp-py")
            .join(name)
            .join(".installed")
    };
    let installed = workspace.join("target/mcp/.installed").exists()
        && python("legacy").exists()
        && python("modern").exists();
    let node = std::fs::read_dir(&modules)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("node-linux-") || name.starts_with("node-darwin-")
        })
        .map(|path| path.join("bin/node"))
        .find(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("node"));
    installed.then(|| Peers {
        workspace: workspace.to_owned(),
        node,
    })
}

impl Peers {
    /// Node 22 or newer.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// A file of an npm package.
    pub fn module(&self, path: &str) -> PathBuf {
        self.workspace.join("target/mcp/node_modules").join(path)
    }

    /// A client of the Python SDK 1.26 for the server at this URL: `certify.py` says what it does.
    pub fn python_client(&self, sse: bool, url: &str) -> Command {
        let script = self
            .workspace
            .join("crates/hermes-testkit/sdk/mcp/certify.py");
        let mut command = Command::new(self.python("legacy"));
        command
            .arg(script)
            .args([if sse { "sse" } else { "http" }, url])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// The interpreter that has the Python SDK 1.26.
    pub fn python_legacy(&self) -> PathBuf {
        self.python("legacy")
    }

    fn python(&self, name: &str) -> PathBuf {
        self.workspace
            .join("target/mcp-py")
            .join(name)
            .join("bin/python")
    }

    fn python_server(&self) -> PathBuf {
        self.workspace.join("ci/mcp/server.py")
    }

    /// Program and arguments of `server-everything` over stdio.
    pub fn everything_stdio(&self) -> (PathBuf, Vec<String>) {
        let script = self.module("@modelcontextprotocol/server-everything/dist/index.js");
        (self.node.clone(), vec![text(&script), "stdio".to_owned()])
    }

    /// Program and arguments of our Python server over stdio; its effects go to that file.
    pub fn python_stdio(&self, modern: bool, effects: &Path) -> (PathBuf, Vec<String>) {
        let python = self.python(if modern { "modern" } else { "legacy" });
        let script = self.python_server();
        let args = vec![
            text(&script),
            "stdio".to_owned(),
            "0".to_owned(),
            text(effects),
        ];
        (python, args)
    }

    /// Starts a server on a free port and waits until it listens.
    pub fn start(&self, peer: Peer) -> RealServer {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("the listener has an address");
        drop(free);
        let scratch = TempDir::new().expect("a temporary directory");
        let mut server = RealServer {
            peers: self.clone(),
            peer,
            address,
            scratch,
            child: None,
        };
        server.start();
        server
    }

    fn command(&self, peer: Peer, port: u16, effects: &Path) -> Command {
        let everything = |mode: &str| {
            let mut command = Command::new(&self.node);
            command
                .arg(self.module("@modelcontextprotocol/server-everything/dist/index.js"))
                .arg(mode)
                .env("PORT", port.to_string());
            command
        };
        let gateway = |package: &str| {
            let (python, args) = self.python_stdio(false, effects);
            let mut command = Command::new(&self.node);
            command
                .arg(self.module(package).join("dist/index.js"))
                .arg("--stdio")
                .arg(format!("{} {}", text(&python), args.join(" ")))
                .args(["--outputTransport", "streamableHttp", "--stateful"])
                .args(["--logLevel", "none", "--port", &port.to_string()]);
            command
        };
        let python = |name: &str, mode: &str| {
            let mut command = Command::new(self.python(name));
            command
                .arg(self.python_server())
                .args([mode, &port.to_string()])
                .arg(effects)
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        match peer {
            Peer::Everything => everything("streamableHttp"),
            Peer::EverythingSse => everything("sse"),
            Peer::Gateway3 => gateway("supergateway-3"),
            Peer::Gateway4 => gateway("supergateway-4"),
            Peer::PythonLegacy => python("legacy", "streamable-http"),
            Peer::PythonSse => python("legacy", "sse"),
            Peer::PythonModern => python("modern", "streamable-http"),
        }
    }
}

/// A server process. It is killed when dropped, with its children.
pub struct RealServer {
    peers: Peers,
    peer: Peer,
    address: SocketAddr,
    scratch: TempDir,
    child: Option<Child>,
}

impl RealServer {
    pub fn url(&self) -> String {
        let path = match self.peer {
            Peer::EverythingSse | Peer::PythonSse => "sse",
            _ => "mcp",
        };
        format!("http://{}/{path}", self.address)
    }

    /// Marks left by `bump` and `slow`, one per run, of every process so far.
    pub fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.effects_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn effects_file(&self) -> PathBuf {
        self.scratch.path().join("effects")
    }

    /// What the server printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Starts it again on the same port and waits until it listens.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "{:?} runs already", self.peer);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.scratch.path().join("log"))
            .expect("a log in a fresh directory");
        let mut command = self
            .peers
            .command(self.peer, self.address.port(), &self.effects_file());
        command
            .process_group(0)
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?} does not start: {error}", self.peer));
        self.child = Some(child);
        self.wait_until_up();
    }

    fn wait_until_up(&mut self) {
        let end = Instant::now() + START;
        while TcpStream::connect(self.address).is_err() {
            let child = self.child.as_mut().expect("just started");
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{:?} ended with {status}: {}", self.peer, self.log());
            }
            assert!(Instant::now() < end, "{:?}: {}", self.peer, self.log());
            // Another program's start can only be polled.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it with its children and waits until it is gone.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            // Gone already is as good.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Makes the Python server forget its sessions.
    pub fn forget_sessions(&self) {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        let request = "POST /forget HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
                       content-length: 0\r\n\r\n";
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
