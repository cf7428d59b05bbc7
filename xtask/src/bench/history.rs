//! Long conversations and large stores.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::process::millis;
use super::programs::{Programs, Who, configure};
use super::report::{BenchReport, BenchTarget, Row, median, percentile};
use super::scenario::{Samples, rounds};

/// How many words the made-up language has. As in a real one, the word of rank n comes about 1/n as
/// often as the first.
const VOCABULARY: f64 = 5000.0;

const SYLLABLES: &[&str] = &[
    "ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za",
    "shi",
];

/// The word of this rank: three or four syllables, different for each rank.
fn word(rank: usize) -> String {
    let count = SYLLABLES.len();
    let mut text = String::new();
    let mut rest = rank;
    for _ in 0..3 {
        text.push_str(SYLLABLES[rest % count]);
        rest /= count;
    }
    if rest > 0 {
        text.push_str(SYLLABLES[rest % count]);
    }
    text
}

/// The same text in every run.
struct Text(u64);

impl Text {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A rank with probability about 1/rank.
    fn rank(&mut self) -> usize {
        let unit = self.next() as f64 / (1_u64 << 31) as f64;
        VOCABULARY.powf(unit) as usize
    }

    fn sentence(&mut self, words: usize) -> String {
        let mut text: Vec<String> = (0..words).map(|_| word(self.rank())).collect();
        text.push((self.next() % 100_000).to_string());
        text.join(" ")
    }

    /// What a person looks for: any word but the very commonest, alone or two together.
    fn query(&mut self, number: usize) -> String {
        let (first, second) = (word(self.rank() + 10), word(self.rank() + 10));
        match number % 3 {
            0 => first,
            1 => format!("{first} {second}"),
            _ => format!("{first} OR {second}"),
        }
    }
}

/// Conversations for a store of this size.
#[derive(Clone, Copy)]
struct Shape {
    sessions: usize,
    messages: usize,
    words: usize,
}

/// Writes conversations `from..to` in the form that `sessions import` reads.
fn write_sessions(file: &Path, range: Range<usize>, shape: Shape) -> Result<()> {
    let mut text = Text(range.start as u64);
    let mut lines = String::new();
    for session in range {
        let started = 1_700_000_000.0 + session as f64 * 3600.0;
        let rows: Vec<Value> = (0..shape.messages)
            .map(|row| {
                json!({"role": if row % 2 == 0 { "user" } else { "assistant" },
                       "content": text.sentence(shape.words), "timestamp": started + row as f64})
            })
            .collect();
        let line = json!({"id": format!("bench_{session:04}"), "source": "cli",
                          "model": "scripted-model", "started_at": started, "messages": rows});
        let _ = writeln!(lines, "{line}");
    }
    fs::write(file, lines).with_context(|| file.display().to_string())
}

/// Fills a home's store, a few megabytes at a time.
fn import(programs: &Programs, home: &Path, shape: Shape) -> Result<()> {
    const AT_ONCE: usize = 40;
    let file = home.join("sessions.jsonl");
    let path = file.to_str().context("the path is text")?;
    for from in (0..shape.sessions).step_by(AT_ONCE) {
        write_sessions(&file, from..(from + AT_ONCE).min(shape.sessions), shape)?;
        programs.run(Who::Ours, &["sessions", "import", path], home)?;
    }
    Ok(())
}

/// The first request of a turn on a long conversation.
pub(super) fn preparation(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let server = programs.serve("history", &json!({"default": {"text": "pong"}}))?;
    let sizes = [2, 1000, 10_000];
    let mut times = [0.0; 3];
    let mut bytes = [0.0; 3];
    for (at, size) in sizes.into_iter().enumerate() {
        let mut first = Samples::default();
        // A fresh home per size; within it each run adds two messages, which does not matter.
        for who in programs.agents() {
            let home = programs.home(&format!("history/{size}"), who)?;
            configure(&home, &server.base_url)?;
            import(
                programs,
                &home,
                Shape {
                    sessions: 1,
                    messages: size,
                    words: 8,
                },
            )?;
        }
        rounds(&programs.agents(), |who, counts| {
            let home = programs.home(&format!("history/{size}"), who)?;
            let args = ["--resume", "bench_0000", "-z", "next"];
            let run = programs.run(who, &args, &home)?;
            let calls = server.calls();
            let call = calls.first().context("a model call was made")?;
            if counts {
                first.add(who, millis(run.started, call.arrived));
            }
            if who == Who::Ours {
                bytes[at] = call.bytes as f64;
            }
            Ok(())
        })?;
        times[at] = first
            .get(Who::Ours, median)
            .context("our program was measured")?;
        if size > 2 {
            let name = format!("start → first byte with {size} messages");
            report.add(first.row(&name, "ms", BenchTarget::None, median)?);
        }
    }
    let growth = (times[2] - times[0]) / (times[1] - times[0]).max(0.1);
    let text = (bytes[2] - bytes[0]) / (bytes[1] - bytes[0]).max(1.0);
    eprintln!("   times {times:?}, bytes {bytes:?}");
    report.add(Row {
        name: "preparation from 1,000 to 10,000 messages ÷ text sent".to_owned(),
        unit: "×",
        ours: growth / text,
        original: None,
        bare: None,
        target: BenchTarget::AtMost(1.2),
    });
    Ok(())
}

/// Searches as the model makes them: the whole round from answer to next request.
pub(super) fn search(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let shape = Shape {
        sessions: 400,
        messages: 500,
        words: 20,
    };
    let mut text = Text(7);
    let replies: Vec<Value> = (0..60)
        .map(|number| {
            let arguments = json!({"query": text.query(number)});
            json!({"tool_calls": [{"name": "session_search", "arguments": arguments}]})
        })
        .collect();
    let script = json!({"replies": replies, "default": {"text": "finished"}});
    let mut rounds = Samples::default();
    let mut alone = Vec::new();
    let prepared = programs.home("search", Who::Ours)?;
    import(programs, &prepared, shape)?;
    for who in programs.agents() {
        let home = programs.home("search", who)?;
        if who != Who::Ours {
            for name in ["state.db", "state.db-wal"] {
                let from = prepared.join("home").join(name);
                if from.exists() {
                    fs::copy(&from, home.join("home").join(name))?;
                }
            }
        }
        // Twice: the first time reads the file into the system's cache.
        for counts in [false, true] {
            let server = programs.serve("search", &script)?;
            configure(&home, &server.base_url)?;
            let events = ["--output-format", "stream-json"];
            let mut args = vec!["-z", "look it up"];
            if who == Who::Ours {
                args.extend(events);
            }
            let run = programs.run(who, &args, &home)?;
            let calls = server.calls();
            if who == Who::Ours {
                alone = tool_times(&run.stdout);
                ensure!(alone.len() > 50, "only {} searches ended", alone.len());
            }
            ensure!(
                run.stdout.contains("finished"),
                "{who:?} answered {:?}",
                run.stdout
            );
            ensure!(calls.len() > 50, "{who:?} made only {} calls", calls.len());
            for pair in calls.windows(2).filter(|_| counts) {
                rounds.add(who, millis(pair[0].answered, pair[1].arrived));
            }
        }
    }
    report.add(rounds.row(
        "round with a search in 200,000 messages, p50",
        "ms",
        BenchTarget::None,
        median,
    )?);
    // A round also sends the growing conversation and indexes its results.
    report.add(Row {
        name: "that search alone, p95".to_owned(),
        unit: "ms",
        ours: percentile(&alone, 0.95),
        original: None,
        bare: None,
        target: BenchTarget::AtMost(15.0),
    });
    Ok(())
}

/// How long each tool call of a run took, by its own events.
fn tool_times(events: &str) -> Vec<f64> {
    events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["type"] == "tool_end")
        .filter_map(|event| event["millis"].as_f64())
        .collect()
}
