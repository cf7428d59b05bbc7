//! Explains exit codes that do not mean failure.

/// The meaning of this exit code of this command, if it is not an error or has a known cause.
pub(super) fn of(command: &str, code: i32) -> Option<&'static str> {
    let last = command
        .rsplit(['|', ';', '&', '\n'])
        .map(str::trim)
        .find(|part| !part.is_empty())?;
    let name = last
        .split_whitespace()
        .find(|word| !is_assignment(word))
        .map(|word| word.rsplit('/').next().unwrap_or(word))?;
    let means = match (name, code) {
        ("grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "ag" | "ack", 1) => {
            "Nothing matched; that is not an error."
        }
        ("diff" | "colordiff" | "cmp", 1) => "The files differ; that is not an error.",
        ("find", 1) => "Some directories could not be read; what was found is valid.",
        ("test" | "[" | "[[", 1) => "The condition is false; that is not an error.",
        ("pgrep" | "pkill", 1) => "No process matched; that is not an error.",
        ("curl", 6) => "The host name could not be resolved.",
        ("curl", 7) => "The connection was refused or could not be made.",
        ("curl", 22) => "The server answered with an error status.",
        ("curl", 28) => "The transfer took too long.",
        ("git", 1) => {
            "Often no error: git diff and git grep say 1 for differences and for nothing found."
        }
        (_, 126) => "The command could not be executed, or its directory not be entered.",
        (_, 127) => "There is no such command.",
        (_, 137) => "It was killed (KILL), perhaps for lack of memory.",
        (_, 139) => "It crashed (segmentation fault).",
        (_, 143) => "It was ended (TERM).",
        _ => return None,
    };
    Some(means)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| hermes_exec::shell::is_name(name))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn the_last_command_decides() {
        assert!(of("cat x | grep y", 1).is_some());
        assert!(of("LC_ALL=C /usr/bin/grep y f", 1).is_some());
        assert!(of("grep y f; ls", 1).is_none());
        assert!(of("grep y f", 2).is_none());
        assert!(of("diff a b", 1).is_some());
        assert!(of("ls", 0).is_none());
        assert!(of("", 1).is_none());
        assert!(of("curl http://x", 7).is_some());
    }
}
