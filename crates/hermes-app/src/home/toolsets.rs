//! Which tools belong together, and what each platform gets. Names are those of the original, also
//! of sets whose tools do not exist here, so that its configs keep their meaning.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use hermes_config::Config;

/// A named set of tools.
#[derive(Clone, Copy, Debug)]
pub struct Toolset {
    pub name: &'static str,
    /// For people; empty: not offered for switching.
    pub label: &'static str,
    pub tools: &'static [&'static str],
    pub includes: &'static [&'static str],
}

const fn set(name: &'static str, label: &'static str, tools: &'static [&'static str]) -> Toolset {
    Toolset {
        name,
        label,
        tools,
        includes: &[],
    }
}

const fn bundle(
    name: &'static str,
    tools: &'static [&'static str],
    includes: &'static [&'static str],
) -> Toolset {
    Toolset {
        name,
        label: "",
        tools,
        includes,
    }
}

const TABLE: &[Toolset] = &[
    set(
        "web",
        "searching the web and reading pages",
        &["web_search", "web_extract"],
    ),
    set("search", "", &["web_search"]),
    set(
        "browser",
        "driving a browser",
        &[
            "browser_back",
            "browser_cdp",
            "browser_click",
            "browser_console",
            "browser_dialog",
            "browser_get_images",
            "browser_navigate",
            "browser_press",
            "browser_scroll",
            "browser_snapshot",
            "browser_type",
            "browser_vision",
            "web_search",
        ],
    ),
    set("browser-cdp", "", &["browser_cdp", "browser_dialog"]),
    set(
        "terminal",
        "commands and background processes",
        &["close_terminal", "process", "read_terminal", "terminal"],
    ),
    set(
        "file",
        "reading, writing, patching and searching files",
        &["patch", "read_file", "search_files", "write_file"],
    ),
    set(
        "code_execution",
        "programs that call tools",
        &["execute_code"],
    ),
    set("vision", "looking at images", &["vision_analyze"]),
    set("video", "looking at videos", &["video_analyze"]),
    set("image_gen", "making images", &["image_generate"]),
    set(
        "video_gen",
        "making videos",
        &["video_generate", "xai_video_edit", "xai_video_extend"],
    ),
    set("x_search", "searching X", &["x_search"]),
    set("tts", "speaking", &["text_to_speech"]),
    set(
        "skills",
        "listing, reading and writing skills",
        &["skill_manage", "skill_view", "skills_list"],
    ),
    set("todo", "the task list", &["todo"]),
    set("memory", "remembering across conversations", &["memory"]),
    set("context_engine", "", &[]),
    set(
        "session_search",
        "searching past conversations",
        &["session_search"],
    ),
    set("clarify", "asking the person", &["clarify"]),
    set("delegation", "subagents", &["delegate_task"]),
    set("cronjob", "scheduled jobs", &["cronjob"]),
    set(
        "homeassistant",
        "Home Assistant",
        &[
            "ha_call_service",
            "ha_get_state",
            "ha_list_entities",
            "ha_list_services",
        ],
    ),
    set(
        "spotify",
        "Spotify",
        &[
            "spotify_albums",
            "spotify_devices",
            "spotify_library",
            "spotify_playback",
            "spotify_playlists",
            "spotify_queue",
            "spotify_search",
        ],
    ),
    set("discord", "taking part in Discord", &["discord"]),
    set(
        "discord_admin",
        "managing a Discord server",
        &["discord_admin"],
    ),
    set(
        "yuanbao",
        "Yuanbao",
        &[
            "yb_query_group_info",
            "yb_query_group_members",
            "yb_search_sticker",
            "yb_send_dm",
            "yb_send_sticker",
        ],
    ),
    set("feishu_doc", "", &["feishu_doc_read"]),
    set(
        "feishu_drive",
        "",
        &[
            "feishu_drive_add_comment",
            "feishu_drive_list_comment_replies",
            "feishu_drive_list_comments",
            "feishu_drive_reply_comment",
        ],
    ),
    set(
        "kanban",
        "",
        &[
            "kanban_attach",
            "kanban_attach_url",
            "kanban_attachments",
            "kanban_block",
            "kanban_comment",
            "kanban_complete",
            "kanban_create",
            "kanban_heartbeat",
            "kanban_link",
            "kanban_list",
            "kanban_show",
            "kanban_unblock",
        ],
    ),
    set(
        "project",
        "",
        &["project_create", "project_list", "project_switch"],
    ),
    set("computer_use", "driving the desktop", &["computer_use"]),
    set("messaging", "sending messages", &["send_message"]),
    set(
        "moa",
        "several models on one question",
        &["mixture_of_agents"],
    ),
    set(
        "rl",
        "",
        &[
            "rl_check_status",
            "rl_edit_config",
            "rl_get_current_config",
            "rl_get_results",
            "rl_list_environments",
            "rl_list_runs",
            "rl_select_environment",
            "rl_start_training",
            "rl_stop_training",
            "rl_test_inference",
        ],
    ),
    bundle("debugging", &["process", "terminal"], &["web", "file"]),
    bundle("safe", &[], &["web", "vision", "image_gen"]),
    bundle(
        "coding",
        &["close_terminal", "read_terminal"],
        &["hermes-acp", "clarify"],
    ),
    bundle(
        "hermes-acp",
        &["process", "terminal"],
        &[
            "browser",
            "delegation",
            "code_execution",
            "memory",
            "file",
            "session_search",
            "skills",
            "todo",
            "vision",
            "web",
        ],
    ),
    bundle(
        "hermes-api-server",
        &[],
        &["hermes-acp", "cronjob", "homeassistant", "image_gen"],
    ),
    bundle("hermes-webhook", &[], &["web", "vision", "clarify"]),
    bundle("hermes-discord", &[], &[CORE, "discord", "discord_admin"]),
    bundle("hermes-feishu", &[], &[CORE, "feishu_doc", "feishu_drive"]),
    bundle("hermes-yuanbao", &[], &[CORE, "yuanbao"]),
    bundle(
        "hermes-gateway",
        &[],
        &[
            CORE,
            "discord",
            "discord_admin",
            "feishu_doc",
            "feishu_drive",
            "yuanbao",
        ],
    ),
    bundle(
        CORE,
        &[],
        &[
            "browser",
            "clarify",
            "terminal",
            "computer_use",
            "cronjob",
            "delegation",
            "code_execution",
            "homeassistant",
            "image_gen",
            "kanban",
            "memory",
            "file",
            "session_search",
            "skills",
            "tts",
            "todo",
            "vision",
            "web",
        ],
    ),
];

/// What every platform gets that has no set of its own.
const CORE: &str = "hermes-cli";

/// Names of older versions.
const LEGACY: &[(&str, &str)] = &[
    ("web_tools", "web"),
    ("terminal_tools", "terminal"),
    ("vision_tools", "vision"),
    ("image_tools", "image_gen"),
    ("skills_tools", "skills"),
    ("browser_tools", "browser"),
    ("cronjob_tools", "cronjob"),
    ("file_tools", "file"),
    ("tts_tools", "tts"),
];

/// Off until someone switches them on.
const DEFAULT_OFF: &[&str] = &[
    "discord",
    "discord_admin",
    "homeassistant",
    "messaging",
    "moa",
    "spotify",
    "video",
    "video_gen",
    "x_search",
];

/// Toolsets that only make sense on one platform.
const ONLY_ON: &[(&str, &str)] = &[("discord", "discord"), ("discord_admin", "discord")];

/// Platforms whose tools can be chosen.
pub const PLATFORMS: &[&str] = &[
    "cli",
    "telegram",
    "discord",
    "slack",
    "whatsapp",
    "whatsapp_cloud",
    "signal",
    "bluebubbles",
    "email",
    "homeassistant",
    "mattermost",
    "matrix",
    "dingtalk",
    "feishu",
    "wecom",
    "wecom_callback",
    "weixin",
    "qqbot",
    "yuanbao",
    "webhook",
    "api_server",
    "cron",
];

/// The sets that a person may switch on and off on `platform`.
pub fn switchable(platform: &str) -> impl Iterator<Item = &'static Toolset> {
    TABLE
        .iter()
        .filter(|set| !set.label.is_empty())
        .filter(move |set| {
            ONLY_ON
                .iter()
                .all(|(name, only)| set.name != *name || platform == *only)
        })
}

/// The tools of a set by name, all the way down. `None`: there is no such set.
pub fn tools_of(name: &str) -> Option<&'static BTreeSet<&'static str>> {
    known(name).map(|known| &known.tools)
}

fn find(name: &str) -> Option<&'static Toolset> {
    known(name).map(|known| known.set)
}

/// A set and its tools, all the way down.
struct Known {
    set: &'static Toolset,
    tools: BTreeSet<&'static str>,
}

/// By every name that a set has or had. Each tool of each conversation is looked up here.
static KNOWN: LazyLock<HashMap<&'static str, Known>> = LazyLock::new(|| {
    let named = |name: &str| TABLE.iter().find(|set| set.name == name);
    let known = |set: &'static Toolset| {
        let mut tools = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![set];
        while let Some(set) = open.pop() {
            if seen.insert(set.name) {
                tools.extend(set.tools);
                open.extend(set.includes.iter().filter_map(|name| named(name)));
            }
        }
        Known { set, tools }
    };
    let present = TABLE.iter().map(|set| (set.name, known(set)));
    let older = LEGACY
        .iter()
        .filter_map(|(old, new)| Some((*old, known(named(new)?))));
    present.chain(older).collect()
});

fn known(name: &str) -> Option<&'static Known> {
    // A platform without a set of its own gets the common one.
    let common = || name.strip_prefix("hermes-").and_then(|_| KNOWN.get(CORE));
    KNOWN.get(name).or_else(common)
}

/// The set a platform has when nothing is configured for it.
fn default_set(platform: &str) -> String {
    match platform {
        "whatsapp_cloud" => "hermes-whatsapp".to_owned(),
        other => format!("hermes-{}", other.replace('_', "-")),
    }
}

/// Tools of a desktop, which no bundle of a platform has: a set is whole without them.
const DESKTOP: [&str; 2] = ["close_terminal", "read_terminal"];

/// The toolsets of `platform` as the config says, and names of MCP servers that it lists.
///
/// A list under `platform_toolsets` is taken as it stands: bundles in it stand for their switchable
/// sets, less those that are off by default. Without a list the platform's own bundle counts.
pub fn enabled(config: &Config, platform: &str) -> BTreeSet<String> {
    let own = vec![default_set(platform)];
    let listed = listed(config, platform);
    let names = listed.as_ref().unwrap_or(&own);
    let mut enabled = BTreeSet::new();
    for name in names {
        let Some(set) = find(name) else {
            // A server of MCP, `no_mcp`, or a set of a plugin.
            enabled.insert(name.clone());
            continue;
        };
        if set.includes.is_empty() {
            enabled.insert(set.name.to_owned());
            continue;
        }
        let tools = tools_of(set.name).cloned().unwrap_or_default();
        enabled.extend(
            TABLE
                .iter()
                .filter(|leaf| leaf.includes.is_empty() && !leaf.tools.is_empty())
                .filter(|leaf| !is_off_by_default(leaf.name, platform))
                .filter(|leaf| {
                    let mut needed = leaf.tools.iter().filter(|tool| !DESKTOP.contains(tool));
                    needed.all(|tool| tools.contains(tool))
                })
                .map(|leaf| leaf.name.to_owned()),
        );
    }
    for off in &config.agent.disabled_toolsets {
        enabled.remove(off.as_str());
    }
    enabled
}

fn is_off_by_default(name: &str, platform: &str) -> bool {
    DEFAULT_OFF.contains(&name) && name != platform
}

/// What the config lists for `platform`; the older key `toolsets` speaks for the terminal, unless
/// it names a platform's bundle, which says nothing.
pub(super) fn listed(config: &Config, platform: &str) -> Option<Vec<String>> {
    let own = config
        .platform_toolsets
        .as_ref()
        .and_then(|sets| sets.get(platform).cloned());
    own.or_else(|| {
        let speaks = |name: &String| !super::tools::is_everything(name);
        (platform == "cli" && config.toolsets.iter().any(speaks)).then(|| config.toolsets.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_the_original_holds() {
        assert_eq!(tools_of(CORE).unwrap().len(), 52);
        assert_eq!(tools_of("hermes-acp").unwrap().len(), 29);
        assert_eq!(tools_of("hermes-api-server").unwrap().len(), 35);
        assert_eq!(tools_of("coding").unwrap().len(), 32);
        assert_eq!(tools_of("hermes-gateway").unwrap().len(), 64);
        assert_eq!(tools_of("hermes-webhook").unwrap().len(), 4);
        assert_eq!(tools_of("hermes-plugin").unwrap().len(), 52);
        assert_eq!(tools_of("file_tools"), tools_of("file"));
        assert_eq!(tools_of("nonsense"), None);
    }

    #[test]
    fn a_platform_without_a_list_gets_its_bundle() {
        let cli = enabled(&Config::default(), "cli");
        assert!(cli.contains("terminal") && cli.contains("file"));
        assert!(!cli.contains("homeassistant") && !cli.contains("discord"));
        let webhook = enabled(&Config::default(), "webhook");
        assert!(!webhook.contains("terminal") && webhook.contains("web"));
        let api = enabled(&Config::default(), "api_server");
        assert!(api.contains("terminal") && !api.contains("clarify"));
    }

    #[test]
    fn a_list_is_taken_as_it_stands() {
        let lists = [(
            "cli".to_owned(),
            vec![
                "hermes-cli".to_owned(),
                "spotify".to_owned(),
                "git".to_owned(),
            ],
        )];
        let mut config = Config {
            platform_toolsets: Some(lists.into_iter().collect()),
            ..Config::default()
        };
        let cli = enabled(&config, "cli");
        assert!(cli.contains("terminal") && cli.contains("spotify") && cli.contains("git"));
        assert!(!enabled(&config, "telegram").contains("spotify"));
        config.agent.disabled_toolsets = vec!["terminal".to_owned()];
        assert!(!enabled(&config, "cli").contains("terminal"));
        config.platform_toolsets = Some([("cli".to_owned(), Vec::new())].into_iter().collect());
        assert!(enabled(&config, "cli").is_empty());
    }
}
