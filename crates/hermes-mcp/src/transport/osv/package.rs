//! Determines which package a command line fetches and runs.

use std::fmt;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub ecosystem: Ecosystem,
    pub name: String,
    /// `None`: the newest version, or a range.
    pub version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ecosystem {
    Npm,
    PyPi,
}

impl Ecosystem {
    /// The name that OSV uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::PyPi => "PyPI",
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} package {}", self.ecosystem.name(), self.name)?;
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

/// Options that take a value.
const OPTIONS_WITH_VALUE: &[&str] = &[
    "-c",
    "--call",
    "-w",
    "--workspace",
    "--registry",
    "--cache",
    "--userconfig",
    "--prefix",
    "--python",
    "--with",
    "--with-editable",
    "--with-requirements",
    "--index-url",
    "--extra-index-url",
    "--index",
    "--default-index",
    "--directory",
    "--project",
    "--env-file",
    "--cache-dir",
    "--config-file",
    "--pip-args",
    "--log-level",
    "--loglevel",
];

impl Package {
    /// `None`: this command line runs nothing from a known registry.
    pub(crate) fn of(command: &str, args: &[String]) -> Option<Self> {
        let program = Path::new(command.trim()).file_name()?.to_str()?;
        let program = program
            .trim_end_matches(".exe")
            .trim_end_matches(".cmd")
            .to_ascii_lowercase();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let (ecosystem, named_by, rest): (_, &[&str], &[&str]) = match program.as_str() {
            "npx" | "bunx" => (Ecosystem::Npm, &["-p", "--package"], &words),
            "npm" | "pnpm" | "yarn" | "bun" => {
                let (verb, rest) = words.split_first()?;
                if !matches!(*verb, "exec" | "x" | "dlx") {
                    return None;
                }
                (Ecosystem::Npm, &["-p", "--package"], rest)
            }
            "uvx" => (Ecosystem::PyPi, &["--from"], &words),
            "uv" => match words.as_slice() {
                ["tool", "run", rest @ ..] => (Ecosystem::PyPi, &["--from"], rest),
                _ => return None,
            },
            "pipx" => match words.as_slice() {
                ["run", rest @ ..] => (Ecosystem::PyPi, &["--spec"], rest),
                _ => return None,
            },
            _ => return None,
        };
        let word = named(rest, named_by)?;
        match ecosystem {
            Ecosystem::Npm => npm(word),
            Ecosystem::PyPi => pypi(word),
        }
    }
}

/// The package named by an option, otherwise the first word that is not an option.
fn named<'a>(words: &[&'a str], by: &[&str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if word == "--" || by.contains(&word) {
            return words.next().copied();
        }
        if let Some((key, value)) = word.split_once('=')
            && by.contains(&key)
        {
            return Some(value);
        }
        // Options after it belong to the program.
        if !word.starts_with('-') {
            return Some(word);
        }
        if OPTIONS_WITH_VALUE.contains(&word) {
            words.next();
        }
    }
    None
}

fn npm(word: &str) -> Option<Package> {
    let at = word.char_indices().skip(1).find(|(_, c)| *c == '@');
    let (name, version) = match at {
        Some((at, _)) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    };
    // A path, an address or an alias is not a registry name.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    let fits = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| {
            !scope.is_empty() && !name.is_empty() && (scope.to_owned() + name).chars().all(plain)
        }),
        None => !name.is_empty() && !name.starts_with('.') && name.chars().all(plain),
    };
    let exact = |version: &&str| version.starts_with(|c: char| c.is_ascii_digit());
    fits.then(|| Package {
        ecosystem: Ecosystem::Npm,
        name: name.to_owned(),
        version: version.filter(exact).map(str::to_owned),
    })
}

fn pypi(word: &str) -> Option<Package> {
    if word.contains("://") || word.starts_with(['.', '/', '~']) || word.starts_with("git+") {
        return None;
    }
    let (name, version) = match word.split_once("==") {
        Some((name, version)) => (name, Some(version)),
        None => match word.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (word.split(['<', '>', '~', '!', '=']).next()?, None),
        },
    };
    let name = name.split('[').next()?.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return None;
    }
    let exact = |version: &&str| version.starts_with(|c: char| c.is_ascii_digit());
    Some(Package {
        ecosystem: Ecosystem::PyPi,
        // The registry's own spelling.
        name: name.to_ascii_lowercase().replace(['_', '.'], "-"),
        version: version.map(str::trim).filter(exact).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let mut words = line.split(' ');
        let command = words.next().unwrap();
        let args: Vec<String> = words.map(str::to_owned).collect();
        Package::of(command, &args).map(|package| package.to_string())
    }

    #[test]
    fn the_package_of_a_line_is_found() {
        for (line, package) in [
            (
                "npx -y @scope/server@1.2.3 --port 1",
                Some("npm package @scope/server 1.2.3"),
            ),
            ("npx server", Some("npm package server")),
            ("npx -y server@latest", Some("npm package server")),
            (
                "/usr/bin/npx --package=tool@2.0.0 run-it",
                Some("npm package tool 2.0.0"),
            ),
            (
                "npx --registry https://r.example server",
                Some("npm package server"),
            ),
            ("npx -- server@3.0.0", Some("npm package server 3.0.0")),
            ("npx.cmd -p a b", Some("npm package a")),
            ("npm exec -y server", Some("npm package server")),
            ("pnpm dlx server@1.0.0", Some("npm package server 1.0.0")),
            ("npm run start", None),
            ("npx ./local", None),
            (
                "uvx mcp_Server.Git==0.1",
                Some("PyPI package mcp-server-git 0.1"),
            ),
            (
                "uvx --from pkg[extra]==2.0 cmd",
                Some("PyPI package pkg 2.0"),
            ),
            (
                "uvx --python 3.12 server@1.5",
                Some("PyPI package server 1.5"),
            ),
            ("uvx --from git+https://g.example/x cmd", None),
            ("uv tool run server>=1", Some("PyPI package server")),
            ("uv run main.py", None),
            ("pipx run --spec pkg==1 app", Some("PyPI package pkg 1")),
            ("pipx install pkg", None),
            ("python -m server", None),
            ("npx", None),
        ] {
            assert_eq!(of(line).as_deref(), package, "{line}");
        }
    }
}
