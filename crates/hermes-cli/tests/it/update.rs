//! `hermes update` and `hermes uninstall`: the program on the disk changes, is taken back, goes.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hermes_testkit::home::TempHome;
use hermes_testkit::process::{FinishedProgram, Program};
use pretty_assertions::assert_eq;
use sha2::{Digest as _, Sha256};

/// The program in a directory of its own, and another build of it.
struct InstallHarness {
    home: TempHome,
    program: PathBuf,
    other: PathBuf,
}

impl InstallHarness {
    fn new() -> Self {
        let home = TempHome::new();
        let dir = home.user().join("bin");
        std::fs::create_dir(&dir).unwrap();
        let program = dir.join("hermes");
        std::fs::copy(env!("CARGO_BIN_EXE_hermes"), &program).unwrap();
        // What follows the end of a program does not change it.
        let other = home.work().join("hermes-new");
        let mut bytes = std::fs::read(&program).unwrap();
        bytes.extend_from_slice(b"another build");
        std::fs::write(&other, bytes).unwrap();
        Self {
            home,
            program,
            other,
        }
    }

    fn run(&self, args: &[&str]) -> FinishedProgram {
        Program::new(&self.program, &self.home).args(args).run()
    }

    fn update(&self, from: &str, more: &[&str]) -> FinishedProgram {
        let mut args = vec!["update", "--from", from];
        args.extend(more);
        self.run(&args)
    }

    fn previous(&self) -> PathBuf {
        self.program.with_file_name("hermes.previous")
    }

    fn files(&self) -> Vec<String> {
        let dir = self.program.parent().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn sum(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn another_build_takes_its_place_and_goes_back() {
    let it = InstallHarness::new();
    let (old, new) = (sum(&it.program), sum(&it.other));
    let from = it.other.to_str().unwrap();
    let report = it.update(from, &["--check", "--json"]).ok().json();
    assert_eq!(
        (report["same"].as_bool(), report["sha256"].as_str()),
        (Some(false), Some(new.as_str()))
    );
    assert_eq!(it.files(), ["hermes"]);
    let done = it.update(from, &["--sha256", &new, "--yes"]).ok();
    assert!(done.stdout.contains("is installed"), "{}", done.stdout);
    assert_eq!(
        (sum(&it.program), sum(&it.previous())),
        (new.clone(), old.clone())
    );
    assert_eq!(it.files(), ["hermes", "hermes.previous"]);
    // Again: nothing to do, the kept one stays.
    let done = it.update(from, &["--yes"]).ok();
    assert!(done.stdout.contains("already"), "{}", done.stdout);
    assert_eq!(sum(&it.previous()), old);
    drop(it.run(&["update", "--rollback", "--yes"]).ok());
    assert_eq!(
        (sum(&it.program), sum(&it.previous())),
        (old.clone(), new.clone())
    );
    drop(it.run(&["update", "--rollback", "--yes"]).ok());
    assert_eq!((sum(&it.program), sum(&it.previous())), (new, old));
    assert_eq!(it.files(), ["hermes", "hermes.previous"]);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let it = InstallHarness::new();
    let before = sum(&it.program);
    let from = it.other.to_str().unwrap().to_owned();
    let done = it.update(&from, &["--sha256", &"0".repeat(64), "-y"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("checksum"), "{}", done.stderr);
    // The sum beside the file counts too.
    std::fs::write(
        format!("{from}.sha256"),
        format!("{}  hermes\n", "1".repeat(64)),
    )
    .unwrap();
    assert_eq!(it.update(&from, &["-y"]).code, Some(1));
    // No program, another program, no file, no sum.
    let script = it.home.work().join("tool");
    std::fs::write(&script, "#!/bin/sh\necho tool 1.0\n").unwrap();
    let done = it.update(script.to_str().unwrap(), &["-y"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("not hermes"), "{}", done.stderr);
    std::fs::write(&script, [0x7f, b'E', b'L', b'F', 0]).unwrap();
    assert_eq!(it.update(script.to_str().unwrap(), &["-y"]).code, Some(1));
    assert_eq!(it.update("nosuch", &["-y"]).code, Some(4));
    assert_eq!(it.update(&from, &["--sha256", "xyz", "-y"]).code, Some(64));
    assert_eq!(
        it.update("http://example.org/hermes", &["-y"]).code,
        Some(64)
    );
    // Nobody to ask.
    std::fs::remove_file(format!("{from}.sha256")).unwrap();
    let done = it.update(&from, &[]);
    assert_eq!(done.code, Some(64), "{}", done.stderr);
    assert!(done.stderr.contains("--yes"), "{}", done.stderr);
    assert_eq!(it.run(&["update", "--rollback", "-y"]).code, Some(4));
    assert_eq!(
        (sum(&it.program), it.files()),
        (before, vec!["hermes".to_owned()])
    );
}

#[test]
fn without_a_source_it_says_that_there_is_no_server_yet() {
    let it = InstallHarness::new();
    for args in [&["update"][..], &["update", "--check"], &["update", "-y"]] {
        let done = it.run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""));
        assert!(
            done.stderr.contains("no server to download"),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("--from"), "{}", done.stderr);
    }
}

/// Serves paths until the test ends.
fn serve(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match files.iter().find(|(name, _)| *name == path) {
                Some((_, body)) => ("200 OK", body.as_slice()),
                None => ("404 Not Found", &b""[..]),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = io::Write::write_all(&mut stream, head.as_bytes());
            let _ = io::Write::write_all(&mut stream, body);
        }
    });
    format!("http://{address}")
}

#[test]
fn from_the_network_only_with_a_checksum() {
    let it = InstallHarness::new();
    let bytes = std::fs::read(&it.other).unwrap();
    let line = format!("{}  hermes\n", sum(&it.other));
    let base = serve(vec![
        ("/bare/hermes", bytes.clone()),
        ("/fine/hermes", bytes),
        ("/fine/hermes.sha256", line.into_bytes()),
    ]);
    let before = sum(&it.program);
    let done = it.update(&format!("{base}/bare/hermes"), &["-y"]);
    assert_eq!(done.code, Some(64), "{}", done.stderr);
    assert!(done.stderr.contains("--sha256"), "{}", done.stderr);
    assert_eq!(
        it.update(&format!("{base}/none"), &["-y", "--sha256", &before])
            .code,
        Some(1)
    );
    assert_eq!(sum(&it.program), before);
    drop(it.update(&format!("{base}/fine/hermes"), &["-y"]).ok());
    assert_eq!(sum(&it.program), sum(&it.other));
    // A port that nobody listens on.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let done = it.update(&format!("http://{free}/h"), &["-y", "--sha256", &before]);
    assert_eq!(done.code, Some(69), "{}", done.stderr);
}

#[test]
fn a_link_stays_a_link() {
    let it = InstallHarness::new();
    let link = it.home.user().join("link");
    std::os::unix::fs::symlink(&it.program, &link).unwrap();
    let from = it.other.to_str().unwrap();
    drop(
        Program::new(&link, &it.home)
            .args(["update", "--from", from, "-y"])
            .run()
            .ok(),
    );
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(sum(&it.program), sum(&it.other));
}

#[test]
fn the_program_goes_and_the_home_stays() {
    let it = InstallHarness::new();
    it.home.config("model: {}\n");
    drop(it.update(it.other.to_str().unwrap(), &["-y"]).ok());
    drop(it.run(&["completion", "bash", "--install"]).ok());
    let script = it
        .home
        .user()
        .join(".local/share/bash-completion/completions/hermes");
    assert!(script.is_file());
    let fish = it.home.user().join(".config/fish/completions/hermes.fish");
    std::fs::create_dir_all(fish.parent().unwrap()).unwrap();
    std::fs::write(&fish, "# my own\n").unwrap();
    let plan = it.run(&["uninstall", "--dry-run", "--json"]).ok().json();
    assert_eq!(plan["remove"].as_array().unwrap().len(), 3, "{plan}");
    assert_eq!(plan["removed"], false);
    assert_eq!(it.run(&["uninstall"]).code, Some(64));
    assert_eq!(it.files().len(), 2);
    drop(it.run(&["uninstall", "--yes"]).ok());
    assert!(it.files().is_empty() && !script.exists());
    assert!(fish.exists() && it.home.exists("config.yaml"));
}

#[test]
fn the_home_goes_only_by_name() {
    let it = InstallHarness::new();
    it.home.config("model: {}\n");
    let done = it.run(&["uninstall", "--full", "--yes"]);
    assert_eq!(done.code, Some(64), "{}", done.stderr);
    assert!(done.stderr.contains("--confirm home"), "{}", done.stderr);
    let done = it.run(&["uninstall", "--full", "--yes", "--confirm", "other"]);
    assert_eq!(done.code, Some(1));
    assert!(it.home.exists("config.yaml") && it.program.exists());
    drop(it.run(&["uninstall", "--full", "--confirm", "home"]).ok());
    assert!(!it.home.path().exists() && !it.program.exists());
}

#[test]
fn what_is_no_home_is_not_deleted() {
    let it = InstallHarness::new();
    let done = it.run(&["uninstall", "--full", "--confirm", "home"]);
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    // The person's own directory as the home.
    std::fs::write(it.home.user().join("config.yaml"), "").unwrap();
    let done = Program::new(&it.program, &it.home)
        .env("HERMES_HOME", it.home.user())
        .args(["uninstall", "--full", "--confirm", "user"])
        .run();
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    assert!(it.program.exists());
    let mode = std::fs::metadata(&it.program).unwrap().permissions().mode();
    assert_ne!(mode & 0o100, 0);
}
