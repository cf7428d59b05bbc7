//! How long a key takes to be seen while the model writes as fast as any does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::process::millis;
use super::super::programs::{Programs, Who};
use super::super::report::{BenchReport, BenchTarget, Row, percentile};
use super::terminal::row_at_cursor;
use super::{Cast, PATIENCE, say, shows, since, takes_keys};

/// The last words of the answer.
const END: &str = "\n\nthat is all";

/// Prose, lists and code, as models write it, in exactly so many tokens of five letters.
fn answer(tokens: usize) -> Value {
    const TOKEN: usize = 5;
    const PART: &str = "\n\n## Part\n\nThe store keeps **every** message in `state.db`, and a turn \
        reads what it needs: the newest first, the rest when it is asked for. Nothing is rewritten, \
        so what was sent yesterday is sent today, byte for byte, and the cache is warm.\n\n\
        - one writer, many readers\n- a lock that is *never* held across a wait\n\n\
        ```rust\nfn due(now: Instant, at: Option<Instant>) -> bool {\n    \
        at.is_some_and(|at| at <= now) // late is fine\n}\n```\n";
    let room = tokens * TOKEN - END.len();
    let mut text: String = PART.chars().cycle().take(room).collect();
    text.push_str(END);
    json!({"text": text, "deltas": tokens})
}

/// From a key to the bytes that show it, while the model writes.
pub(in crate::bench) fn paint(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const KEYS: usize = 240;
    const RATE: usize = 2000;
    const TOKENS: usize = 20 * RATE;
    let mut script = json!({"default": answer(TOKENS)});
    script["default"]["per_second"] = json!(RATE);
    let server = programs.serve("tui-paint", &script)?;
    let cast = Cast::new(programs, "tui-paint", &server, false)?;
    let (terminal, _) = cast.open(Who::Ours)?;
    takes_keys(Who::Ours, &terminal)?;
    say(&terminal, "talk")?;
    let patience = Duration::from_secs(20);
    terminal.wait("text of the model", patience, |screen| {
        shows(screen, "The store keeps")
    })?;
    let mut times = Vec::new();
    for number in 0..KEYS {
        // A person's pace, at every moment between two drawings.
        std::thread::sleep(Duration::from_millis(35 + (number as u64 * 7) % 29));
        let writes = number % 2 == 0;
        let pressed = terminal.press(if writes { "q" } else { "\x7f" })?;
        let seen = terminal.wait("key", patience, move |screen| {
            let row = row_at_cursor(screen);
            row.starts_with('›') && row.starts_with("› q") == writes
        })?;
        times.push(since(pressed, seen));
    }
    terminal.wait("end of the answer", PATIENCE, |screen| {
        shows(screen, END.trim())
    })?;
    let calls = server.calls();
    let call = calls.first().context("a model call was made")?;
    let rate = TOKENS as f64 / (millis(call.arrived, call.answered) / 1000.0);
    eprintln!("   {KEYS} keys while {rate:.0} tokens came in a second");
    ensure!(
        rate > RATE as f64 * 0.9,
        "only {rate:.0} tokens in a second were taken"
    );
    let mut slowest = times.clone();
    slowest.sort_by(|one, other| other.total_cmp(one));
    eprintln!("   the slowest, in ms: {:.1?}", &slowest[..5]);
    for (name, share, target) in [
        ("p50", 0.5, BenchTarget::None),
        ("p99", 0.99, BenchTarget::AtMost(16.0)),
    ] {
        report.add(Row {
            name: format!("key → paint at 2,000 tokens/s, {name}"),
            unit: "ms",
            ours: percentile(&times, share),
            original: None,
            bare: None,
            target,
        });
    }
    Ok(())
}
