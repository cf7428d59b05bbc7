//! Detects loops in a turn: repeated failing calls, a failing tool, calls without progress.
//! Warnings go to the model; the hard stop is opt-in.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use hermes_core::message::Content;
use hermes_core::tool::ToolArgs;

use crate::settings::GuardSettings;

/// What the guard makes of a finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardFinding {
    Fine,
    /// Appended to the result.
    Warn(String),
    /// The turn ends.
    Stop(String),
}

/// Names a call within a turn: tool and arguments.
pub(crate) type CallSignature = (String, String);

/// The signature of a call; the order of keys does not matter.
pub(crate) fn signature(name: &str, args: &ToolArgs) -> CallSignature {
    (
        name.to_owned(),
        canonical(&serde_json::Value::Object(args.clone())),
    )
}

fn canonical(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            let fields: Vec<String> = keys
                .into_iter()
                .map(|key| {
                    let value = map.get(key).map(canonical).unwrap_or_default();
                    format!("{}:{value}", Value::String(key.clone()))
                })
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

/// One turn's memory of its tool calls.
#[derive(Debug)]
pub(crate) struct LoopGuard {
    settings: GuardSettings,
    exact: HashMap<CallSignature, u32>,
    by_tool: HashMap<String, u32>,
    same_result: HashMap<CallSignature, (u64, u32)>,
}

impl LoopGuard {
    pub(crate) fn new(settings: GuardSettings) -> Self {
        Self {
            settings,
            exact: HashMap::new(),
            by_tool: HashMap::new(),
            same_result: HashMap::new(),
        }
    }

    /// `Some`: the call may not run, and the turn ends.
    pub(crate) fn before(&self, call: &CallSignature) -> Option<String> {
        if !self.settings.hard_stop {
            return None;
        }
        let limits = self.settings.stop_after;
        let name = &call.0;
        let failures = self.exact.get(call).copied().unwrap_or(0);
        if failures >= limits.exact_failure {
            return Some(format!(
                "{name} was called {failures} times with the same arguments and failed each time"
            ));
        }
        let same = self.same_result.get(call).map_or(0, |(_, count)| *count);
        (same >= limits.no_progress).then(|| {
            format!("{name} was asked the same thing {same} times and always answered the same")
        })
    }

    /// Records a result. `repeatable`: the call only reads, so an unchanged answer is no progress.
    pub(crate) fn after(
        &mut self,
        call: &CallSignature,
        result: &Content,
        failed: bool,
        repeatable: bool,
    ) -> GuardFinding {
        if failed {
            self.failed(call)
        } else {
            self.succeeded(call, result, repeatable)
        }
    }

    fn failed(&mut self, call: &CallSignature) -> GuardFinding {
        self.same_result.remove(call);
        let exact = count(&mut self.exact, call.clone());
        let tool = count(&mut self.by_tool, call.0.clone());
        let name = &call.0;
        if self.settings.hard_stop && tool >= self.settings.stop_after.same_tool_failure {
            return GuardFinding::Stop(format!("{name} failed {tool} times in this turn"));
        }
        if !self.settings.warnings {
            GuardFinding::Fine
        } else if exact >= self.settings.warn_after.exact_failure {
            GuardFinding::Warn(format!(
                "This exact call of {name} has now failed {exact} times. Repeating it will not help: read the error and change something."
            ))
        } else if tool >= self.settings.warn_after.same_tool_failure {
            GuardFinding::Warn(format!(
                "{name} has failed {tool} times in this turn. Check your assumptions with a small step first, or take another way; if something outside blocks you, say so."
            ))
        } else {
            GuardFinding::Fine
        }
    }

    fn succeeded(
        &mut self,
        call: &CallSignature,
        result: &Content,
        repeatable: bool,
    ) -> GuardFinding {
        self.exact.remove(call);
        self.by_tool.remove(&call.0);
        if !repeatable {
            // Something changed: answers may differ from now on.
            self.same_result.clear();
            return GuardFinding::Fine;
        }
        let hash = hash_of(result);
        let entry = self.same_result.entry(call.clone()).or_insert((hash, 0));
        if entry.0 != hash {
            *entry = (hash, 0);
        }
        entry.1 += 1;
        let times = entry.1;
        if self.settings.warnings && times >= self.settings.warn_after.no_progress {
            GuardFinding::Warn(format!(
                "{} has given this same answer {times} times. Use it, or ask something else.",
                call.0
            ))
        } else {
            GuardFinding::Fine
        }
    }
}

fn count<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> u32 {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count
}

fn hash_of(content: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Content::Text(text) => text.hash(&mut hasher),
        Content::Parts(parts) => format!("{parts:?}").hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, value: i32) -> CallSignature {
        signature(name, json!({"v": value}).as_object().unwrap())
    }

    fn warned(finding: &GuardFinding) -> bool {
        matches!(finding, GuardFinding::Warn(_))
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let a = json!({"x": {"p": 1, "q": [2]}, "y": 3});
        let b = json!({"y": 3, "x": {"q": [2], "p": 1}});
        assert_eq!(
            signature("t", a.as_object().unwrap()),
            signature("t", b.as_object().unwrap())
        );
    }

    #[test]
    fn warnings_come_at_two_three_and_two() {
        let mut guard = LoopGuard::new(GuardSettings::default());
        let text = Content::from("no");
        assert_eq!(
            guard.after(&call("t", 1), &text, true, false),
            GuardFinding::Fine
        );
        assert!(warned(&guard.after(&call("t", 1), &text, true, false)));
        assert!(warned(&guard.after(&call("t", 2), &text, true, false)));
        assert_eq!(
            guard.after(&call("t", 2), &text, false, false),
            GuardFinding::Fine
        );
        assert_eq!(
            guard.after(&call("r", 1), &text, false, true),
            GuardFinding::Fine
        );
        assert!(warned(&guard.after(&call("r", 1), &text, false, true)));
        let other = Content::from("changed");
        assert_eq!(
            guard.after(&call("r", 1), &other, false, true),
            GuardFinding::Fine
        );
    }

    #[test]
    fn reading_again_after_a_change_is_progress() {
        let mut guard = LoopGuard::new(GuardSettings::default());
        let text = Content::from("same");
        guard.after(&call("r", 1), &text, false, true);
        guard.after(&call("w", 1), &text, false, false);
        assert_eq!(
            guard.after(&call("r", 1), &text, false, true),
            GuardFinding::Fine
        );
    }

    #[test]
    fn the_hard_stop_is_opt_in() {
        let text = Content::from("no");
        let mut soft = LoopGuard::new(GuardSettings::default());
        let mut hard = LoopGuard::new(GuardSettings {
            hard_stop: true,
            ..GuardSettings::default()
        });
        for _ in 0..7 {
            soft.after(&call("t", 1), &text, true, false);
            hard.after(&call("t", 1), &text, true, false);
        }
        assert_eq!(soft.before(&call("t", 1)), None);
        assert!(hard.before(&call("t", 1)).is_some());
        assert!(matches!(
            hard.after(&call("t", 9), &text, true, false),
            GuardFinding::Stop(_)
        ));
        for _ in 0..5 {
            hard.after(&call("r", 1), &text, false, true);
        }
        assert!(hard.before(&call("r", 1)).is_some());
    }
}
