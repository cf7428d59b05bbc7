//! Figures, targets and the table.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::target_dir;

/// What a figure must satisfy.
#[derive(Clone, Copy, Debug)]
pub(super) enum BenchTarget {
    None,
    /// Ours is at most this.
    AtMost(f64),
    /// Ours is at least this.
    AtLeast(f64),
    /// Ours is at most so many times the bare client.
    TimesBare(f64),
    /// At most `bare` times the bare client, and the original takes `original` times ours.
    Between {
        bare: f64,
        original: f64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub name: String,
    pub unit: &'static str,
    pub ours: f64,
    pub original: Option<f64>,
    pub bare: Option<f64>,
    pub target: BenchTarget,
}

/// Figures of other agents for the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerFigures {
    pub codex: Option<f64>,
    pub opencode: Option<f64>,
}

#[derive(Default)]
pub(super) struct BenchReport {
    rows: Vec<(Row, PeerFigures)>,
}

impl Row {
    /// `None`: nothing is asked of this figure, or what it is compared with is missing.
    fn met(&self) -> Option<bool> {
        match self.target {
            BenchTarget::None => None,
            BenchTarget::AtMost(most) => Some(self.ours <= most),
            BenchTarget::AtLeast(least) => Some(self.ours >= least),
            BenchTarget::TimesBare(times) => Some(self.ours <= self.bare? * times),
            BenchTarget::Between { bare, original } => {
                Some(self.ours <= self.bare? * bare && self.original? >= self.ours * original)
            }
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            BenchTarget::None => String::new(),
            BenchTarget::AtMost(most) => format!("≤ {most} {}", self.unit).trim_end().to_owned(),
            BenchTarget::AtLeast(least) => format!("≥ {least} {}", self.unit).trim_end().to_owned(),
            BenchTarget::TimesBare(times) => format!("≤ {times}× bare"),
            BenchTarget::Between { bare, original } => {
                format!("≤ {bare}× bare, original ≥ {original}×")
            }
        }
    }
}

impl BenchReport {
    pub(super) fn add(&mut self, row: Row) {
        self.add_beside(row, PeerFigures::default());
    }

    pub(super) fn add_beside(&mut self, row: Row, peers: PeerFigures) {
        let mut others = vec![("original", row.original), ("bare", row.bare)];
        others.extend([("codex", peers.codex), ("opencode", peers.opencode)]);
        let others: Vec<String> = others
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {:.2}", value?)))
            .collect();
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!(" ({})", others.join(", "))
        };
        eprintln!("   {}: {:.2} {}{beside}", row.name, row.ours, row.unit);
        self.rows.push((row, peers));
    }

    pub(super) fn print(&self) {
        println!(
            "\n| | hermes | original | bare client | codex | opencode | original ÷ hermes | hermes ÷ bare | target | met |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for (row, peers) in &self.rows {
            let met = match row.met() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            let name = if row.unit.is_empty() {
                row.name.clone()
            } else {
                format!("{} ({})", row.name, row.unit)
            };
            println!(
                "| {name} | {:.2} | {} | {} | {} | {} | {} | {} | {} | {met} |",
                row.ours,
                figure(row.original),
                figure(row.bare),
                figure(peers.codex),
                figure(peers.opencode),
                ratio(row.original, Some(row.ours)),
                ratio(Some(row.ours), row.bare),
                row.target_text(),
            );
        }
    }

    pub(super) fn write(&self) -> Result<()> {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(row, peers)| {
                json!({"name": row.name, "unit": row.unit, "hermes": row.ours,
                       "original": row.original, "bare": row.bare,
                       "codex": peers.codex, "opencode": peers.opencode,
                       "target": row.target_text(), "met": row.met()})
            })
            .collect();
        let path = target_dir().join("bench.json");
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(&path, text + "\n").with_context(|| path.display().to_string())
    }

    pub(super) fn check(&self) -> Result<()> {
        let missed: Vec<&str> = self
            .rows
            .iter()
            .filter(|(row, _)| row.met() == Some(false))
            .map(|(row, _)| row.name.as_str())
            .collect();
        if !missed.is_empty() {
            bail!("targets missed: {}", missed.join("; "));
        }
        Ok(())
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

fn ratio(over: Option<f64>, under: Option<f64>) -> String {
    match (over, under) {
        (Some(over), Some(under)) if under > 0.0 => format!("{:.1}×", over / under),
        _ => "–".to_owned(),
    }
}

/// The value below which `share` of the values lie.
pub(super) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

pub(super) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert!((median(&values) - 3.0).abs() < f64::EPSILON);
        assert!((percentile(&values, 0.95) - 5.0).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_missing_comparison_is_neither_met_nor_missed() {
        let row = |original| Row {
            name: "start".to_owned(),
            unit: "ms",
            ours: 10.0,
            original,
            bare: Some(2.0),
            target: BenchTarget::Between {
                bare: 10.0,
                original: 100.0,
            },
        };
        assert_eq!(row(Some(2000.0)).met(), Some(true));
        assert_eq!(row(Some(900.0)).met(), Some(false));
        assert_eq!(row(None).met(), None);
    }
}
