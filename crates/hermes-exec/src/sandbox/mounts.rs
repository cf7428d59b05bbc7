//! Further names of a file: a part of a file system can be mounted in several places, and what is hidden in one of
//! them would be seen in another.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::look;

/// What is mounted, in the order in which it was.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    /// Which part of the file system.
    root: PathBuf,
    /// Where.
    at: PathBuf,
}

impl Mounts {
    pub(super) fn now() -> Self {
        Self::read(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    fn read(table: &str) -> Self {
        let mounts = table.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(2);
            Some(Mount {
                device: words.next()?.to_owned(),
                root: unescaped(words.next()?),
                at: unescaped(words.next()?),
            })
        });
        Self(mounts.collect())
    }

    /// Other paths at which the same file lies now.
    pub(super) fn twins(&self, path: &Path) -> Vec<PathBuf> {
        let mut names = self.other_names(path);
        names.retain(|name| is_same(name, path));
        names
    }

    /// Where it would lie by what is mounted.
    fn other_names(&self, path: &Path) -> Vec<PathBuf> {
        let around = self.0.iter().filter(|mount| path.starts_with(&mount.at));
        // Of several in one place the last one is seen.
        let Some(own) = around.max_by_key(|mount| mount.at.components().count()) else {
            return Vec::new();
        };
        let Ok(below) = path.strip_prefix(&own.at) else {
            return Vec::new();
        };
        let inner = own.root.join(below);
        self.0
            .iter()
            .filter(|mount| mount.device == own.device && *mount != own)
            .filter_map(|mount| Some(mount.at.join(inner.strip_prefix(&mount.root).ok()?)))
            .filter(|name| name != path)
            .collect()
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (look::entry(one), look::entry(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Without `\040` and its like, which stand for spaces.
fn unescaped(word: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, behind @ ..] = rest {
        let number = std::str::from_utf8(behind.get(..3).unwrap_or_default()).ok();
        let number = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (b'\\', Some(byte)) = (first, number) {
            bytes.push(byte);
            rest = &behind[3..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_twice_has_two_names() {
        let mounts = Mounts::read(
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
             23 22 0:21 / /proc rw - proc proc rw\n\
             24 22 254:0 /home /mnt/all\\040homes rw - ext4 /dev/vda rw\n\
             25 22 254:0 /home/a/work /work rw - ext4 /dev/vda rw\n",
        );
        let names = |path: &str| mounts.other_names(Path::new(path));
        assert_eq!(
            names("/home/a/.ssh"),
            [PathBuf::from("/mnt/all homes/a/.ssh")]
        );
        assert_eq!(
            names("/work/.env"),
            [
                PathBuf::from("/home/a/work/.env"),
                PathBuf::from("/mnt/all homes/a/work/.env")
            ]
        );
        assert!(names("/etc/shadow").is_empty());
        assert!(names("/proc/1").is_empty());
    }
}
