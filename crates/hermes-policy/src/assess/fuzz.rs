//! Fuzzing: forbidden commands stay forbidden in any context.

use std::path::Path;

use crate::assessment::{Assessment, Category, CommandClass};
use crate::request::{CommandRequest, ConfinementLevel, RequestKind};
use crate::shell::text::quote;

const HOME: &str = "/nowhere/home";
const WORKSPACE: &str = "/nowhere/home/work";

/// Never allowed, however they are written.
const FORBIDDEN: &[&str] = &[
    "rm -rf /",
    "sudo rm -rf --no-preserve-root /*",
    "mkfs.ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda",
    ":(){ :|:& };:",
    "shutdown -h now",
];

/// A script.
pub fn shell(data: &[u8]) {
    let script = String::from_utf8_lossy(data);
    let script = script.trim_end();
    let found = assess(script, ConfinementLevel::Sandboxed);
    assert_eq!(assess(script, ConfinementLevel::Sandboxed), found, "twice");
    assert_confinement_only_helps(script, &found);
    let forbidden = FORBIDDEN[data.len() % FORBIDDEN.len()];
    // The first line runs before the shell parses the second.
    assert_forbidden(&format!("{forbidden}\n{script}"));
    if !is_understood(&found) || goes_on(script) {
        return;
    }
    let followed = format!("{script}\n{forbidden}");
    assert_forbidden(&followed);
    for wrapped in wrapped(&followed) {
        assert_forbidden(&wrapped);
    }
    if found.class == CommandClass::Forbidden {
        for wrapped in wrapped(script) {
            assert_forbidden(&wrapped);
        }
    }
}

/// Whether the next line may continue the script's last one.
fn goes_on(script: &str) -> bool {
    script.ends_with('\\') || script.contains("<<")
}

fn assess(command: &str, confinement: ConfinementLevel) -> Assessment {
    let request = CommandRequest {
        command: command.to_owned(),
        cwd: WORKSPACE.into(),
        roots: vec![WORKSPACE.into()],
        confinement,
        kind: RequestKind::Terminal,
    };
    super::assess(&request, HOME.into(), Path::new(HOME).join(".hermes"))
}

/// A sandbox never makes a command worse, and never a forbidden one better.
fn assert_confinement_only_helps(script: &str, sandboxed: &Assessment) {
    let isolated = assess(script, ConfinementLevel::Isolated);
    assert!(sandboxed.class <= isolated.class.max(CommandClass::Ask));
    assert_eq!(
        sandboxed.class == CommandClass::Forbidden,
        isolated.class == CommandClass::Forbidden
    );
}

fn assert_forbidden(script: &str) {
    let found = assess(script, ConfinementLevel::Sandboxed);
    assert_eq!(
        found.class,
        CommandClass::Forbidden,
        "{script:?}: {:?}",
        found.reasons()
    );
}

/// Whether the script is complete: no open quote, here document or bracket.
fn is_understood(found: &Assessment) -> bool {
    let doubts = [Category::UNPARSED, Category::TOO_DEEP, Category::HIDDEN];
    let mut categories = found.findings.iter().map(|finding| finding.category);
    !categories.any(|category| doubts.contains(&category))
}

/// The script inside other commands that run it.
fn wrapped(script: &str) -> Vec<String> {
    let quoted = quote(script);
    vec![
        format!("(\n{script}\n)"),
        format!("{{\n{script}\n}}"),
        format!("if true; then\n{script}\nfi"),
        format!("for i in 1 2; do\n{script}\ndone"),
        format!("echo $(\n{script}\n)"),
        format!("f() {{\n{script}\n}}\nf"),
        format!("bash -c {quoted}"),
        format!("eval {quoted}"),
        format!("sudo env A=1 sh -c {quoted}"),
        format!("ls && nice timeout 5 bash -c {quoted} | cat"),
    ]
}
