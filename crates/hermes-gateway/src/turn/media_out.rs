//! Files in an answer: `MEDIA:<path>` and local images of markdown. Decides which files may be
//! sent.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use hermes_core::private::{SYSTEM, below_some_home, is_personal, is_secret_name};
use hermes_platforms::{MediaKind, OutMedia};

/// An answer without its files, and the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerWithFiles {
    pub(super) text: String,
    pub(super) media: Vec<OutMedia>,
}

/// Rules for files that may be sent.
#[derive(Clone, Debug)]
pub(super) struct MediaGuard {
    /// The home of this program: only files stored for sending may leave it.
    pub(super) home: PathBuf,
    /// The directory of other profiles: no file may leave them.
    pub(super) profiles: PathBuf,
    pub(super) user_home: Option<PathBuf>,
    pub(super) max_bytes: u64,
    /// Only from these directories, or created recently.
    pub(super) strict: Option<StrictMediaRules>,
}

#[derive(Clone, Debug)]
pub(super) struct StrictMediaRules {
    pub(super) dirs: Vec<PathBuf>,
    pub(super) recent: Option<Duration>,
}

const AS_DOCUMENT: &str = "[[as_document]]";
const AS_VOICE: &str = "[[audio_as_voice]]";
const TAG: &str = "MEDIA:";

/// Extracts the files of an answer. Refused or missing files are mentioned in the text.
pub(super) fn split_files(text: &str, guard: &MediaGuard) -> AnswerWithFiles {
    let hint = if text.contains(AS_DOCUMENT) {
        MediaHint::Document
    } else if text.contains(AS_VOICE) {
        MediaHint::Voice
    } else {
        MediaHint::None
    };
    let (mut lines, mut media, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        }
        if fenced {
            lines.push(line.to_owned());
            continue;
        }
        let line = line.replace(AS_DOCUMENT, "").replace(AS_VOICE, "");
        let (rest, paths) = take_paths(&line);
        let mut rest = rest;
        for path in &paths {
            match guard.check(path) {
                Ok(file) => {
                    let kind = kind(&file, hint);
                    media.push(OutMedia { path: file, kind });
                }
                Err(why) => {
                    if !rest.is_empty() {
                        rest.push(' ');
                    }
                    let _ = write!(rest, "(the file {path} was not sent: {why})");
                }
            }
        }
        if paths.is_empty() || !rest.trim().is_empty() {
            lines.push(rest);
        }
    }
    media.dedup();
    AnswerWithFiles {
        text: lines.join("\n").trim().to_owned(),
        media,
    }
}

/// A line without its tags, and the paths in them.
fn take_paths(line: &str) -> (String, Vec<String>) {
    let (mut rest, mut paths) = (line.to_owned(), Vec::new());
    while let Some(at) = rest.find(TAG) {
        let after = &rest[at + TAG.len()..];
        let (path, len) = path_of(after);
        if path.is_empty() {
            break;
        }
        // A tag may be in quotes or backticks.
        let before = rest[..at].trim_end_matches(['`', '"', '\'']).to_owned();
        let behind = after[len..].trim_start_matches(['`', '"', '\'']).to_owned();
        paths.push(path);
        rest = format!("{before}{behind}");
    }
    while let Some((from, to, path)) = local_image(&rest) {
        rest.replace_range(from..to, "");
        paths.push(path);
    }
    if paths.is_empty() {
        (rest, paths)
    } else {
        (rest.trim().to_owned(), paths)
    }
}

/// The path at the start of a text, and its length in bytes.
fn path_of(text: &str) -> (String, usize) {
    let lead = text.len() - text.trim_start_matches(' ').len();
    let body = &text[lead..];
    if let Some(quote) = body
        .chars()
        .next()
        .filter(|ch| matches!(ch, '"' | '\'' | '`'))
        && let Some(end) = body[1..].find(quote)
    {
        return (body[1..=end].to_owned(), lead + end + 2);
    }
    let end = body.find(|ch: char| ch.is_whitespace() || matches!(ch, '`' | '"' | ')' | ']'));
    let path = &body[..end.unwrap_or(body.len())];
    let path = path.trim_end_matches(['.', ',', ';', '!']);
    if path.starts_with('/') || path.starts_with("~/") {
        (path.to_owned(), lead + path.len())
    } else {
        (String::new(), 0)
    }
}

/// `![alt](/a/local/file)`.
fn local_image(text: &str) -> Option<(usize, usize, String)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("![") {
        let start = from + at;
        let middle = text[start..].find("](")? + start;
        let end = text[middle..].find(')')? + middle;
        let path = text[middle + 2..end].trim();
        if path.starts_with('/') {
            return Some((start, end + 1, path.to_owned()));
        }
        from = end;
    }
    None
}

/// How the model wants the files of an answer to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaHint {
    None,
    Document,
    /// Recordings are sent as voice messages.
    Voice,
}

fn kind(path: &Path, hint: MediaHint) -> MediaKind {
    if hint == MediaHint::Document {
        return MediaKind::Document;
    }
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending
        .map(str::to_ascii_lowercase)
        .unwrap_or_default()
        .as_str()
    {
        "png" | "jpg" | "jpeg" | "gif" | "webp" => MediaKind::Image,
        "mp4" | "mov" | "webm" | "mkv" | "avi" => MediaKind::Video,
        "ogg" | "opus" | "oga" => MediaKind::Voice,
        "mp3" | "wav" | "m4a" | "flac" | "aac" if hint == MediaHint::Voice => MediaKind::Voice,
        "mp3" | "wav" | "m4a" | "flac" | "aac" => MediaKind::Audio,
        _ => MediaKind::Document,
    }
}

impl MediaGuard {
    /// The file behind a path, or why it is not sent.
    fn check(&self, path: &str) -> Result<PathBuf, String> {
        let path = match (path.strip_prefix("~/"), &self.user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        };
        // Links are resolved first: the file that would be read counts.
        let file = path.canonicalize().map_err(|_| "there is no such file")?;
        let data = file.metadata().map_err(|error| error.to_string())?;
        if !data.is_file() {
            return Err("it is not a file".to_owned());
        }
        if self.max_bytes == 0 {
            return Err("no files can be sent there".to_owned());
        }
        if data.len() > self.max_bytes {
            return Err(format!("its {} bytes are too many here", data.len()));
        }
        if self.is_private(&file) {
            return Err("it is in a place from which nothing is sent".to_owned());
        }
        if let Some(strict) = &self.strict {
            let listed = strict.dirs.iter().any(|dir| file.starts_with(dir));
            let fresh = |recent: Duration| {
                let age = data
                    .modified()
                    .ok()
                    .and_then(|at| SystemTime::now().duration_since(at).ok());
                age.is_some_and(|age| age <= recent)
            };
            let is_cached = file.starts_with(self.home().join("cache"));
            if !listed && !is_cached && !strict.recent.is_some_and(fresh) {
                return Err("it is neither in media_delivery_allow_dirs nor new".to_owned());
            }
        }
        Ok(file)
    }

    fn home(&self) -> PathBuf {
        real(&self.home)
    }

    fn is_private(&self, file: &Path) -> bool {
        const OF_THE_MACHINE: [&str; 9] = [
            "/etc", "/proc", "/sys", "/dev", "/boot", "/var/log", "/var/lib", "/var/run", "/run",
        ];
        const DELIVERABLE_DIRS: [&str; 8] = [
            "cache",
            "audio_cache",
            "image_cache",
            "document_cache",
            "workspace",
            "outputs",
            "cron/output",
            "artifacts",
        ];
        if is_secret(file) {
            return true;
        }
        if let Ok(inside) = file.strip_prefix(self.home()) {
            return !DELIVERABLE_DIRS.iter().any(|dir| inside.starts_with(dir))
                || has_hidden(inside);
        }
        if file.starts_with(real(&self.profiles))
            || OF_THE_MACHINE.iter().any(|dir| file.starts_with(dir))
        {
            return true;
        }
        let user_home = self.user_home.as_deref().map(real).unwrap_or_default();
        if file.starts_with("/root") && !file.starts_with(&user_home) {
            return true;
        }
        // Hidden directories of programs: keys, tokens, settings. A hidden directory above the
        // user's own home does not count.
        let shared = file.components().zip(user_home.components());
        let shared = shared.take_while(|(one, other)| one == other).count();
        has_hidden(&file.components().skip(shared).collect::<PathBuf>())
            || file.ancestors().skip(1).any(is_hermes_home)
    }
}

/// Symbolic links are followed.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn has_hidden(path: &Path) -> bool {
    let hidden = |part: Component<'_>| part.as_os_str().to_string_lossy().starts_with('.');
    path.components().any(hidden)
}

/// Whether it is another home of this program.
fn is_hermes_home(dir: &Path) -> bool {
    dir.join("config.yaml").is_file() && dir.join("state.db").is_file()
}

/// By its name, or as a known credential file.
fn is_secret(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_personal = below_some_home(&file.to_string_lossy()).is_some_and(is_personal);
    is_secret_name(&name) || is_personal || SYSTEM.iter().any(|secret| file.starts_with(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn scene() -> (tempfile::TempDir, MediaGuard) {
        let dir = tempfile::TempDir::new().unwrap();
        for path in [
            "home/cache/images",
            "home/workspace/.git",
            "homes/profiles/other/cache",
            "other/.config/app",
            "srv/hermes/cache",
            "user/.ssh",
            "user/work",
        ] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for path in [
            "home/.env",
            "home/cache/images/a.png",
            "home/workspace/.git/config",
            "home/workspace/.env.local",
            "homes/profiles/other/cache/a.png",
            "other/.config/app/token.txt",
            "srv/hermes/config.yaml",
            "srv/hermes/state.db",
            "srv/hermes/cache/a.png",
            "user/.ssh/id_rsa",
            "user/work/report.pdf",
            "user/work/note 1.mp3",
            "user/work/server.pem",
            "user/work/passwords.kdbx",
            "user/work/credentials.json",
        ] {
            std::fs::write(dir.path().join(path), "x").unwrap();
        }
        let guard = MediaGuard {
            home: dir.path().join("home"),
            profiles: dir.path().join("homes"),
            user_home: Some(dir.path().join("user")),
            max_bytes: 10,
            strict: None,
        };
        (dir, guard)
    }

    #[test]
    fn files_are_taken_out_of_the_text() {
        let (dir, guard) = scene();
        let root = dir.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let text = format!(
            "Here:\nMEDIA:{}\nand `MEDIA:~/work/report.pdf`.\n![x]({}) MEDIA:\"{}\" [[audio_as_voice]]\n```\nMEDIA:/etc/passwd\n```",
            at("home/cache/images/a.png").display(),
            at("home/cache/images/a.png").display(),
            at("user/work/note 1.mp3").display(),
        );
        let parted = split_files(&text, &guard);
        assert_eq!(parted.text, "Here:\nand .\n```\nMEDIA:/etc/passwd\n```");
        let files: Vec<(PathBuf, MediaKind)> = parted
            .media
            .into_iter()
            .map(|media| (media.path, media.kind))
            .collect();
        assert_eq!(
            files,
            [
                (at("home/cache/images/a.png"), MediaKind::Image),
                (at("user/work/report.pdf"), MediaKind::Document),
                (at("user/work/note 1.mp3"), MediaKind::Voice),
                (at("home/cache/images/a.png"), MediaKind::Image),
            ]
        );
        assert_eq!(
            split_files("MEDIA: is a word", &guard).text,
            "MEDIA: is a word"
        );
    }

    #[test]
    fn secrets_stay() {
        let (dir, guard) = scene();
        let link = dir.path().join("user/work/innocent.txt");
        std::os::unix::fs::symlink(dir.path().join("user/.ssh/id_rsa"), &link).unwrap();
        let at = |path: &str| dir.path().join(path).display().to_string();
        for path in [
            "/etc/passwd".to_owned(),
            "~/.ssh/id_rsa".to_owned(),
            at("home/.env"),
            at("home/workspace/.git/config"),
            at("home/workspace/.env.local"),
            at("homes/profiles/other/cache/a.png"),
            at("other/.config/app/token.txt"),
            at("user/work/server.pem"),
            at("user/work/passwords.kdbx"),
            at("user/work/credentials.json"),
            at("srv/hermes/state.db"),
            at("srv/hermes/cache/a.png"),
            link.display().to_string(),
            "/nowhere".to_owned(),
            dir.path().display().to_string(),
        ] {
            let parted = split_files(&format!("MEDIA:{path}"), &guard);
            assert_eq!(parted.media, [], "{path}");
            assert!(parted.text.contains("was not sent"), "{}", parted.text);
        }
        std::fs::write(dir.path().join("user/work/big.txt"), "x".repeat(11)).unwrap();
        assert!(
            split_files("MEDIA:~/work/big.txt", &guard)
                .text
                .contains("too many")
        );
    }

    #[test]
    fn strictly_only_what_is_listed_or_new() {
        let (dir, mut guard) = scene();
        let root = dir.path().canonicalize().unwrap();
        guard.strict = Some(StrictMediaRules {
            dirs: vec![root.join("user/work")],
            recent: None,
        });
        assert_eq!(
            split_files("MEDIA:~/work/report.pdf", &guard).media.len(),
            1
        );
        guard.strict = Some(StrictMediaRules {
            dirs: Vec::new(),
            recent: None,
        });
        assert_eq!(split_files("MEDIA:~/work/report.pdf", &guard).media, []);
        guard.strict = Some(StrictMediaRules {
            dirs: Vec::new(),
            recent: Some(Duration::from_mins(10)),
        });
        assert_eq!(
            split_files("MEDIA:~/work/report.pdf", &guard).media.len(),
            1
        );
    }
}
