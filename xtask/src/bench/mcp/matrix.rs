//! A fixed sample of the ways to lose a session: who recovers, by which call, and how fast.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::programs::{Programs, Who};
use super::super::report::{BenchReport, BenchTarget, Row, median};
use super::drivers::{Driver, at, echo, order, serve};
use super::talk::Talker;

/// Shapes of the sample.
const SHAPES: usize = 60;
/// Round trip of the line on which round trips are counted.
const LINE_MS: u64 = 20;
/// What a call may take; the default of both programs is five minutes.
const TIMEOUT_S: u64 = 4;
/// What the original may take for one call with its own waits.
const BUDGET_S: u64 = 25;
/// Originals that are measured beside each other: each waits most of the time.
const LANES: usize = 6;
/// How often a recovery is measured.
const REPEATS: usize = 3;

/// What became of the calls after one loss.
#[derive(Clone, Debug)]
struct Finding {
    how: String,
    certain: bool,
    /// The first call that succeeded, if one of the two did.
    healed_by: Option<usize>,
    doubled: usize,
    /// What the first call took.
    ms: f64,
}

/// A call whose effect can be found again. True: it is said to be done, and it was.
fn count(driver: &mut Driver, server: &mut Talker, token: &str) -> Result<(bool, usize, f64)> {
    // Two at most at once makes the original keep an eye on the clock.
    let batch = json!({"tool": "bump", "arguments": {"token": token}, "count": 1, "parallel": 2,
                       "budget_s": BUDGET_S});
    let done = driver.calls(&batch)?;
    let marks = order(server, &json!({"do": "marks"}))?;
    let marks = marks["marks"].as_array().context("it lists its marks")?;
    let runs = marks.iter().filter(|mark| *mark == token).count();
    let fine = done.failed.is_empty() && runs > 0;
    Ok((fine, runs.saturating_sub(1), done.wall_ms))
}

/// One loss and two calls.
fn lose(driver: &mut Driver, server: &mut Talker, at: usize, round: usize) -> Result<Finding> {
    let told = order(server, &json!({"do": "lose", "at": at}))?;
    let (first, twice, ms) = count(driver, server, &format!("{at}-{round}-first"))?;
    let (second, again, _) = count(driver, server, &format!("{at}-{round}-second"))?;
    Ok(Finding {
        how: told["how"].as_str().unwrap_or_default().to_owned(),
        certain: told["certain"] == true,
        healed_by: [first, second].iter().position(|fine| *fine),
        doubled: twice + again,
        ms,
    })
}

fn setup(url: &str) -> Value {
    let mut setup = at(url);
    setup["timeout_s"] = json!(TIMEOUT_S);
    setup
}

/// The shapes of one lane; who does not recover is started again.
fn lane(programs: &Programs, who: Who, number: usize, lanes: usize) -> Result<Vec<Finding>> {
    let mut server = serve(&["faulty"])?;
    let setup = setup(server.url()?);
    let home = format!("mcp-matrix-{number}");
    let mut driver = Driver::start_in(&home, programs, who, &setup)?;
    let mut findings = Vec::new();
    for at in (number..SHAPES).step_by(lanes) {
        let finding = lose(&mut driver, &mut server, at, 0)?;
        if finding.healed_by.is_none() || driver.good_calls(&echo(1, 1)).is_err() {
            driver = Driver::start_in(&home, programs, who, &setup)?;
        }
        findings.push(finding);
    }
    Ok(findings)
}

fn original(programs: &Programs) -> Result<Vec<Finding>> {
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|number| scope.spawn(move || lane(programs, Who::Original, number, LANES)))
            .collect();
        let mut findings = Vec::new();
        for lane in lanes {
            let found = lane.join().map_err(|_| anyhow::anyhow!("a lane broke"))?;
            findings.extend(found?);
        }
        Ok(findings)
    })
}

/// What the recovery of certain refusals adds to a call, on a long line, in ms; and a healthy call.
fn added(programs: &Programs) -> Result<(f64, Vec<f64>)> {
    let mut server = serve(&["faulty", &LINE_MS.to_string()])?;
    let url = server.about["delayed_url"].as_str();
    let setup = setup(url.context("it has an address")?);
    let mut driver = Driver::start_in("mcp-matrix", programs, Who::Ours, &setup)?;
    let healthy = median(&driver.good_calls(&echo(40, 1))?.ms);
    let mut times = Vec::new();
    for at in 0..SHAPES {
        let mut own = Vec::new();
        for round in 0..REPEATS {
            let finding = lose(&mut driver, &mut server, at, round)?;
            if finding.certain && finding.healed_by == Some(0) {
                own.push(finding.ms - healthy);
            }
            if driver.good_calls(&echo(1, 1)).is_err() {
                driver = Driver::start_in("mcp-matrix", programs, Who::Ours, &setup)?;
            }
            if !finding.certain {
                break;
            }
        }
        if !own.is_empty() {
            times.push(median(&own));
        }
    }
    Ok((healthy, times))
}

pub(in crate::bench) fn matrix(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let ours = lane(programs, Who::Ours, 0, 1)?;
    let beside = if programs.agents().contains(&Who::Original) {
        Some(original(programs)?)
    } else {
        None
    };
    let by = |who: &str, findings: &[Finding]| {
        for finding in findings {
            let healed = match finding.healed_by {
                Some(call) => format!("call {}", call + 1),
                None => "NOT healed".to_owned(),
            };
            let certain = if finding.certain { "certain" } else { "" };
            eprintln!("   {who} {}: {healed} {certain}", finding.how);
        }
    };
    by("hermes", &ours);
    by("original", beside.as_deref().unwrap_or_default());
    let certain = ours.iter().filter(|finding| finding.certain).count();
    let mut add = |name: &str, unit, target, of: &dyn Fn(&[Finding]) -> f64| {
        report.add(Row {
            name: format!("session lost in {SHAPES} shapes: {name}"),
            unit,
            ours: of(&ours),
            original: beside.as_deref().map(of),
            bare: None,
            target,
        });
    };
    let healed = |findings: &[Finding], call: Option<usize>, certain: bool| {
        let of_kind = findings.iter().filter(|one| one.certain || !certain);
        of_kind.filter(|one| one.healed_by == call).count() as f64
    };
    add(
        &format!("first call succeeds, of {certain} certain refusals"),
        "shapes",
        BenchTarget::AtLeast(certain as f64),
        &|all| healed(all, Some(0), true),
    );
    add("first call succeeds", "shapes", BenchTarget::None, &|all| {
        healed(all, Some(0), false)
    });
    add(
        "second call succeeds",
        "shapes",
        BenchTarget::None,
        &|all| healed(all, Some(1), false),
    );
    add(
        "neither succeeds",
        "shapes",
        BenchTarget::AtMost(0.0),
        &|all| healed(all, None, false),
    );
    add(
        "calls done twice",
        "calls",
        BenchTarget::AtMost(0.0),
        &|all| all.iter().map(|finding| finding.doubled as f64).sum(),
    );
    let (healthy, times) = added(programs)?;
    let target = BenchTarget::AtMost(((3.0 * healthy + 5.0) * 100.0).round() / 100.0);
    let worst = times.iter().copied().fold(f64::NAN, f64::max);
    for (name, ours) in [("median", median(&times)), ("worst", worst)] {
        report.add(Row {
            name: format!("certain refusal, recovery adds, {name} ({LINE_MS} ms line)"),
            unit: "ms",
            ours,
            original: None,
            bare: None,
            target,
        });
    }
    Ok(())
}
