//! `hermes setup --non-interactive`: setup from flags alone.

use hermes_models::providers;
use serde_json::json;

use super::draft::SetupDraft;
use super::{SetupArgs, SetupSection, model, terminal};
use crate::commands::Context;
use crate::commands::model::SetArgs;
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, Default, clap::Args)]
pub(super) struct SetupFlags {
    /// Provider of the model
    #[arg(long)]
    provider: Option<String>,
    /// Model (default: the provider's default model)
    #[arg(long)]
    model: Option<String>,
    /// Environment variable that holds the key
    #[arg(long, value_name = "VAR")]
    key_env: Option<String>,
    /// URL of your own server
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Where commands run
    #[arg(long, value_parser = ["local", "docker", "podman", "ssh"])]
    backend: Option<String>,
    /// How dangerous commands are approved
    #[arg(long, value_name = "MODE", value_parser = ["smart", "manual", "off"])]
    approvals: Option<String>,
    /// Write without testing anything
    #[arg(long)]
    no_test: bool,
}

impl SetupFlags {
    pub(super) fn any(&self) -> bool {
        self.provider.is_some()
            || self.model.is_some()
            || self.key_env.is_some()
            || self.base_url.is_some()
            || self.backend.is_some()
            || self.approvals.is_some()
    }
}

pub(super) fn run(args: &SetupArgs, cx: &Context) -> Outcome {
    let with = &args.with;
    if !with.any() && !args.reset {
        return standing(args, cx);
    }
    let mut draft = SetupDraft::open(cx, args.reset)?;
    if with.provider.is_some()
        || with.model.is_some()
        || with.base_url.is_some()
        || with.key_env.is_some()
    {
        the_model(with, &mut draft)?;
    }
    if let Some(backend) = &with.backend {
        draft.set(&["terminal", "backend"], &json!(backend))?;
        if !with.no_test {
            let confinement = terminal::try_out(cx, &*draft.config()?)
                .map_err(|why| untested(&Failure::failed(why)))?;
            cx.out.remark(format!("terminal: {confinement}"));
        }
    }
    if let Some(mode) = &with.approvals {
        draft.set(&["approvals", "mode"], &json!(mode))?;
    }
    let changes = draft.changes();
    if changes.is_empty() {
        return Ok(cx.out.line("nothing to change")?);
    }
    for line in &changes {
        cx.out.foreign_line(line)?;
    }
    draft.write()
}

/// Without flags there is nothing to write: it says how things stand, and which flag sets what is
/// missing.
fn standing(args: &SetupArgs, cx: &Context) -> Outcome {
    let draft = SetupDraft::open(cx, false)?;
    let mut missing = Vec::new();
    for section in SetupSection::ALL {
        if args.section.is_some_and(|wanted| wanted != section) {
            continue;
        }
        let (good, text) = section.standing(&draft)?;
        let mark = if good { "ok     " } else { "missing" };
        cx.out
            .foreign_line(&format!("{mark}  {:<9} {text}", section.name()))?;
        if !good {
            missing.push(section);
        }
    }
    let flags = |section: &SetupSection| match section {
        SetupSection::Model => "--provider P --model M [--key-env VAR] [--base-url URL]",
        SetupSection::Terminal => "--backend local|docker|ssh",
        SetupSection::Agent => "--approvals smart|manual|off",
        SetupSection::Tools => "(hermes tools enable NAME)",
    };
    if missing.is_empty() {
        cx.out.remark("nothing is missing; nothing was changed");
        return Ok(());
    }
    let flags: Vec<&str> = missing.iter().map(flags).collect();
    let text = format!(
        "nothing was changed. To set what is missing: hermes setup --non-interactive {}",
        flags.join(" ")
    );
    let exit = if missing.contains(&SetupSection::Model) {
        Exit::NotConfigured
    } else {
        Exit::Failed
    };
    Err(Failure::new(exit, text))
}

fn the_model(with: &SetupFlags, draft: &mut SetupDraft<'_>) -> Outcome {
    let usual = with
        .provider
        .as_deref()
        .and_then(providers::find)
        .and_then(|provider| provider.default_model);
    let Some(name) = with.model.as_deref().or(usual) else {
        return Err(Failure::usage(
            "which model? --model M (hermes model list --provider P shows them)",
        ));
    };
    let cx = draft.cx;
    if let Some(variable) = &with.key_env
        && cx.env.credential(variable).is_none()
        && cx.env.get(variable).is_none()
    {
        return Err(Failure::usage(format!(
            "{variable} is not set, neither in the environment nor in .env"
        )));
    }
    let own_variable = |variable: &String| {
        let provider = with.provider.as_deref().and_then(providers::find);
        !provider.is_some_and(|provider| provider.key_envs.contains(&variable.as_str()))
    };
    let choice = SetArgs {
        model: name.to_owned(),
        provider: with.provider.clone(),
        base_url: with.base_url.clone(),
        // The provider's own variable is looked at anyway.
        key_env: with.key_env.clone().filter(own_variable),
    };
    let built_in = with.base_url.is_none()
        && with
            .provider
            .as_deref()
            .and_then(providers::find)
            .is_some_and(|provider| provider.id == hermes_models::local::PROVIDER);
    if built_in && !with.no_test {
        crate::commands::model::local::ready(cx, Some(name))?;
    }
    if !with.no_test {
        cx.out.remark(format!("trying {name} …"));
        let tried = model::try_out(draft, &choice, None).map_err(|failure| untested(&failure))?;
        cx.out.remark(format!("{name}: {tried}"));
    }
    model::enter(draft, &choice, None)
}

fn untested(failure: &Failure) -> Failure {
    Failure::new(
        failure.exit,
        format!(
            "{}\nnothing was written (--no-test writes it anyway)",
            failure.message
        ),
    )
}
