//! Hides secrets in command output.

use std::borrow::Cow;
use std::sync::LazyLock;

use hermes_core::redact;
use regex::Regex;

/// Commands whose output is a list of variables: there every secret-like name counts.
static LISTS_VARIABLES: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::unwrap_used, reason = "a constant, used by the test below")]
    Regex::new(r"(?m)(?:^|[;&|(`]|\$\()\s*(?:\S*/)?(?:env|printenv|set|export|declare|typeset)\b|/environ\b|\.env\b")
        .unwrap()
});

/// The `output` of `command` for the model: known secrets and keys of well-known services are removed; in a
/// list of variables also every value with a secret-like name.
pub(super) fn output<'a>(command: &str, output: &'a str) -> Cow<'a, str> {
    if LISTS_VARIABLES.is_match(command) {
        redact::secrets(output)
    } else {
        redact::keys(output)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_of_variables_is_read_more_strictly() {
        let text = "MY_TOKEN=0123456789abcdef0123";
        for command in [
            "env",
            "cd x && printenv | sort",
            "cat app/.env",
            "cat /proc/1/environ",
            "(set)",
        ] {
            assert!(
                !super::output(command, text).contains("9abcdef"),
                "{command}"
            );
        }
        for command in [
            "cat src/lib.rs",
            "echo setup",
            "git log --pretty=environment",
        ] {
            assert_eq!(super::output(command, text), text, "{command}");
        }
        assert!(!super::output("ls", "sk-abcdefghijklmnop1234").contains("mnop"));
    }
}
