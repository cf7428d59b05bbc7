//! Entries of a log: `2026-01-31 18:00:00,123 INFO [session] name: text`, with the lines that
//! belong to them (tracebacks). The original also writes `time - name - LEVEL - text`.

use chrono::NaiveDateTime;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

impl std::str::FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.to_uppercase().as_str() {
            "TRACE" | "DEBUG" => Self::Debug,
            "INFO" => Self::Info,
            "WARN" | "WARNING" => Self::Warning,
            "ERROR" => Self::Error,
            "CRITICAL" | "FATAL" => Self::Critical,
            _ => return Err("write debug, info, warning, error or critical".to_owned()),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LogRecord {
    /// In the time zone that the log is written in.
    pub(super) time: Option<NaiveDateTime>,
    pub(super) level: Option<LogLevel>,
    pub(super) session: Option<String>,
    pub(super) component: Option<String>,
    /// The entry as it stands in the file, with all its lines.
    pub(super) text: String,
}

impl LogRecord {
    fn parse(line: &str) -> Self {
        let mut record = Self {
            time: None,
            level: None,
            session: None,
            component: None,
            text: line.to_owned(),
        };
        let Some((time, rest)) = time(line) else {
            return record;
        };
        record.time = Some(time);
        let (head, dashed) = match rest.strip_prefix("- ") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let mut words = head.split(' ').filter(|word| !word.is_empty());
        if dashed {
            record.component = words.next().map(str::to_owned);
            words.next();
        }
        record.level = words.next().and_then(|word| word.parse().ok());
        let Some(mut word) = words.next() else {
            return record;
        };
        if let Some(session) = word
            .strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'))
        {
            record.session = Some(session.to_owned());
            word = words.next().unwrap_or_default();
        }
        if !dashed {
            record.component = word.strip_suffix(':').map(str::to_owned);
        }
        record
    }

    pub(super) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Only the last lines of an entry fit.
    pub(super) fn skip_lines(&mut self, count: usize) {
        if count > 0 {
            let rest: Vec<&str> = self.text.lines().skip(count).collect();
            self.text = rest.join("\n");
        }
    }
}

fn time(line: &str) -> Option<(NaiveDateTime, &str)> {
    let stamp = line.get(..19)?;
    let time = NaiveDateTime::parse_from_str(stamp, "%Y-%m-%d %H:%M:%S").ok()?;
    let rest =
        line[19..].trim_start_matches(|ch: char| ch == ',' || ch == '.' || ch.is_ascii_digit());
    Some((time, rest.trim_start()))
}

/// Puts lines together to entries.
pub(super) struct LogRecords<'a> {
    lines: std::iter::Peekable<std::str::Lines<'a>>,
}

impl<'a> LogRecords<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            lines: text.lines().peekable(),
        }
    }
}

impl Iterator for LogRecords<'_> {
    type Item = LogRecord;

    fn next(&mut self) -> Option<LogRecord> {
        let mut record = LogRecord::parse(self.lines.next()?);
        // Without a time nothing tells where an entry ends: each line stands alone.
        while record.time.is_some()
            && let Some(line) = self.lines.next_if(|line| time(line).is_none())
        {
            record.text.push('\n');
            record.text.push_str(line);
        }
        Some(record)
    }
}

/// Names of modules that make up a part, in this program and in the original.
const COMPONENTS: &[(&str, &[&str])] = &[
    (
        "gateway",
        &[
            "gateway",
            "hermes_gateway",
            "hermes_app::hooks",
            "hermes_platforms",
            "hermes_api",
            "hermes_plugins",
            "plugins.platforms",
        ],
    ),
    (
        "agent",
        &[
            "agent",
            "run_agent",
            "model_tools",
            "batch_runner",
            "hermes_agent",
            "hermes_models",
        ],
    ),
    (
        "tools",
        &[
            "tools",
            "hermes_tools",
            "hermes_exec",
            "hermes_policy",
            "hermes_fetch",
        ],
    ),
    ("mcp", &["hermes_mcp", "rmcp", "tools.mcp_tool", "mcp"]),
    (
        "cli",
        &["cli", "hermes_cli", "hermes", "hermes_app", "hermes_tui"],
    ),
    (
        "cron",
        &["cron", "hermes_tools::schedule", "hermes_store::jobs"],
    ),
    (
        "gui",
        &[
            "hermes_cli.web_server",
            "hermes_cli.pty_bridge",
            "tui_gateway",
            "uvicorn",
        ],
    ),
];

/// Which entries are shown.
pub(super) struct LogFilter {
    level: Option<LogLevel>,
    session: Option<String>,
    pub(super) since: Option<NaiveDateTime>,
    component: Option<Vec<String>>,
}

impl LogFilter {
    pub(super) fn new(
        level: Option<LogLevel>,
        session: Option<String>,
        since: Option<NaiveDateTime>,
        component: Option<&str>,
    ) -> Self {
        let component = component.map(|name| {
            let known = COMPONENTS
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            match known {
                Some((_, prefixes)) => prefixes.iter().map(|&prefix| prefix.to_owned()).collect(),
                None => vec![name.to_owned()],
            }
        });
        Self {
            level,
            session,
            since,
            component,
        }
    }

    /// Whether the head of an entry decides about it.
    pub(super) fn is_narrow(&self) -> bool {
        self.level.is_some()
            || self.session.is_some()
            || self.since.is_some()
            || self.component.is_some()
    }

    /// What an entry does not tell cannot speak against it, except who wrote it.
    pub(super) fn passes(&self, record: &LogRecord) -> bool {
        let late = self
            .since
            .is_none_or(|since| record.time.is_none_or(|time| time >= since));
        let bad = self
            .level
            .is_none_or(|level| record.level.is_none_or(|of| of >= level));
        let named = self
            .session
            .as_ref()
            .is_none_or(|session| record.text.contains(session.as_str()));
        let part = self.component.as_ref().is_none_or(|prefixes| {
            record.component.as_ref().is_some_and(|name| {
                prefixes.iter().any(|prefix| {
                    name.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                        rest.is_empty() || rest.starts_with('.') || rest.starts_with(':')
                    })
                })
            })
        });
        late && bad && named && part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-05-01 10:00:00,123 INFO hermes_agent::turn: begun session=20260501_1
2026-05-01 10:00:01,000 WARNING [20260501_2] gateway.run: slow
Traceback (most recent call last):
  File \"x.py\"
2026-05-01 10:00:02,000 - tools.terminal_tool - ERROR - broke
2026-05-01 10:00:03 DEBUG agent.loop: tick
";

    fn passing(filter: &LogFilter) -> Vec<usize> {
        let records: Vec<LogRecord> = LogRecords::new(LOG).collect();
        assert_eq!(records.len(), 4);
        (0..records.len())
            .filter(|at| filter.passes(&records[*at]))
            .collect()
    }

    #[test]
    fn both_programs_are_understood() {
        let records: Vec<LogRecord> = LogRecords::new(LOG).collect();
        assert_eq!(records[0].component.as_deref(), Some("hermes_agent::turn"));
        assert_eq!(records[1].session.as_deref(), Some("20260501_2"));
        assert_eq!(records[1].component.as_deref(), Some("gateway.run"));
        assert_eq!(records[1].lines(), 3);
        assert_eq!(records[2].component.as_deref(), Some("tools.terminal_tool"));
        assert_eq!(records[2].level, Some(LogLevel::Error));
    }

    #[test]
    fn filters_take_entries_with_all_their_lines() {
        let level = Some(LogLevel::Warning);
        assert_eq!(passing(&LogFilter::new(level, None, None, None)), [1, 2]);
        let session = Some("20260501_1".to_owned());
        assert_eq!(passing(&LogFilter::new(None, session, None, None)), [0]);
        assert_eq!(
            passing(&LogFilter::new(None, None, None, Some("agent"))),
            [0, 3]
        );
        assert_eq!(
            passing(&LogFilter::new(None, None, None, Some("gateway"))),
            [1]
        );
        assert_eq!(
            passing(&LogFilter::new(
                None,
                None,
                None,
                Some("tools.terminal_tool")
            )),
            [2]
        );
        let since = NaiveDateTime::parse_from_str("2026-05-01 10:00:02", "%Y-%m-%d %H:%M:%S");
        assert_eq!(
            passing(&LogFilter::new(None, None, since.ok(), None)),
            [2, 3]
        );
    }

    #[test]
    fn lines_without_a_time_stand_alone() {
        let records: Vec<LogRecord> = LogRecords::new("one\ntwo\n").collect();
        assert_eq!(records.len(), 2);
        let level = LogFilter::new(Some(LogLevel::Error), None, None, None);
        assert!(level.passes(&records[0]));
    }
}
