//! What holds for every command.

use hermes_policy::{CommandClass, ConfinementLevel};
use proptest::prelude::*;

use crate::commands::rows;
use crate::support::{gate, request};

fn class(command: &str) -> CommandClass {
    gate()
        .assess(&request(command, ConfinementLevel::None))
        .class
}

fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', r"'\''"))
}

/// Ways to run one simple command through another program.
fn wrapped_words(command: &str) -> Vec<String> {
    [
        "sudo",
        "sudo -u root",
        "timeout 5",
        "timeout -k 1 5",
        "nice -n 3",
        "nohup",
        "env A=1",
        "env",
        "setsid",
        "time",
        "command",
        "stdbuf -oL",
        "busybox",
    ]
    .iter()
    .map(|wrapper| format!("{wrapper} {command}"))
    .collect()
}

/// Ways to run any script through another program.
fn wrapped_script(command: &str) -> Vec<String> {
    let inner = quoted(command);
    vec![
        format!("sh -c {inner}"),
        format!("bash -lc {inner}"),
        format!("sudo bash -c {inner}"),
        format!("eval {inner}"),
        format!("timeout 9 sh -c {inner}"),
        format!("env -i bash -c {inner}"),
        format!("ssh host {inner}"),
        format!("echo ok; {command}"),
        format!("true && {{ {command}\n}}"),
        format!("if true; then\n{command}\nfi"),
        format!("( {command}\n)"),
        format!("f() {{ {command}\n}}; f"),
        format!("bash <<'HERE_END'\n{command}\nHERE_END"),
        format!("nice bash -c {}", quoted(&format!("sh -c {inner}"))),
    ]
}

/// A command of plain words: wrappers take words, not syntax.
fn is_words(command: &str) -> bool {
    let first = command.chars().next();
    first.is_some_and(|c| c.is_ascii_lowercase() || c == '/')
        && !command.contains([';', '|', '&', '\n', '<', '(', '{', '`', '!', '#', '='])
        && ![
            "for ", "if ", "while ", "case ", "eval ", "exec ", "trap ", "alias ", "time ",
            "command ", "builtin ", "cd ", "coproc ", "shopt ", "source ",
        ]
        .iter()
        .any(|word| command.starts_with(word))
}

#[test]
fn wrapping_never_makes_a_command_harmless() {
    let mut wrong = Vec::new();
    for row in rows() {
        if row.host < CommandClass::Ask || row.command.contains(['\0', '\u{1b}']) {
            continue;
        }
        let mut variants = wrapped_script(&row.command);
        if is_words(&row.command) {
            variants.extend(wrapped_words(&row.command));
        }
        for variant in variants {
            let found = class(&variant);
            let holds = match row.host {
                CommandClass::Forbidden => found == CommandClass::Forbidden,
                _ => found >= CommandClass::Ask,
            };
            if !holds {
                wrong.push(format!(
                    "{variant:?} is {found}, {:?} is {}",
                    row.command, row.host
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn what_is_long_or_deep_is_bounded() {
    let hostile = [
        "(".repeat(100_000),
        "$(".repeat(60_000),
        "`".repeat(100_000),
        "{a,".repeat(40_000),
        "a=".repeat(60_000),
        "<<E ".repeat(30_000),
        "sudo ".repeat(25_000),
        "sh -c '".repeat(17_000),
        "if true; then ".repeat(9_000),
        "ls; ".repeat(30_000),
        "ls | ".repeat(25_000),
        "rm -rf x; ".repeat(12_000),
        format!("echo {}", "{a,b}".repeat(20_000)),
        format!("echo {}", "\"$(".repeat(30_000)),
        "x".repeat(127_000),
        "[[ ".repeat(40_000),
        "case x in ".repeat(12_000),
        "f() { ".repeat(20_000),
        "\\\n".repeat(60_000),
        "${a:-".repeat(25_000),
        "!".repeat(120_000),
        "env -S ".repeat(18_000),
        "eval ".repeat(25_000),
        "\u{ff21}".repeat(42_000),
        format!("python3 -c '{}'", "os.system(\"ls\");".repeat(7_000)),
        format!("awk '{}'", "\"a\" | ".repeat(15_000)),
    ];
    for text in hostile {
        // That this ends at all is the point.
        let _ = class(&text[..text.floor_char_boundary(127_900)]);
    }
    let long = format!(
        "cat > a.txt <<'END'\n{}\nEND",
        "it's (all) text | & ;\n".repeat(5_000)
    );
    assert_eq!(class(&long), CommandClass::WorkspaceWrite);
    assert!(class(&"rm -rf x; ".repeat(12_000)) >= CommandClass::Ask);
    // What comes after more than is kept still counts.
    let late = format!("{}rm -rf x", "make; ".repeat(300));
    assert_eq!(
        gate()
            .assess(&request(&late, ConfinementLevel::Sandboxed))
            .class,
        CommandClass::Ask
    );
    assert_eq!(
        class(&format!("{}reboot", "make; ".repeat(300))),
        CommandClass::Forbidden
    );
    assert_eq!(class(&"a ".repeat(70_000)), CommandClass::Forbidden);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_gets_a_class(text in "\\PC{0,200}") {
        let _ = class(&text);
    }

    #[test]
    fn any_pieces_of_shell_get_a_class(pieces in prop::collection::vec(prop::sample::select(vec![
        "rm", "-rf", "/", "$(", ")", "`", "\"", "'", "\\", "\n", ";", "&&", "||", "|", "&", "<<E", "E", "<", ">", ">>", "{", "}", "(", "((", "))",
        "[[", "]]", "if", "then", "fi", "for", "in", "do", "done", "case", "esac", "${x", "$x", "a=b", "sudo", "sh -c", "eval", "xargs", "#", " ", "\t",
        "find", "-exec", "{}", "\\;", "<(", "<<<", "$'", "\\x72", "é", "\u{0}", "function f", "f()", "~", "*", "?", "!", "coproc", "time", "git", "-c",
    ]), 0..40)) {
        let spaced = pieces.join(" ");
        let joined = pieces.concat();
        let _ = class(&spaced);
        let _ = class(&joined);
    }

    #[test]
    fn a_forbidden_command_stays_forbidden_behind_any_words(words in "[a-z]{1,8}( [a-z]{1,8}){0,3}") {
        prop_assert_eq!(class(&format!("echo {words}; reboot")), CommandClass::Forbidden);
        prop_assert_eq!(class(&format!("sh -c 'echo {words}; reboot'")), CommandClass::Forbidden);
        prop_assert_eq!(class(&format!("echo {words} | sh -c reboot")), CommandClass::Forbidden);
    }

    #[test]
    fn quoting_changes_nothing(cuts in prop::collection::vec(0_usize..6, 0..4)) {
        let mut name = "reboot".to_owned();
        for cut in cuts {
            name.insert_str(cut.min(name.len()), "''");
        }
        prop_assert_eq!(class(&name), CommandClass::Forbidden);
    }
}
