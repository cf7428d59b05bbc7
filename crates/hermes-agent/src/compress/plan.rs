//! What a compaction keeps, condenses and gains. Pure: no model, no clock.

use std::sync::Arc;

use hermes_core::message::{Message, UserMessage};

use super::assemble::{append, own_words};
use super::groups::{RowGroup, RowGroupKind, groups};
use super::summary;
use super::{prune, window::CompressionSettings};
use crate::tokens;

/// The state of a conversation, in raw tokens (see [`crate::tokens`]).
#[derive(Clone, Copy, Debug)]
pub struct CompactionInput<'a> {
    pub settings: &'a CompressionSettings,
    pub view: &'a [Arc<Message>],
    /// Rows of the view that the engine wrote for the moment: never the user's request.
    pub scaffolding: &'a [Arc<Message>],
    /// System prompt and tools array.
    pub overhead: u64,
    /// What the summary row carries beside the summary: the task list.
    pub extra: u64,
    /// The size at which compaction starts.
    pub threshold: u64,
    /// The whole window.
    pub context: u64,
    /// Nothing of this conversation was condensed before.
    pub first: bool,
    /// The newest so many messages of the person and what followed them stay as they are.
    pub keep: Option<usize>,
    pub pressure: ContextPressure,
}

/// How badly room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextPressure {
    /// Someone asked: condense what is worth it.
    Wish,
    /// The prompt must get below the threshold.
    Threshold,
    /// The provider refused the prompt, whatever we thought of its size.
    Refused,
}

#[derive(Clone, Debug)]
pub enum CompactionPlan {
    /// Leave it: the text says why.
    NoGain(String),
    /// Shortening old tool traffic is enough.
    Prune { view: Vec<Arc<Message>>, after: u64 },
    /// Condense some rows into a summary.
    Condense(Box<SummaryPlan>),
}

/// A compaction that needs a summary.
#[derive(Clone, Debug)]
pub struct SummaryPlan {
    /// Kept at the start; ends with an answer or is empty.
    pub head: Vec<Arc<Message>>,
    /// What the summary is made of.
    pub middle: Vec<Arc<Message>>,
    /// The summary of an earlier compaction, to be brought up to date.
    pub previous: Option<String>,
    /// The newest user message, where it lies before the tail: it is kept word for word.
    pub carried: Option<UserMessage>,
    /// Kept at the end.
    pub tail: Vec<Arc<Message>>,
    /// Largest summary, in raw tokens.
    pub budget: u64,
    /// Raw estimate of the whole prompt now.
    pub before: u64,
    /// The same afterwards, at most.
    pub after: u64,
}

/// A plan must gain this share of the prompt.
const MIN_GAIN_PERCENT: u64 = 5;
/// Preamble and marks of a summary row.
const FRAME_TOKENS: u64 = 240;
/// Shortening alone will do if it brings the prompt below this share of the threshold: less would
/// only delay the summary, and cost another rewrite of the cached prefix.
const PRUNE_PERCENT: u64 = 50;
/// A condensed prompt should end up below this share of the threshold.
const TARGET_PERCENT: u64 = 90;

pub fn plan(input: &CompactionInput<'_>) -> CompactionPlan {
    let before = input.overhead + tokens::messages(input.view);
    let goal = match input.pressure {
        ContextPressure::Wish | ContextPressure::Threshold => {
            input.threshold * TARGET_PERCENT / 100
        }
        ContextPressure::Refused => (input.threshold * TARGET_PERCENT / 100).min(before * 70 / 100),
    };
    if input.pressure == ContextPressure::Threshold
        && let Some(plan) = prune_plan(input, before)
    {
        return plan;
    }
    let view = PlannedRows::of(input.view, input.scaffolding);
    if let Some(turns) = input.keep {
        return kept_turns(input, &view, turns, before);
    }
    let mut best: Option<SummaryPlan> = None;
    for rung in rungs(input) {
        let head_end = head_end(&view, input, &rung);
        let tail_start = tail_start(&view.groups, head_end, &rung);
        let Some(candidate) = condense(input, &view, (head_end, tail_start), before) else {
            continue;
        };
        let enough = candidate.after <= goal;
        if best
            .as_ref()
            .is_none_or(|best| candidate.after < best.after)
        {
            best = Some(candidate);
        }
        // Where nothing forces it, the tail is not eaten up for a better figure.
        if enough || before <= goal {
            break;
        }
    }
    let plan = best.map(|plan| squeeze(plan, goal));
    worth_it(
        plan.or_else(|| squeeze_only(input, &view, before, goal)),
        before,
    )
}

/// The person says what stays: all before it is condensed, nothing of it is cut.
fn kept_turns(
    input: &CompactionInput<'_>,
    view: &PlannedRows,
    turns: usize,
    before: u64,
) -> CompactionPlan {
    let users = view.groups.iter().enumerate().rev();
    let first = users
        .filter(|(_, group)| group.kind == RowGroupKind::User)
        .nth(turns.saturating_sub(1))
        .map_or(0, |(at, _)| at);
    worth_it(condense(input, view, (0, first), before), before)
}

fn worth_it(plan: Option<SummaryPlan>, before: u64) -> CompactionPlan {
    match plan {
        Some(plan) if gains(before, plan.after) => CompactionPlan::Condense(Box::new(plan)),
        Some(plan) => CompactionPlan::NoGain(format!(
            "condensing would shorten the prompt only from about {before} to {} tokens",
            plan.after
        )),
        None => CompactionPlan::NoGain(
            "there is nothing to condense between the start and the latest messages".to_owned(),
        ),
    }
}

fn gains(before: u64, after: u64) -> bool {
    after + before * MIN_GAIN_PERCENT / 100 < before
}

fn prune_plan(input: &CompactionInput<'_>, before: u64) -> Option<CompactionPlan> {
    let groups = groups(input.view, input.scaffolding);
    let rung = rungs(input).next()?;
    let start = tail_start(&groups, 0, &rung);
    let upto = groups.get(start)?.rows.start;
    let view = prune::shortened(input.view, upto);
    let after = input.overhead + tokens::messages(&view);
    (after <= input.threshold * PRUNE_PERCENT / 100 && gains(before, after))
        .then_some(CompactionPlan::Prune { view, after })
}

/// The rows without earlier summaries.
struct PlannedRows {
    rows: Vec<Arc<Message>>,
    previous: Option<String>,
    groups: Vec<RowGroup>,
    newest_user: Option<usize>,
}

impl PlannedRows {
    fn of(view: &[Arc<Message>], scaffolding: &[Arc<Message>]) -> Self {
        let mut rows = Vec::with_capacity(view.len());
        let mut summaries = Vec::new();
        let newest = view
            .iter()
            .rposition(|row| matches!(row.as_ref(), Message::User(_)));
        for (at, row) in view.iter().enumerate() {
            let text = summary::leading_text(row)
                .filter(|text| newest != Some(at) || summary::is_closed(text));
            match text.and_then(summary::split) {
                None => rows.push(Arc::clone(row)),
                Some(split) => {
                    summaries.push(split.summary.to_owned());
                    rows.extend(own_words(row, split.own).map(Arc::new));
                }
            }
        }
        let groups = groups(&rows, scaffolding);
        let newest_user = groups
            .iter()
            .rposition(|group| group.kind == RowGroupKind::User);
        Self {
            rows,
            previous: (!summaries.is_empty()).then(|| summaries.join("\n\n")),
            groups,
            newest_user,
        }
    }

    fn slice(&self, from: usize, to: usize) -> &[Arc<Message>] {
        let start = self
            .groups
            .get(from)
            .map_or(self.rows.len(), |group| group.rows.start);
        let end = self
            .groups
            .get(to)
            .map_or(self.rows.len(), |group| group.rows.start);
        &self.rows[start..end.max(start)]
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
struct RetentionLevel {
    protect_first: usize,
    tail_tokens: u64,
    /// Rows kept at the end even beyond `tail_tokens`, up to `most_tokens`.
    tail_rows: usize,
    most_tokens: u64,
}

/// From the wished-for to the barely possible.
fn rungs(input: &CompactionInput<'_>) -> impl Iterator<Item = RetentionLevel> {
    let available = input.threshold.saturating_sub(input.overhead);
    let tail = (input.threshold as f64 * input.settings.target_ratio.clamp(0.05, 0.6)) as u64;
    let tail = tail.min(available);
    let rows = input.settings.protect_last.clamp(3, 8);
    let head = if input.first {
        input.settings.protect_first
    } else {
        0
    };
    let rung = move |protect_first, part: u64, rows| RetentionLevel {
        protect_first,
        tail_tokens: tail / part,
        tail_rows: rows,
        most_tokens: (available / 2 / part).max(tail / part * 3 / 2),
    };
    [
        rung(head, 1, rows),
        rung(0, 1, rows),
        rung(0, 2, rows / 2),
        rung(0, 4, 2),
        rung(0, 1_000_000, 0),
    ]
    .into_iter()
}

/// The first group of the tail. It reaches back at least to the newest answer.
fn tail_start(groups: &[RowGroup], head: usize, rung: &RetentionLevel) -> usize {
    let newest_answer = groups
        .iter()
        .rposition(|group| group.kind == RowGroupKind::Answer);
    let (mut tokens, mut rows) = (0, 0);
    let mut start = groups.len();
    while start > head {
        let group = &groups[start - 1];
        let needed = newest_answer.is_none_or(|at| start > at);
        let sum = tokens + group.tokens;
        let wanted = sum <= rung.tail_tokens * 3 / 2 && tokens < rung.tail_tokens
            || rows < rung.tail_rows && sum <= rung.most_tokens;
        if !needed && !wanted {
            break;
        }
        // Without any answer only the newest row is certain to stay.
        if newest_answer.is_none() && start < groups.len() && !wanted {
            break;
        }
        tokens = sum;
        rows += group.rows.len();
        start -= 1;
    }
    // A passing remark of the engine is no row to put a summary in front of.
    while start > head
        && start + 1 < groups.len()
        && groups[start].kind == RowGroupKind::Nudge
        && newest_answer.is_some_and(|at| start < at)
    {
        start += 1;
    }
    start
}

/// The end of the head. It lies before the newest user message, which never comes before the
/// summary.
fn head_end(view: &PlannedRows, input: &CompactionInput<'_>, rung: &RetentionLevel) -> usize {
    let max_tokens = input.threshold / 5;
    let (mut rows, mut tokens, mut end) = (0, 0, 0);
    let groups = &view.groups[..view.newest_user.unwrap_or(view.groups.len())];
    for group in groups {
        if rows >= rung.protect_first || tokens + group.tokens > max_tokens {
            break;
        }
        rows += group.rows.len();
        tokens += group.tokens;
        end += 1;
    }
    // The summary is a user row, so the row before it must not be one.
    while end > 0
        && matches!(
            groups[end - 1].kind,
            RowGroupKind::User | RowGroupKind::Nudge
        )
    {
        end -= 1;
    }
    end
}

/// What lies between the head and the tail becomes a summary.
fn condense(
    input: &CompactionInput<'_>,
    view: &PlannedRows,
    (head_end, tail_start): (usize, usize),
    before: u64,
) -> Option<SummaryPlan> {
    let carried_at = view
        .newest_user
        .filter(|at| (head_end..tail_start).contains(at));
    let carried = carried_at.and_then(|at| carry(view, at, tail_start));
    let middle: Vec<Arc<Message>> = (head_end..tail_start)
        .filter(|at| Some(*at) != carried_at && view.groups[*at].kind != RowGroupKind::Nudge)
        .flat_map(|at| view.slice(at, at + 1))
        .cloned()
        .collect();
    if middle.is_empty() {
        return None;
    }
    let head = view.slice(0, head_end).to_vec();
    let tail = without_old_images(view.slice(tail_start, view.groups.len()), carried.is_some());
    let content = tokens::messages(&middle) + view.previous.as_deref().map_or(0, tokens::text);
    let budget = budget(content, input.context);
    let retained = tokens::messages(&head) + tokens::messages(&tail);
    let carried_tokens = carried
        .as_ref()
        .map_or(0, |user| tokens::message(&Message::User(user.clone())));
    Some(SummaryPlan {
        after: input.overhead + input.extra + retained + carried_tokens + budget + FRAME_TOKENS,
        head,
        middle,
        previous: view.previous.clone(),
        carried,
        tail,
        budget,
        before,
    })
}

/// The newest user message, with what the user added while the condensed work ran.
fn carry(view: &PlannedRows, at: usize, tail_start: usize) -> Option<UserMessage> {
    let Message::User(user) = view.rows[view.groups[at].rows.start].as_ref() else {
        return None;
    };
    let mut user = user.clone();
    for row in view.slice(at + 1, tail_start) {
        if let Message::Tool(tool) = row.as_ref()
            && let Some(words) = prune::steer(&tool.content.text())
        {
            append(
                &mut user,
                &format!("\n\n[added by the user later:]\n{words}"),
            );
        }
    }
    Some(user)
}

/// Images of the tail stay from the newest user message on.
fn without_old_images(tail: &[Arc<Message>], carried: bool) -> Vec<Arc<Message>> {
    let newest = tail
        .iter()
        .rposition(|row| matches!(row.as_ref(), Message::User(_)));
    let upto = if carried { 0 } else { newest.unwrap_or(0) };
    tail.iter()
        .enumerate()
        .map(|(at, row)| match prune::without_images(row) {
            Some(short) if at < upto => Arc::new(short),
            _ => Arc::clone(row),
        })
        .collect()
}

/// Largest summary for so much content in such a window.
fn budget(content: u64, context: u64) -> u64 {
    let max_tokens = (context / 20).clamp(512, 10_000);
    (content / 5)
        .clamp(2_000.min(max_tokens), max_tokens)
        .min((content / 2).max(64))
}

/// Cuts the results of the tail until the goal is met: the last resort when the newest work alone
/// is too long.
fn squeeze(mut plan: SummaryPlan, goal: u64) -> SummaryPlan {
    for limit in [16_000, 8_000, 4_000, 2_000, 1_000] {
        if plan.after <= goal {
            break;
        }
        let before = tokens::messages(&plan.tail);
        for row in &mut plan.tail {
            if let Some(short) = prune::squeezed(row, limit) {
                *row = Arc::new(short);
            }
        }
        plan.after -= before.saturating_sub(tokens::messages(&plan.tail));
    }
    plan
}

/// There is nothing to condense, but the results of the newest work can be cut.
fn squeeze_only(
    input: &CompactionInput<'_>,
    view: &PlannedRows,
    before: u64,
    goal: u64,
) -> Option<SummaryPlan> {
    if before <= goal {
        return None;
    }
    let rows = input.overhead + tokens::messages(&view.rows);
    let summary = view.previous.as_deref().map_or(0, |previous| {
        tokens::text(previous) + FRAME_TOKENS + input.extra
    });
    let plan = SummaryPlan {
        head: Vec::new(),
        middle: Vec::new(),
        previous: view.previous.clone(),
        carried: None,
        tail: view.rows.clone(),
        budget: 0,
        before,
        after: rows + summary,
    };
    Some(squeeze(plan, goal))
}
