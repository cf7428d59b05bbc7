//! Entries that look like an attack are not started, and not saved.
//!
//! An MCP server is a program that config.yaml starts. Whoever can plant an entry can run anything;
//! what is caught here are the shapes that no real server has: a shell whose script talks to the
//! network by itself, or touches what starts programs and lets people in.

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

/// Wrappers that only start what follows.
const WRAPPERS: &[&str] = &[
    "env", "nohup", "setsid", "exec", "sudo", "doas", "time", "nice",
];

/// `what` → how it looks in a script.
static SIGNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
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

/// Why this command line is not started. Empty: nothing against it.
pub fn suspicions(command: &str, args: &[String]) -> Vec<String> {
    let words: Vec<&str> = command
        .split_whitespace()
        .chain(args.iter().map(String::as_str))
        .collect();
    let Some(shell) = shell_of(&words) else {
        return Vec::new();
    };
    let script = words.join(" ");
    SIGNS
        .iter()
        .filter(|(_, sign)| sign.is_match(&script))
        .map(|(what, _)| format!("its {shell} script {what}, which MCP servers do not need"))
        .collect()
}

/// The shell this line starts, past wrappers and their options.
fn shell_of<'a>(words: &[&'a str]) -> Option<&'a str> {
    for &word in words {
        let name = Path::new(word).file_name()?.to_str()?;
        let plain = name.strip_suffix(".exe").unwrap_or(name);
        let lower = plain.to_ascii_lowercase();
        if SHELLS.contains(&lower.as_str()) {
            return Some(plain);
        }
        let passes = WRAPPERS.contains(&lower.as_str())
            || word.starts_with('-')
            || (word.contains('=') && !word.contains('/'));
        if !passes {
            return None;
        }
    }
    None
}
