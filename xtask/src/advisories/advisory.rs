//! One advisory: the facts that decide whether it concerns us. The words of its author are left out;
//! they are at the address that the advisory names.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use jiff::civil::Date;
use semver::{Version, VersionReq};
use serde::Deserialize;

/// The public database gives proposals this id until they are accepted.
const PLACEHOLDER: &str = "RUSTSEC-0000-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advisory {
    pub(crate) id: String,
    pub(crate) package: String,
    pub(crate) date: Date,
    /// `unmaintained`, `unsound` or `notice`; a vulnerability has none.
    pub(crate) informational: Option<String>,
    pub(crate) withdrawn: Option<Date>,
    pub(crate) categories: Vec<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) patched: Vec<VersionReq>,
    pub(crate) unaffected: Vec<VersionReq>,
}

#[derive(Deserialize)]
struct FrontMatter {
    advisory: FrontMatterFacts,
    #[serde(default)]
    versions: FrontMatterVersions,
}

#[derive(Deserialize)]
struct FrontMatterFacts {
    id: String,
    package: String,
    date: String,
    informational: Option<String>,
    withdrawn: Option<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    aliases: Vec<String>,
}

#[derive(Deserialize, Default)]
struct FrontMatterVersions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

impl Advisory {
    /// Reads a file of the public database or of our bundle. `None`: a proposal without an id.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>> {
        let front = front_matter(text)?;
        let FrontMatter { advisory, versions } = toml::from_str(front).context("front matter")?;
        if advisory.id.starts_with(PLACEHOLDER) {
            return Ok(None);
        }
        check_id(&advisory.id)?;
        let words = [&advisory.package]
            .into_iter()
            .chain(&advisory.informational)
            .chain(&advisory.categories)
            .chain(&advisory.aliases);
        for word in words {
            check_word(word)?;
        }
        Ok(Some(Self {
            date: parse_date(&advisory.date)?,
            withdrawn: advisory.withdrawn.as_deref().map(parse_date).transpose()?,
            patched: parse_ranges(&versions.patched)?,
            unaffected: parse_ranges(&versions.unaffected)?,
            id: advisory.id,
            package: advisory.package,
            informational: advisory.informational,
            categories: advisory.categories,
            aliases: advisory.aliases,
        }))
    }

    /// Whether it speaks of this version: every version does that no range excludes.
    pub(crate) fn affects(&self, version: &Version) -> bool {
        let excluded = |ranges: &[VersionReq]| ranges.iter().any(|range| range.matches(version));
        self.withdrawn.is_none() && !excluded(&self.patched) && !excluded(&self.unaffected)
    }

    /// What it is about, in words that follow from the facts.
    pub(crate) fn title(&self) -> String {
        let kind = self.informational.as_deref().unwrap_or("vulnerability");
        if self.categories.is_empty() {
            format!("{}: {kind}", self.package)
        } else {
            format!("{}: {kind} ({})", self.package, self.categories.join(", "))
        }
    }

    /// The file, in the layout that cargo-deny reads.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from("```toml\n[advisory]\n");
        let mut field = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = {value}");
        };
        field("id", &quote(&self.id));
        field("package", &quote(&self.package));
        field("date", &quote(&self.date.to_string()));
        field(
            "url",
            &quote(&format!("https://rustsec.org/advisories/{}", self.id)),
        );
        if let Some(kind) = &self.informational {
            field("informational", &quote(kind));
        }
        if let Some(date) = self.withdrawn {
            field("withdrawn", &quote(&date.to_string()));
        }
        field("categories", &list(&self.categories));
        field("aliases", &list(&self.aliases));
        let _ = write!(
            text,
            "\n[versions]\npatched = {}\nunaffected = {}\n```\n\n# {}\n",
            list(&self.patched),
            list(&self.unaffected),
            self.title()
        );
        text
    }
}

/// What stands between the fences at the top of the file.
fn front_matter(text: &str) -> Result<&str> {
    let rest = text
        .trim_start()
        .strip_prefix("```toml")
        .context("it does not begin with a ```toml block")?;
    let (front, _) = rest
        .split_once("\n```")
        .context("its ```toml block does not end")?;
    Ok(front)
}

fn check_id(id: &str) -> Result<()> {
    let numbers = id
        .strip_prefix("RUSTSEC-")
        .and_then(|rest| rest.split_once('-'));
    let digits = |text: &str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    match numbers {
        Some((year, number)) if digits(year) && digits(number) => Ok(()),
        _ => bail!("{id:?} is not an id like RUSTSEC-2026-0001"),
    }
}

/// These become parts of paths and of lines that cargo-deny reads without knowing escapes.
fn check_word(word: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    ensure!(
        !word.is_empty() && word.bytes().all(plain),
        "{word:?} has characters other than letters, digits, - and _"
    );
    Ok(())
}

fn parse_date(text: &str) -> Result<Date> {
    text.parse()
        .with_context(|| format!("{text:?} is not a date like 2026-01-31"))
}

fn parse_ranges(texts: &[String]) -> Result<Vec<VersionReq>> {
    texts
        .iter()
        .map(|text| {
            VersionReq::parse(text).with_context(|| format!("{text:?} is not a range of versions"))
        })
        .collect()
}

fn quote(text: &str) -> String {
    format!("\"{text}\"")
}

fn list<T: ToString>(items: &[T]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quote(&item.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}
