//! Checks the prompt of a scheduled job. The tool, the API and the command line use the same check.

use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder};

use crate::threat_scan::{self, ScanScope};

/// Commands that stop the gateway. Text about one does not count.
const ENDS_GATEWAY: [&str; 5] = [
    r"hermes\s+gateway\s+(?:restart|stop|uninstall)\b",
    r"launchctl\s+(?:kickstart|unload|load|stop|restart)\b[^\n]*\bhermes[.\-]?gateway",
    r"systemctl\s+(?:-\S+\s+)*(?:restart|stop|start)\b[^\n]*\bhermes[.\-]?gateway",
    r"p?kill\b[^\n]*\bhermes\b[^\n]*\bgateway",
    r"p?kill\b[^\n]*\bgateway\b[^\n]*\bhermes",
];

/// A job that stops its own gateway would be started again by the next one, forever.
pub fn refuse_gateway_stop(text: &str) -> Result<(), String> {
    static PATTERNS: LazyLock<Result<RegexSet, regex::Error>> = LazyLock::new(|| {
        RegexSetBuilder::new(ENDS_GATEWAY)
            .case_insensitive(true)
            .build()
    });
    let ends = PATTERNS
        .as_ref()
        .map_or(true, |patterns| patterns.is_match(text));
    if ends {
        return Err(
            "it would stop the gateway that runs the job; do that in a terminal instead".to_owned(),
        );
    }
    Ok(())
}

/// A prompt acts later and unattended: one that looks like an attack is refused.
pub fn prompt(text: &str) -> Result<(), String> {
    match threat_scan::first(text, ScanScope::Strict) {
        None => refuse_gateway_stop(text),
        Some(found) => Err(format!(
            "the prompt was refused ({found}): it reads like an attempt to turn the agent against its person. Say plainly what is to be done"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_ends_its_gateway() {
        for ends in [
            "run `hermes gateway restart` every night",
            "systemctl --user restart hermes-gateway.service",
            "launchctl kickstart -k gui/501/ai.hermes.gateway",
            "pkill -f 'hermes.*gateway'",
            "kill $(cat gateway.pid) # hermes",
        ] {
            assert!(prompt(ends).is_err(), "{ends}");
        }
        for fine in [
            "Sum up how the Kong API gateway restarts under load",
            "hermes gateway status",
            "systemctl restart nginx",
        ] {
            assert_eq!(prompt(fine), Ok(()), "{fine}");
        }
    }
}
