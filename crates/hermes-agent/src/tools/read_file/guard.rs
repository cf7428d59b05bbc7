//! Files that are not read: secrets, and what is no file in truth. A help against mistakes, not
//! a wall: whoever has a shell can read them anyway.

use std::path::{Component, Path, PathBuf};

use hermes_config::home::Home;

/// Secrets in the home's directory, in lower case.
const SECRET_FILES: [&str; 7] = [
    ".env",
    ".op.env",
    "auth.json",
    "auth.lock",
    ".anthropic_oauth.json",
    "webhook_subscriptions.json",
    "cache/bws_cache.json",
];
const SECRET_DIRS: [&str; 5] = [
    "auth",
    "mcp-tokens",
    "pairing",
    "platforms/pairing",
    "skills/.hub",
];

/// Variables of a project. Examples of them (`.env.example`) are fine.
const ENV_FILES: [&str; 7] = [
    ".env",
    ".env.local",
    ".env.development",
    ".env.production",
    ".env.test",
    ".env.staging",
    ".envrc",
];

/// What `/proc/<pid>/` tells about secrets and memory of a process.
const PROCESS_FILES: [&str; 10] = [
    "environ",
    "cmdline",
    "maps",
    "smaps",
    "smaps_rollup",
    "numa_maps",
    "mem",
    "auxv",
    "pagemap",
    "kcore",
];

pub(super) struct Guard {
    homes: Vec<PathBuf>,
}

impl Guard {
    pub(super) fn new(home: &Home) -> Self {
        let mut homes: Vec<PathBuf> = Vec::new();
        for root in [home.root(), home.profiles_root()] {
            homes.push(root.to_path_buf());
            homes.extend(root.canonicalize());
        }
        Self { homes }
    }

    /// Why `path` is not read. Both the path as given and the file it leads to are judged.
    pub(super) fn check(&self, path: &Path) -> Result<(), String> {
        let plain = normal(path);
        let real = path.canonicalize().ok();
        for path in std::iter::once(&plain).chain(&real) {
            if let Some(why) = self.objection(path) {
                return Err(why.to_owned());
            }
        }
        Ok(())
    }

    fn objection(&self, path: &Path) -> Option<&'static str> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return Some("it is a device");
        }
        if path.starts_with("/proc")
            && (PROCESS_FILES.contains(&name.as_str())
                || path.components().any(|part| part.as_os_str() == "fd"))
        {
            return Some("it shows the inside of a process");
        }
        if self.is_home_secret(path) {
            return Some("it holds credentials of Hermes; they are used by its tools, never shown");
        }
        if ENV_FILES.contains(&name.as_str()) {
            return Some(
                "such files hold credentials; read .env.example, or ask the person for what you need",
            );
        }
        let in_ssh = path.parent().is_some_and(|dir| dir.ends_with(".ssh"));
        let public = path.extension().is_some_and(|extension| extension == "pub");
        if in_ssh && name.starts_with("id_") && !public {
            return Some("it is a private key");
        }
        None
    }

    /// Whether keys in the text are to be hidden: settings and logs of the home, where people put
    /// them in plain sight. Elsewhere the text must stay as it is, to be worked on.
    pub(super) fn hides_keys(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| normal(path));
        let top = |below: &str| !below.contains('/') || below.starts_with("logs/");
        self.homes
            .iter()
            .any(|home| below(home, &real).is_some_and(|below| top(&below)))
    }

    fn is_home_secret(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| {
            let Some(below) = below(home, path) else {
                return false;
            };
            let below = below.as_str();
            let inside = |dir: &&str| {
                below
                    .strip_prefix(*dir)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            SECRET_FILES.contains(&below) || SECRET_DIRS.iter().any(inside)
        })
    }
}

/// The path below a home, in lower case. Each profile is a home of its own.
fn below(home: &Path, path: &Path) -> Option<String> {
    let below = path
        .strip_prefix(home)
        .ok()?
        .to_string_lossy()
        .to_lowercase();
    let in_profile = below
        .strip_prefix("profiles/")
        .and_then(|rest| Some(rest.split_once('/')?.1.to_owned()));
    Some(in_profile.unwrap_or(below))
}

/// Without `.` and `..`, looking at no file.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn credentials_devices_and_processes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("home");
        fs::create_dir_all(root.join("profiles/work/mcp-tokens")).unwrap();
        fs::write(root.join("auth.json"), "{}").unwrap();
        symlink(root.join("auth.json"), dir.path().join("innocent.txt")).unwrap();
        let guard = Guard::new(&Home::at(&root));
        let refused = |path: PathBuf| assert!(guard.check(&path).is_err(), "{}", path.display());
        for path in [
            "home/.env",
            "home/auth.json",
            "home/Auth.JSON",
            "home/x/../auth.json",
            "home/profiles/work/.env",
            "home/profiles/work/mcp-tokens/x.json",
            "home/skills/.hub/lock.json",
            "project/.env.local",
            "project/.envrc",
            ".ssh/id_ed25519",
            "innocent.txt",
        ] {
            refused(dir.path().join(path));
        }
        for path in [
            "/dev/stdin",
            "/dev/zero",
            "/proc/self/environ",
            "/proc/1/task/1/maps",
            "/proc/self/fd/0",
        ] {
            refused(path.into());
        }
        for path in [
            "home/config.yaml",
            "home/memories/MEMORY.md",
            "project/.env.example",
            "home/cache/tool-results/x.txt",
            ".ssh/id_ed25519.pub",
            "auth.json",
        ] {
            assert_eq!(guard.check(&dir.path().join(path)), Ok(()), "{path}");
        }
        assert_eq!(guard.check(Path::new("/proc/cpuinfo")), Ok(()));
    }
}
