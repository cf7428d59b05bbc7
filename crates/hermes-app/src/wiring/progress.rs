//! Reports that a run waits for MCP servers.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::context::HostProcess;

/// Shorter waits are not reported.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of names in a line.
const MAX_NAMES: usize = 3;

/// Waits for `work`. After a second, stderr shows the reason: on a terminal in a temporary line
/// with the elapsed time, elsewhere once.
pub async fn report_wait<T>(
    process: Option<&dyn HostProcess>,
    work: impl Future<Output = T>,
    awaited: impl Fn() -> Vec<String>,
) -> T {
    let Some(process) = process else {
        return work.await;
    };
    let started_at = Instant::now();
    let mut ticks = interval_at(started_at + MIN_REPORTED_WAIT, MIN_REPORTED_WAIT);
    let mut shown = false;
    tokio::pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done,
            _ = ticks.tick() => {}
        }
        if let Some(text) = line(&awaited(), started_at.elapsed()) {
            if process.replaces_lines() {
                process.transient(&text);
            } else if !shown {
                process.remark(&text);
            }
            shown = true;
        }
    };
    if shown && process.replaces_lines() {
        process.transient("");
    }
    done
}

/// `waiting for MCP server npx-thing (3 s) …`
fn line(names: &[String], waited: Duration) -> Option<String> {
    let named = match names {
        [] => return None,
        [one] => format!("server {one}"),
        some if some.len() <= MAX_NAMES => format!("servers {}", some.join(", ")),
        many => format!(
            "servers {} and {} more",
            many[..MAX_NAMES].join(", "),
            many.len() - MAX_NAMES
        ),
    };
    Some(format!(
        "waiting for MCP {named} ({} s) …",
        waited.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_a_few_servers() {
        let names = |count: usize| (1..=count).map(|n| format!("s{n}")).collect::<Vec<_>>();
        let shown = |count| line(&names(count), Duration::from_millis(3200));
        assert_eq!(shown(0), None);
        assert_eq!(shown(1).unwrap(), "waiting for MCP server s1 (3 s) …");
        assert_eq!(
            shown(3).unwrap(),
            "waiting for MCP servers s1, s2, s3 (3 s) …"
        );
        assert_eq!(
            shown(5).unwrap(),
            "waiting for MCP servers s1, s2, s3 and 2 more (3 s) …"
        );
    }
}
