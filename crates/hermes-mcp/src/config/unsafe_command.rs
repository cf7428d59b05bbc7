//! Refuses `mcp_servers` entries that look like an attack.
//!
//! An MCP server is a program started from config.yaml, so an attacker who can add an entry can run
//! anything. This catches patterns that no real server has: a shell script that accesses the
//! network itself, or changes login or startup files.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

const SHELLS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "busybox",
    "cmd",
    "powershell",
    "pwsh",
];

/// Wrappers that only run the following command.
const WRAPPERS: &[&str] = &[
    "env", "nohup", "setsid", "exec", "sudo", "doas", "time", "nice",
];

/// A description and the pattern for it.
static UNSAFE_PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    [
        (
            "moves data over the network by itself",
            r"(?i)(?:^|[^\w.-])(?:curl|wget|nc|ncat|netcat|socat|telnet|ftp|scp)(?:$|[^\w.-])|/dev/(?:tcp|udp)/|invoke-(?:webrequest|restmethod)|net\.webclient|\bi(?:wr|rm)\s+http",
        ),
        (
            "touches what lets people in or starts programs (ssh keys, PAM, sudo, cron, units, shell start files)",
            r"(?i)authorized_keys|(?:^|[\s/~'])\.ssh/|/etc/(?:ssh|pam\.d|sudoers|cron|rc\.local|systemd|init\.d|ld\.so\.preload|profile)|pam_[\w-]+\.so|\bcrontab\b|\.config/(?:systemd|autostart)|launch(?:agents|daemons)/|\.(?:bash_profile|bash_login|bashrc|profile|zshrc|zshenv|zprofile)\b",
        ),
        (
            "unpacks a hidden script",
            r"(?i)base64\s+(?:-d|-D|--decode)[^|]*\|\s*(?:ba|z|da)?sh\b|-e(?:nc|ncodedcommand)\s+[A-Za-z0-9+/=]{40,}",
        ),
    ]
    .into_iter()
    .filter_map(|(what, pattern)| Some((what, Regex::new(pattern).ok()?)))
    .collect()
});

/// Why this command line is not started; empty if it is fine.
pub(super) fn unsafe_reasons(command: &str, args: &[String]) -> Vec<String> {
    let words: Vec<&str> = command
        .split_whitespace()
        .chain(args.iter().map(String::as_str))
        .collect();
    let Some(shell) = shell_of(&words) else {
        return Vec::new();
    };
    let script = words.join(" ");
    UNSAFE_PATTERNS
        .iter()
        .filter(|(_, pattern)| pattern.is_match(&script))
        .map(|(what, _)| format!("its {shell} script {what}, which MCP servers do not need"))
        .collect()
}

/// The shell that this command line starts, skipping wrappers and their options.
fn shell_of<'a>(words: &[&'a str]) -> Option<&'a str> {
    for &word in words {
        let name = Path::new(word).file_name()?.to_str()?;
        let plain = name.strip_suffix(".exe").unwrap_or(name);
        let lower = plain.to_ascii_lowercase();
        if SHELLS.contains(&lower.as_str()) {
            return Some(plain);
        }
        let is_prefix = WRAPPERS.contains(&lower.as_str())
            || word.starts_with('-')
            || (word.contains('=') && !word.contains('/'));
        if !is_prefix {
            return None;
        }
    }
    None
}
