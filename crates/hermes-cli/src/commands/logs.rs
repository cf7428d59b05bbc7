//! `hermes logs`: the log files of the home, ours and those of the original program alike.

mod follow;
mod record;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use chrono::{Local, NaiveDateTime, TimeDelta};
use serde_json::json;

use super::Context;
use super::sessions::ago;
use crate::exit::{Failure, Outcome};
use hermes_core::figures::size;
use record::{LogFilter, LogLevel, LogRecord, LogRecords};

/// Lines shown when nothing else is asked for.
const DEFAULT_LINES: usize = 50;
/// The newest part of a file that is looked through: first a little, then more while that is not enough.
const INITIAL_READ_BYTES: u64 = 64 * 1024;
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Log to read: agent, errors, gateway, mcp, …; `list` shows all logs
    #[arg(default_value = "agent")]
    log: String,
    /// Show the last N lines (default: 50; with --since: all)
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Print new lines until Ctrl+C
    #[arg(short, long)]
    follow: bool,
    /// Show only this level and above: debug, info, warning, error, critical
    #[arg(long)]
    level: Option<LogLevel>,
    /// Show only lines that mention this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Show only lines since this time: 30m, 2h, 1d, or a date such as 2026-01-31 or "2026-01-31 18:00"
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Show only this component: agent, tools, mcp, gateway, cron, cli, or a name prefix
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// Print one JSON object per entry
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LogsArgs, cx: &Context) -> Outcome {
    if args.log == "list" {
        return list(args, cx);
    }
    let path = locate(&args.log, cx)?;
    if !path.exists() && !args.follow {
        return Err(missing(&args.log, &path, cx));
    }
    let now = Local::now().naive_local();
    let since = args
        .since
        .as_deref()
        .map(|text| moment(text, now))
        .transpose()?;
    let filter = LogFilter::new(
        args.level,
        args.session.clone(),
        since,
        args.component.as_deref(),
    );
    let limit = match (args.lines, since) {
        (Some(lines), _) => lines,
        (None, Some(_)) => usize::MAX,
        (None, None) => DEFAULT_LINES,
    };
    let (records, end) = tail(&path, &filter, limit, args.json)?;
    for record in &records {
        show(record, args.json, cx)?;
    }
    if args.follow {
        follow::follow(&path, end, &filter, |record| show(record, args.json, cx))?;
    }
    Ok(())
}

/// The file of a log: short names for those that everyone knows.
fn locate(name: &str, cx: &Context) -> Result<PathBuf, Failure> {
    let file = match name {
        "mcp" => "mcp-stderr.log".to_owned(),
        name => format!("{}.log", name.strip_suffix(".log").unwrap_or(name)),
    };
    if file.contains(['/', '\\']) || file.starts_with('.') {
        return Err(Failure::usage(format!(
            "there is no log {name:?}; see: hermes logs list"
        )));
    }
    Ok(cx.home.logs_dir().join(file))
}

fn missing(name: &str, path: &Path, cx: &Context) -> Failure {
    let there: Vec<String> = logs(cx).into_iter().map(|log| log.name).collect();
    let hint = if there.is_empty() {
        "no log was written yet".to_owned()
    } else {
        format!("there are: {}", there.join(", "))
    };
    Failure::not_found(format!("no log {name} ({}); {hint}", path.display()))
}

/// A duration back from now, or a date.
fn moment(text: &str, now: NaiveDateTime) -> Result<NaiveDateTime, Failure> {
    let text = text.trim();
    for format in [
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M",
    ] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, format) {
            return Ok(time);
        }
    }
    if let Ok(date) = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Ok(date.and_time(chrono::NaiveTime::MIN));
    }
    let digits = text.trim_end_matches(|ch: char| ch.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_lowercase();
    let back = digits
        .trim()
        .parse::<i64>()
        .ok()
        .and_then(|count| match unit.as_str() {
            "s" => TimeDelta::try_seconds(count),
            "m" | "min" => TimeDelta::try_minutes(count),
            "h" => TimeDelta::try_hours(count),
            "d" => TimeDelta::try_days(count),
            "w" => TimeDelta::try_weeks(count),
            _ => None,
        });
    back.and_then(|back| now.checked_sub_signed(back))
        .ok_or_else(|| {
            Failure::usage(format!(
                "--since {text:?} is not a valid time: write 30m, 2h, 1d or a date such as 2026-01-31"
            ))
        })
}

/// The last entries that pass, in order, and where the current file ended. Older files of the
/// same log are read as far as they are needed.
fn tail(
    path: &Path,
    filter: &LogFilter,
    limit: usize,
    whole: bool,
) -> Result<(Vec<LogRecord>, u64), Failure> {
    let mut found: VecDeque<LogRecord> = VecDeque::new();
    let mut lines = 0;
    let mut end = 0;
    for number in 0..=9 {
        let file = numbered(path, number);
        let Some(part) = part(&file, filter, limit - lines, whole)? else {
            if number == 0 {
                // Rotated a moment ago, or about to be written.
                continue;
            }
            break;
        };
        if number == 0 {
            end = part.end;
        }
        lines += part.lines;
        for record in part.records.into_iter().rev() {
            found.push_front(record);
        }
        if lines >= limit || part.reaches_back {
            break;
        }
    }
    let mut found: Vec<LogRecord> = found.into();
    let mut extra = lines.saturating_sub(limit);
    let mut cut = 0;
    for record in &mut found {
        let count = weight(record, whole);
        if extra >= count {
            extra -= count;
            cut += 1;
        } else {
            record.skip_lines(extra);
            break;
        }
        if extra == 0 {
            break;
        }
    }
    found.drain(..cut);
    Ok((found, end))
}

/// What the end of a file has to show.
struct LogTail {
    records: Vec<LogRecord>,
    /// What the records count.
    lines: usize,
    /// It begins before the time that is asked for.
    reaches_back: bool,
    /// Where the last whole line ended.
    end: u64,
    /// How many bytes were read for it.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests count it"))]
    read: u64,
}

/// As much of the end of a file as holds `wanted` lines that pass, if it has them.
fn part(
    path: &Path,
    filter: &LogFilter,
    wanted: usize,
    whole: bool,
) -> Result<Option<LogTail>, Failure> {
    let (mut max_bytes, mut read) = (INITIAL_READ_BYTES, 0);
    loop {
        let Some(newest) = newest(path, max_bytes)? else {
            return Ok(None);
        };
        read += newest.text.len() as u64;
        let more = newest.start > 0 && max_bytes < MAX_READ_BYTES;
        // Lines without a time belong to an entry whose head was not read, which decides about them.
        let headless = more && (whole || filter.is_narrow());
        let mut records: Vec<LogRecord> = LogRecords::new(&newest.text)
            .skip_while(|record| headless && record.time.is_none())
            .collect();
        let first = records.iter().find_map(|record| record.time);
        let reaches_back = filter
            .since
            .is_some_and(|since| first.is_some_and(|first| first < since));
        records.retain(|record| filter.passes(record));
        let lines = records.iter().map(|record| weight(record, whole)).sum();
        if !more || lines >= wanted || reaches_back {
            return Ok(Some(LogTail {
                records,
                lines,
                reaches_back,
                end: newest.end,
                read,
            }));
        }
        max_bytes = MAX_READ_BYTES.min(max_bytes * 8);
    }
}

/// What an entry counts: its lines, or one where entries stay whole.
fn weight(record: &LogRecord, whole: bool) -> usize {
    if whole { 1 } else { record.lines() }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Whole lines at the end of a file.
struct FileEnd {
    text: String,
    /// Where reading began and where the last whole line ended.
    start: u64,
    end: u64,
}

/// At most so many bytes from the end of a file. `None`: there is no such file.
fn newest(path: &Path, max_bytes: u64) -> Result<Option<FileEnd>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::failed(format!("cannot read {}: {error}", path.display()));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let length = file.metadata().map_err(unreadable)?.len();
    let start = length.saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(length - start)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    // A line that is being written is left to whoever follows.
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let end = start + whole as u64;
    bytes.truncate(whole);
    if start > 0 {
        let first = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        bytes.drain(..first);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some(FileEnd { text, start, end }))
}

fn show(record: &LogRecord, json: bool, cx: &Context) -> Outcome {
    if json {
        cx.out.json_line(record)?;
        return Ok(());
    }
    let text = cx.out.safe(&record.text);
    let code = match record.level {
        Some(LogLevel::Critical | LogLevel::Error) => "31",
        Some(LogLevel::Warning) => "33",
        Some(LogLevel::Debug) => "2",
        _ => "",
    };
    if code.is_empty() {
        cx.out.line(text)?;
    } else {
        cx.out.line(cx.out.styled(code, &text))?;
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct LogFileInfo {
    name: String,
    path: PathBuf,
    bytes: u64,
    /// Epoch seconds.
    modified: f64,
}

fn logs(cx: &Context) -> Vec<LogFileInfo> {
    let Ok(entries) = std::fs::read_dir(cx.home.logs_dir()) else {
        return Vec::new();
    };
    let mut logs: Vec<LogFileInfo> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let name = file.strip_suffix(".log")?;
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let modified = meta
                .modified()
                .ok()?
                .duration_since(std::time::UNIX_EPOCH)
                .ok()?;
            Some(LogFileInfo {
                name: if name == "mcp-stderr" { "mcp" } else { name }.to_owned(),
                path: entry.path(),
                bytes: meta.len(),
                modified: modified.as_secs_f64(),
            })
        })
        .collect();
    logs.sort_by(|one, other| one.name.cmp(&other.name));
    logs
}

fn list(args: &LogsArgs, cx: &Context) -> Outcome {
    let logs = logs(cx);
    if args.json {
        cx.out.json(&json!(logs))?;
        return Ok(());
    }
    if logs.is_empty() {
        cx.out.remark("no log was written yet");
    }
    let now = chrono::Utc::now().timestamp() as f64;
    for log in logs {
        cx.out.line(format!(
            "{:<12} {:>10}  {}",
            log.name,
            size(log.bytes),
            ago(now, log.modified)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_durations_or_dates() {
        let now = moment("2026-03-10 12:00:00", NaiveDateTime::default()).unwrap();
        for (text, expected) in [
            ("30m", "2026-03-10 11:30:00"),
            ("2 h", "2026-03-10 10:00:00"),
            ("1d", "2026-03-09 12:00:00"),
            ("2026-01-31", "2026-01-31 00:00:00"),
            ("2026-01-31T18:00", "2026-01-31 18:00:00"),
        ] {
            assert_eq!(moment(text, now).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "soon", "5", "99999999999999d", "-"] {
            assert!(moment(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn the_tail_goes_on_in_older_files_and_cuts_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let entry = |n: u32| format!("2026-01-01 00:00:0{n},000 INFO agent: number {n}\n");
        std::fs::write(numbered(&path, 1), entry(1) + "  more\n" + &entry(2)).unwrap();
        std::fs::write(&path, entry(3) + "half a li").unwrap();
        let all = LogFilter::new(None, None, None, None);
        let shown = |limit| -> Vec<String> {
            let (records, _) = tail(&path, &all, limit, false).unwrap();
            records.into_iter().map(|record| record.text).collect()
        };
        assert_eq!(shown(1).len(), 1);
        assert_eq!(shown(3)[0], "  more");
        assert_eq!(shown(99).len(), 3);
        assert_eq!(shown(0).len(), 0);
        let (_, end) = tail(&path, &all, 1, false).unwrap();
        assert_eq!(end, entry(3).len() as u64);
    }

    /// A log of any length costs what is shown of it, and shows the same as when all of it is read.
    #[test]
    fn only_as_much_of_the_end_is_read_as_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut text = String::new();
        for n in 0..60_000 {
            let level = if n % 5_000 == 0 { "ERROR" } else { "INFO" };
            let (minute, second) = (n / 60 % 60, n % 60);
            let stamp = format!("2026-01-01 {:02}:{minute:02}:{second:02},000", n / 3_600);
            let record = format!("{stamp} {level} agent: number {n}\n  and more of it\n");
            text.push_str(&record);
        }
        std::fs::write(&path, &text).unwrap();
        let all = LogFilter::new(None, None, None, None);
        let read = |filter: &LogFilter, wanted, whole| part(&path, filter, wanted, whole).unwrap();
        let short = read(&all, 50, false).unwrap();
        assert!(
            short.lines >= 50 && short.read <= INITIAL_READ_BYTES,
            "{}",
            short.read
        );
        let since = moment("2026-01-01 16:39:00", NaiveDateTime::default()).unwrap();
        let late = LogFilter::new(None, None, Some(since), None);
        let recent = read(&late, usize::MAX, false).unwrap();
        assert!(recent.reaches_back && recent.read <= INITIAL_READ_BYTES);
        assert_eq!(recent.records.len(), 60);
        // What is rare is looked for further back, and no line of a cut entry passes for one.
        let bad = LogFilter::new(Some(LogLevel::Error), None, None, None);
        let errors = read(&bad, 4, true).unwrap();
        assert!(errors.records.len() >= 2, "{}", errors.records.len());
        let (errors, _) = tail(&path, &bad, usize::MAX, true).unwrap();
        assert_eq!(errors.len(), 12);
        for limit in [1, 2, 3, 49, 50, 5_000] {
            let (records, _) = tail(&path, &all, limit, false).unwrap();
            let lines: Vec<String> = records.into_iter().map(|record| record.text).collect();
            let last: Vec<&str> = text.lines().rev().take(limit).collect();
            let expected: Vec<&str> = last.into_iter().rev().collect();
            assert_eq!(lines.join("\n"), expected.join("\n"), "{limit}");
        }
    }
}
