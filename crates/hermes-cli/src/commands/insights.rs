//! `hermes insights`: tokens, money, models, tools and days, as charts or JSON. `/usage` and
//! `/insights` show the same.

mod text;

use chrono::{Datelike as _, Local, TimeZone as _, Timelike as _};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::store::StoreError;
use hermes_store::Store;
use hermes_store::insights::{
    CostTotals, Insights, MessageCounts, ModelUse, QuarterHour, SessionUse, SkillUse, SourceUse,
    TokenTotals, ToolUse, UnreadSessions, UsageWindow,
};
use serde::Serialize;

use super::Context;
use crate::exit::Outcome;
use crate::wiring;
pub(crate) use text::text;

#[derive(Debug, clap::Args)]
pub(crate) struct InsightsArgs {
    /// Include sessions started in the last N days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Include only this source (cli, telegram, cron, …)
    #[arg(long)]
    source: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What a report is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct InsightsQuery {
    /// `None`: of all time.
    pub(crate) days: Option<u32>,
    pub(crate) source: Option<String>,
    /// Only this session.
    pub(crate) session: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct InsightsReport {
    pub(crate) days: Option<u32>,
    pub(crate) source: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) sessions: i64,
    pub(crate) messages: MessageCounts,
    pub(crate) tool_calls: i64,
    pub(crate) model_calls: i64,
    pub(crate) tokens: TokenTotals,
    /// The part of the tokens that went to titles, compression and the like.
    pub(crate) side_tokens: i64,
    pub(crate) cost: CostTotals,
    pub(crate) models: Vec<ModelUse>,
    pub(crate) tools: Vec<ToolUse>,
    pub(crate) skills: Vec<SkillUse>,
    pub(crate) sources: Vec<SourceUse>,
    /// Days on which something happened, in local time.
    pub(crate) per_day: Vec<DayUsage>,
    /// Messages by hour of the day, from midnight.
    pub(crate) per_hour: [i64; 24],
    /// Messages by day of the week, from Monday.
    pub(crate) per_weekday: [i64; 7],
    pub(crate) top_sessions: Vec<SessionUse>,
    /// What was not read message by message.
    pub(crate) unread: UnreadSessions,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DayUsage {
    pub(crate) date: String,
    pub(crate) messages: i64,
    /// Sessions that began on this day, and all their tokens.
    pub(crate) sessions: i64,
    pub(crate) tokens: i64,
}

pub(crate) fn run(args: InsightsArgs, cx: &Context) -> Outcome {
    let wanted = InsightsQuery {
        days: Some(args.days),
        source: args.source,
        session: None,
    };
    let report = if cx.home.state_db().exists() {
        let store = wiring::open_for_reading(cx)?;
        wiring::runtime()?.block_on(report(&store, wanted))?
    } else {
        InsightsReport::from_insights(Insights::default(), wanted)
    };
    if args.json {
        cx.out.json(&report)?;
    } else {
        let width = cx.out.width().min(100);
        cx.out.foreign_line(text(&report, width).trim_end())?;
    }
    Ok(())
}

/// Adds up what was used.
pub(crate) async fn report(
    store: &Store,
    wanted: InsightsQuery,
) -> Result<InsightsReport, StoreError> {
    let now = SystemClock.epoch_seconds();
    let window = UsageWindow {
        since: wanted.days.map(|days| now - f64::from(days) * 86_400.0),
        source: wanted.source.clone(),
        session: wanted.session.clone(),
    };
    Ok(InsightsReport::from_insights(
        store.insights(window).await?,
        wanted,
    ))
}

impl InsightsReport {
    fn from_insights(found: Insights, wanted: InsightsQuery) -> Self {
        let mut report = Self {
            days: wanted.days,
            source: wanted.source,
            session: wanted.session,
            sessions: found.sessions,
            messages: found.messages,
            tool_calls: found.tool_calls,
            model_calls: found.calls,
            tokens: found.tokens,
            side_tokens: found.side_tokens,
            cost: found.cost,
            models: found.models,
            tools: found.tools,
            skills: found.skills,
            sources: found.sources,
            per_day: Vec::new(),
            per_hour: [0; 24],
            per_weekday: [0; 7],
            top_sessions: found.top_sessions,
            unread: found.unread,
        };
        for quarter in &found.quarters {
            report.add_quarter(quarter);
        }
        report
    }

    /// Quarters come in order of time; the wall clock may go back an hour, never a day.
    fn add_quarter(&mut self, quarter: &QuarterHour) {
        let Some(time) = Local.timestamp_opt(quarter.start, 0).earliest() else {
            return;
        };
        self.per_hour[time.hour() as usize] += quarter.messages;
        self.per_weekday[time.weekday().num_days_from_monday() as usize] += quarter.messages;
        let date = time.format("%Y-%m-%d").to_string();
        let new = self.per_day.last().is_none_or(|day| day.date < date);
        if new {
            self.per_day.push(DayUsage {
                date,
                messages: 0,
                sessions: 0,
                tokens: 0,
            });
        }
        if let Some(day) = self.per_day.last_mut() {
            day.messages += quarter.messages;
            day.sessions += quarter.sessions;
            day.tokens += quarter.tokens;
        }
    }
}
