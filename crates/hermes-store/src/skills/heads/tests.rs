//! Listing a library again reads what changed, and only that.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use hermes_core::clock::{Clock, SystemClock};
use pretty_assertions::assert_eq;

use super::*;
use crate::skills::{Offer, Settings};

/// A clock that is ahead of the file system's, so that its stamps are old enough to be believed.
struct Later(i64);

impl Clock for Later {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now() + TimeDelta::seconds(self.0)
    }
}

struct HeadsHarness {
    dir: tempfile::TempDir,
}

impl HeadsHarness {
    /// Forty skills in four categories.
    fn new() -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for at in 0..40 {
            let text = format!("---\nname: skill-{at}\ndescription: does {at}\n---\nBody\n");
            fixture.put(&format!("c{}/s{at}/SKILL.md", at % 4), &text);
        }
        fixture.put("c0/DESCRIPTION.md", "---\ndescription: the first\n---\n");
        // Long ago: the clock of a file system has coarse ticks, and later changes must differ.
        let skills = fixture.dir.path().join("skills");
        let dirs = (0..40).map(|at| format!("c{}/s{at}", at % 4));
        let dirs = dirs.chain((0..4).map(|at| format!("c{at}")));
        for dir in dirs.chain([String::new()]) {
            let dir = fs::File::open(skills.join(dir)).unwrap();
            dir.set_modified(SystemTime::now() - Duration::from_hours(1))
                .unwrap();
        }
        fixture
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join("skills").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn library(&self, ahead: i64) -> SkillLibrary {
        SkillLibrary::new(Settings {
            cache: Some(self.dir.path().join("cache/skills.json")),
            clock: Arc::new(Later(ahead)),
            ..Settings::new(self.dir.path().join("skills"))
        })
    }

    /// Lists as a new process would.
    fn effort(&self) -> ListingStats {
        let mut effort = ListingStats::default();
        let library = self.library(3_600);
        let heads = library.heads_with(&mut effort);
        // What is listed is what reading everything would list.
        let fresh = SkillLibrary::new(Settings::new(self.dir.path().join("skills")));
        assert_eq!(heads, fresh.heads());
        assert_eq!(library.scan(), fresh.scan());
        let offer = Offer::default();
        assert_eq!(library.index(&offer), fresh.index(&offer));
        effort
    }
}

fn effort(listed: usize, read: usize) -> ListingStats {
    ListingStats { listed, read }
}

#[test]
fn an_unchanged_library_is_neither_listed_nor_read_again() {
    let fixture = HeadsHarness::new();
    assert_eq!(fixture.effort(), effort(1, 41));
    assert_eq!(fixture.effort(), effort(0, 0));
    // Nor written: the cache stays as it is.
    let cache = fixture.dir.path().join("cache/skills.json");
    let written = fs::metadata(&cache).unwrap().modified().unwrap();
    fixture.effort();
    assert_eq!(fs::metadata(&cache).unwrap().modified().unwrap(), written);
}

#[test]
fn every_kind_of_change_is_seen() {
    let fixture = HeadsHarness::new();
    fixture.effort();
    let skills = fixture.dir.path().join("skills");
    // Rewritten in place, to the same length and with the old time.
    let path = skills.join("c1/s1/SKILL.md");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("does 1", "done 1")).unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(before - Duration::from_mins(1))
        .unwrap();
    assert_eq!(fixture.effort(), effort(0, 1));
    // Added, also deep below another one; removed; renamed.
    fixture.put("c1/s1/inner/SKILL.md", "---\nname: inner\n---\nWords\n");
    assert_eq!(fixture.effort(), effort(1, 1));
    fs::remove_file(skills.join("c2/s2/SKILL.md")).unwrap();
    assert_eq!(fixture.effort(), effort(1, 0));
    fs::rename(skills.join("c3/s3"), skills.join("c3/other")).unwrap();
    assert_eq!(fixture.effort(), effort(1, 1));
    // Replaced by a link to a directory elsewhere, and changed there.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("far")).unwrap();
    fs::write(
        elsewhere.path().join("far/SKILL.md"),
        "---\nname: far\n---\n",
    )
    .unwrap();
    symlink(elsewhere.path(), skills.join("linked")).unwrap();
    assert_eq!(fixture.effort(), effort(1, 1));
    fs::write(
        elsewhere.path().join("far/SKILL.md"),
        "---\nname: farther\n---\n",
    )
    .unwrap();
    assert_eq!(fixture.effort(), effort(0, 1));
}

#[test]
fn a_link_that_leads_nowhere_is_looked_at_each_time() {
    let fixture = HeadsHarness::new();
    let drive = tempfile::tempdir().unwrap();
    let target = drive.path().join("mounted");
    symlink(&target, fixture.dir.path().join("skills/drive")).unwrap();
    fixture.effort();
    assert_eq!(fixture.effort(), effort(1, 0));
    fs::create_dir_all(target.join("new")).unwrap();
    fs::write(target.join("new/SKILL.md"), "---\nname: new\n---\n").unwrap();
    assert_eq!(fixture.effort(), effort(1, 1));
}

#[test]
fn stamps_of_this_moment_and_damaged_caches_are_not_believed() {
    let fixture = HeadsHarness::new();
    let mut young = ListingStats::default();
    let library = fixture.library(0);
    library.heads_with(&mut young);
    library.heads_with(&mut young);
    assert_eq!(young, effort(2, 82));
    let cache = fixture.dir.path().join("cache/skills.json");
    for damage in ["", "{", "null", r#"{"format":99,"roots":{}}"#] {
        fs::write(&cache, damage).unwrap();
        assert_eq!(fixture.effort(), effort(1, 41), "{damage}");
    }
    // A home without a place for it works all the same.
    fs::remove_file(&cache).unwrap();
    fs::remove_dir(fixture.dir.path().join("cache")).unwrap();
    fs::write(fixture.dir.path().join("cache"), "in the way").unwrap();
    assert_eq!(fixture.effort(), effort(1, 41));
}
