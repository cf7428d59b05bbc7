//! `hermes bundles`: several skills under one name.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hermes_store::skills::{SkillBundle, SkillBundles, SkillLibrary};

use crate::commands::{Context, counted};
use crate::exit::{Failure, Outcome, skill_failure};

#[derive(Debug, Args)]
pub(crate) struct BundlesArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List bundles (the default)
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one bundle
    Show {
        name: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Create a bundle; /NAME in a chat uses its skills
    Create(CreateArgs),
    /// Delete a bundle; its skills stay
    Delete { name: String },
    /// Read the bundles again (this also happens whenever one is used)
    Reload,
}

#[derive(Debug, Args)]
struct CreateArgs {
    name: String,
    /// A skill in the bundle (repeatable)
    #[arg(long = "skill", value_name = "SKILL", required = true)]
    skills: Vec<String>,
    /// One-line description
    #[arg(long, default_value = "")]
    description: String,
    /// Instructions for the model, in addition to the skills
    #[arg(long, default_value = "")]
    instruction: String,
    /// Replace an existing bundle
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: BundlesArgs, cx: &Context) -> Outcome {
    let bundles = SkillBundles::for_home(&cx.home);
    match args.action.unwrap_or(Action::List { json: false }) {
        Action::List { json } => list(cx, &bundles, json),
        Action::Reload => list(cx, &bundles, false),
        Action::Show { name, json } => show(cx, &find(&bundles, &name)?, json),
        Action::Create(args) => create(cx, &bundles, args),
        Action::Delete { name } => {
            let gone = bundles
                .delete(&name)
                .map_err(|error| skill_failure(&error))?;
            let gone = gone.ok_or_else(|| missing(&name))?;
            Ok(cx.out.line(format!("deleted {}", gone.path.display()))?)
        }
    }
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("no bundle {name:?}; see: hermes bundles list"))
}

fn find(bundles: &SkillBundles, name: &str) -> Result<SkillBundle, Failure> {
    bundles.find(name).ok_or_else(|| missing(name))
}

fn list(cx: &Context, bundles: &SkillBundles, json: bool) -> Outcome {
    let (found, problems) = bundles.scan();
    for problem in problems {
        cx.out.error(format!("not used: {problem}"));
    }
    if json {
        let rows: Vec<_> = found.iter().map(SkillBundle::to_json).collect();
        return Ok(cx.out.json(&rows)?);
    }
    if found.is_empty() {
        return Ok(cx
            .out
            .line("No bundles. To make one: hermes bundles create NAME --skill A --skill B")?);
    }
    for bundle in &found {
        cx.out.line(format!(
            "/{}  {}  {}",
            bundle.command(),
            counted(bundle.skills.len(), "skill"),
            bundle.description
        ))?;
    }
    Ok(())
}

fn show(cx: &Context, bundle: &SkillBundle, json: bool) -> Outcome {
    if json {
        return Ok(cx.out.json(&bundle.to_json())?);
    }
    cx.out
        .line(format!("/{}  {}", bundle.command(), bundle.name))?;
    cx.out.line(format!("  {}", bundle.description))?;
    for skill in &bundle.skills {
        cx.out.line(format!("  - {skill}"))?;
    }
    if !bundle.instruction.is_empty() {
        cx.out.line(format!("  {}", bundle.instruction))?;
    }
    Ok(cx.out.line(format!("  {}", bundle.path.display()))?)
}

fn create(cx: &Context, bundles: &SkillBundles, args: CreateArgs) -> Outcome {
    let wish = SkillBundle {
        name: args.name,
        description: args.description,
        skills: args.skills,
        instruction: args.instruction,
        path: PathBuf::new(),
    };
    let made = bundles.create(&wish, args.force).map_err(|error| {
        let mut failure = skill_failure(&error);
        if let hermes_store::skills::SkillError::Exists { name, path } = &error {
            failure.message = format!(
                "there is a bundle {name:?} already ({}); --force replaces it",
                path.display()
            );
        }
        failure
    })?;
    let config = cx.config()?;
    let library = SkillLibrary::of_home(&cx.home, &config, Some("cli"));
    for skill in &made.skills {
        if let Err(error) = library.view(skill, None, None) {
            cx.out
                .remark(format!("{skill} is left out for now: {error}"));
        }
    }
    Ok(cx.out.line(format!(
        "{} written; in a chat: /{}",
        made.path.display(),
        made.command()
    ))?)
}
