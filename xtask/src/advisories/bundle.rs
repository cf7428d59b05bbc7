//! The advisories in `ci/advisories`: read, checked, written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use jiff::civil::Date;
use serde::Deserialize;

use super::{Advisory, LockedCrate};

/// From this age on, every check says that it is time to update.
const OLD_DAYS: i32 = 90;

pub(crate) struct AdvisoryBundle {
    pub(crate) origin: BundleOrigin,
    /// By package, then id.
    pub(crate) advisories: Vec<Advisory>,
    /// The crates that were looked up, with and without advisories. A crate that is not here has
    /// not been checked.
    pub(crate) covered: BTreeSet<String>,
}

/// Which state of the public database the bundle shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BundleOrigin {
    pub(crate) date: Date,
    pub(crate) commit: String,
}

#[derive(Deserialize)]
struct OriginFile {
    date: String,
    commit: String,
}

impl AdvisoryBundle {
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        let mut advisories = Vec::new();
        for file in advisory_files(&dir.join("crates"))? {
            let advisory = parse_file(&file)?
                .with_context(|| format!("{}: it has no id yet", file.display()))?;
            ensure!(
                file.ends_with(relative_path(&advisory)),
                "{}: it is {} of {}, so it belongs in {}",
                file.display(),
                advisory.id,
                advisory.package,
                relative_path(&advisory).display()
            );
            advisories.push(advisory);
        }
        ensure!(
            !advisories.is_empty(),
            "{} has no advisories: restore it from git",
            dir.display()
        );
        sort(&mut advisories)?;
        Ok(Self {
            origin: read_origin(&dir.join("origin.toml"))?,
            advisories,
            covered: read_covered(&dir.join("covered.txt"))?,
        })
    }

    /// The part of a clone of the public database that concerns these crates.
    pub(crate) fn select(
        clone: &Path,
        origin: BundleOrigin,
        locked: &[LockedCrate],
    ) -> Result<Self> {
        let covered: BTreeSet<String> = locked.iter().map(|one| one.name.clone()).collect();
        let mut advisories = Vec::new();
        for name in &covered {
            let folder = clone.join("crates").join(name);
            if !folder.is_dir() {
                continue;
            }
            for file in files_in(&folder)? {
                let Some(advisory) = parse_file(&file)? else {
                    continue;
                };
                ensure!(
                    advisory.package == *name,
                    "{}: it is about {}",
                    file.display(),
                    advisory.package
                );
                advisories.push(advisory);
            }
        }
        ensure!(
            !advisories.is_empty(),
            "{} has no advisory for any of our {} crates: is it a clone of {}?",
            clone.display(),
            covered.len(),
            super::UPSTREAM
        );
        sort(&mut advisories)?;
        Ok(Self {
            origin,
            advisories,
            covered,
        })
    }

    /// Replaces what is there. Everything was read and checked before, so that a broken source
    /// leaves the old state.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let crates = dir.join("crates");
        if crates.exists() {
            fs::remove_dir_all(&crates).with_context(|| crates.display().to_string())?;
        }
        self.write_advisories(dir)?;
        let origin = format!(
            "# The state of {} that is bundled here.\ndate = \"{}\"\ncommit = \"{}\"\n",
            super::UPSTREAM,
            self.origin.date,
            self.origin.commit
        );
        write_file(&dir.join("origin.toml"), &origin)?;
        let names: Vec<&str> = self.covered.iter().map(String::as_str).collect();
        write_file(&dir.join("covered.txt"), &(names.join("\n") + "\n"))
    }

    /// Only the advisories, in the layout of the public database.
    pub(crate) fn write_advisories(&self, dir: &Path) -> Result<()> {
        for advisory in &self.advisories {
            write_file(&dir.join(relative_path(advisory)), &advisory.render())?;
        }
        Ok(())
    }

    /// A crate that nobody looked up must not pass for one without advisories.
    pub(crate) fn check_covers(&self, locked: &[LockedCrate]) -> Result<()> {
        let missing: BTreeSet<&str> = locked
            .iter()
            .map(|one| one.name.as_str())
            .filter(|name| !self.covered.contains(*name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        bail!(
            "nobody has looked for advisories on {}; run `cargo xtask advisories --update`, \
             or see ci/advisories/README.md for how to do it by hand",
            missing.into_iter().collect::<Vec<_>>().join(", ")
        )
    }

    /// The advisories that concern what we build, with the versions in question.
    pub(crate) fn hits<'a>(
        &'a self,
        locked: &'a [LockedCrate],
    ) -> impl Iterator<Item = (&'a Advisory, &'a LockedCrate)> {
        self.advisories.iter().flat_map(move |advisory| {
            locked
                .iter()
                .filter(|one| one.name == advisory.package && advisory.affects(&one.version))
                .map(move |one| (advisory, one))
        })
    }

    /// How much there is and how old it is, in a line; a second one when it is too old.
    pub(crate) fn describe(&self, today: Date) -> Result<String> {
        let days = self.origin.date.until(today)?.get_days();
        let mut text = format!(
            "advisories: {} for {} crates, state of {} ({days} days old)",
            self.advisories.len(),
            self.covered.len(),
            self.origin.date
        );
        if days > OLD_DAYS {
            text += "\nwarning: newer ones are not known here; `cargo xtask advisories --update` fetches them";
        }
        Ok(text)
    }
}

/// Where an advisory is, as in the public database.
fn relative_path(advisory: &Advisory) -> PathBuf {
    Path::new("crates")
        .join(&advisory.package)
        .join(format!("{}.md", advisory.id))
}

fn sort(advisories: &mut [Advisory]) -> Result<()> {
    advisories.sort_by(|a, b| (&a.package, &a.id).cmp(&(&b.package, &b.id)));
    let mut seen = BTreeSet::new();
    for advisory in advisories {
        ensure!(seen.insert(&advisory.id), "{} is there twice", advisory.id);
    }
    Ok(())
}

fn parse_file(path: &Path) -> Result<Option<Advisory>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Advisory::parse(&text).with_context(|| path.display().to_string())
}

fn advisory_files(crates: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).with_context(|| crates.display().to_string())? {
        files.extend(files_in(&entry?.path())?);
    }
    Ok(files)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_origin(path: &Path) -> Result<BundleOrigin> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file: OriginFile = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let date = file
        .date
        .parse()
        .with_context(|| format!("{}: {:?} is not a date", path.display(), file.date))?;
    Ok(BundleOrigin {
        date,
        commit: file.commit,
    })
}

fn read_covered(path: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(names.map(str::to_owned).collect())
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}
