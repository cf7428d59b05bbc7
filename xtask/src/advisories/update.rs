//! Rebuilding the bundle from the public database.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::bundle::BundleOrigin;
use super::{AdvisoryBundle, UPSTREAM, bundle_dir, read_lockfile, work_dir};
use crate::command::{output, retry, run as run_command};
use crate::workspace;

/// Fetches the database with git.
pub(crate) fn from_upstream() -> Result<()> {
    let clone = work_dir().join("upstream");
    retry(3, "fetching the advisory database", || {
        if clone.exists() {
            fs::remove_dir_all(&clone).with_context(|| clone.display().to_string())?;
        }
        run_command(
            Command::new("git")
                .args(["clone", "--quiet", "--depth=1", "--branch=main", UPSTREAM])
                .arg(&clone),
        )
    })
    .context(
        "clone it where the network allows, copy the clone here and name it: \
         `cargo xtask advisories --update --from DIR`",
    )?;
    from_clone(&clone)
}

pub(crate) fn from_clone(clone: &Path) -> Result<()> {
    let locked = read_lockfile(&workspace().join("Cargo.lock"))?;
    let new = AdvisoryBundle::select(clone, origin(clone)?, &locked)?;
    let dir = bundle_dir();
    // A bundle that cannot be read is replaced all the same.
    let old = AdvisoryBundle::load(&dir).ok();
    new.write(&dir)?;
    for change in changes(old.as_ref(), &new) {
        println!("{change}");
    }
    println!(
        "{} advisories for {} crates, state of {}",
        new.advisories.len(),
        new.covered.len(),
        new.origin.date
    );
    for (advisory, one) in new.hits(&locked) {
        println!(
            "{} {} is affected by {} ({}): update it, or ignore the advisory in deny.toml with a reason",
            one.name,
            one.version,
            advisory.id,
            advisory.title()
        );
    }
    println!("now run `cargo xtask advisories` and commit ci/advisories");
    Ok(())
}

/// Commit and date of the state that the clone shows.
fn origin(clone: &Path) -> Result<BundleOrigin> {
    read_head(clone).with_context(|| {
        format!(
            "{} is not a git clone of {UPSTREAM}, so its state cannot be recorded",
            clone.display()
        )
    })
}

fn read_head(clone: &Path) -> Option<BundleOrigin> {
    // Without it, git would answer for a repository that the folder happens to lie in.
    if !clone.join(".git").exists() {
        return None;
    }
    let mut log = Command::new("git");
    log.arg("-C").arg(clone);
    let shown = output(log.args(["log", "-1", "--format=%H %cs"]))?;
    let (commit, date) = shown.split_once(' ')?;
    Some(BundleOrigin {
        commit: commit.to_owned(),
        date: date.parse().ok()?,
    })
}

/// One line for every advisory that is new, gone or different.
fn changes(old: Option<&AdvisoryBundle>, new: &AdvisoryBundle) -> Vec<String> {
    let by_id = |bundle: &AdvisoryBundle| -> BTreeMap<String, String> {
        let pairs = bundle.advisories.iter();
        pairs
            .map(|advisory| (advisory.id.clone(), advisory.render()))
            .collect()
    };
    let before = old.map(by_id).unwrap_or_default();
    let after = by_id(new);
    let mut lines = Vec::new();
    for advisory in &new.advisories {
        let mark = match before.get(&advisory.id) {
            None => "+",
            Some(text) if *text != advisory.render() => "~",
            Some(_) => continue,
        };
        lines.push(format!("{mark} {} {}", advisory.id, advisory.title()));
    }
    for id in before.keys().filter(|id| !after.contains_key(*id)) {
        lines.push(format!("- {id}"));
    }
    lines
}
