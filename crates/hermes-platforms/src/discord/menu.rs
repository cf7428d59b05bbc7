//! The command menu. Written only if it differs from Discord's, which limits the number of writes.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::DiscordShared;
use super::api::{DiscordApi, DiscordCallError};
use super::settings::CommandSync;
use super::wire::Snowflake;
use crate::platform::Offer;

/// Discord's bounds.
const MAX_COMMANDS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 100;

/// The application that the bot belongs to.
pub(super) async fn application(api: &DiscordApi) -> Result<Snowflake, DiscordCallError> {
    #[derive(serde::Deserialize)]
    struct Application {
        id: Snowflake,
    }
    let application: Application = api.get("/applications/@me").await?;
    Ok(application.id)
}

/// Synchronizes the menu.
pub(super) async fn sync(
    shared: &DiscordShared,
    application: Snowflake,
    commands: &[Offer],
) -> Result<(), DiscordCallError> {
    let policy = shared.settings.commands;
    if policy == CommandSync::Off {
        return Ok(());
    }
    let path = format!("/applications/{application}/commands");
    let there: Vec<Value> = shared.api.get(&path).await?;
    let (slash, others): (Vec<Value>, Vec<Value>) = there
        .into_iter()
        .partition(|one| one["type"].as_u64().unwrap_or(1) == 1);
    let wanted = wanted(commands);
    if policy == CommandSync::Safe && same(&slash, &wanted) {
        return Ok(());
    }
    // Commands in other scopes are not removed.
    let all: Vec<Value> = wanted.into_iter().chain(others).collect();
    shared
        .api
        .call(Method::PUT, &path, Some(&json!(all)))
        .await?;
    tracing::info!("discord: the menu of commands was renewed");
    Ok(())
}

fn wanted(commands: &[Offer]) -> Vec<Value> {
    let mut seen = std::collections::HashSet::new();
    commands
        .iter()
        .filter(|command| is_name(&command.name) && seen.insert(command.name.as_str()))
        .take(MAX_COMMANDS)
        .map(command)
        .collect()
}

fn command(offer: &Offer) -> Value {
    let mut value = json!({
        "type": 1, "name": offer.name, "description": short(&offer.about, &offer.name),
    });
    if let Some(args) = offer.args.as_ref().filter(|args| !args.trim().is_empty()) {
        value["options"] = json!([{
            "type": 3, "name": "args", "description": short(args, "what follows"),
            "required": args.starts_with('<'),
        }]);
    }
    value
}

fn is_name(name: &str) -> bool {
    let letter = |ch: char| ch.is_ascii_lowercase() || ch.is_ascii_digit() || "-_".contains(ch);
    (1..=32).contains(&name.len()) && name.chars().all(letter)
}

fn short(text: &str, otherwise: &str) -> String {
    let text = text.trim();
    let text = if text.is_empty() { otherwise } else { text };
    hermes_core::text::shorten_within(text, MAX_DESCRIPTION_CHARS)
}

/// Whether two menus are equal, ignoring fields added by Discord.
fn same(there: &[Value], wanted: &[Value]) -> bool {
    let seen = |commands: &[Value]| -> BTreeMap<String, String> {
        let pairs = commands.iter().map(|command| {
            let options = command["options"].as_array().cloned().unwrap_or_default();
            let options: Vec<Value> = options
                .iter()
                .map(|option| {
                    let required = option["required"].as_bool().unwrap_or(false);
                    json!([
                        option["type"],
                        option["name"],
                        option["description"],
                        required
                    ])
                })
                .collect();
            let name = command["name"].as_str().unwrap_or_default().to_owned();
            (name, json!([command["description"], options]).to_string())
        });
        pairs.collect()
    };
    there.len() == wanted.len() && seen(there) == seen(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str, about: &str, args: Option<&str>) -> Offer {
        Offer {
            name: name.to_owned(),
            about: about.to_owned(),
            args: args.map(str::to_owned),
        }
    }

    #[test]
    fn only_what_discord_takes_is_offered() {
        let wanted = wanted(&[
            offer("new", "start", Some("[title]")),
            offer("new", "again", None),
            offer("Bad Name", "x", None),
            offer("steer", &"y".repeat(200), Some("<text>")),
            offer("stop", "", Some("")),
        ]);
        let names: Vec<&str> = wanted
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names, ["new", "steer", "stop"]);
        assert_eq!(wanted[1]["options"][0]["required"], true);
        assert_eq!(
            wanted[1]["description"].as_str().unwrap().chars().count(),
            100
        );
        assert_eq!(wanted[2]["description"], "stop");
        assert!(wanted[2]["options"].is_null());
    }

    #[test]
    fn what_discord_adds_is_no_difference() {
        let mine = wanted(&[
            offer("new", "start", Some("[title]")),
            offer("stop", "end", None),
        ]);
        let mut theirs = mine.clone();
        theirs.reverse();
        for command in &mut theirs {
            command["id"] = json!("1");
            command["nsfw"] = json!(false);
        }
        theirs[1]["options"][0]
            .as_object_mut()
            .unwrap()
            .remove("required");
        assert!(same(&theirs, &mine));
        theirs[0]["description"] = json!("other");
        assert!(!same(&theirs, &mine));
        assert!(!same(&theirs[..1], &mine));
    }
}
