//! `config migrate`.

use hermes_config::migrate;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::TestHome;

const OLD: &str = "\
# My config
model:
  default: big   # the big one
custom_providers:
  - name: Local Mock (x)      # first
    # about it
    base_url: http://127.0.0.1:1/v1#part
    api_key: ${K}
    model: small
    own_field: kept
display:
  tool_progress_overrides: {telegram: off}
compression:
  summary_model: tiny
  summary_provider: auto
memory:
  write_mode: approve
stt:
  provider: openai
  model: whisper-1
model_catalog: {ttl_hours: 24}
delegation:
  max_async_children: 8
# end
";

#[test]
fn an_old_file_is_brought_up_to_date_with_its_comments() {
    let home = TestHome::new(OLD)
        .file(
            ".env",
            "# c\nLLM_MODEL=x\nOPENAI_API_KEY=1OPENROUTER_API_KEY=2\n",
        )
        .file("plugins/one/plugin.yaml", "name: uno\n")
        .file("plugins/none/readme", "");
    let dry = migrate::run(&home.home, &home.env(), true).unwrap();
    assert_eq!(home.read("config.yaml"), OLD, "a dry run writes nothing");
    let report = migrate::run(&home.home, &home.env(), false).unwrap();
    assert_eq!(dry, report);
    assert_eq!((report.from, report.to), (0, 33));
    let tree = home.load().file_tree;
    assert_eq!(
        tree,
        json!({
            "model": {"default": "big"},
            "display": {"tool_progress_overrides": {"telegram": false}, "platforms": {"telegram": {"tool_progress": false}}, "tool_progress": "all"},
            "memory": {"write_approval": true},
            "stt": {"provider": "openai", "openai": {"model": "whisper-1"}},
            "model_catalog": {"ttl_hours": 1},
            "delegation": {"max_concurrent_children": 8},
            "providers": {"local-mock-x": {"name": "Local Mock (x)", "api": "http://127.0.0.1:1/v1#part", "api_key": "${K}", "default_model": "small", "own_field": "kept"}},
            "plugins": {"enabled": ["uno"]},
            "auxiliary": {"compression": {"model": "tiny"}},
            "agent": {"verify_on_stop": false},
            "_config_version": 33,
        })
    );
    let text = home.read("config.yaml");
    for comment in [
        "# My config",
        "# the big one",
        "# first",
        "# about it",
        "# end",
    ] {
        assert!(text.contains(comment), "{text}");
    }
    assert_eq!(
        home.read(".env"),
        "# c\nOPENAI_API_KEY=1\nOPENROUTER_API_KEY=2\n"
    );
    let again = migrate::run(&home.home, &home.env(), false).unwrap();
    assert!(again.is_empty());
    assert_eq!(home.read("config.yaml"), text);
}

#[test]
fn the_version_is_never_lowered() {
    let home = TestHome::new("_config_version: 37\nmemory: {write_mode: approve}\n");
    assert!(
        migrate::run(&home.home, &home.env(), false)
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        home.read("config.yaml"),
        "_config_version: 37\nmemory: {write_mode: approve}\n"
    );
}

#[test]
fn choices_of_the_person_stay() {
    let home = TestHome::new("agent: {verify_on_stop: auto}\n_config_version: 31\n");
    migrate::run(&home.home, &home.env(), false).unwrap();
    assert_eq!(
        home.load().file_tree["agent"]["verify_on_stop"],
        json!("auto")
    );
    let home = TestHome::new("agent: {verify_on_stop: true}\n_config_version: 31\n");
    migrate::run(&home.home, &home.env(), false).unwrap();
    assert_eq!(
        home.load().file_tree["agent"]["verify_on_stop"],
        json!(false)
    );
}

#[test]
fn a_missing_or_broken_file_is_not_migrated() {
    let home = TestHome::new("a: [\n");
    assert!(migrate::run(&home.home, &home.env(), false).is_err());
    std::fs::remove_file(home.path("config.yaml")).unwrap();
    assert!(
        migrate::run(&home.home, &home.env(), false)
            .unwrap()
            .is_empty()
    );
    assert!(!home.path("config.yaml").exists());
}
