//! Reads an untrusted backup archive. Paths outside the home, links and archive bombs are refused
//! as a whole.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hermes_config::fs::create_private_dir;
use zip::ZipArchive;

use crate::commands::backup::is_of_the_moment;

const MAX_ENTRIES: usize = 1_000_000;
/// Above this, what unpacks to more than [`MAX_COMPRESSION_RATIO`] times its size is taken for a trap. Text and
/// databases stay far below.
const MIN_BOMB_BYTES: u64 = 1024 * 1024 * 1024;
const MAX_COMPRESSION_RATIO: u64 = 200;

/// State of one machine at one time; the reader's own stays.
const OF_THE_MACHINE: &[&str] = &["gateway_state.json", "processes.json"];
/// The original puts files of other programs here, which lie outside a home.
const OUTSIDE: &str = "_external/";
const MARKS: &[&str] = &["config.yaml", ".env", "state.db"];

/// What is going to be unpacked.
pub(super) struct ImportPlan {
    /// Paths below the home.
    pub(super) entries: Vec<String>,
    /// For each entry its number in the archive and its size.
    numbers: Vec<(usize, u64)>,
    pub(super) skipped: Vec<String>,
    pub(super) bytes: u64,
}

pub(super) fn plan<R: Read + Seek>(zip: &mut ZipArchive<R>) -> Result<ImportPlan, String> {
    if zip.len() > MAX_ENTRIES {
        return Err(format!("it has {} entries, which no home has", zip.len()));
    }
    if zip.has_duplicate_names() {
        return Err("it names a file twice".to_owned());
    }
    if zip
        .has_overlapping_entries()
        .map_err(|error| error.to_string())?
    {
        return Err("its entries overlap, which no program writes".to_owned());
    }
    let mut files = Vec::new();
    let (mut bytes, mut packed) = (0_u64, 0_u64);
    for number in 0..zip.len() {
        let entry = zip
            .by_index_raw(number)
            .map_err(|error| error.to_string())?;
        let name = std::str::from_utf8(entry.name_raw())
            .map_err(|_| "a name in it is not UTF-8".to_owned())?
            .to_owned();
        let directory = name.ends_with('/');
        checked(name.trim_end_matches('/'))?;
        // The kind of file, where the archive tells: regular (or unknown) and directories only.
        let kind = entry.unix_mode().unwrap_or(0) & 0o170_000;
        if !matches!(kind, 0 | 0o100_000 | 0o040_000) {
            return Err(format!("{name:?} in it is a link or a device"));
        }
        if entry.encrypted() {
            return Err(format!("{name:?} in it is encrypted"));
        }
        if !directory {
            bytes = bytes.saturating_add(entry.size());
            packed = packed.saturating_add(entry.compressed_size());
            files.push((name, number, entry.size()));
        }
    }
    if bytes > MIN_BOMB_BYTES && bytes / packed.max(1) > MAX_COMPRESSION_RATIO {
        return Err(format!(
            "it would unpack to {} times its size",
            bytes / packed.max(1)
        ));
    }
    let prefix = common_prefix(&files);
    let mut plan = ImportPlan {
        entries: Vec::new(),
        numbers: Vec::new(),
        skipped: Vec::new(),
        bytes: 0,
    };
    for (name, number, size) in files {
        let relative = name.strip_prefix(prefix).unwrap_or(&name);
        let file = relative.rsplit('/').next().unwrap_or(relative);
        if relative.starts_with(OUTSIDE) || OF_THE_MACHINE.contains(&file) || is_of_the_moment(file)
        {
            plan.skipped.push(relative.to_owned());
            continue;
        }
        plan.bytes += size;
        plan.numbers.push((number, size));
        plan.entries.push(relative.to_owned());
    }
    no_file_is_a_directory(&plan.entries)?;
    let is_home = plan.entries.iter().any(|entry| {
        let file = entry.rsplit('/').next().unwrap_or(entry);
        MARKS.contains(&file) && (!entry.contains('/') || entry.starts_with("profiles/"))
    });
    if is_home {
        Ok(plan)
    } else {
        Err("it is not a backup: it contains no config.yaml, .env or state.db".to_owned())
    }
}

/// A name that stays inside, on every system.
fn checked(name: &str) -> Result<(), String> {
    let bad_part = |part: &str| part.is_empty() || part == "." || part == ".." || part.len() > 255;
    let bad_char = |ch: char| ch == '\\' || ch.is_control();
    if name.len() > 4096 || name.contains(bad_char) || name.split('/').any(bad_part) {
        return Err(format!("the name {name:?} in it does not lead into a home"));
    }
    Ok(())
}

/// Some tools pack the directory itself.
fn common_prefix(files: &[(String, usize, u64)]) -> &'static str {
    ["hermes/", ".hermes/"]
        .into_iter()
        .find(|prefix| !files.is_empty() && files.iter().all(|(name, ..)| name.starts_with(prefix)))
        .unwrap_or("")
}

fn no_file_is_a_directory(entries: &[String]) -> Result<(), String> {
    let files: HashSet<&str> = entries.iter().map(String::as_str).collect();
    for entry in entries {
        for (at, _) in entry.match_indices('/') {
            if files.contains(&entry[..at]) {
                return Err(format!(
                    "{:?} in it is a file and a directory",
                    &entry[..at]
                ));
            }
        }
    }
    Ok(())
}

/// Unpacks into an empty directory of ours: everything is new, so no link can be in the way.
pub(super) fn unpack(
    zip: &mut ZipArchive<File>,
    plan: &ImportPlan,
    into: &Path,
) -> Result<(), String> {
    for (entry, (number, size)) in plan.entries.iter().zip(&plan.numbers) {
        let fail = |error: io::Error| format!("{entry}: {error}");
        let target = into.join(entry);
        create_private_dir(target.parent().unwrap_or(into)).map_err(fail)?;
        let mut source = zip
            .by_index(*number)
            .map_err(|error| format!("{entry}: {error}"))?;
        let executable = source.unix_mode().unwrap_or(0) & 0o100 != 0;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if executable { 0o700 } else { 0o600 })
            .open(&target)
            .map_err(fail)?;
        // One byte more than announced tells a lie; the sum of the content is checked by the reader.
        let copied = io::copy(&mut source.by_ref().take(size + 1), &mut file).map_err(fail)?;
        if copied != *size {
            return Err(format!("{entry} is not as long as the archive says"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        for fine in [
            "config.yaml",
            "skills/a b/SKILL.md",
            ".env",
            "profiles/x/state.db",
            "a..b",
        ] {
            assert!(checked(fine).is_ok(), "{fine}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a/./b",
            "a\\b",
            "a\0b",
            "C:\\x",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_is_no_directory() {
        let entries = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        assert!(no_file_is_a_directory(&entries(&["a/b", "a/c", "ab"])).is_ok());
        assert!(no_file_is_a_directory(&entries(&["a/b/c", "a/b"])).is_err());
    }
}
