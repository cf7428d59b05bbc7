//! What a lost session costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::super::programs::{Programs, Who};
use super::super::report::{BenchReport, BenchTarget, Row, median};
use super::drivers::{Driver, at, echo, order, serve};

/// The original waits so long for an answer; its default is five minutes.
const ORIGINAL_TIMEOUT_S: u64 = 4;
/// And this long for all answers of a batch.
const ORIGINAL_BUDGET_S: u64 = 40;
/// Round trip of the line on which round trips are counted.
const LINE_MS: u64 = 20;
/// Shapes of a lost session that the server knows.
const SHAPES: usize = 18;

/// Connects to one host keep a distance; no session lives so short that it would count. And the
/// listening stream is open by then.
const CALM: Duration = Duration::from_millis(100);

/// Callers that find the session gone, all at once.
pub(in crate::bench) fn callers(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let mut server = serve(&["faulty"])?;
    let mut ours = Driver::start(programs, Who::Ours, &at(server.url()?))?;
    for callers in [1, 20, 100] {
        let who = if callers == 1 { "caller" } else { "callers" };
        ours.good_calls(&echo(20, 4))?;
        std::thread::sleep(CALM);
        let before = order(&mut server, &json!({"do": "expire"}))?;
        let done = ours.calls(&echo(callers, callers))?;
        for failed in &done.failed {
            eprintln!("   hermes: {failed}");
        }
        let after = order(&mut server, &json!({"do": "counts"}))?;
        let sessions = |counts: &serde_json::Value| counts["sessions"].as_f64().unwrap_or(f64::NAN);
        let mut beside = None;
        if programs.agents().contains(&Who::Original) {
            let mut setup = at(server.url()?);
            setup["timeout_s"] = json!(ORIGINAL_TIMEOUT_S);
            let mut original = Driver::start(programs, Who::Original, &setup)?;
            original.good_calls(&echo(5, 1))?;
            let before = order(&mut server, &json!({"do": "expire"}))?;
            let mut batch = echo(callers, callers.max(2));
            batch["budget_s"] = json!(ORIGINAL_BUDGET_S);
            let done = original.calls(&batch)?;
            let after = order(&mut server, &json!({"do": "counts"}))?;
            beside = Some((done, sessions(&after) - sessions(&before)));
        }
        let original = beside.as_ref();
        report.add(Row {
            name: format!("{callers} {who} at expiry: failed"),
            unit: "calls",
            ours: done.failed.len() as f64,
            original: original.map(|(done, _)| done.failed.len() as f64),
            bare: None,
            target: BenchTarget::AtMost(0.0),
        });
        report.add(Row {
            name: format!("{callers} {who} at expiry: new sessions"),
            unit: "sessions",
            ours: sessions(&after) - sessions(&before),
            original: original.map(|(_, sessions)| *sessions),
            bare: None,
            target: BenchTarget::AtMost(1.0),
        });
        report.add(Row {
            name: format!("{callers} {who} at expiry: until the last answer"),
            unit: "ms",
            ours: done.wall_ms,
            original: original.map(|(done, _)| done.wall_ms),
            bare: None,
            target: BenchTarget::None,
        });
    }
    Ok(())
}

/// What the first call after a loss takes longer than any other, for each shape.
struct Added {
    name: String,
    /// `None`: the call failed.
    ms: Option<f64>,
    took: f64,
}

fn ours(programs: &Programs, delayed: bool) -> Result<(f64, Vec<Added>)> {
    let mut server = serve(&["faulty", &LINE_MS.to_string()])?;
    let key = if delayed { "delayed_url" } else { "url" };
    let url = server.about[key].as_str().context("it has an address")?;
    let mut driver = Driver::start(programs, Who::Ours, &at(url))?;
    let healthy = median(&driver.good_calls(&echo(60, 1))?.ms);
    let mut shapes = Vec::new();
    for shape in 0..SHAPES {
        let (mut times, mut name, mut failed) = (Vec::new(), String::new(), false);
        for _ in 0..5 {
            let told = order(&mut server, &json!({"do": "loss", "shape": shape}))?;
            told["shape"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut name);
            order(&mut server, &json!({"do": "expire"}))?;
            let done = driver.calls(&echo(1, 1))?;
            for text in &done.failed {
                eprintln!("   hermes, {name}: {text}");
            }
            failed |= !done.failed.is_empty();
            times.push(done.wall_ms - healthy);
            driver.calls(&echo(3, 1))?;
            std::thread::sleep(CALM);
        }
        let took = median(&times);
        shapes.push(Added {
            name,
            ms: (!failed).then_some(took),
            took,
        });
    }
    Ok((healthy, shapes))
}

fn original(programs: &Programs) -> Result<Vec<Added>> {
    let mut server = serve(&["faulty"])?;
    let mut setup = at(server.url()?);
    setup["timeout_s"] = json!(ORIGINAL_TIMEOUT_S);
    let mut driver = Driver::start(programs, Who::Original, &setup)?;
    let healthy = median(&driver.good_calls(&echo(10, 1))?.ms);
    let mut shapes = Vec::new();
    for shape in 0..SHAPES {
        let told = order(&mut server, &json!({"do": "loss", "shape": shape}))?;
        order(&mut server, &json!({"do": "expire"}))?;
        let started = Instant::now();
        // Two at most at once makes the driver keep an eye on the clock.
        let mut batch = echo(1, 2);
        batch["budget_s"] = json!(ORIGINAL_BUDGET_S);
        let done = driver.calls(&batch)?;
        let took = started.elapsed().as_secs_f64() * 1e3 - healthy;
        let healed = done.failed.is_empty();
        shapes.push(Added {
            name: told["shape"].as_str().unwrap_or_default().to_owned(),
            ms: healed.then_some(took),
            took,
        });
        if !healed || driver.good_calls(&echo(1, 1)).is_err() {
            driver = Driver::start(programs, Who::Original, &setup)?;
        }
    }
    Ok(shapes)
}

/// The added latency of a recovery, for every shape of a lost session.
pub(in crate::bench) fn recovery(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let beside = if programs.agents().contains(&Who::Original) {
        Some(original(programs)?)
    } else {
        None
    };
    let times = |shapes: &[Added]| shapes.iter().map(|shape| shape.took).collect::<Vec<_>>();
    let worst = |shapes: &[Added]| times(shapes).into_iter().fold(f64::MIN, f64::max);
    let lost = |shapes: &[Added]| shapes.iter().filter(|shape| shape.ms.is_none()).count() as f64;
    for delayed in [false, true] {
        let (healthy, shapes) = ours(programs, delayed)?;
        let beside = beside.as_deref().filter(|_| !delayed);
        for (at, shape) in shapes.iter().enumerate() {
            let original = beside.map(|beside| format!("{:.0} ms", beside[at].took));
            eprintln!(
                "   {}: {:.2} ms added to {healthy:.2} ms, original {original:?}",
                shape.name, shape.took
            );
        }
        let line = if delayed {
            format!("{LINE_MS} ms line")
        } else {
            "loopback".to_owned()
        };
        let target = BenchTarget::AtMost(((3.0 * healthy + 5.0) * 100.0).round() / 100.0);
        let mut add = |name: &str, unit, target, of: &dyn Fn(&[Added]) -> f64| {
            report.add(Row {
                name: format!("{name} ({line})"),
                unit,
                ours: of(&shapes),
                original: beside.map(of),
                bare: None,
                target,
            });
        };
        add(
            "shapes of session loss not healed, of 18",
            "shapes",
            BenchTarget::AtMost(0.0),
            &lost,
        );
        add("recovery adds, median shape", "ms", target, &|shapes| {
            median(&times(shapes))
        });
        add("recovery adds, worst shape", "ms", target, &worst);
    }
    Ok(())
}
