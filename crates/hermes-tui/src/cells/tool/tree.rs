//! Subagents as a tree: the goal, activity and result of each.

use std::time::Duration;

use hermes_core::figures::{tokens, took};
use ratatui_core::text::{Line, Span};
use serde_json::Value;

use super::facts::ToolFacts;
use super::{body, title};
use crate::cells::{CellContext, one_line};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width;

/// The goal of each subagent.
pub(super) fn goals(facts: &ToolFacts) -> Vec<&str> {
    match facts.arg_value("tasks").and_then(Value::as_array) {
        Some(tasks) if !tasks.is_empty() => tasks
            .iter()
            .map(|task| match task {
                Value::String(goal) => goal.as_str(),
                task => task.get("goal").and_then(Value::as_str).unwrap_or("?"),
            })
            .collect(),
        _ => vec![facts.arg("goal").unwrap_or("?")],
    }
}

/// A branch of the tree.
struct SubagentBranch {
    sign: &'static str,
    role: StyleRole,
    words: String,
    facts: String,
    /// Below it.
    detail: String,
    detail_role: StyleRole,
}

/// While they run: the last report of each. `[2/3] read_file …` names the subagent.
pub(super) fn running(
    facts: &ToolFacts,
    progress: &[String],
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let goals = goals(facts);
    let mut latest: Vec<&str> = vec![""; goals.len()];
    for report in progress {
        if let Some((index, words)) = split_index(report)
            && let Some(slot) = latest.get_mut(index)
        {
            *slot = words;
        }
    }
    let glyphs = cx.theme.glyphs();
    let branches = goals.iter().zip(latest).map(|(goal, report)| {
        let ended = report.strip_prefix("ended: ");
        let (sign, role) = match ended {
            Some("completed") => (glyphs.good, StyleRole::Success),
            Some(_) => (glyphs.bad, StyleRole::Error),
            None => (glyphs.waiting, StyleRole::Accent),
        };
        let detail = match ended {
            Some("completed") => String::new(),
            Some(how) => one_line(how),
            None => call_title(report, cx),
        };
        SubagentBranch {
            sign,
            role,
            words: one_line(goal),
            facts: String::new(),
            detail,
            detail_role: StyleRole::Dim,
        }
    });
    paint(&single_branch(branches.collect(), &goals), columns, cx)
}

/// `read_file {"path": …}` formatted as the title of such a call.
fn call_title(report: &str, cx: &CellContext<'_>) -> String {
    match report.split_once(' ') {
        Some((name, arguments)) if arguments.starts_with('{') => {
            let call = ToolFacts::new(name, arguments);
            let title = title::tool_title(&call, false, cx.cwd, cx.theme.glyphs());
            one_line(&format!("{} {}", title.verb, title.object))
        }
        _ => one_line(report),
    }
}

/// With a single subagent the title shows its goal, and its branch only the result.
fn single_branch(mut branches: Vec<SubagentBranch>, goals: &[&str]) -> Vec<SubagentBranch> {
    if let ([_], [branch]) = (goals, &mut branches[..]) {
        branch.words = std::mem::take(&mut branch.detail);
        if branch.words.is_empty() && branch.facts.is_empty() {
            branches.clear();
        }
    }
    branches
}

/// `[2/3] words`
fn split_index(report: &str) -> Option<(usize, &str)> {
    let (position, words) = report.strip_prefix('[')?.split_once("] ")?;
    let (index, _) = position.split_once('/')?;
    Some((index.parse::<usize>().ok()?.checked_sub(1)?, words))
}

pub(super) fn done(
    facts: &ToolFacts,
    whole: bool,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let results = facts.get_list("results");
    let goals = goals(facts);
    if results.is_empty() {
        let text = facts.get_text("message").unwrap_or_default();
        let branch = |goal: &&str| SubagentBranch {
            sign: cx.theme.glyphs().waiting,
            role: StyleRole::Accent,
            words: one_line(goal),
            facts: String::new(),
            detail: one_line(text),
            detail_role: StyleRole::Dim,
        };
        let branches = goals.iter().map(branch).collect();
        return paint(&single_branch(branches, &goals), columns, cx);
    }
    let mut rows = Vec::new();
    let mut branches = Vec::new();
    for (at, result) in results.iter().enumerate() {
        let index = result.get("task_index").and_then(Value::as_u64);
        let index = index
            .and_then(|index| usize::try_from(index).ok())
            .unwrap_or(at);
        let goal = goals.get(index).copied().unwrap_or("?");
        branches.push(ended(goal, result, cx));
    }
    if !whole {
        return paint(&single_branch(branches, &goals), columns, cx);
    }
    let count = branches.len();
    for (at, (mut branch, result)) in branches.into_iter().zip(results).enumerate() {
        branch.detail.clear();
        rows.extend(paint_one(&branch, at + 1 == count, columns, cx));
        for key in ["summary", "error"] {
            if let Some(text) = result.get(key).and_then(Value::as_str) {
                rows.extend(body::report(text, columns, 7, cx));
            }
        }
    }
    rows
}

fn ended(goal: &str, result: &Value, cx: &CellContext<'_>) -> SubagentBranch {
    let glyphs = cx.theme.glyphs();
    let text = |key: &str| result.get(key).and_then(Value::as_str);
    let good = text("status") == Some("completed");
    let mut notes = Vec::new();
    if !good {
        notes.extend(text("status").map(str::to_owned));
    }
    let input = result.pointer("/tokens/input").and_then(Value::as_u64);
    let output = result.pointer("/tokens/output").and_then(Value::as_u64);
    if let (Some(input), Some(output)) = (input, output) {
        notes.push(format!("{} tokens", tokens(input.saturating_add(output))));
    }
    let seconds = result.get("duration_seconds").and_then(Value::as_f64);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    notes.extend(time.and_then(took));
    let summary_line = if good { text("summary") } else { text("error") };
    let first = summary_line.unwrap_or_default();
    let first = first
        .lines()
        .map(|line| {
            line.trim_start_matches(['#', ' ', '>'])
                .replace("**", "")
                .replace('`', "")
        })
        .find(|line| !line.trim().is_empty() && !line.starts_with('<'));
    SubagentBranch {
        sign: if good { glyphs.good } else { glyphs.bad },
        role: if good {
            StyleRole::Success
        } else {
            StyleRole::Error
        },
        words: one_line(goal),
        facts: notes.join(&format!(" {} ", glyphs.dot)),
        detail: one_line(&first.unwrap_or_default()),
        detail_role: if good {
            StyleRole::Dim
        } else {
            StyleRole::Error
        },
    }
}

fn paint(branches: &[SubagentBranch], columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    let count = branches.len();
    branches
        .iter()
        .enumerate()
        .flat_map(|(at, branch)| paint_one(branch, at + 1 == count, columns, cx))
        .collect()
}

fn paint_one(
    branch: &SubagentBranch,
    last: bool,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let theme = cx.theme;
    let glyphs = theme.glyphs();
    let columns = usize::from(columns);
    let border = theme.style(StyleRole::Border);
    let arm = if last { glyphs.last } else { glyphs.branch };
    let stem = if last { "  " } else { glyphs.trunk };
    let facts = width::width(&branch.facts);
    let available = columns.saturating_sub(7 + if facts > 0 { facts + 2 } else { 0 });
    let words = width::truncate_with(&branch.words, available.max(8), glyphs.ellipsis).into_owned();
    let mut line = Line::from(vec![
        Span::styled(format!("  {arm} "), border),
        Span::styled(format!("{} ", branch.sign), theme.style(branch.role)),
        Span::styled(words, theme.style(StyleRole::Text)),
    ]);
    if facts > 0 {
        let style = theme.style(StyleRole::Dim);
        line.spans
            .push(Span::styled(format!("  {}", branch.facts), style));
    }
    let mut rows = vec![StyledRow::new(width::truncate_line(
        &line,
        columns,
        glyphs.ellipsis,
    ))];
    if !branch.detail.is_empty() {
        let line = Line::from(vec![
            Span::styled(format!("  {stem}   "), border),
            Span::styled(branch.detail.clone(), theme.style(branch.detail_role)),
        ]);
        rows.push(StyledRow::new(width::truncate_line(
            &line,
            columns,
            glyphs.ellipsis,
        )));
    }
    rows
}
