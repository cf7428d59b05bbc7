//! The home directory: how it is found, and the paths in it.

use std::io;
use std::path::{Path, PathBuf};

use crate::env::ProcessEnv;
use crate::fs::create_private_dir;

/// Directories of a home in use. Others are created when needed.
const TREE: [&str; 8] = [
    "cron",
    "hooks",
    "logs",
    "logs/curator",
    "memories",
    "sessions",
    "skills",
    "cache",
];

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error(
        "{0:?} is not a profile name: use a-z, 0-9, '-' and '_', starting with a letter or digit, at most 64"
    )]
    InvalidProfile(String),
    #[error("profile {name:?} does not exist ({} is missing); hermes profile list shows all", .path.display())]
    MissingProfile { name: String, path: PathBuf },
    #[error("cannot tell where the home directory is: neither HERMES_HOME nor HOME is set")]
    NoHome,
    #[error("cannot use {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A resolved home. Creating one reads at most one small file and writes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
    profiles_root: PathBuf,
    profile: Option<String>,
    user_dir: Option<PathBuf>,
}

impl Home {
    /// Finds the home: `profile` → a `HERMES_HOME` that is a profile → `active_profile` →
    /// `HERMES_HOME` → `~/.hermes`.
    pub fn resolve(process_env: &ProcessEnv, profile: Option<&str>) -> Result<Self, HomeError> {
        let user_dir = process_env
            .get("HOME")
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from);
        let native = user_dir.as_ref().map(|dir| dir.join(".hermes"));
        let chosen = process_env
            .get("HERMES_HOME")
            .map(str::trim)
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from);
        let base = chosen
            .clone()
            .or_else(|| native.clone())
            .ok_or(HomeError::NoHome)?;
        let profiles_root = profiles_root(chosen.as_deref(), native.as_deref(), &base);
        let at = |root: PathBuf, profile: Option<String>| Self {
            root,
            profiles_root: profiles_root.clone(),
            profile,
            user_dir: user_dir.clone(),
        };

        if let Some(name) = profile {
            return Self::named(name, &profiles_root, at);
        }
        if let Some(name) = profile_of(&base) {
            if !base.is_dir() {
                return Err(HomeError::MissingProfile { name, path: base });
            }
            return Ok(at(base, Some(name)));
        }
        // A supervised slot has a fixed identity and ignores the active profile.
        if process_env
            .get("HERMES_S6_SUPERVISED_CHILD")
            .is_none_or(str::is_empty)
            && let Some(name) = active_profile(&profiles_root)
        {
            return Self::named(&name, &profiles_root, at);
        }
        Ok(at(base, None))
    }

    fn named(
        name: &str,
        profiles_root: &Path,
        at: impl FnOnce(PathBuf, Option<String>) -> Self,
    ) -> Result<Self, HomeError> {
        let id = name.trim().to_lowercase();
        if id == "default" {
            return Ok(at(profiles_root.to_path_buf(), None));
        }
        if !is_profile_id(&id) {
            return Err(HomeError::InvalidProfile(name.to_owned()));
        }
        let path = profiles_root.join("profiles").join(&id);
        if !path.is_dir() {
            return Err(HomeError::MissingProfile { name: id, path });
        }
        Ok(at(path, Some(id)))
    }

    /// A home at a known path, e.g. in tests.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let profile = profile_of(&root);
        let profiles_root = match (&profile, root.parent().and_then(Path::parent)) {
            (Some(_), Some(grandparent)) => grandparent.to_path_buf(),
            _ => root.clone(),
        };
        Self {
            root,
            profiles_root,
            profile,
            user_dir: None,
        }
    }

    /// The directory of this home (of the profile, when one is in use).
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that holds `profiles/` and `active_profile`: the home of the default profile.
    pub fn profiles_root(&self) -> &Path {
        &self.profiles_root
    }

    /// The profile's name; `None` for the default one.
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    pub fn config_path(&self) -> PathBuf {
        self.join("config.yaml")
    }

    pub fn env_path(&self) -> PathBuf {
        self.join(".env")
    }

    pub fn state_db(&self) -> PathBuf {
        self.join("state.db")
    }

    pub fn memories_dir(&self) -> PathBuf {
        self.join("memories")
    }

    pub fn skills_dir(&self) -> PathBuf {
        self.join("skills")
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.join("logs")
    }

    pub fn cron_dir(&self) -> PathBuf {
        self.join("cron")
    }

    pub fn sessions_dir(&self) -> PathBuf {
        self.join("sessions")
    }

    pub fn cache_dir(&self) -> PathBuf {
        self.join("cache")
    }

    pub fn soul_path(&self) -> PathBuf {
        self.join("SOUL.md")
    }

    pub fn auth_path(&self) -> PathBuf {
        self.join("auth.json")
    }

    /// `new`, unless the home still uses the directory's `old` name. An empty `old` directory is
    /// ignored.
    pub fn dir(&self, new: &str, old: &str) -> PathBuf {
        let legacy = self.join(old);
        if has_content(&legacy) {
            legacy
        } else {
            self.join(new)
        }
    }

    /// `~` and `~/…` as the user's own directory; other paths as they are.
    pub fn expand_user(&self, path: &str) -> PathBuf {
        match (&self.user_dir, path.strip_prefix('~')) {
            (Some(home), Some("")) => home.clone(),
            (Some(home), Some(rest)) if rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(path),
        }
    }

    /// Creates missing directories, accessible to the owner only. A profile's home is never created
    /// here: a deleted profile must not reappear.
    pub fn ensure(&self) -> Result<(), HomeError> {
        if let Some(name) = &self.profile
            && !self.root.is_dir()
        {
            return Err(HomeError::MissingProfile {
                name: name.clone(),
                path: self.root.clone(),
            });
        }
        for dir in std::iter::once(self.root.clone()).chain(TREE.iter().map(|dir| self.join(dir))) {
            create_private_dir(&dir).map_err(|source| HomeError::Io { path: dir, source })?;
        }
        Ok(())
    }
}

/// Whether `name` may name a profile's directory.
pub fn is_profile_id(name: &str) -> bool {
    let word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    matches!(bytes.first(), Some(&first) if word(first))
        && bytes.len() <= 64
        && bytes.iter().all(|&c| word(c) || c == b'-' || c == b'_')
}

/// The name in `…/profiles/<name>`.
fn profile_of(home: &Path) -> Option<String> {
    let parent = home.parent()?;
    if parent.file_name()? != "profiles" {
        return None;
    }
    Some(home.file_name()?.to_string_lossy().into_owned())
}

fn profiles_root(chosen: Option<&Path>, native: Option<&Path>, base: &Path) -> PathBuf {
    let Some(chosen) = chosen else {
        return base.to_path_buf();
    };
    if let Some(native) = native {
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if resolved(chosen).starts_with(resolved(native)) {
            return native.to_path_buf();
        }
    }
    match (profile_of(chosen), chosen.parent().and_then(Path::parent)) {
        (Some(_), Some(grandparent)) => grandparent.to_path_buf(),
        _ => chosen.to_path_buf(),
    }
}

/// The profile set by `hermes profile use`. An unreadable file counts as none.
fn active_profile(profiles_root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(profiles_root.join("active_profile")).ok()?;
    let name = text.trim();
    (!name.is_empty() && name != "default").then(|| name.to_owned())
}

/// Whether something is stored at `path`. If unknown, yes, so that no data is overlooked.
fn has_content(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_some())
        }
        Ok(_) => true,
        Err(err) => err.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> ProcessEnv {
        ProcessEnv::from_vars(vars.iter().copied())
    }

    fn resolve(vars: &[(&str, &str)], profile: Option<&str>) -> Result<Home, HomeError> {
        Home::resolve(&env(vars), profile)
    }

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new(dirs: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for sub in dirs {
                std::fs::create_dir_all(dir.path().join(sub)).unwrap();
            }
            Self(dir)
        }

        fn at(&self, sub: &str) -> String {
            self.0.path().join(sub).to_string_lossy().into_owned()
        }
    }

    #[test]
    fn the_default_is_below_the_users_home() {
        let home = resolve(&[("HOME", "/h/u")], None).unwrap();
        assert_eq!(home.root(), Path::new("/h/u/.hermes"));
        assert_eq!(home.profile(), None);
        assert_eq!(home.config_path(), Path::new("/h/u/.hermes/config.yaml"));
        assert_eq!(home.expand_user("~/x"), Path::new("/h/u/x"));
        assert_eq!(home.expand_user("~bob/x"), Path::new("~bob/x"));
    }

    #[test]
    fn hermes_home_is_trimmed_and_blank_counts_as_unset() {
        let home = resolve(&[("HOME", "/h/u"), ("HERMES_HOME", "  /opt/data \n")], None).unwrap();
        assert_eq!(home.root(), Path::new("/opt/data"));
        let home = resolve(&[("HOME", "/h/u"), ("HERMES_HOME", "  ")], None).unwrap();
        assert_eq!(home.root(), Path::new("/h/u/.hermes"));
        assert!(matches!(resolve(&[], None), Err(HomeError::NoHome)));
    }

    #[test]
    fn a_named_profile_must_exist_and_is_not_created() {
        let dir = Dir::new(&[".hermes/profiles/coder"]);
        let vars = [("HOME", &*dir.at(""))];
        let home = resolve(&vars, Some(" Coder ")).unwrap();
        assert_eq!(home.profile(), Some("coder"));
        assert_eq!(home.root(), Path::new(&dir.at(".hermes/profiles/coder")));
        assert_eq!(home.profiles_root(), Path::new(&dir.at(".hermes")));
        assert!(matches!(
            resolve(&vars, Some("nobody")),
            Err(HomeError::MissingProfile { .. })
        ));
        assert!(!Path::new(&dir.at(".hermes/profiles/nobody")).exists());
        for bad in ["", "../x", "a b", "-x", "é"] {
            assert!(
                matches!(resolve(&vars, Some(bad)), Err(HomeError::InvalidProfile(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_custom_home_is_its_own_root_and_a_profile_path_knows_its_grandparent() {
        let dir = Dir::new(&["data/profiles/coder", "u"]);
        let vars = [("HOME", &*dir.at("u")), ("HERMES_HOME", &*dir.at("data"))];
        assert_eq!(
            resolve(&vars, None).unwrap().profiles_root(),
            Path::new(&dir.at("data"))
        );
        let vars = [
            ("HOME", &*dir.at("u")),
            ("HERMES_HOME", &*dir.at("data/profiles/coder")),
        ];
        let home = resolve(&vars, None).unwrap();
        assert_eq!(
            (home.profile(), home.profiles_root()),
            (Some("coder"), Path::new(&dir.at("data")))
        );
        assert_eq!(
            resolve(&vars, Some("default")).unwrap().root(),
            Path::new(&dir.at("data"))
        );
        let vars = [
            ("HOME", &*dir.at("u")),
            ("HERMES_HOME", &*dir.at("data/profiles/gone")),
        ];
        assert!(matches!(
            resolve(&vars, None),
            Err(HomeError::MissingProfile { .. })
        ));
    }

    #[test]
    fn the_sticky_profile_is_followed_unless_told_otherwise() {
        let dir = Dir::new(&[".hermes/profiles/coder"]);
        std::fs::write(dir.at(".hermes/active_profile"), "coder\n").unwrap();
        let vars = [("HOME", &*dir.at(""))];
        assert_eq!(resolve(&vars, None).unwrap().profile(), Some("coder"));
        assert_eq!(resolve(&vars, Some("default")).unwrap().profile(), None);
        let supervised = [("HOME", &*dir.at("")), ("HERMES_S6_SUPERVISED_CHILD", "1")];
        assert_eq!(resolve(&supervised, None).unwrap().profile(), None);
        std::fs::write(dir.at(".hermes/active_profile"), "gone\n").unwrap();
        assert!(matches!(
            resolve(&vars, None),
            Err(HomeError::MissingProfile { .. })
        ));
    }

    #[test]
    fn a_legacy_directory_wins_only_with_content() {
        let dir = Dir::new(&["image_cache", "pairing"]);
        std::fs::write(dir.at("pairing/x.json"), "{}").unwrap();
        let home = Home::at(dir.at(""));
        assert_eq!(
            home.dir("cache/images", "image_cache"),
            home.join("cache/images")
        );
        assert_eq!(
            home.dir("platforms/pairing", "pairing"),
            home.join("pairing")
        );
        assert_eq!(
            home.dir("cache/audio", "audio_cache"),
            home.join("cache/audio")
        );
    }

    #[test]
    fn ensure_makes_private_directories() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = Dir::new(&["data/profiles"]);
        let home = Home::at(dir.at("h/.hermes"));
        home.ensure().unwrap();
        home.ensure().unwrap();
        assert_eq!(
            std::fs::metadata(home.memories_dir()).unwrap().mode() & 0o777,
            0o700
        );
        let gone = Home::at(dir.at("data/profiles/gone"));
        assert!(gone.ensure().is_err());
        assert!(!gone.root().exists());
    }
}
