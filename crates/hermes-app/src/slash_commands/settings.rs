//! Settings: model, reasoning, display, approvals.

use hermes_config::settings::{self, SetOptions};
use hermes_core::event::{AgentCommand, Setting};
use hermes_core::front_end::{DisplaySetting, Effect};
use hermes_core::model::ReasoningEffort;

use super::{subprocess, switched};
use crate::conversation::{CommandResult, Conversation};
use crate::failure::{Failure, Outcome};

/// Writes a key of config.yaml.
pub(super) fn save_setting(conversation: &Conversation, key: &str, value: &str) -> Outcome {
    let cx = &conversation.cx;
    settings::set(&cx.home, &cx.env, key, value, SetOptions::default())
        .map(drop)
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The arguments of `/model`.
struct ModelArgument<'a> {
    model: &'a str,
    provider: Option<&'a str>,
    persisted: bool,
}

fn wanted(rest: &str) -> Result<Option<ModelArgument<'_>>, Failure> {
    let mut model = None;
    let mut provider = None;
    let mut persisted = false;
    let mut words = rest.split_whitespace();
    let usage = || Failure::usage("/model <model> [--provider <provider>] [--global|--session]");
    while let Some(word) = words.next() {
        match word {
            "--provider" => provider = Some(words.next().ok_or_else(usage)?),
            "--global" => persisted = true,
            "--session" => persisted = false,
            flag if flag.starts_with("--") => return Err(usage()),
            word if model.is_none() => model = Some(word),
            _ => return Err(usage()),
        }
    }
    Ok(model.map(|model| ModelArgument {
        model,
        provider,
        persisted,
    }))
}

pub(super) async fn model(
    conversation: &mut Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let Some(wanted) = wanted(rest)? else {
        let route = &conversation.chat.route;
        return Ok(CommandResult::plain(match &conversation.chat.missing {
            None => format!("{} ({})", route.model, route.provider),
            Some(why) => format!("{why}: /model <model> --provider <provider> chooses one"),
        }));
    };
    switch(conversation, wanted.model, wanted.provider).await?;
    if wanted.persisted {
        save_setting(conversation, "model.default", wanted.model)?;
        if let Some(provider) = wanted.provider {
            save_setting(conversation, "model.provider", provider)?;
        }
    }
    Ok(CommandResult::order())
}

/// Switches the model; the session reports it.
async fn switch(conversation: &mut Conversation, model: &str, provider: Option<&str>) -> Outcome {
    let command = AgentCommand::SwitchRoute {
        model: model.to_owned(),
        provider: provider.map(str::to_owned),
    };
    conversation.chat.send(command).await?;
    conversation.options.model = Some(model.to_owned());
    if let Some(provider) = provider {
        conversation.options.provider = Some(provider.to_owned());
    }
    Ok(())
}

const LEVELS: [(&str, ReasoningEffort); 8] = [
    ("none", ReasoningEffort::None),
    ("minimal", ReasoningEffort::Minimal),
    ("low", ReasoningEffort::Low),
    ("medium", ReasoningEffort::Medium),
    ("high", ReasoningEffort::High),
    ("xhigh", ReasoningEffort::Xhigh),
    ("max", ReasoningEffort::Max),
    ("ultra", ReasoningEffort::Ultra),
];

pub(super) async fn reasoning(
    conversation: &mut Conversation,
    word: &str,
) -> Result<CommandResult, Failure> {
    match word {
        "show" | "hide" | "on" | "off" => {
            let shown = matches!(word, "show" | "on");
            conversation.shown.reasoning = shown;
            let text = if shown { "shown" } else { "hidden" };
            let result = CommandResult::info(format!("reasoning is {text}"));
            return Ok(result.and(Effect::Show(DisplaySetting::Reasoning(shown))));
        }
        "" => {
            let shown = if conversation.shown.reasoning {
                "shown"
            } else {
                "hidden"
            };
            let level = conversation
                .effort
                .or_else(|| conversation.configured_effort());
            let level = level.map_or("model default", name);
            return Ok(CommandResult::plain(format!("reasoning: {level}, {shown}")));
        }
        _ => {}
    }
    let level = LEVELS.iter().find(|(name, _)| *name == word);
    let Some((_, effort)) = level else {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::usage(format!(
            "/reasoning show, hide, or one of {}",
            names.join(", ")
        )));
    };
    let setting = Setting::Reasoning(Some(*effort));
    conversation.chat.send(AgentCommand::Set(setting)).await?;
    conversation.effort = Some(*effort);
    Ok(CommandResult::info(format!(
        "reasoning: {word}, from the next turn"
    )))
}

fn name(effort: ReasoningEffort) -> &'static str {
    let found = LEVELS.iter().find(|(_, level)| *level == effort);
    found.map_or("none", |(name, _)| name)
}

pub(super) async fn yolo(
    conversation: &mut Conversation,
    word: &str,
) -> Result<CommandResult, Failure> {
    let on = switched(conversation.yolo, word, "yolo")?;
    let setting = Setting::ApproveAll(on);
    conversation.chat.send(AgentCommand::Set(setting)).await?;
    conversation.yolo = on;
    conversation.options.yolo = on;
    Ok(CommandResult::info(if on {
        "dangerous actions will run without asking from the next turn; forbidden ones stay forbidden"
    } else {
        "dangerous actions will ask again from the next turn"
    }))
}

pub(super) fn verbose(
    conversation: &mut Conversation,
    word: &str,
) -> Result<CommandResult, Failure> {
    let on = switched(conversation.shown.verbose, word, "verbose")?;
    conversation.shown.verbose = on;
    conversation.shown.reasoning = on;
    conversation.options.verbose = on;
    let state = if on { "shown" } else { "hidden" };
    let result = CommandResult::info(format!("reasoning and tool results are {state}"));
    let result = result.and(Effect::Show(DisplaySetting::Reasoning(on)));
    Ok(result.and(Effect::Show(DisplaySetting::Verbose(on))))
}

pub(super) fn status_bar(
    conversation: &mut Conversation,
    word: &str,
) -> Result<CommandResult, Failure> {
    let on = switched(conversation.shown.status_line, word, "statusbar")?;
    conversation.shown.status_line = on;
    Ok(CommandResult::from_effect(Effect::Show(
        DisplaySetting::StatusLine(on),
    )))
}

pub(super) fn timestamps(
    conversation: &mut Conversation,
    word: &str,
) -> Result<CommandResult, Failure> {
    let on = switched(conversation.shown.timestamps, word, "timestamps")?;
    conversation.shown.timestamps = on;
    let text = if on { "shown" } else { "hidden" };
    let result = CommandResult::info(format!("times are {text}"));
    Ok(result.and(Effect::Show(DisplaySetting::Timestamps(on))))
}

/// `/config`, `/config key`, `/config key value`.
pub(super) async fn config(
    conversation: &Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let (key, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let home = &conversation.cx.home;
    match (key, value.trim()) {
        ("", _) => Ok(CommandResult::plain(format!(
            "config  {}\nkeys    {}\n/config key reads one, /config key value sets it",
            home.config_path().display(),
            home.env_path().display()
        ))),
        (key, "") => subprocess::run(conversation, &["config", "get", key]).await,
        (key, value) => {
            let result = subprocess::run(conversation, &["config", "set", key, value]).await?;
            Ok(result.and(crate::conversation::show_text(
                hermes_core::front_end::TextKind::Info,
                "/reload applies it",
            )))
        }
    }
}
