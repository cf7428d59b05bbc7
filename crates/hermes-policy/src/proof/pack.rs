//! Programs that copy, pack and change files.

use std::path::PathBuf;

use hermes_core::private::{RUN_LATER_IN_PROJECT, holds_run_later};

use super::paths::{BELOW, is_many, matches, run_later_below};
use super::table::{OptionModel, parse_arguments};
use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

/// Archives may contain links and files that are executed later.
const UNPACKS: &str = "which files it makes is only known from the archive";

fn parent(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit_once('/')
        .map_or(".", |(parent, _)| parent)
}

/// The file that unpacking makes of a packed one.
fn unpacked(file: &ShellWord) -> ShellWord {
    let text = file.text.as_str();
    let (start, end) = text.rsplit_once('.').unwrap_or((text, ""));
    let text = match end {
        "tgz" | "taz" | "tbz" | "tbz2" | "txz" | "tlz" | "tzst" => format!("{start}.tar"),
        _ => start.to_owned(),
    };
    ShellWord {
        text,
        ..file.clone()
    }
}

impl Prover<'_, '_> {
    pub(super) fn copy(&mut self, name: &str, args: &[ShellWord]) -> ProofResult {
        let options = match name {
            "cp" => OptionModel::new(
                "aRrpdfinuvTLPxlb",
                "t",
                "--recursive --archive --force --verbose --no-clobber --update --target-directory: --preserve --parents",
            ),
            "mv" => OptionModel::new(
                "finuvTb",
                "t",
                "--force --verbose --no-clobber --update --target-directory:",
            ),
            _ => OptionModel::new(
                "sfnrvT",
                "t",
                "--symbolic --force --relative --verbose --no-dereference --target-directory:",
            ),
        };
        let found = parse_arguments(args, &options).or_else(refuse)?;
        let mut sources = found.operands.as_slice();
        for dir in found.values(&["-t", "--target-directory"]) {
            self.may_write(dir)?;
        }
        if !found.has(&["-t", "--target-directory"]) {
            match sources.split_last() {
                Some((target, others)) if !others.is_empty() => {
                    self.may_write(target)?;
                    sources = others;
                }
                _ => self.may_write(&ShellWord::plain("."))?,
            }
        }
        let links = name == "ln" || found.has(&["-l"]) || found.has(&["--link"]);
        let place = found
            .values(&["-t", "--target-directory"])
            .next()
            .or_else(|| found.operands.last().copied());
        let into = match place {
            Some(place) if found.operands.len() > 1 || found.has(&["-t", "--target-directory"]) => {
                place.clone()
            }
            _ => ShellWord::plain("."),
        };
        if found.has(&["--parents"]) {
            // The directories of a source are made in the target, too.
            for source in sources {
                let dir = into.text.trim_end_matches('/');
                let put = ShellWord {
                    text: format!("{dir}/{}", source.text),
                    ..(*source).clone()
                };
                self.may_fill(&put)?;
                self.may_write(&put)?;
            }
        }
        for source in sources {
            self.may_put(source, &into)?;
            let deep = ["-a", "-R", "-r", "--recursive", "--archive"];
            if name == "cp" && !found.has(&deep) {
                self.may_read(source)?;
            } else {
                self.may_read_tree(source, true)?;
            }
            // A link is a second name under which the file can be changed.
            if name == "mv" || links {
                self.may_write(source)?;
            }
            if links && let Some(place) = place.filter(|_| !source.text.starts_with('/')) {
                // Its target is relative to its own location.
                for dir in [place.text.as_str(), parent(&place.text)] {
                    self.may_write(&ShellWord::plain(format!("{dir}/{}", source.text)))?;
                }
            }
            self.repositories_moved |= self.holds_repository(source);
        }
        Ok(())
    }

    /// Whether something may be put in place of `target` or into it: not where programs of the user look for
    /// what they run.
    pub(super) fn may_fill(&self, target: &ShellWord) -> ProofResult {
        let paths = self.classifier.resolve(&target.text);
        if paths
            .iter()
            .any(|path| holds_run_later(&path.to_string_lossy()))
        {
            return refuse(format!(
                "it puts something in place of {} or into it, where programs of the person look for what they run",
                target.text
            ));
        }
        Ok(())
    }

    /// Whether a file or directory may be put into `target` or in its place: what is in a directory that is
    /// executed later, or has such a name itself, is written there too.
    pub(super) fn may_put(&mut self, source: &ShellWord, target: &ShellWord) -> ProofResult {
        self.may_fill(target)?;
        self.brings_nothing_to_run(source)?;
        let is_dir = |path: &PathBuf| path.is_dir();
        let is_directory = target.text.ends_with(['/', '.'])
            || (self.classifier.disk && self.classifier.resolve(&target.text).iter().any(is_dir));
        let name = source.text.trim_end_matches('/').rsplit('/').next();
        match name.filter(|_| is_directory) {
            Some("" | "." | "..") | None => Ok(()),
            // Each file that it matches was looked at; it matches no name that begins with a dot unless it does
            // so itself.
            Some(name) if source.glob && !name.starts_with('.') => Ok(()),
            Some(name) => {
                let put = ShellWord {
                    text: format!("{}/{name}", target.text.trim_end_matches('/')),
                    ..source.clone()
                };
                self.may_fill(&put)?;
                self.may_write(&put)
            }
        }
    }

    /// Whether nothing at or below `source` has a name under which it is executed later.
    fn brings_nothing_to_run(&self, source: &ShellWord) -> ProofResult {
        let start = source.text.split(BELOW).next().unwrap_or_default();
        if !self.classifier.disk {
            return Ok(());
        }
        for path in self.classifier.resolve(start) {
            let Some(paths) = (if source.glob {
                matches(&path)
            } else {
                Some(vec![path])
            }) else {
                return refuse("it copies too many files to know what is among them");
            };
            // The name of a single source is looked at where it is put.
            let by_name = source.glob;
            let found = paths.iter().find_map(|path| run_later_below(path, by_name));
            if let Some(found) = found {
                return refuse(format!(
                    "it brings {found}, which programs of the person run"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn chmod(&mut self, args: &[ShellWord]) -> ProofResult {
        // A mode may begin with a dash.
        let words: Vec<ShellWord> = args
            .iter()
            .filter(|word| !matches!(word.text.as_str(), "-x" | "-w" | "-r" | "-rw" | "-rwx"))
            .cloned()
            .collect();
        let found = parse_arguments(
            &words,
            &OptionModel::new("Rvcf", "", "--recursive --verbose --changes"),
        )
        .or_else(refuse)?;
        let skip = usize::from(words.len() == args.len());
        let targets = found.operands.get(skip..).unwrap_or_default();
        targets.iter().try_for_each(|word| self.may_write(word))
    }

    pub(super) fn mktemp(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new("dqut", "p", "--directory --tmpdir --suffix: --quiet"),
        )
        .or_else(refuse)?;
        self.writes = true;
        for (_, value) in &found.given {
            if let Some(value) = value {
                self.may_write(value)?;
            }
        }
        found
            .operands
            .iter()
            .try_for_each(|word| self.may_write(word))
    }

    pub(super) fn dd(&mut self, args: &[ShellWord]) -> ProofResult {
        for word in args {
            let (key, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            match key {
                "of" => self.may_write(&ShellWord {
                    text: value.to_owned(),
                    ..word.clone()
                })?,
                "bs" | "count" | "seek" | "skip" | "conv" | "status" | "ibs" | "obs"
                    if !word.dynamic => {}
                _ => return refuse("dd with arguments that are not modelled"),
            }
        }
        Ok(())
    }

    pub(super) fn split(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new(
                "dxe",
                "lbnaC",
                "--lines: --bytes: --number: --numeric-suffixes",
            ),
        )
        .or_else(refuse)?;
        if let Some(file) = found.operands.first() {
            self.may_read(file)?;
            if is_many(file) {
                return refuse("the second of several names would be written to");
            }
        }
        let prefix = found
            .operands
            .get(1)
            .copied()
            .cloned()
            .unwrap_or_else(|| ShellWord::plain("x"));
        if prefix
            .text
            .rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with('.'))
        {
            return refuse("the names of hidden files are only known when it runs");
        }
        // Among many pieces is every name that begins so.
        if self.begins_run_later(&prefix) {
            return refuse("a piece may get the name of a file that programs of the person run");
        }
        self.may_write(&prefix)
    }

    fn begins_run_later(&self, prefix: &ShellWord) -> bool {
        let paths = self.classifier.resolve(&prefix.text);
        paths.iter().any(|path| {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
                return true;
            };
            let dir = dir.to_string_lossy();
            let name = name.to_string_lossy();
            holds_run_later(&dir)
                || RUN_LATER_IN_PROJECT
                    .iter()
                    .any(|known| known.starts_with(&*name))
        })
    }

    pub(super) fn patch(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new(
                "RNEfstu0123456789",
                "pdi",
                "--dry-run --strip: --reverse --input: --directory:",
            ),
        )
        .or_else(refuse)?;
        for file in found.values(&["-i", "--input"]) {
            self.may_read(file)?;
        }
        if found.has(&["--dry-run"]) {
            return Ok(());
        }
        refuse("which files it changes is only known from the patch")
    }

    pub(super) fn compress(&mut self, name: &str, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new(
                "dkcfvqnltz0123456789",
                "T",
                "--decompress --keep --stdout --force --list --test --best --fast --threads:",
            ),
        )
        .or_else(refuse)?;
        let prints = if name == "lz4" {
            // `-l` is an old format there, and a second file is the output.
            found.has(&["-c", "--stdout"])
                && found.operands.len() < 2
                && !found.operands.iter().any(|word| is_many(word))
        } else {
            found.has(&["-c", "-l", "-t", "--stdout", "--list", "--test"])
        };
        for file in &found.operands {
            self.may_read(file)?;
            if !prints {
                self.may_write(file)?;
                self.may_write(&unpacked(file))?;
            }
        }
        Ok(())
    }

    pub(super) fn zip(&mut self, args: &[ShellWord]) -> ProofResult {
        let found =
            parse_arguments(args, &OptionModel::new("rqjyu0123456789", "", "")).or_else(refuse)?;
        let Some((archive, files)) = found.operands.split_first() else {
            return refuse("zip without an archive");
        };
        self.may_write(archive)?;
        files
            .iter()
            .try_for_each(|word| self.may_read_tree(word, true))
    }

    pub(super) fn unzip(&mut self, args: &[ShellWord]) -> ProofResult {
        let found =
            parse_arguments(args, &OptionModel::new("lqotvnZp", "d", "")).or_else(refuse)?;
        let Some((archive, _)) = found.operands.split_first() else {
            return refuse("unzip without an archive");
        };
        self.may_read(archive)?;
        if found.has(&["-l", "-t", "-v", "-Z", "-p"]) {
            return Ok(());
        }
        refuse(UNPACKS)
    }

    pub(super) fn rsync(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(args, &OptionModel::new("avrlptgoDhnuxP", "", "--progress --dry-run --archive --verbose --exclude: --include: --stats --human-readable")).or_else(refuse)?;
        if found.operands.iter().any(|word| word.text.contains(':')) {
            return refuse("rsync talks to another machine");
        }
        let Some((target, sources)) = found.operands.split_last() else {
            return refuse("rsync without files");
        };
        self.may_write(target)?;
        for source in sources {
            self.may_put(source, target)?;
            self.may_read_tree(source, true)?;
            self.repositories_moved |= self.holds_repository(source);
        }
        Ok(())
    }

    pub(super) fn tar(&mut self, args: &[ShellWord]) -> ProofResult {
        // `tar xzf a.tar` is the same as `tar -xzf a.tar`, where the values follow in order.
        let mut words = args.to_vec();
        if let Some(first) = words.first_mut()
            && !first.text.starts_with('-')
        {
            if first
                .text
                .matches([
                    'f', 'C', 'T', 'X', 'b', 'g', 'K', 'N', 'F', 'H', 'I', 'L', 'V',
                ])
                .count()
                > 1
                || first.text.contains('C')
                || first.text.contains('f') && !first.text.ends_with('f')
            {
                return refuse("tar with options that are not modelled");
            }
            first.text.insert(0, '-');
        }
        let options = OptionModel::new(
            "tcxzjJvpkamO",
            "fC",
            "--list --create --extract --get --gzip --bzip2 --xz --zstd --verbose --file: --directory: --strip-components: --exclude: --no-same-owner --keep-old-files",
        );
        let found = parse_arguments(&words, &options).or_else(refuse)?;
        let archives: Vec<&ShellWord> = found.values(&["-f", "--file"]).collect();
        if archives.iter().any(|word| word.text.contains(':')) {
            return refuse("tar talks to another machine");
        }
        let creates = found.has(&["-c", "--create"]);
        let lists = found.has(&["-t", "--list"]);
        let extracts = found.has(&["-x", "--extract", "--get"]);
        if u8::from(creates) + u8::from(lists) + u8::from(extracts) != 1 {
            return refuse("tar with options that are not modelled");
        }
        let dirs: Vec<&ShellWord> = found.values(&["-C", "--directory"]).collect();
        for archive in archives.iter().filter(|word| word.text != "-") {
            if creates {
                self.may_write(archive)?;
            } else {
                self.may_read(archive)?;
            }
        }
        if creates {
            for dir in &dirs {
                self.may_read_tree(dir, true)?;
            }
            return found
                .operands
                .iter()
                .try_for_each(|word| self.may_read_tree(word, true));
        }
        if extracts && !found.has(&["-O"]) {
            return refuse(UNPACKS);
        }
        Ok(())
    }
}
