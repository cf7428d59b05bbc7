//! Unpacks a mail server under target/mail: Dovecot (IMAP, LMTP) and Exim (SMTP) from Debian. Nothing is
//! installed; tests start both with directories and ports of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{output, run as run_command};
use crate::exec_setup::{self, check, download, unpack_once};

/// Exim asks for a user that only its installation would make; nss-wrapper answers.
const PACKAGES: &[&str] = &[
    "dovecot-core",
    "dovecot-imapd",
    "dovecot-lmtpd",
    "exim4-daemon-light",
    "libidn12",
    "libnss-wrapper",
    "libexttextcat-2.0-0",
    "liblua5.4-0",
    "libsodium23",
    "libstemmer0d",
    "libtirpc3",
    "libtirpc-common",
    "libunwind8",
    "libwrap0",
    "libgnutls-dane0",
    "libunbound8",
    "libevent-2.1-7",
    "libnsl2",
    "libapparmor1",
];

/// What must run afterwards.
const PROGRAMS: &[&str] = &[
    "usr/sbin/dovecot",
    "usr/bin/doveconf",
    "usr/lib/dovecot/imap",
    "usr/lib/dovecot/imap-login",
    "usr/lib/dovecot/lmtp",
    "usr/lib/dovecot/config",
    "usr/lib/dovecot/log",
    "usr/lib/dovecot/anvil",
    "usr/lib/dovecot/stats",
    "usr/sbin/exim4",
];

/// Where Dovecot was built to look for its modules, and where it finds them when it runs from
/// another directory: a link in the directory of the running server. Both are of one length, so that
/// the one can be written over the other.
const MODULES: (&[u8], &[u8]) = (b"/usr/lib/dovecot/modules", b"/proc/self/cwd/./modules");

/// Changes with this recipe.
const RECIPE: &str = "1";

/// This and what `exec_setup` does, one after the other: both ask apt.
pub(crate) fn after_exec() -> Result<bool> {
    let environments = exec_setup::run()?;
    Ok(run()? && environments)
}

pub(crate) fn run() -> Result<bool> {
    unpack_once("mail server", "target/mail", RECIPE, install)
}

fn install(home: &Path) -> Result<()> {
    if output(Command::new("apt-get").arg("--version")).is_none() {
        bail!("no apt-get here: it is taken from Debian's packages");
    }
    for name in ["root", "packages"] {
        let dir = home.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    let (root, packages) = (home.join("root"), home.join("packages"));
    download(&packages, PACKAGES)?;
    for entry in std::fs::read_dir(&packages)? {
        run_command(Command::new("dpkg").arg("-x").arg(entry?.path()).arg(&root))?;
    }
    relocate(&root.join("usr/lib/dovecot"))?;
    for program in PROGRAMS {
        check(&root, program)?;
    }
    std::fs::remove_dir_all(packages)?;
    Ok(())
}

/// Lets every program and library of Dovecot find its modules where the server runs.
fn relocate(dir: &Path) -> Result<()> {
    for path in files(dir)? {
        let mut bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let (from, to) = MODULES;
        let mut changed = false;
        let mut at = 0;
        while let Some(found) = bytes[at..]
            .windows(from.len())
            .position(|window| window == from)
        {
            bytes[at + found..at + found + to.len()].copy_from_slice(to);
            at += found + to.len();
            changed = true;
        }
        if changed {
            std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(files(&entry.path())?);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
