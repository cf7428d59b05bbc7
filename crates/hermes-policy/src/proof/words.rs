//! Names, wildcards and numbers.

/// A name of a variable or function.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Characters of arithmetic without variables.
pub(super) fn is_plain_arithmetic(c: char) -> bool {
    c.is_ascii_digit() || " +-*/%<>=&|^~!?:,()".contains(c)
}

/// Upper-case variables that are only cosmetic.
const LOOKS: [&str; 14] = [
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_COLLATE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "TZ",
    "TERM",
    "NO_COLOR",
    "CLICOLOR",
    "COLUMNS",
    "LINES",
];
/// Parts of names of variables that programs or the shell itself read.
const ACTS: [&str; 72] = [
    "PATH", "OPT", "PAGE", "EDIT", "VISUAL", "BROWS", "SHELL", "HOME", "DIR", "CONF", "RC", "ENV",
    "LD", "GIT", "BASH", "PROMPT", "PS", "IFS", "HIST", "PYTHON", "PERL", "RUBY", "NODE", "JAVA",
    "LESS", "MAN", "COM", "CMD", "PROG", "EXE", "HOOK", "RUN", "WRAP", "LIB", "PRE", "PROXY",
    "FILE", "LOG", "TMP", "TEMP", "MOD", "TUN", "MALLOC", "CACHE", "XDG", "SSH", "GPG", "ASK",
    "INFO", "NLS", "CONV", "LOC", "FUNC", "HERMES", "CARGO", "RUST", "GO", "MAKE", "CC", "CXX",
    "TAR", "GZIP", "XZ", "ZSTD", "WGET", "CURL", "AWK", "MAIL", "MORE", "GREP", "SEC", "USER",
];
/// Other shell variables, and lower-case ones for networks.
const SPECIAL: [&str; 26] = [
    "RANDOM",
    "SRANDOM",
    "LINENO",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "UID",
    "EUID",
    "PPID",
    "GROUPS",
    "TIMEFORMAT",
    "TMOUT",
    "REPLY",
    "FIGNORE",
    "GLOBIGNORE",
    "FCEDIT",
    "INPUTRC",
    "CHILD_MAX",
    "DIRSTACK",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "histchars",
    "auto_resume",
    "_",
];

/// A variable that only the script itself reads: lower case, or one short upper-case word that no program is
/// known to read.
pub(super) fn is_inert_variable(name: &str) -> bool {
    if LOOKS.contains(&name) {
        return true;
    }
    if !is_name(name) || SPECIAL.contains(&name) {
        return false;
    }
    if name.chars().all(|c| !c.is_ascii_uppercase()) {
        return true;
    }
    name.len() <= 8
        && !name.contains('_')
        && !ACTS.iter().any(|part| name.to_uppercase().contains(part))
}

/// Upper-case variables that may be passed to programs: no modelled program reads them.
const HANDED_ON: [&str; 8] = [
    "CI",
    "DEBUG",
    "FOO",
    "BAR",
    "NAME",
    "VERBOSE",
    "VERSION",
    "FORCE_COLOR",
];

/// A variable that may be passed to programs. The upper-case names that some program reads (`ZIP`, `TAPE`, …)
/// cannot be listed; harmless ones can.
pub(super) fn is_inert_for_programs(name: &str) -> bool {
    // Settings of npm are variables in small letters.
    if name.contains("config") || name.ends_with("_proxy") {
        return false;
    }
    LOOKS.contains(&name)
        || HANDED_ON.contains(&name)
        || is_inert_variable(name)
            && (name.len() == 1 || name.chars().all(|c| !c.is_ascii_uppercase()))
}

/// Whether `pattern` may match `name`: brackets match anything of any length. `dots`: wildcards match a leading
/// dot.
pub(super) fn may_match(pattern: &str, name: &str, dots: bool) -> bool {
    if !dots && name.starts_with('.') && pattern.starts_with(['*', '?']) {
        return false;
    }
    // The end of a bracket depends on classes and quotes in it: everything from the first to the last counts as
    // a wildcard.
    let widened = match (pattern.find('['), pattern.rfind(']')) {
        (Some(start), Some(end)) if start < end => {
            if start == 0 && !dots && name.starts_with('.') {
                return false;
            }
            format!("{}*{}", &pattern[..start], &pattern[end + 1..])
        }
        _ => pattern.to_owned(),
    };
    let pattern: Vec<char> = widened.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // reachable[n]: the pattern so far may match the first n letters.
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let mut next = vec![false; name.len() + 1];
        match pattern[at] {
            '*' => {
                let mut open = false;
                for (slot, reached) in next.iter_mut().zip(&reachable) {
                    open |= *reached;
                    *slot = open;
                }
            }
            c => {
                if c == '[' {
                    return true;
                }
                let any = c == '?';
                for letter in 0..name.len() {
                    next[letter + 1] = reachable[letter] && (any || name[letter] == c);
                }
            }
        }
        reachable = next;
        at += 1;
    }
    reachable[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, name, dots, expected) in [
            ("*.rs", "main.rs", false, true),
            ("*.rs", ".env", false, false),
            ("*", ".env", false, false),
            ("*", ".env", true, true),
            (".e*", ".env", false, true),
            (".[a-z]nv", ".env", false, true),
            ("?d_rsa", "id_rsa", false, true),
            ("i[!x]_rsa", "id_rsa", false, true),
            ("i[]d]_rsa", "id_rsa", false, true),
            (".[[:alpha:]]nv", ".env", false, true),
            (".[^]x]nv", ".env", false, true),
            (".[[=e=]]n[v]", ".env", false, true),
            ("[.]env", ".env", false, false),
            ("x[a-z]nv", ".env", false, false),
            ("a*c*e", "abcde", false, true),
            ("a*c*f", "abcde", false, false),
        ] {
            assert_eq!(may_match(pattern, name, dots), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn variables_that_programs_read_are_not_inert() {
        for name in ["x", "file", "A", "FOO", "D", "LC_ALL", "name_1"] {
            assert!(is_inert_variable(name), "{name}");
        }
        for name in [
            "PATH",
            "LD_PRELOAD",
            "GIT_PAGER",
            "PS4",
            "IFS",
            "ENV",
            "BASH_ENV",
            "PAGER",
            "LESSOPEN",
            "TAR_OPTIONS",
            "RIPGREP_CONFIG_PATH",
            "GCONV_PATH",
            "HOME",
            "SECONDS",
            "OPTIND",
            "RANDOM",
            "http_proxy",
            "SSLKEYLOGFILE",
            "XDG_CONFIG_HOME",
            "TMPDIR",
            "MANOPT",
            "a-b",
        ] {
            assert!(!is_inert_variable(name), "{name}");
            assert!(!is_inert_for_programs(name), "{name}");
        }
        for name in [
            "ZIP",
            "UNZIP",
            "TAPE",
            "BZIP2",
            "TERMCAP",
            "DISPLAY",
            "npm_config_git",
            "socks_proxy",
        ] {
            assert!(!is_inert_for_programs(name), "{name}");
        }
        for name in ["x", "LC_ALL", "FOO", "A", "NO_COLOR"] {
            assert!(is_inert_for_programs(name), "{name}");
        }
    }
}
