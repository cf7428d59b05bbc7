//! Unpacks what tests run against under target/exec: sshd and ssh, podman with its parts, bubblewrap, zsh,
//! fish, tmux, a voice (flite), ripgrep and libfaketime from Debian, and an image of busybox and bash.
//! Nothing is installed.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command::{output, retry, run as run_command};
use crate::{in_ci, workspace};

/// Programs, and the libraries of theirs that a small system may lack.
const PACKAGES: &[&str] = &[
    "bubblewrap",
    "openssh-server",
    "openssh-client",
    "tmux",
    "libevent-core-2.1-7",
    "libutempter0",
    "podman",
    "runc",
    "conmon",
    "catatonit",
    "busybox-static",
    "bash-static",
    "libwrap0",
    "libgpgme11",
    "libassuan0",
    "libsubid4",
    "libdevmapper1.02.1",
    "libseccomp2",
    "libglib2.0-0",
    "zsh",
    "zsh-common",
    "fish",
    "fish-common",
    "libpcre2-32-0",
    "flite",
    "libflite1",
    "libasound2",
    "ripgrep",
    "libfaketime",
];

/// What must run afterwards.
const PROGRAMS: &[&str] = &[
    "usr/bin/bwrap",
    "usr/sbin/sshd",
    "usr/bin/podman",
    "usr/bin/conmon",
    "usr/sbin/runc",
    "bin/zsh",
    "usr/bin/fish",
    "usr/bin/flite",
    RIPGREP,
    "usr/bin/ssh",
    "usr/bin/ssh-keygen",
    "usr/bin/tmux",
];

/// Those that tests look for on PATH: a small system has none of them.
const ON_PATH: &[&str] = &["usr/bin/ssh", "usr/bin/ssh-keygen", "usr/bin/tmux"];
const PROGRAMS_DIR: &str = "programs";

/// What the original searches with where it finds it, and the bench compares with. Alone in a
/// directory, so that a search path with it brings nothing else along.
const RIPGREP: &str = "usr/bin/rg";
const SEARCH_PATH: &str = "bin";

/// Changes with this recipe.
const RECIPE: &str = "7";

pub(crate) fn run() -> Result<bool> {
    let names = "sshd, podman, bubblewrap, shells";
    unpack_once(names, "target/exec", RECIPE, install)
}

/// Makes sure that `names` are unpacked in `directory` by this `recipe`. `false`: that is not
/// possible here, and the tests that need them are reported as skipped.
pub(crate) fn unpack_once(
    names: &str,
    directory: &str,
    recipe: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<bool> {
    // Beside cargo's own directories, wherever those are, so that every build shares it.
    let home = workspace().join(directory);
    let stamp = home.join(".installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == recipe) {
        eprintln!("{names} unpacked: {}", home.display());
        return Ok(true);
    }
    let begun = Instant::now();
    match install(&home)
        .and_then(|()| std::fs::write(&stamp, recipe).with_context(|| stamp.display().to_string()))
    {
        Ok(()) => {
            let took = begun.elapsed().as_secs_f64();
            eprintln!("{names} unpacked in {took:.0} s");
            Ok(true)
        }
        Err(error) if in_ci() => Err(error.context(names.to_owned())),
        Err(error) => {
            eprintln!("warning: {names} cannot be unpacked: {error:#}");
            eprintln!("warning: tests that need them are skipped; `cargo xtask setup` tries again");
            Ok(false)
        }
    }
}

/// PATH with the unpacked programs last: what the machine has of its own is used.
pub(crate) fn search_path() -> Result<OsString> {
    let programs = workspace().join("target/exec").join(PROGRAMS_DIR);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([programs]);
    std::env::join_paths(dirs).context("PATH")
}

fn install(home: &Path) -> Result<()> {
    if output(Command::new("apt-get").arg("--version")).is_none() {
        bail!("no apt-get here: they are taken from Debian's packages");
    }
    for name in ["root", "packages", "image", SEARCH_PATH, PROGRAMS_DIR] {
        let dir = home.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    download(&home.join("packages"), PACKAGES)?;
    let root = home.join("root");
    for entry in std::fs::read_dir(home.join("packages"))? {
        let package = entry?.path();
        run_command(Command::new("dpkg").arg("-x").arg(&package).arg(&root))?;
    }
    for program in PROGRAMS {
        check(&root, program)?;
    }
    let bin = home.join(SEARCH_PATH);
    std::fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    std::fs::copy(root.join(RIPGREP), bin.join("rg")).context("ripgrep")?;
    for program in ON_PATH {
        offer(&root, program, &home.join(PROGRAMS_DIR))?;
    }
    image(&root, &home.join("image"), &home.join("image.tar"))?;
    for name in ["packages", "image"] {
        std::fs::remove_dir_all(home.join(name))?;
    }
    Ok(())
}

/// The lists of packages on a fresh machine may be older than the packages: then they are fetched.
pub(crate) fn download(dir: &Path, packages: &[&str]) -> Result<()> {
    let fetch = || {
        run_command(
            Command::new("apt-get")
                .current_dir(dir)
                .args(["-q", "download"])
                .args(packages),
        )
    };
    if fetch().is_ok() {
        return Ok(());
    }
    retry(4, "fetching packages", || {
        // Only root can refresh the lists; others take them as they are.
        if let Err(error) = run_command(Command::new("apt-get").args(["-q", "update"])) {
            eprintln!("apt-get update: {error:#}");
        }
        fetch()
    })
}

/// Where the libraries of the unpacked packages are, as LD_LIBRARY_PATH wants it.
fn libraries(root: &Path) -> String {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    [
        root.join("usr/lib").join(&triple),
        root.join("lib").join(&triple),
        root.join("usr/lib/dovecot"),
    ]
    .map(|dir| dir.display().to_string())
    .join(":")
}

/// Writes a script into `dir` that starts an unpacked program with its libraries.
fn offer(root: &Path, program: &str, dir: &Path) -> Result<()> {
    let program = root.join(program);
    let name = program.file_name().context("a program has a name")?;
    let script: PathBuf = dir.join(name);
    let text = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n",
        libraries(root),
        program.display()
    );
    std::fs::write(&script, text).with_context(|| script.display().to_string())?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .with_context(|| script.display().to_string())
}

pub(crate) fn check(root: &Path, program: &str) -> Result<()> {
    let libraries = libraries(root);
    let path = root.join(program);
    let needed = output(
        Command::new("ldd")
            .arg(&path)
            .env("LD_LIBRARY_PATH", libraries),
    )
    .with_context(|| format!("{} is not there or no program", path.display()))?;
    let missing: Vec<&str> = needed
        .lines()
        .filter(|line| line.contains("not found"))
        .map(str::trim)
        .collect();
    if !missing.is_empty() {
        bail!("{program}: {}", missing.join(", "));
    }
    Ok(())
}

/// A root file system of two programs.
fn image(root: &Path, tree: &Path, archive: &Path) -> Result<()> {
    for dir in [
        "bin",
        "dev",
        "etc",
        "mnt",
        "proc",
        "root",
        "run",
        "sys",
        "tmp",
        "usr/bin",
        "var/tmp",
        "workspace",
    ] {
        std::fs::create_dir_all(tree.join(dir))?;
    }
    std::fs::copy(root.join("bin/bash-static"), tree.join("bin/bash"))?;
    let busybox = root.join("bin/busybox");
    std::fs::copy(&busybox, tree.join("bin/busybox"))?;
    let tools = output(Command::new(&busybox).arg("--list")).context("busybox --list")?;
    for tool in tools.lines() {
        let link = tree.join("bin").join(tool);
        if !link.exists() {
            std::os::unix::fs::symlink("busybox", &link)?;
        }
    }
    std::os::unix::fs::symlink("/bin/env", tree.join("usr/bin/env"))?;
    std::fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n")?;
    std::fs::write(tree.join("etc/group"), "root:x:0:\n")?;
    run_command(
        Command::new("tar")
            .arg("-C")
            .arg(tree)
            .args(["--owner=0", "--group=0", "-cf"])
            .arg(archive)
            .arg("."),
    )
}
