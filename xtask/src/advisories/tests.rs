use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use jiff::civil::date;
use semver::Version;
use tempfile::TempDir;

use super::bundle::BundleOrigin;
use super::*;

/// A file as the public database has them.
const UPSTREAM_FILE: &str = r#"```toml
[advisory]
id = "RUSTSEC-2026-0007"
package = "alpha"
date = "2026-02-03"
url = "https://example.org/alpha"
informational = "unsound"
categories = ["memory-corruption"]
keywords = ["a keyword"]
aliases = ["CVE-2026-1", "GHSA-aaaa-bbbb-cccc"]
license = "CC-BY-4.0"

[affected.functions]
"alpha::beta" = ["< 1.2.3"]

[versions]
patched = [">= 1.2.3", "^0.9.4"]
unaffected = ["< 0.2.0"]
```

# A sentence of its author

More of them.
"#;

fn parse(text: &str) -> Advisory {
    Advisory::parse(text).unwrap().unwrap()
}

fn locked(names: &[(&str, &str)]) -> Vec<LockedCrate> {
    let pairs = names.iter();
    pairs
        .map(|(name, version)| LockedCrate {
            name: (*name).to_owned(),
            version: Version::parse(version).unwrap(),
        })
        .collect()
}

fn our_crates() -> Vec<LockedCrate> {
    read_lockfile(&workspace().join("Cargo.lock")).unwrap()
}

/// A clone of the public database, as far as files go.
fn clone_with(files: &[(&str, &str)]) -> TempDir {
    let clone = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = clone.path().join("crates").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    clone
}

fn origin() -> BundleOrigin {
    BundleOrigin {
        date: date(2026, 9, 14),
        commit: "0123abc".to_owned(),
    }
}

fn bundle() -> AdvisoryBundle {
    let clone = clone_with(&[("alpha/RUSTSEC-2026-0007.md", UPSTREAM_FILE)]);
    AdvisoryBundle::select(clone.path(), origin(), &locked(&[("alpha", "1.0.0")])).unwrap()
}

fn ignored_ids() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("deny.toml")).unwrap();
    let config: toml::Value = toml::from_str(&text).unwrap();
    let ignored = config["advisories"]["ignore"].as_array().unwrap();
    for one in ignored {
        assert!(
            one["reason"].as_str().unwrap().len() > 20,
            "{one:?}: say why"
        );
    }
    let ids = ignored.iter().map(|one| one["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

#[test]
fn the_bundle_is_whole_and_about_our_crates() {
    let bundle = AdvisoryBundle::load(&bundle_dir()).unwrap();
    let locked = our_crates();
    bundle.check_covers(&locked).unwrap();
    let names: BTreeSet<&str> = locked.iter().map(|one| one.name.as_str()).collect();
    for advisory in &bundle.advisories {
        assert!(names.contains(advisory.package.as_str()), "{advisory:?}");
        let path = bundle_dir()
            .join("crates")
            .join(&advisory.package)
            .join(format!("{}.md", advisory.id));
        // Facts and nothing else, in one form: what is by hand looks like what is generated.
        assert_eq!(fs::read_to_string(path).unwrap(), advisory.render());
    }
}

#[test]
fn what_concerns_us_is_ignored_with_a_reason_or_not_there() {
    let bundle = AdvisoryBundle::load(&bundle_dir()).unwrap();
    let locked = our_crates();
    let hits: BTreeSet<String> = bundle
        .hits(&locked)
        .map(|(advisory, _)| advisory.id.clone())
        .collect();
    assert_eq!(hits, ignored_ids());
}

#[test]
fn a_planted_advisory_on_a_version_that_we_build_is_a_hit() {
    let mut bundle = AdvisoryBundle::load(&bundle_dir()).unwrap();
    let locked = our_crates();
    for one in &locked {
        let text = format!(
            "```toml\n[advisory]\nid = \"RUSTSEC-9999-0001\"\npackage = \"{}\"\ndate = \"2026-01-01\"\n\
             [versions]\npatched = [\">{}\"]\n```\n",
            one.name, one.version
        );
        bundle.advisories = vec![parse(&text)];
        assert!(bundle.hits(&locked).any(|(_, hit)| hit == one), "{one:?}");
    }
}

#[test]
fn ranges_and_withdrawal_decide_whether_a_version_is_affected() {
    let mut advisory = parse(UPSTREAM_FILE);
    let affected =
        |advisory: &Advisory, text: &str| advisory.affects(&Version::parse(text).unwrap());
    for (version, expected) in [
        ("0.1.9", false),
        ("0.2.0", true),
        ("0.9.3", true),
        ("0.9.4", false),
        ("1.0.0", true),
        ("1.2.3", false),
    ] {
        assert_eq!(affected(&advisory, version), expected, "{version}");
    }
    advisory.withdrawn = Some(date(2026, 3, 1));
    assert!(!affected(&advisory, "1.0.0"));
}

#[test]
fn facts_survive_and_words_of_others_do_not() {
    let advisory = parse(UPSTREAM_FILE);
    let text = advisory.render();
    assert_eq!(parse(&text), advisory);
    for words in ["sentence", "More of them", "a keyword", "example.org"] {
        assert!(!text.contains(words), "{text}");
    }
    assert!(text.contains("https://rustsec.org/advisories/RUSTSEC-2026-0007"));
    assert!(text.contains("# alpha: unsound (memory-corruption)"));
}

#[test]
fn what_cannot_be_read_is_an_error_with_the_file() {
    let broken = [
        ("no block", "does not begin"),
        ("```toml\n[advisory]\n", "does not end"),
        ("```toml\nid = 1\n```\n", "front matter"),
    ];
    for (text, expected) in broken {
        let clone = clone_with(&[("alpha/RUSTSEC-2026-0007.md", text)]);
        let crates = locked(&[("alpha", "1.0.0")]);
        let error = AdvisoryBundle::select(clone.path(), origin(), &crates)
            .err()
            .unwrap();
        let shown = format!("{error:#}");
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("alpha/RUSTSEC-2026-0007.md"), "{shown}");
    }
    for (from, to) in [
        ("RUSTSEC-2026-0007", "../../../etc"),
        ("\"alpha\"", "\"../alpha\""),
        (">= 1.2.3", "newer"),
        ("2026-02-03", "yesterday"),
        ("memory-corruption", "a\\\"]\\npatched = [\\\">= 0"),
    ] {
        let text = UPSTREAM_FILE.replacen(from, to, 1);
        assert!(Advisory::parse(&text).is_err(), "{to} is taken");
    }
}

#[test]
fn only_accepted_advisories_on_our_crates_are_taken() {
    let placeholder = UPSTREAM_FILE.replace("RUSTSEC-2026-0007", "RUSTSEC-0000-0000");
    let other = UPSTREAM_FILE.replace("\"alpha\"", "\"omega\"");
    let clone = clone_with(&[
        ("alpha/RUSTSEC-2026-0007.md", UPSTREAM_FILE),
        ("alpha/RUSTSEC-0000-0000.md", &placeholder),
        ("omega/RUSTSEC-2026-0007.md", &other),
    ]);
    let crates = locked(&[("alpha", "1.0.0"), ("gamma", "2.0.0")]);
    let bundle = AdvisoryBundle::select(clone.path(), origin(), &crates).unwrap();
    assert_eq!(bundle.advisories, [parse(UPSTREAM_FILE)]);
    // A crate without advisories was looked up as well.
    bundle.check_covers(&crates).unwrap();

    let dir = tempfile::tempdir().unwrap();
    bundle.write(dir.path()).unwrap();
    let read = AdvisoryBundle::load(dir.path()).unwrap();
    assert_eq!(read.advisories, bundle.advisories);
    assert_eq!(read.covered, bundle.covered);
    assert_eq!(read.origin, bundle.origin);
}

#[test]
fn a_crate_that_nobody_looked_up_is_refused_by_name() {
    let error = bundle()
        .check_covers(&locked(&[("alpha", "1.0.0"), ("newcomer", "0.1.0")]))
        .unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains("newcomer"), "{shown}");
    assert!(!shown.contains("alpha"), "{shown}");
}

#[test]
fn an_id_is_there_once_and_a_file_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut double = bundle();
    let mut copy = double.advisories[0].clone();
    copy.package = "beta".to_owned();
    double.advisories.push(copy);
    double.write(dir.path()).unwrap();
    let error = AdvisoryBundle::load(dir.path()).err().unwrap().to_string();
    assert!(error.contains("twice"), "{error}");

    bundle().write(dir.path()).unwrap();
    let crates = dir.path().join("crates");
    fs::rename(crates.join("alpha"), crates.join("beta")).unwrap();
    let error = AdvisoryBundle::load(dir.path()).err().unwrap().to_string();
    assert!(error.contains("belongs in"), "{error}");
}

#[test]
fn an_old_bundle_says_so() {
    let bundle = bundle();
    let young = bundle.describe(date(2026, 9, 20)).unwrap();
    assert!(
        young.contains("6 days old") && !young.contains("warning"),
        "{young}"
    );
    let old = bundle.describe(date(2027, 9, 14)).unwrap();
    assert!(
        old.contains("365 days old") && old.contains("--update"),
        "{old}"
    );
}

#[test]
fn a_clone_without_its_git_folder_is_refused() {
    // Inside of our own repository, whose state would be taken for the clone's.
    let folder = workspace().join("target/advisories");
    fs::create_dir_all(&folder).unwrap();
    let plain = tempfile::tempdir_in(folder).unwrap();
    let error = update::from_clone(plain.path()).unwrap_err();
    assert!(
        format!("{error:#}").contains("is not a git clone"),
        "{error:#}"
    );
}

fn head(folder: &Path) -> String {
    let shown = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["log", "-1", "--format=%H %cs"])
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn the_repository_is_as_old_as_the_bundle_and_always_the_same() {
    let root = tempfile::tempdir().unwrap();
    let mut heads = BTreeSet::new();
    for _ in 0..2 {
        create_repository(&bundle(), root.path()).unwrap();
        let folder = fs::read_dir(root.path()).unwrap().next().unwrap().unwrap();
        heads.insert(head(&folder.path()));
        // Noon of the date.
        let expected = SystemTime::UNIX_EPOCH + Duration::from_hours(20_710 * 24 + 12);
        let fetched = fs::metadata(folder.path().join(".git/FETCH_HEAD")).unwrap();
        assert_eq!(fetched.modified().unwrap(), expected);
        let text = fs::read_to_string(folder.path().join("crates/alpha/RUSTSEC-2026-0007.md"));
        assert_eq!(parse(&text.unwrap()), parse(UPSTREAM_FILE));
    }
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(heads.first().unwrap().contains("2026-09-14"), "{heads:?}");
}
