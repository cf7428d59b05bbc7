//! The JSON record of a process (pid, start time, command).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::machine::{self, start_time};

pub(super) const KIND: &str = "hermes-gateway";

/// The identity of a process as stored in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRecord {
    pub pid: u32,
    pub start_time: Option<i64>,
    pub argv: Vec<String>,
}

impl ProcessRecord {
    /// This process.
    pub fn own() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: start_time(pid),
            argv: std::env::args_os()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
        }
    }

    pub(super) fn json(&self) -> Map<String, Value> {
        let value = json!({
            "pid": self.pid,
            "kind": KIND,
            "argv": self.argv,
            "start_time": self.start_time,
        });
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// Reads a record, including the old format with a bare number. `None`: unreadable.
    pub fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let value: Value = serde_json::from_str(text.trim()).ok()?;
        Self::from_json(&value)
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let pid = value.get("pid").unwrap_or(value);
        let pid = pid.as_u64().and_then(|pid| u32::try_from(pid).ok())?;
        let argv = value.get("argv").and_then(Value::as_array);
        Some(Self {
            pid,
            start_time: value.get("start_time").and_then(Value::as_i64),
            argv: argv
                .into_iter()
                .flatten()
                .filter_map(|arg| arg.as_str().map(str::to_owned))
                .collect(),
        })
    }

    /// Whether the process is alive and still a gateway: pids are reused.
    pub fn lives(&self) -> bool {
        if !machine::exists(self.pid) {
            return false;
        }
        if let (Some(then), Some(now)) = (self.start_time, start_time(self.pid))
            && then != now
        {
            return false;
        }
        match machine::command_line(self.pid) {
            // The writer of the record is a gateway, whatever its program is called.
            Some(words) => words == self.argv || is_gateway_command(&words),
            None => is_gateway_command(&self.argv),
        }
    }
}

/// Whether this is the command line of a gateway, and not of its supervisor.
pub fn is_gateway_command(words: &[String]) -> bool {
    let mut rest = words.iter().map(|word| word.to_lowercase());
    let ends = |word: &str, names: &[&str]| {
        let base = word.rsplit('/').next().unwrap_or(word);
        names.contains(&base)
    };
    if words
        .iter()
        .any(|word| word.ends_with("gateway/run.py") || ends(word, &["hermes-gateway"]))
    {
        return true;
    }
    let program = rest.by_ref().any(|word| {
        ends(&word, &["hermes"])
            || word.contains("hermes_cli.main")
            || word.contains("hermes_cli/main.py")
    });
    if !program {
        return false;
    }
    let mut verbs = Vec::new();
    while let Some(word) = rest.next() {
        if word == "-p" || word == "--profile" {
            rest.next();
        } else if !word.starts_with('-') {
            verbs.push(word);
        }
    }
    let mut verbs = verbs.iter().map(String::as_str);
    verbs.next() == Some("gateway") && matches!(verbs.next(), None | Some("run" | "restart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wrote_the_record_is_known_whatever_the_program_is_called() {
        // The program of this test is not called hermes.
        let own = ProcessRecord::own();
        assert!(!is_gateway_command(&own.argv));
        assert!(own.lives());
        let argv = vec!["another".to_owned()];
        assert!(!ProcessRecord { argv, ..own }.lives());
    }
}
