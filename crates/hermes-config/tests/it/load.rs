//! From files to settings.

use hermes_config::schema::Config;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::TestHome;

#[test]
fn without_a_file_everything_is_default() {
    let home = TestHome::new("");
    std::fs::remove_file(home.path("config.yaml")).unwrap();
    let loaded = home.load();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.file_tree, json!({}));
    assert!(loaded.warnings.is_empty());
    assert_eq!(loaded.tree["agent"]["max_turns"], json!(90));
    assert!(
        !home.path("config.yaml").exists(),
        "reading creates nothing"
    );
}

#[test]
fn the_file_lies_on_top_of_the_defaults() {
    let home = TestHome::new(
        "model:\n  default: big\n  api_key: ${K}\nagent:\n  max_turns: 40\n  reasoning_effort: off\nterminal:\n\
         tool_loop_guardrails:\n  warn_after:\n    exact_failure: 9\napprovals:\n  mode: off\ncompression: {threshold: .8}\n\
         command_allowlist: git push\nmy_own: {x: 1}\n_config_version: 33\n",
    )
    .file(".env", "K=sk-secret\n");
    let loaded = home.load();
    let config = &loaded.config;
    assert_eq!(config.model.default, "big");
    assert_eq!(config.model.api_key.expose(), "sk-secret");
    assert!(!format!("{config:?}").contains("sk-secret"));
    assert_eq!(
        (config.agent.max_turns, config.agent.api_max_retries),
        (40, 3)
    );
    assert_eq!(config.agent.reasoning_effort.as_deref(), Some("off"));
    assert_eq!(
        config.terminal.timeout, 180,
        "an empty section changes nothing"
    );
    assert_eq!(config.approvals.mode, "off");
    assert_eq!(config.command_allowlist, ["git push"]);
    let limits = config.tool_loop_guardrails.warn_after;
    assert_eq!((limits.exact_failure, limits.same_tool_failure), (9, 3));
    assert!((config.compression.threshold - 0.8).abs() < 1e-9);
    assert_eq!(loaded.tree["my_own"]["x"], json!(1));
    assert_eq!(loaded.file_tree["model"]["api_key"], json!("${K}"));
    assert_eq!(home.warnings(), ["my_own: unknown key, kept but not used"]);
}

#[test]
fn a_wrong_leaf_costs_only_itself() {
    let home = TestHome::new(
        "agent:\n  max_turns: many\n  api_max_retries: '5'\n  max_cost_usd: 0.5\ncompression: 7\nmemory:\n  memory_enabled: maybe\n\
         toolsets: {a: 1}\n",
    );
    let config = home.load().config;
    assert_eq!(
        (config.agent.max_turns, config.agent.api_max_retries),
        (90, 5)
    );
    assert_eq!(config.agent.max_cost_usd, Some(0.5));
    assert!(config.compression.enabled && config.memory.memory_enabled);
    assert_eq!(config.toolsets, ["hermes-cli"]);
    assert_eq!(
        home.warnings(),
        [
            "toolsets: expected a list, found a mapping; the default is used",
            "agent.max_turns: expected a whole number, 0 or more, found text; the default is used",
            "compression: expected a mapping, found a number; the default is used",
            "memory.memory_enabled: expected true or false, found text; the default is used",
        ]
    );
}

#[test]
fn old_spellings_are_understood() {
    let home = TestHome::new(
        "model: {name: big}\nprovider: openrouter\napi_base: http://x/v1\ncontext_length: 8000\nmax_turns: 7\n\
         compression: {summary_model: small}\nmemory: {write_mode: approve}\ndelegation: {max_async_children: 9}\n",
    );
    let config = home.load().config;
    assert_eq!(config.model.default, "big");
    assert_eq!(config.model.provider, "openrouter");
    assert_eq!(config.model.base_url, "http://x/v1");
    assert_eq!(config.model.context_length, Some(8000));
    assert_eq!(config.agent.max_turns, 7);
    assert_eq!(config.auxiliary.task("compression").model, "small");
    assert_eq!(config.auxiliary.task("compression").timeout, 120);
    assert!(config.memory.write_approval);
    assert_eq!(config.delegation.max_concurrent_children, 9);
    assert!(
        home.warnings()
            .iter()
            .all(|text| text.contains("old spelling")),
        "{:?}",
        home.warnings()
    );
    assert!(
        home.read("config.yaml").contains("write_mode"),
        "the file stays as it is"
    );
    let home = TestHome::new("model: just-a-name\nprovider: nous\n");
    let config = home.load().config;
    assert_eq!(
        (
            config.model.default.as_str(),
            config.model.provider.as_str()
        ),
        ("just-a-name", "nous")
    );
    let home = TestHome::new("model: {default: a, provider: b}\nprovider: c\n");
    assert_eq!(home.load().config.model.provider, "b");
}

#[test]
fn every_version_is_read() {
    for version in [0, 12, 23, 33, 37, 38] {
        let home = TestHome::new(&format!(
            "_config_version: {version}\nagent: {{max_turns: 5}}\ndatabase: {{journal_mode: delete}}\n"
        ));
        assert_eq!(home.load().config.agent.max_turns, 5);
        assert_eq!(
            home.warnings().len(),
            usize::from(version > 37),
            "{version}"
        );
    }
}

#[test]
fn variables_are_expanded_in_text_only() {
    let home = TestHome::new(
        "a: {x: '${A}-${B}', ${A}: 1, l: ['${A}', 5]}\nmodel: {base_url: '${NOPE}/v1'}\n"
            .replace("${A}: 1, ", "")
            .as_str(),
    )
    .var("A", "one")
    .var("B", "two");
    let loaded = home.load();
    assert_eq!(loaded.tree["a"], json!({"x": "one-two", "l": ["one", 5]}));
    assert_eq!(loaded.config.model.base_url, "${NOPE}/v1");
    assert!(
        home.warnings()
            .contains(&"model.base_url: refers to ${NOPE}, which is not set".to_owned())
    );
}

#[test]
fn the_administrator_has_the_last_word() {
    let home = TestHome::new(
        "model: {default: mine, provider: p}\nagent: {max_turns: 5, api_max_retries: 1}\n",
    )
    .managed(
        "config.yaml",
        "model: theirs\nagent: {max_turns: 9}\nterminal:\n",
    )
    .managed(".env", "K=managed\n");
    let config = home.load().config;
    assert_eq!(
        (
            config.model.default.as_str(),
            config.model.provider.as_str()
        ),
        ("theirs", "p")
    );
    assert_eq!(
        (config.agent.max_turns, config.agent.api_max_retries),
        (9, 1)
    );
    assert_eq!(home.env().get("K"), Some("managed"));
    let home = TestHome::new("agent: {max_turns: 5}\n").managed("config.yaml", "a: [\n");
    assert_eq!(home.load().config.agent.max_turns, 5);
    assert!(
        home.warnings()[0].contains("no effect"),
        "{:?}",
        home.warnings()
    );
}

#[test]
fn a_broken_file_is_shown_and_left_alone() {
    let text = "model:\n  default: x\n bad: y\n";
    let home = TestHome::new(text);
    let error = home.try_load().unwrap_err().to_string();
    assert!(
        error.contains("config.yaml") && error.contains("line 3") && error.contains("3 |  bad: y"),
        "{error}"
    );
    assert_eq!(home.read("config.yaml"), text);
    assert_eq!(
        std::fs::read_dir(home.home.root()).unwrap().count(),
        1,
        "no backup appears"
    );
    for bad in ["- a\n", "text\n"] {
        assert!(TestHome::new(bad).try_load().is_err());
    }
    let home = TestHome::new("");
    std::fs::write(home.path("config.yaml"), b"a: \xff\n").unwrap();
    assert!(home.try_load().unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn endpoints_come_from_both_forms() {
    let home = TestHome::new(
        "custom_providers:\n  - name: Local\n    url: http://127.0.0.1:1/v1/\n    apiKey: k\n    model: m\n    models: [a, {id: b, context_length: 9}]\n\
         providers:\n  local: {api: http://127.0.0.1:1/v1, name: local, default_model: m}\n  other: {api: http://o/v1, transport: anthropic_messages, key_env: O_KEY}\n\
         \x20 openrouter: {request_timeout_seconds: 60}\n",
    );
    let config = home.load().config;
    let endpoints = config.endpoints();
    let keys: Vec<&str> = endpoints.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["Local", "other", "openrouter"]);
    let local = &endpoints[0].1;
    assert_eq!((local.api_key.expose(), local.model.as_str()), ("k", "m"));
    assert_eq!(local.models.get("b").unwrap().context_length, Some(9));
    assert_eq!(
        (
            endpoints[1].1.api_mode.as_str(),
            endpoints[1].1.key_env.as_str()
        ),
        ("anthropic_messages", "O_KEY")
    );
    assert_eq!(endpoints[2].1.request_timeout_seconds, Some(60.0));
    assert_eq!(home.warnings(), [""; 0]);
}

#[test]
fn the_fallback_chain_merges_old_and_new() {
    let home = TestHome::new(
        "fallback_providers:\n  - {provider: a, model: m}\n  - {provider: b}\nfallback_model: {provider: A, model: M}\n",
    );
    assert_eq!(home.load().config.fallbacks().len(), 1);
    let home = TestHome::new("fallback_model: {provider: c, model: n, api_key_env: K}\n");
    let chain = home.load().config.fallbacks();
    assert_eq!(
        (chain[0].provider.as_str(), chain[0].key_env.as_str()),
        ("c", "K")
    );
}

#[test]
fn an_environment_named_in_variables_counts_where_the_file_is_silent() {
    let variables = "TERMINAL_ENV=docker\nTERMINAL_TIMEOUT=30\nTERMINAL_DOCKER_VOLUMES=[\"/a:/b\"]\nTERMINAL_DOCKER_NETWORK=False\n";
    let silent = TestHome::new("agent:\n  max_turns: 40\n").file(".env", variables);
    let terminal = silent.load().config.terminal;
    assert_eq!(terminal.backend.as_str(), "docker");
    assert_eq!(terminal.timeout, 30);
    assert_eq!(terminal.docker_volumes, ["/a:/b"]);
    assert!(!terminal.docker_network);
    let spoken = TestHome::new("terminal:\n  backend: ssh\n").file(".env", variables);
    assert_eq!(spoken.load().config.terminal.backend.as_str(), "ssh");
}

#[test]
fn the_time_zone_of_the_environment_wins() {
    let home = TestHome::new("timezone: Europe/Berlin\n");
    assert_eq!(home.load().config.timezone, "Europe/Berlin");
    let home = home.file(".env", "HERMES_TIMEZONE=Asia/Tokyo\n");
    let loaded = home.load();
    assert_eq!(loaded.config.timezone, "Asia/Tokyo");
    assert_eq!(loaded.tree["timezone"], "Europe/Berlin");
}
