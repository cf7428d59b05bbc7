//! `hermes config show`: never a secret.

use hermes_config::{EnvSource, redact, yaml};
use serde_json::{Value, json};

use crate::commands::Context;
use crate::exit::Outcome;

pub(super) fn run(cx: &Context, all: bool, as_json: bool) -> Outcome {
    let loaded = cx.load_config()?;
    let settings = redact::redact(if all { &loaded.tree } else { &loaded.file_tree });
    let variables: Vec<&str> = cx
        .env
        .iter()
        .map(|(name, _)| name)
        .filter(|name| {
            cx.env
                .source(name)
                .is_some_and(|source| source != EnvSource::Shell)
        })
        .collect();
    if as_json {
        cx.out.json(&json!({
            "path": cx.home.config_path(),
            "env_path": cx.home.env_path(),
            "settings": settings,
            "variables": variables,
        }))?;
        return Ok(());
    }
    let missing = if cx.home.config_path().exists() {
        ""
    } else {
        " (does not exist: all defaults)"
    };
    cx.out.line(
        cx.out
            .dim(&format!("# {}{missing}", cx.home.config_path().display())),
    )?;
    if settings != Value::Object(serde_json::Map::new()) {
        cx.out.line(yaml::to_block(&settings))?;
    }
    if !variables.is_empty() {
        let list = variables.join(", ");
        cx.out.line(
            cx.out
                .dim(&format!("# {} sets {list}", cx.home.env_path().display())),
        )?;
    }
    if !loaded.warnings.is_empty() {
        let count = loaded.warnings.len();
        cx.out.remark(format!(
            "remarks on the file: {count}; see: hermes config check"
        ));
    }
    Ok(())
}
