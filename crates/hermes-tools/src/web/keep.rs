//! Shortens long pages: which part the model sees, and the file with the whole page.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hermes_config::fs::{create_private_dir, write_atomic};
use sha2::{Digest as _, Sha256};
use url::Url;

/// Maximum length of a stored page in characters.
const MAX_STORED_CHARS: usize = 2_000_000;
/// Maximum number of stored pages, and of their bytes together; the oldest are removed.
const MAX_STORED_PAGES: usize = 500;
const MAX_STORED_BYTES: u64 = 200_000_000;

/// A page as the model gets it.
pub(super) fn fit(text: &str, url: &str, limit: usize, dir: &Path) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_owned();
    }
    let head_budget = limit * 3 / 4;
    let tail_budget = limit - head_budget;
    let head_end = at_char(text, head_budget);
    let tail_start = at_char(text, total - tail_budget);
    let head = back_to_line(&text[..head_end]);
    let tail = on_to_line(&text[tail_start..]);
    let (shown_head, shown_tail) = (head.chars().count(), tail.chars().count());
    let where_it_is = match keep(text, total, url, dir) {
        Ok(path) => format!(
            "The whole text is in {path}. Go on reading where the beginning stops: \
             read_file path=\"{path}\" offset={line} limit=200",
            path = path.display(),
            line = head.matches('\n').count() + 2,
        ),
        Err(error) => {
            tracing::warn!(%error, "a long page cannot be kept");
            "The rest could not be kept; ask for a more specific page or raise char_limit"
                .to_owned()
        }
    };
    format!(
        "{head}\n\n[… left out: see below …]\n\n{tail}\n\n\
         [SHORTENED: the first {shown_head} and the last {shown_tail} of {total} characters. {where_it_is}]"
    )
}

/// The byte offset of character `n`.
fn at_char(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// Cuts at the last line end, unless that loses more than half.
fn back_to_line(head: &str) -> &str {
    match head.rfind('\n') {
        Some(at) if at > head.len() / 2 => &head[..at],
        _ => head,
    }
}

fn on_to_line(tail: &str) -> &str {
    match tail.find('\n') {
        Some(at) if at < tail.len() / 2 => &tail[at + 1..],
        _ => tail,
    }
}

fn keep(text: &str, total: usize, url: &str, dir: &Path) -> std::io::Result<PathBuf> {
    create_private_dir(dir)?;
    let path = dir.join(name(url));
    let end = at_char(text, MAX_STORED_CHARS);
    if end == text.len() {
        write_atomic(&path, text.as_bytes(), 0o600)?;
    } else {
        let cut = format!(
            "{}\n\n[the first {MAX_STORED_CHARS} of {total} characters are kept]\n",
            &text[..end]
        );
        write_atomic(&path, cut.as_bytes(), 0o600)?;
    }
    prune(dir, &path, MAX_STORED_PAGES, MAX_STORED_BYTES);
    Ok(path)
}

/// Removes the pages that were read longest ago, never `newest`.
fn prune(dir: &Path, newest: &Path, max_pages: usize, max_bytes: u64) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    let mut pages: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter(|entry| {
            entry.path() != newest && entry.path().extension().is_some_and(|e| e == "md")
        })
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((meta.modified().ok()?, meta.len(), entry.path()))
        })
        .collect();
    pages.sort_unstable_by_key(|page| std::cmp::Reverse(page.0));
    let mut bytes = 0;
    for (at, (_, size, path)) in pages.into_iter().enumerate() {
        bytes += size;
        if (at + 1 >= max_pages || bytes > max_bytes)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "an old page cannot be removed");
        }
    }
}

/// `<host>-<10 hex of the address>.md`: one file per page, however often it is read.
fn name(url: &str) -> String {
    let host = Url::parse(url)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .unwrap_or_default();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let slug: String = host.chars().take(60).map(plain).collect();
    let slug = slug.trim_matches(['-', '.']);
    let digest = Sha256::digest(url.as_bytes());
    let hex: String = digest.iter().take(5).fold(String::new(), |hex, byte| {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
        hex + &format!("{}{}", digit(byte >> 4), digit(byte & 15))
    });
    format!("{}-{hex}.md", if slug.is_empty() { "page" } else { slug })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_pages_stay_whole() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(fit("ünï", "https://x.test/", 3, dir.path()), "ünï");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn long_pages_show_both_ends_and_say_where_the_middle_is() {
        let dir = tempfile::tempdir().unwrap();
        let lines: Vec<String> = (1..=1_000).map(|n| format!("line {n} äöü")).collect();
        let text = lines.join("\n");
        let shown = fit(&text, "https://www.Example.org/a?b", 4_000, dir.path());
        assert!(shown.starts_with("line 1 äöü\n"));
        assert!(shown.contains("line 1000 äöü") && !shown.contains("line 500 "));
        let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(files.len(), 1);
        let path = files[0].path();
        assert!(
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("www.example.org-")
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        // The offset is the first line that is not shown.
        let offset = shown
            .split("offset=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let offset: usize = offset.parse().unwrap();
        assert!(shown.contains(&format!("line {} äöü\n", offset - 1)));
        assert!(!shown.contains(&format!("line {offset} äöü\n")));
    }

    #[test]
    fn what_cannot_be_kept_is_shown_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let shown = fit(&"x".repeat(5_000), "https://x.test/", 2_000, &file);
        assert!(shown.contains("could not be kept"));
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        fit(
            &"ä".repeat(MAX_STORED_CHARS + 10),
            "https://x.test/",
            2_000,
            dir.path(),
        );
        let kept = std::fs::read_to_string(dir.path().join(name("https://x.test/"))).unwrap();
        let chars = kept.chars().count();
        assert!(
            (MAX_STORED_CHARS..MAX_STORED_CHARS + 100).contains(&chars),
            "{chars}"
        );
    }

    #[test]
    fn old_pages_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for n in 0..6_u32 {
            let path = dir.path().join(format!("p{n}.md"));
            std::fs::write(&path, "xxxxxxxxxx").unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(old + std::time::Duration::from_secs(u64::from(n)))
                .unwrap();
        }
        std::fs::write(dir.path().join("notes.txt"), "not ours").unwrap();
        let left = || {
            let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
            let mut names: Vec<String> = entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names.join(" ")
        };
        // The newest page is kept, whatever its time.
        prune(dir.path(), &dir.path().join("p0.md"), 4, 1_000);
        assert_eq!(left(), "notes.txt p0.md p3.md p4.md p5.md");
        prune(dir.path(), &dir.path().join("p0.md"), 100, 20);
        assert_eq!(left(), "notes.txt p0.md p4.md p5.md");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn shown_is_head_and_tail_of_the_page(text in "[a-zäß\n日]{0,900}", limit in 20_usize..500) {
            let dir = tempfile::tempdir().unwrap();
            let shown = fit(&text, "https://x.test/", limit, dir.path());
            if text.chars().count() <= limit {
                prop_assert_eq!(shown, text);
            } else {
                let (head, rest) = shown.split_once("\n\n[… left out").unwrap();
                prop_assert!(text.starts_with(head));
                let tail = rest.split_once("…]\n\n").unwrap().1.rsplit_once("\n\n[SHORTENED").unwrap().0;
                prop_assert!(text.ends_with(tail));
                prop_assert!(head.chars().count() + tail.chars().count() <= limit);
            }
        }
    }
}
