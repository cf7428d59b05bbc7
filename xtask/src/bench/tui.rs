//! The terminal interface: until the prompt is there, until a key is seen, and at rest.

mod paint;
mod peers;
mod system;
mod terminal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vt100::Screen;

use super::programs::{Programs, Who};
use super::report::{BenchReport, BenchTarget, median};
use super::scenario::Samples;
use super::server::Server;
pub(super) use paint::paint;
use system::ProcessUsage;
use terminal::{BenchTerminal, row_at_cursor, rows};

/// Starts of our program, and of those that take seconds.
const STARTS: usize = 25;
const SLOW_STARTS: usize = 5;
/// The first start of some peers loads things from the network.
const PATIENCE: Duration = Duration::from_mins(3);
/// What comes with the start is over by then.
const SETTLED: Duration = Duration::from_secs(2);
/// As every program is configured.
const MODEL: &str = "scripted-model";
const REST: Duration = Duration::from_secs(10);

/// Programs that can be started at a terminal, each with a home for this scenario.
struct Cast {
    programs: BTreeMap<Who, PathBuf>,
    homes: BTreeMap<Who, PathBuf>,
}

impl Cast {
    fn new(programs: &Programs, scenario: &str, server: &Server, peers: bool) -> Result<Self> {
        let mut found: BTreeMap<Who, PathBuf> = programs
            .agents()
            .into_iter()
            .map(|who| (who, programs.path(who).to_owned()))
            .collect();
        if peers {
            found.extend(peers::installed());
        }
        let mut homes = BTreeMap::new();
        for who in found.keys() {
            let home = programs.home(scenario, *who)?;
            peers::configure(*who, &home, server)?;
            homes.insert(*who, home);
        }
        Ok(Self {
            programs: found,
            homes,
        })
    }

    /// Everyone; a peer that does not come to its prompt is left out by name.
    fn each(&self, mut each: impl FnMut(Who) -> Result<()>) -> Result<()> {
        for who in self.programs.keys() {
            match each(*who) {
                Err(error) if !matches!(who, Who::Ours) => {
                    eprintln!("   {who:?} is left out: {error:#}");
                }
                result => result?,
            }
        }
        Ok(())
    }

    fn start(&self, who: Who) -> Result<BenchTerminal> {
        let home = &self.homes[&who];
        let path = |name: &str| home.join(name).display().to_string();
        let mut vars: BTreeMap<String, String> = [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HERMES_HOME", path("home")),
            ("CODEX_HOME", path("home")),
            ("HOME", path("user")),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/sh".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if who == Who::Opencode {
            vars.insert("OPENCODE_DISABLE_AUTOUPDATE".to_owned(), "1".to_owned());
        }
        BenchTerminal::start(&self.programs[&who], &home.join("work"), &vars)
    }

    /// Started, with its prompt on the screen: the time that took.
    fn open(&self, who: Who) -> Result<(BenchTerminal, f64)> {
        let terminal = self.start(who)?;
        let seen = terminal.wait("prompt", PATIENCE, move |screen| prompts(who, screen))?;
        let took = since(terminal.started, seen);
        Ok((terminal, took))
    }
}

/// In milliseconds.
fn since(begun: Instant, seen: Instant) -> f64 {
    seen.saturating_duration_since(begun).as_secs_f64() * 1000.0
}

/// Whether the place to write in is on the screen, empty.
fn prompts(who: Who, screen: &Screen) -> bool {
    match who {
        Who::Original => row_at_cursor(screen) == "❯",
        Who::Ours | Who::Codex => row_at_cursor(screen).starts_with("› ") && !screen.hide_cursor(),
        Who::Opencode => shows(screen, "Ask anything"),
        Who::Bare => false,
    }
}

fn shows(screen: &Screen, text: &str) -> bool {
    rows(screen).iter().any(|row| row.contains(text))
}

/// What looks like a prompt takes keys. It is empty again afterwards.
fn takes_keys(who: Who, terminal: &BenchTerminal) -> Result<()> {
    const WORD: &str = "zqzq";
    for key in WORD.chars() {
        terminal.press(&key.to_string())?;
        std::thread::sleep(Duration::from_millis(60));
    }
    terminal.wait("typed word", PATIENCE, |screen| shows(screen, WORD))?;
    for _ in WORD.chars() {
        terminal.press("\x7f")?;
        std::thread::sleep(Duration::from_millis(60));
    }
    terminal.wait("empty prompt", PATIENCE, move |screen| {
        prompts(who, screen) && !shows(screen, "zq")
    })?;
    Ok(())
}

pub(super) fn start(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let server = programs.serve("tui-start", &json!({"default": {"text": "pong"}}))?;
    let cast = Cast::new(programs, "tui-start", &server, true)?;
    let (mut times, mut loaded) = (Samples::default(), Samples::default());
    let mut ready = Vec::new();
    // The first start makes files and fills caches.
    cast.each(|who| {
        let (terminal, _) = cast.open(who)?;
        takes_keys(who, &terminal)?;
        ready.push(who);
        Ok(())
    })?;
    for round in 0..STARTS {
        for who in &ready {
            if *who == Who::Ours || round < SLOW_STARTS {
                let (terminal, took) = cast.open(*who)?;
                times.add(*who, took);
                // Some show a prompt before they know what they are configured for.
                let who = *who;
                let seen = terminal.wait("model", PATIENCE, move |screen| {
                    prompts(who, screen) && shows(screen, MODEL)
                })?;
                loaded.add(who, since(terminal.started, seen));
            }
        }
    }
    let row = times.row("start → prompt", "ms", BenchTarget::AtMost(60.0), median)?;
    report.add_beside(row, times.peers(median));
    let row = loaded.row(
        "start → prompt, model known",
        "ms",
        BenchTarget::AtMost(60.0),
        median,
    )?;
    report.add_beside(row, loaded.peers(median));
    Ok(())
}

/// Types and sends, as people do: Enter comes after the text, not with it.
fn say(terminal: &BenchTerminal, text: &str) -> Result<()> {
    terminal.press(text)?;
    let word = text.to_owned();
    terminal.wait("message", PATIENCE, move |screen| shows(screen, &word))?;
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("\r")?;
    Ok(())
}

/// What waiting for a person costs.
pub(super) fn idle(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let lines: Vec<String> = (1..=200)
        .map(|line| format!("{line}. a line of the answer, **number {line}**"))
        .collect();
    let script = json!({"default": {"text": lines.join("\n"), "deltas": 400}});
    let server = programs.serve("tui-idle", &script)?;
    let cast = Cast::new(programs, "tui-idle", &server, true)?;
    let mut figures: [Samples; 6] = Default::default();
    cast.each(|who| {
        // Once, so that nothing of a first start is counted.
        drop(cast.open(who)?);
        let (terminal, _) = cast.open(who)?;
        std::thread::sleep(SETTLED);
        let before = ProcessUsage::of(terminal.pid());
        std::thread::sleep(REST);
        let after = ProcessUsage::of(terminal.pid());
        ensure!(after.threads() > 0, "it left");
        eprintln!(
            "   {who:?}: {} processes, {} threads",
            after.processes,
            after.threads()
        );
        figures[0].add(who, after.wakeups_since(&before) as f64);
        figures[1].add(who, after.cpu_ms.abs_diff(before.cpu_ms) as f64);
        figures[2].add(who, after.rss_kb as f64 / 1024.0);
        figures[3].add(who, after.pss_kb as f64 / 1024.0);
        say(&terminal, "talk")?;
        terminal.wait("end of the answer", PATIENCE, |screen| {
            shows(screen, "number 200")
        })?;
        std::thread::sleep(SETTLED);
        let talked = ProcessUsage::of(terminal.pid());
        figures[4].add(who, talked.rss_kb as f64 / 1024.0);
        figures[5].add(who, talked.pss_kb as f64 / 1024.0);
        Ok(())
    })?;
    let rows = [
        ("wake-ups in 10 s at rest", "", BenchTarget::AtMost(2.0)),
        ("CPU in 10 s at rest", "ms", BenchTarget::AtMost(0.0)),
        ("memory at the prompt, RSS", "MB", BenchTarget::AtMost(30.0)),
        ("memory at the prompt, PSS", "MB", BenchTarget::None),
        (
            "memory after 200 lines, RSS",
            "MB",
            BenchTarget::AtMost(30.0),
        ),
        ("memory after 200 lines, PSS", "MB", BenchTarget::None),
    ];
    for (samples, (name, unit, target)) in figures.iter().zip(rows) {
        let row = samples.row(name, unit, target, median);
        report.add_beside(row.context(name)?, samples.peers(median));
    }
    Ok(())
}
