//! Inside the gateway, a command must not stop the gateway: it would be killed with it.

use std::sync::LazyLock;

use regex::Regex;

static LIFECYCLE: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::unwrap_used, reason = "a constant, used by the test below")]
    Regex::new(
        r"(?i)\bhermes(?:\s+(?:-\S+|--\S+=\S+))*\s+gateway\s+(?:stop|restart|uninstall)\b|\bsystemctl\b[^;|&\n]*\b(?:stop|restart|kill|disable)\b[^;|&\n]*\bhermes|\b(?:pkill|killall)\b[^;|&\n]*\bhermes",
    )
    .unwrap()
});

pub(super) fn stops_gateway(command: &str) -> bool {
    LIFECYCLE.is_match(command)
}

pub(super) const REFUSED: &str = "This would stop the gateway that runs it, before it could finish. \
    The person can run `hermes gateway restart` in a shell outside the gateway.";

#[cfg(test)]
mod tests {
    use super::stops_gateway;

    #[test]
    fn what_ends_the_gateway_is_seen() {
        for command in [
            "hermes gateway restart",
            "sleep 1; hermes --profile=x gateway stop",
            "systemctl --user restart hermes-gateway",
            "pkill -f hermes",
        ] {
            assert!(stops_gateway(command), "{command}");
        }
        for command in [
            "hermes gateway status",
            "systemctl status hermes",
            "echo hermes",
        ] {
            assert!(!stops_gateway(command), "{command}");
        }
    }
}
