//! Slash commands of Hermes Agent that are not here, and what to do instead. Nobody who types one
//! should be sent to a command that merely looks like it.

/// Names and aliases, and what to do instead.
const INSTEAD: &[(&[&str], &str)] = &[
    (
        &["handoff"],
        "to continue in a chat: /resume there, with the title or id of this session",
    ),
    (
        &["snapshot", "snap"],
        "to back up config and state: hermes backup; to restore a project: /rollback",
    ),
    (
        &["goal", "subgoal"],
        "standing goals are not built in; put the goal in your message, or schedule it: /cron",
    ),
    (
        &["journey", "learning", "memory-graph"],
        "to see what the agent learned: /memory, /skills",
    ),
    (
        &["codex-runtime"],
        "other agents are not used as a runtime; to choose a model: /model",
    ),
    (
        &["footer"],
        "replies have no footer; for tokens and cost: /usage",
    ),
    (
        &["fast"],
        "service tiers are fields of the request: set providers.NAME.extra_body in config.yaml",
    ),
    (
        &["indicator"],
        "there is one indicator; to turn it off: /config tui.animations false",
    ),
    (&["pet", "hatch", "generate-pet"], "there are no pets here"),
    (
        &["suggestions", "suggest", "blueprint", "bp"],
        "jobs are not suggested; to schedule one: /cron",
    ),
    (
        &["curator"],
        "skills are not maintained in the background; to list them: /skills",
    ),
    (
        &["kanban"],
        "boards are not built in, and kanban.db is left unchanged; to schedule jobs: /cron",
    ),
    (
        &["browser"],
        "a browser is not built in; an MCP server can provide one: hermes mcp add",
    ),
    (
        &["plugins"],
        "Python plugins are not supported; use an MCP server (/mcp) or a hook (hermes hooks)",
    ),
    (
        &["subscription", "upgrade", "topup"],
        "plans and balances are on your provider's website; for tokens and cost: /usage",
    ),
    (
        &["update"],
        "to update: hermes update, in a terminal; then: hermes gateway restart",
    ),
    (
        &["topic"],
        "chats with topics need no command: every topic is a conversation of its own",
    ),
    (
        &["approve", "deny"],
        "approvals are answered where they appear: y, s, a or n; in a chat: /approve, /deny",
    ),
    (
        &["sethome", "set-home"],
        "this works in a chat; here: hermes gateway setup",
    ),
    (
        &["restart"],
        "to restart the gateway: hermes gateway restart; to apply changed settings here: /reload",
    ),
    (
        &["voice"],
        "spoken messages work in chats only (docs/voice.md)",
    ),
    (
        &["start"],
        "just write what you want to know; for the commands: /help",
    ),
];

/// What to do instead of a command of the original that is not here.
pub fn instead_of(typed: &str) -> Option<&'static str> {
    let lower = typed.to_ascii_lowercase().replace('_', "-");
    INSTEAD
        .iter()
        .find(|(names, _)| names.contains(&lower.as_str()))
        .map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slash::{CHAT_COMMANDS, find, find_in};

    /// The commands and aliases of Hermes Agent 0.19.
    const KNOWN: &str = "start new reset topic clear redraw history save retry prompt compose undo \
        title handoff branch fork compress compact rollback snapshot snap stop approve deny \
        background bg btw agents tasks journey learning memory-graph queue q steer goal moa subgoal \
        status whoami profile sethome set-home resume sessions config model codex-runtime \
        codex_runtime personality statusbar sb timestamps ts verbose footer yolo reasoning fast skin \
        indicator voice busy tools toolsets skills memory bundles pet hatch generate-pet learn cron \
        suggestions suggest blueprint bp curator kanban reload reload-mcp reload_mcp reload-skills \
        reload_skills browser plugins commands help restart usage subscription upgrade topup insights \
        platforms gateway platform copy paste image update version v debug quit exit";

    #[test]
    fn every_command_of_the_original_is_here_or_answered() {
        for name in KNOWN.split_whitespace() {
            assert!(find(name).is_some() || instead_of(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_answers_name_commands_that_are_here() {
        for (names, instead) in INSTEAD {
            for name in *names {
                assert!(find(name).is_none(), "/{name} is here");
            }
            for (at, _) in instead.match_indices('/') {
                let before = instead[..at].chars().next_back();
                if !matches!(before, Some(' ' | '(')) {
                    continue;
                }
                let name: String = instead[at + 1..]
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                    .collect();
                let here = find(&name).or_else(|| find_in(CHAT_COMMANDS, &name));
                assert!(here.is_some(), "/{name} in {instead:?}");
            }
        }
    }
}
