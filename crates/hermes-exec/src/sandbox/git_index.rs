//! Repositories that git enters from another one because its index names them. They need not be listed anywhere
//! else, and a command can write the index.

use std::path::{Path, PathBuf};

use super::tracked_fs;

/// The file type of an entry that is another repository.
const GITLINK_TYPE: u32 = 0o160_000;
const TYPE_MASK: u32 = 0o170_000;
/// Larger indexes are not read.
const MAX_INDEX: u64 = 256 << 20;
const MAX_LINKS: usize = 256;
/// Length of an entry up to its name, without the object id.
const FIXED_ENTRY_LEN: usize = 40 + 2;

/// The paths below the work tree that are repositories of their own.
pub(super) fn linked_repositories(git_dir: &Path, is_long: bool) -> Vec<PathBuf> {
    let mut files = vec![git_dir.join("index")];
    let entries = tracked_fs::list(git_dir);
    files.extend(
        entries
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("sharedindex.")
            })
            .map(|entry| entry.path())
            .take(8),
    );
    let mut links = Vec::new();
    for file in files {
        let is_read =
            tracked_fs::stat(&file).is_ok_and(|data| data.is_file() && data.len() <= MAX_INDEX);
        if is_read && let Ok(bytes) = tracked_fs::read_bytes(&file) {
            links.extend(parse_links(&bytes, if is_long { 32 } else { 20 }).unwrap_or_default());
        }
    }
    links.sort();
    links.dedup();
    links.truncate(MAX_LINKS);
    links
}

/// `None`: the index is truncated, and git does not read it either.
fn parse_links(bytes: &[u8], hash: usize) -> Option<Vec<PathBuf>> {
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let (version, count) = (number(4)?, number(8)?);
    let mut at = 12;
    let mut name: Vec<u8> = Vec::new();
    let mut links = Vec::new();
    for _ in 0..count {
        let start = at;
        let mode = number(at + 24)?;
        let flags_at = at + 40 + hash;
        let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
        at += FIXED_ENTRY_LEN
            + hash
            + if version >= 3 && flags & 0x4000 != 0 {
                2
            } else {
                0
            };
        if version == 4 {
            let (cut, used) = parse_varint(bytes.get(at..)?)?;
            at += used;
            name.truncate(name.len().checked_sub(cut)?);
        } else {
            name.clear();
        }
        let length = bytes.get(at..)?.iter().position(|&byte| byte == 0)?;
        name.extend_from_slice(&bytes[at..at + length]);
        at += length + 1;
        if version != 4 {
            // Padded to a multiple of eight.
            at = start + (at - start).div_ceil(8) * 8;
        }
        if mode & TYPE_MASK == GITLINK_TYPE && links.len() < MAX_LINKS {
            use std::os::unix::ffi::OsStrExt as _;
            links.push(PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        }
    }
    Some(links)
}

/// Decodes a variable-length number; also returns its length in bytes.
fn parse_varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (at, &byte) in bytes.iter().enumerate().take(6) {
        value = (value << 7) | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
        value += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn links_are_found_in_every_form_of_an_index() {
        for version in ["2", "3", "4"] {
            let dir = tempfile::tempdir().unwrap();
            let git = |args: &[&str]| {
                let done = Command::new("git")
                    .args(args)
                    .current_dir(dir.path())
                    .output();
                let done = done.unwrap();
                assert!(
                    done.status.success(),
                    "{}",
                    String::from_utf8_lossy(&done.stderr)
                );
            };
            git(&["init", "--quiet"]);
            for name in ["a", "abc/d", "z"] {
                let path = dir.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "x").unwrap();
            }
            git(&["add", "."]);
            let hash = "1".repeat(40);
            for name in ["abc/sub", "deep/er/sub"] {
                let entry = format!("160000,{hash},{name}");
                git(&["update-index", "--add", "--cacheinfo", &entry]);
            }
            git(&["update-index", "--index-version", version]);
            let wanted = ["abc/sub", "deep/er/sub"].map(PathBuf::from);
            assert_eq!(
                linked_repositories(&dir.path().join(".git"), false),
                wanted,
                "{version}"
            );
            git(&["update-index", "--split-index"]);
            assert_eq!(
                linked_repositories(&dir.path().join(".git"), false),
                wanted,
                "{version} split"
            );
        }
        assert!(parse_links(b"DIRC\0\0\0\x02\0\0\0\x09short", 20).is_none());
    }
}
