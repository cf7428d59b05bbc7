//! A report as text with charts, for any width.

use std::fmt::Write as _;

use hermes_store::insights::CostTotals;
use unicode_width::UnicodeWidthStr as _;

use super::{DayUsage, InsightsReport};
use crate::commands::sessions::fit;

/// Rows of a list before the rest is summed up in one.
const MAX_ROWS: usize = 10;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The report for a terminal of `width` columns.
pub(crate) fn text(report: &InsightsReport, width: usize) -> String {
    let width = width.max(30);
    let mut out = String::new();
    line(&mut out, &heading(report));
    if report.sessions == 0 {
        line(&mut out, "nothing was recorded in this time");
        return out;
    }
    totals(&mut out, report, width);
    if report.unread.messages > 0 {
        line(
            &mut out,
            &format!(
                "{} of older sessions: in the totals only, not in roles, tools, skills and hours",
                several(report.unread.messages, "message")
            ),
        );
    }
    models(&mut out, report, width);
    let tools = report.tools.iter();
    let tools: Vec<(String, i64)> = tools.map(|tool| (tool.tool.clone(), tool.calls)).collect();
    bars(&mut out, "Tools (calls)", &tools, width);
    let skills: Vec<(String, i64)> = report
        .skills
        .iter()
        .map(|skill| (skill.skill.clone(), skill.loads + skill.edits))
        .collect();
    bars(&mut out, "Skills (loads and edits)", &skills, width);
    if report.sources.len() > 1 {
        let sources = report.sources.iter();
        let sources: Vec<(String, i64)> = sources
            .map(|source| (source.source.clone(), source.sessions))
            .collect();
        bars(&mut out, "Sources (sessions)", &sources, width);
    }
    when(&mut out, report, width);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn heading(report: &InsightsReport) -> String {
    let mut heading = match (&report.session, report.days) {
        (Some(session), _) => format!("Session {session}"),
        (None, Some(1)) => "Sessions started in the last day".to_owned(),
        (None, Some(days)) => format!("Sessions started in the last {days} days"),
        (None, None) => "All sessions".to_owned(),
    };
    if let Some(source) = &report.source {
        let _ = write!(heading, ", only {source}");
    }
    heading
}

fn totals(out: &mut String, report: &InsightsReport, width: usize) {
    let tokens = &report.tokens;
    let mut all = vec![
        several(report.sessions, "session"),
        format!(
            "{} ({} from you)",
            several(report.messages.total, "message"),
            short(report.messages.user)
        ),
        several(report.tool_calls, "tool call"),
    ];
    if report.session.is_some() {
        all.remove(0);
    }
    facts(out, "activity", &all, width);
    let mut parts = vec![
        format!("{} total", short(tokens.total)),
        format!("{} input", short(tokens.input)),
        format!("{} input from the cache", short(tokens.cache_read)),
        format!("{} output", short(tokens.output)),
    ];
    for (count, what) in [
        (tokens.cache_write, "written to the cache"),
        (tokens.reasoning, "reasoning (part of the output)"),
        (
            report.side_tokens,
            "for titles, summaries and other side work",
        ),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", short(count)));
        }
    }
    facts(out, "tokens", &parts, width);
    facts(out, "cost", &cost(&report.cost), width);
}

/// A name and what there is to say about it, on as many lines as it takes.
fn facts(out: &mut String, name: &str, parts: &[String], width: usize) {
    let mut row = format!("  {name:<10}");
    let empty = row.width();
    for part in parts {
        if row.width() > empty && row.width() + 3 + part.width() > width {
            line(out, &row);
            row = " ".repeat(empty);
        } else if row.width() > empty {
            row.push_str(" · ");
        }
        row.push_str(part);
    }
    line(out, &row);
}

/// What it cost and how that is known.
fn cost(spent: &CostTotals) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(actual) = spent.actual_usd {
        parts.push(format!("{} reported by the provider", usd(actual)));
    }
    if let Some(estimated) = spent.estimated_usd {
        parts.push(format!("{} estimated from price lists", usd(estimated)));
    }
    if spent.included_calls > 0 {
        parts.push(format!(
            "{}, no charge (local or subscription)",
            calls(spent.included_calls)
        ));
    }
    if spent.unknown_calls > 0 {
        parts.push(format!(
            "{} at an unknown price",
            calls(spent.unknown_calls)
        ));
    }
    if parts.is_empty() {
        parts.push("no model was called".to_owned());
    }
    parts
}

fn calls(count: i64) -> String {
    format!("{} call{}", short(count), if count == 1 { "" } else { "s" })
}

/// The cost in a column; unknown stays unknown.
fn brief_cost(spent: &CostTotals) -> String {
    match (spent.known_usd, spent.unknown_calls, spent.included_calls) {
        (Some(known), 0, _) if spent.estimated_usd.is_some() => format!("{} est", usd(known)),
        (Some(known), 0, _) => usd(known),
        (Some(known), ..) => format!("> {}", usd(known)),
        (None, 0, 1..) => "included".to_owned(),
        (None, ..) => "unknown".to_owned(),
    }
}

fn models(out: &mut String, report: &InsightsReport, width: usize) {
    if report.models.is_empty() {
        return;
    }
    line(out, "\nModels");
    let available = width.saturating_sub(2 + 8 + 8 + 14).max(12);
    line(
        out,
        &format!(
            "  {}{:>8}{:>8}{:>14}",
            fit("", available),
            "calls",
            "tokens",
            "cost"
        ),
    );
    for model in report.models.iter().take(MAX_ROWS) {
        let name = if model.provider.is_empty() {
            model.model.clone()
        } else {
            format!("{} ({})", model.model, model.provider)
        };
        line(
            out,
            &format!(
                "  {}{:>8}{:>8}{:>14}",
                fit(&name, available),
                short(model.calls),
                short(model.tokens.total),
                brief_cost(&model.cost)
            ),
        );
    }
    more(out, report.models.len());
}

fn more(out: &mut String, count: usize) {
    if count > MAX_ROWS {
        line(out, &format!("  … and {} more", count - MAX_ROWS));
    }
}

fn bars(out: &mut String, title: &str, rows: &[(String, i64)], width: usize) {
    if rows.is_empty() {
        return;
    }
    let shown = &rows[..rows.len().min(MAX_ROWS)];
    let name_width = shown.iter().map(|(name, _)| name.width()).max();
    let name_room = name_width.unwrap_or(0).min(width / 3).max(6);
    let bar_room = width.saturating_sub(2 + name_room + 1 + 8).max(4);
    let peak = shown.iter().map(|(_, count)| *count).max().unwrap_or(0);
    line(out, &format!("\n{title}"));
    for (name, count) in shown {
        line(
            out,
            &format!(
                "  {} {:>6} {}",
                fit(name, name_room),
                short(*count),
                "█".repeat(scaled(*count, peak, bar_room))
            ),
        );
    }
    more(out, rows.len());
}

/// Columns of a bar: what is there at all is seen.
fn scaled(count: i64, peak: i64, available: usize) -> usize {
    if count <= 0 || peak <= 0 {
        return 0;
    }
    ((count as f64 / peak as f64 * available as f64) as usize).max(1)
}

/// A curve of one character per value.
fn curve(values: &[i64]) -> String {
    let peak = values.iter().copied().max().unwrap_or(0);
    values
        .iter()
        .map(|value| match scaled(*value, peak, LEVELS.len()) {
            0 => '·',
            level => LEVELS[level - 1],
        })
        .collect()
}

fn when(out: &mut String, report: &InsightsReport, width: usize) {
    if report.per_day.len() > 1 {
        days(out, &report.per_day, width);
    }
    if report.per_hour.iter().any(|count| *count > 0) {
        line(out, "\nHours of the day (messages)");
        // Two columns an hour, so that the scale below fits.
        let wide: String = curve(&report.per_hour)
            .chars()
            .flat_map(|ch| [ch, ch])
            .collect();
        if width >= 52 {
            line(out, &format!("  {wide}"));
            line(out, "  0     3     6     9     12    15    18    21");
        } else {
            line(out, &format!("  {}", curve(&report.per_hour)));
            line(out, "  0     6     12    18");
        }
        let names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let week: Vec<String> = names
            .iter()
            .zip(curve(&report.per_weekday).chars())
            .map(|(name, level)| format!("{name} {level}"))
            .collect();
        line(out, &format!("  {}", week.join("  ")));
    }
}

fn days(out: &mut String, days: &[DayUsage], width: usize) {
    const MAX_DAYS: usize = 14;
    let skipped = days.len().saturating_sub(MAX_DAYS);
    let rows = &days[skipped..];
    let peak = rows.iter().map(|day| day.messages).max().unwrap_or(0);
    line(out, "\nDays (messages; sessions started, and their tokens)");
    if skipped > 0 {
        line(out, &format!("  … {skipped} earlier days with activity"));
    }
    for day in rows {
        let available = width.saturating_sub(2 + 10 + 8 + 18).max(4);
        let bar = "█".repeat(scaled(day.messages, peak, available));
        line(
            out,
            &format!(
                "  {} {:>6} {bar:<available$} {:>5} {:>7}",
                day.date,
                short(day.messages),
                short(day.sessions),
                short(day.tokens)
            ),
        );
    }
}

fn usd(amount: f64) -> String {
    hermes_core::figures::dollars(amount)
}

/// 999, 12.3k, 4.5M.
/// `1 session`, `1.2k sessions`.
fn several(count: i64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{} {}", short(count), hermes_core::figures::plural(one)),
    }
}

fn short(count: i64) -> String {
    hermes_core::figures::tokens(count.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (count, shown) in [
            (0, "0"),
            (999, "999"),
            (1_234, "1.2k"),
            (123_456, "123k"),
            (1_234_567, "1.2M"),
            (123_456_789, "123M"),
        ] {
            assert_eq!(short(count), shown);
        }
    }

    #[test]
    fn a_price_nobody_knows_is_not_zero() {
        let unknown = CostTotals {
            unknown_calls: 3,
            ..CostTotals::default()
        };
        assert_eq!(cost(&unknown), ["3 calls at an unknown price"]);
        assert_eq!(brief_cost(&unknown), "unknown");
        let mixed = CostTotals {
            actual_usd: Some(1.5),
            known_usd: Some(1.5),
            unknown_calls: 1,
            ..CostTotals::default()
        };
        assert_eq!(brief_cost(&mixed), "> $1.50");
        assert!(!cost(&CostTotals::default()).join("").contains('$'));
    }

    #[test]
    fn what_is_there_is_seen() {
        assert_eq!(curve(&[0, 1, 1000]), "·▁█");
        assert_eq!(curve(&[0, 0]), "··");
    }
}
