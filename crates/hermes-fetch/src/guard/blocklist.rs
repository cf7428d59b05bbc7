//! `security.website_blocklist`: sites that the user does not want visited.
//!
//! config.yaml and the shared files are checked before every use and read again if they changed, so that
//! changes apply at once. An enabled list that names an unreadable file refuses everything, so that the user
//! notices that it is not in force. A file that was readable before keeps its last rules instead.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hermes_config::schema::WebsiteBlocklist;
use hermes_config::{Config, Env, Home};

use super::BlockedUrl;

/// The website blocklist of a home.
pub struct Blocklist {
    home: Home,
    /// Loads config.yaml; `None`: the settings never change.
    env: Option<Env>,
    state: Mutex<BlocklistState>,
}

struct BlocklistState {
    settings: WebsiteBlocklist,
    config: Option<BlocklistStamp>,
    files: HashMap<PathBuf, BlocklistFile>,
}

/// A shared file as last read.
struct BlocklistFile {
    stamp: Option<BlocklistStamp>,
    rules: Vec<String>,
}

/// Detects changes of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlocklistStamp {
    modified: SystemTime,
    size: u64,
    inode: u64,
}

impl BlocklistStamp {
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            modified: meta.modified().ok()?,
            size: meta.len(),
            inode: meta.ino(),
        })
    }
}

impl Blocklist {
    /// The list of `home`, which follows its config.yaml. `config` is its current content.
    pub fn of_home(home: &Home, env: &Env, config: &Config) -> Self {
        Self::new(
            home,
            Some(env.clone()),
            config.security.website_blocklist.clone(),
        )
    }

    /// A list that does not follow config.yaml; its shared files are still followed.
    pub fn fixed(home: &Home, settings: WebsiteBlocklist) -> Self {
        Self::new(home, None, settings)
    }

    fn new(home: &Home, env: Option<Env>, settings: WebsiteBlocklist) -> Self {
        let config = BlocklistStamp::of(&home.config_path());
        Self {
            home: home.clone(),
            env,
            state: Mutex::new(BlocklistState {
                settings,
                config,
                files: HashMap::new(),
            }),
        }
    }

    /// Whether `host` may be visited.
    pub fn check(&self, host: &str) -> Result<(), BlockedUrl> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state);
        let BlocklistState {
            settings, files, ..
        } = &mut *state;
        if !settings.enabled {
            return Ok(());
        }
        let host = host.trim_end_matches('.').to_lowercase();
        let found = |rule: &str, list: &str| BlockedUrl::Website {
            host: host.clone(),
            rule: rule.to_owned(),
            list: list.to_owned(),
        };
        for raw in &settings.domains {
            if let Some(rule) = normal(raw)
                && matches(&host, &rule)
            {
                return Err(found(&rule, "config"));
            }
        }
        for named in &settings.shared_files {
            if named.trim().is_empty() {
                continue;
            }
            let path = self.home.root().join(self.home.expand_user(named.trim()));
            let file = refresh_file(files, &path)?;
            if let Some(rule) = file.rules.iter().find(|rule| matches(&host, rule)) {
                return Err(found(rule, &path.display().to_string()));
            }
        }
        Ok(())
    }

    fn refresh(&self, state: &mut BlocklistState) {
        let Some(env) = &self.env else { return };
        let now = BlocklistStamp::of(&self.home.config_path());
        if now == state.config {
            return;
        }
        match Config::load(&self.home, env) {
            Ok(loaded) => {
                state.settings = loaded.config.security.website_blocklist;
                state.config = now;
            }
            // Incomplete or broken: the previous rules stay in force, and it is read again later.
            Err(error) => tracing::warn!("the website blocklist keeps its last settings: {error}"),
        }
    }
}

fn refresh_file<'a>(
    files: &'a mut HashMap<PathBuf, BlocklistFile>,
    path: &Path,
) -> Result<&'a BlocklistFile, BlockedUrl> {
    let now = BlocklistStamp::of(path);
    let known = files
        .get(path)
        .is_some_and(|file| file.stamp == now && now.is_some());
    if !known {
        match fs::read_to_string(path) {
            Ok(text) => {
                let rules = text.lines().filter_map(normal).collect();
                files.insert(path.to_owned(), BlocklistFile { stamp: now, rules });
            }
            Err(error) if files.contains_key(path) => {
                tracing::warn!(path = %path.display(), %error, "a blocklist file keeps its last rules");
            }
            Err(error) => {
                return Err(BlockedUrl::Blocklist {
                    path: path.to_owned(),
                    why: error.to_string(),
                });
            }
        }
    }
    files.get(path).ok_or_else(|| BlockedUrl::Blocklist {
        path: path.to_owned(),
        why: "it could not be kept".to_owned(),
    })
}

/// A rule as compared with hosts: no scheme, path, port or `www.`, international names in ASCII. `None`: a
/// comment or an empty line.
fn normal(raw: &str) -> Option<String> {
    let text = raw.trim().to_lowercase();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let text = text
        .split_once("://")
        .map_or(text.as_str(), |(_, rest)| rest);
    let text = text.split(['/', '?', '#']).next().unwrap_or_default();
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let text = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.contains(':') => {
            host
        }
        _ => text,
    };
    let text = text.trim().trim_end_matches('.');
    let text = text.strip_prefix("www.").unwrap_or(text);
    let (star, name) = match text.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", text),
    };
    if name.is_empty() {
        return None;
    }
    let name = match url::Host::parse(name) {
        Ok(host) if !name.contains(['*', '?']) => host.to_string(),
        _ => name.to_owned(),
    };
    Some(format!("{star}{name}"))
}

/// `example.com` matches it and everything below; `*.example.com` only what is below.
fn matches(host: &str, rule: &str) -> bool {
    if rule.starts_with("*.") {
        return wildcard(host.as_bytes(), rule.as_bytes());
    }
    host == rule
        || host
            .strip_suffix(rule)
            .is_some_and(|rest| rest.ends_with('.'))
}

/// `*` is any run of characters, `?` is one. Linear in memory, no recursion.
fn wildcard(text: &[u8], pattern: &[u8]) -> bool {
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                t += 1;
                p += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    p = star + 1;
                    t = from + 1;
                    retry = Some((star, t));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermes_config::ProcessEnv;

    fn settings(domains: &[&str], files: &[&str]) -> WebsiteBlocklist {
        WebsiteBlocklist {
            enabled: true,
            domains: domains.iter().map(|&d| d.to_owned()).collect(),
            shared_files: files.iter().map(|&f| f.to_owned()).collect(),
        }
    }

    #[test]
    fn rules_are_read_as_people_write_them() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let list = Blocklist::fixed(
            &home,
            settings(
                &[
                    "https://www.Example.com/path",
                    "*.ads.test",
                    "# not.this",
                    "münchen.de",
                    "*.track*.net",
                    "ported.test:8080",
                ],
                &[],
            ),
        );
        let blocked = |host: &str| list.check(host).is_err();
        for host in [
            "example.com",
            "a.b.example.com",
            "EXAMPLE.com.",
            "x.ads.test",
            "xn--mnchen-3ya.de",
            "a.tracker.net",
            "ported.test",
        ] {
            assert!(blocked(host), "{host}");
        }
        for host in [
            "notexample.com",
            "ads.test",
            "not.this",
            "example.com.evil.test",
            "track.net",
        ] {
            assert!(!blocked(host), "{host}");
        }
    }

    #[test]
    fn a_list_switched_on_after_the_start_counts() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let env = Env::from_process(&ProcessEnv::from_vars::<&str, &str>([]));
        fs::write(home.config_path(), "security:\n  redact_secrets: true\n").unwrap();
        let config = Config::load(&home, &env).unwrap().config;
        let list = Blocklist::of_home(&home, &env, &config);
        assert_eq!(list.check("example.com"), Ok(()));
        fs::write(
            home.config_path(),
            "security:\n  website_blocklist:\n    enabled: true\n    domains: [example.com]\n",
        )
        .unwrap();
        assert!(matches!(
            list.check("example.com"),
            Err(BlockedUrl::Website { .. })
        ));
        fs::write(home.config_path(), "security: [broken\n").unwrap();
        assert!(
            list.check("example.com").is_err(),
            "the last good settings count"
        );
        fs::remove_file(home.config_path()).unwrap();
        assert_eq!(list.check("example.com"), Ok(()));
    }

    #[test]
    fn shared_files_are_followed_and_a_missing_one_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let list = Blocklist::fixed(&home, settings(&[], &["lists/bad.txt"]));
        assert!(matches!(
            list.check("fine.test"),
            Err(BlockedUrl::Blocklist { .. })
        ));
        fs::create_dir(dir.path().join("lists")).unwrap();
        let path = dir.path().join("lists/bad.txt");
        fs::write(&path, "# comment\nbad.test\n").unwrap();
        assert_eq!(list.check("fine.test"), Ok(()));
        assert_eq!(
            list.check("www.bad.test"),
            Err(BlockedUrl::Website {
                host: "www.bad.test".to_owned(),
                rule: "bad.test".to_owned(),
                list: path.display().to_string(),
            })
        );
        fs::write(&path, "bad.test\nworse.test\n").unwrap();
        assert!(list.check("worse.test").is_err());
        fs::remove_file(&path).unwrap();
        assert!(list.check("worse.test").is_err(), "its last rules count");
        assert_eq!(list.check("fine.test"), Ok(()));
    }
}
