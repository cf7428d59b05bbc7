//! Searching inside files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use rustix::fs::{Mode, OFlags};

use super::query::{SearchOutput, SearchQuery};
use super::tree::{self, DeadlineReader, SearchDeadline};
use super::{LineHit, SearchError, SearchResults, SearchRoot};
use crate::files::guard::FileGuard;
use crate::files::location;

/// Maximum length of a shown line.
const MAX_LINE: usize = 500;

/// The hits of one file, with the lines that may be shown.
#[derive(Default)]
struct FileHits {
    matches: u64,
    lines: Vec<HitLine>,
}

struct HitLine {
    number: u64,
    text: String,
    /// The number of the match in the file that it is or belongs to, from 1.
    of: u64,
}

pub(super) fn search(
    query: &SearchQuery,
    root: &SearchRoot,
    guard: &FileGuard,
    watch: &SearchDeadline,
) -> Result<SearchResults, SearchError> {
    let matcher = matcher(&query.pattern)?;
    let globs: Vec<&str> = query.glob.as_deref().into_iter().collect();
    let overrides = tree::overrides(&root.real, &globs)?;
    let hits_found = tree::SharedResults::new(BoundedHits::new(query));
    let one_file = root.real.is_file();
    let omitted = tree::each_file(root, overrides, guard, watch, || {
        let mut searcher = searcher(query, one_file);
        let (matcher, hits_found) = (&matcher, &hits_found);
        move |entry: &ignore::DirEntry| {
            // An unreadable file is skipped, as ripgrep does.
            if let Ok(Some(hits)) = one(&mut searcher, matcher, entry.path(), query, guard, watch) {
                hits_found.with(|hits_found| hits_found.add(entry.path(), hits));
            }
        }
    });
    let stopped = watch.verdict()?;
    Ok(SearchResults {
        stopped,
        omitted,
        ..hits_found.into_inner().found(query, root)
    })
}

fn matcher(pattern: &str) -> Result<RegexMatcher, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).unicode(true).octal(false);
    if !is_multi_line(pattern) {
        builder.line_terminator(Some(b'\n'));
    }
    builder
        .build(pattern)
        .map_err(|error| SearchError::Pattern(error.to_string()))
}

/// Whether the pattern contains line ends.
fn is_multi_line(pattern: &str) -> bool {
    let mut escaped = false;
    pattern.chars().any(|c| {
        let line_end = c == '\n' || (escaped && c == 'n');
        escaped = c == '\\' && !escaped;
        line_end
    })
}

fn searcher(query: &SearchQuery, one_file: bool) -> Searcher {
    let context = if query.output == SearchOutput::Content {
        query.context
    } else {
        0
    };
    // A file that was named is searched to its end, NUL or not; others are skipped as binary.
    let binary = if one_file {
        BinaryDetection::convert(0)
    } else {
        BinaryDetection::quit(0)
    };
    SearcherBuilder::new()
        .line_terminator(LineTerminator::byte(b'\n'))
        .line_number(query.output == SearchOutput::Content)
        .multi_line(is_multi_line(&query.pattern))
        .before_context(context)
        .after_context(context)
        .binary_detection(binary)
        .build()
}

/// The hits of a file; `None` if there are none.
fn one(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    path: &Path,
    query: &SearchQuery,
    guard: &FileGuard,
    watch: &SearchDeadline,
) -> io::Result<Option<FileHits>> {
    // The walk found a regular file; a link that replaced it is not followed.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut collector = LineCollector {
        hits: FileHits::default(),
        max_hits: query.end() as u64,
        lines: query.output == SearchOutput::Content,
        ahead: Vec::new(),
        watch,
    };
    let reader = DeadlineReader {
        inner: &file,
        watch,
    };
    searcher.search_reader(matcher, reader, &mut collector)?;
    if collector.hits.matches == 0 {
        return Ok(None);
    }
    // A parent directory may have been replaced; the file that was read counts.
    let real = location::real_path(&file)?;
    Ok((real == path || guard.unreadable(&real).is_none()).then_some(collector.hits))
}

struct LineCollector<'a> {
    hits: FileHits,
    /// Lines of later matches are not needed.
    max_hits: u64,
    lines: bool,
    /// Lines before a possible match.
    ahead: Vec<(u64, String)>,
    watch: &'a SearchDeadline,
}

impl Sink for LineCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.hits.matches += 1;
        let of = self.hits.matches;
        if !self.lines || of > self.max_hits {
            return Ok(!self.watch.is_over());
        }
        for (number, text) in self.ahead.drain(..) {
            self.hits.lines.push(HitLine { number, text, of });
        }
        let first = found.line_number().unwrap_or(0);
        for (at, line) in found.lines().enumerate() {
            self.hits.lines.push(HitLine {
                number: first + at as u64,
                text: shown(line),
                of,
            });
        }
        Ok(!self.watch.is_over())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        use grep_searcher::SinkContextKind::Before;
        let of = self.hits.matches;
        if !self.lines || of > self.max_hits {
            return Ok(true);
        }
        let number = context.line_number().unwrap_or(0);
        let text = shown(context.bytes());
        if *context.kind() == Before {
            self.ahead.push((number, text));
        } else {
            self.hits.lines.push(HitLine { number, text, of });
        }
        Ok(true)
    }
}

fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // At most as many bytes as the characters can have.
    let line = &line[..line.len().min(MAX_LINE * 4)];
    let text = String::from_utf8_lossy(line);
    text.chars().take(MAX_LINE).collect()
}

/// The hits of all files, in the order of their paths.
struct BoundedHits {
    files: BTreeMap<PathBuf, FileHits>,
    total: u64,
    /// Number of matches whose lines are kept.
    held: u64,
    need: u64,
    lines: bool,
}

impl BoundedHits {
    fn new(query: &SearchQuery) -> Self {
        Self {
            files: BTreeMap::new(),
            total: 0,
            held: 0,
            need: query.end() as u64,
            lines: query.output == SearchOutput::Content,
        }
    }

    fn add(&mut self, path: &Path, hits: FileHits) {
        self.total += hits.matches;
        self.held += hits.matches.min(self.need);
        self.files.insert(path.to_owned(), hits);
        if self.lines && self.held > self.need.saturating_mul(4).max(4_096) {
            self.forget();
        }
    }

    /// Drops the files after everything that will be shown.
    fn forget(&mut self) {
        let mut before = 0;
        let need = self.need;
        let last = self.files.iter().find_map(|(path, hits)| {
            before += hits.matches;
            (before >= need).then(|| path.clone())
        });
        if let Some(last) = last {
            let after = self.files.split_off(&last);
            self.files.extend(after.into_iter().take(1));
            self.held = self.files.values().map(|hits| hits.matches.min(need)).sum();
        }
    }

    fn found(self, query: &SearchQuery, root: &SearchRoot) -> SearchResults {
        let mut found = SearchResults {
            total: self.total,
            ..SearchResults::default()
        };
        let page = |files: BTreeMap<PathBuf, FileHits>| {
            files.into_iter().skip(query.offset).take(query.limit)
        };
        match query.output {
            SearchOutput::Files => {
                found.total = self.files.len() as u64;
                found.more = self.files.len() > query.end();
                found.files = page(self.files).map(|(path, _)| root.show(&path)).collect();
            }
            SearchOutput::Count => {
                found.more = self.files.len() > query.end();
                found.counts = page(self.files)
                    .map(|(path, hits)| (root.show(&path), hits.matches))
                    .collect();
            }
            SearchOutput::Content => {
                found.more = self.total > query.end() as u64;
                found.hits = lines(self.files, query, root);
            }
        }
        found
    }
}

/// The lines of the matches on this page.
fn lines(
    files: BTreeMap<PathBuf, FileHits>,
    query: &SearchQuery,
    root: &SearchRoot,
) -> Vec<LineHit> {
    let (from, to) = (query.offset as u64, query.end() as u64);
    let mut before = 0;
    let mut hits = Vec::new();
    for (path, file) in files {
        let wanted = file
            .lines
            .into_iter()
            .filter(|line| before + line.of > from && before + line.of <= to);
        let shown = root.show(&path);
        hits.extend(wanted.map(|line| LineHit {
            path: shown.clone(),
            line: line.number,
            text: line.text,
        }));
        before += file.matches;
        if before >= to {
            break;
        }
    }
    hits
}
