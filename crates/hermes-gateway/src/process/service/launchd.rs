//! The agent for launchd.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hermes_core::text::escape_xml;

use super::ServiceDefinition;

/// The launchd label.
pub fn label(service: &ServiceDefinition) -> String {
    match service.name.strip_prefix("hermes-gateway-") {
        Some(suffix) => format!("ai.hermes.gateway-{suffix}"),
        None => "ai.hermes.gateway".to_owned(),
    }
}

/// The path of the definition, below the user's directory.
pub fn path(service: &ServiceDefinition, person: &Path) -> PathBuf {
    let file = format!("{}.plist", label(service));
    person.join("Library/LaunchAgents").join(file)
}

/// The text of the definition.
pub fn plist(service: &ServiceDefinition) -> String {
    let mut out = String::from(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" ",
        "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n",
        "<plist version=\"1.0\">\n<dict>\n"
    ));
    let mut text = |key: &str, value: &str| {
        let _ = writeln!(
            out,
            "  <key>{key}</key>\n  <string>{}</string>",
            escape_xml(value)
        );
    };
    text("Label", &label(service));
    text("WorkingDirectory", &service.home.display().to_string());
    let logs = service.home.join("logs");
    text(
        "StandardOutPath",
        &logs.join("gateway.stdout.log").display().to_string(),
    );
    text(
        "StandardErrorPath",
        &logs.join("gateway.stderr.log").display().to_string(),
    );
    out.push_str("  <key>ProgramArguments</key>\n  <array>\n");
    for word in service.command() {
        let _ = writeln!(out, "    <string>{}</string>", escape_xml(&word));
    }
    out.push_str("  </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n");
    let home = service.home.display().to_string();
    for (name, value) in [("PATH", service.path.as_str()), ("HERMES_HOME", &home)] {
        let _ = writeln!(
            out,
            "    <key>{name}</key>\n    <string>{}</string>",
            escape_xml(value)
        );
    }
    out.push_str(concat!(
        "  </dict>\n  <key>RunAtLoad</key>\n  <true/>\n  <key>KeepAlive</key>\n  <true/>\n",
        "  <key>ThrottleInterval</key>\n  <integer>30</integer>\n",
        "  <key>ExitTimeOut</key>\n  <integer>25</integer>\n</dict>\n</plist>\n"
    ));
    out
}
