//! `hermes skills`: lists and shows installed skills.

use std::collections::BTreeSet;

use clap::{Args, Subcommand, ValueEnum};
use hermes_app::apply_pending_skill;
use hermes_store::Subsystem;
use hermes_store::skills::{Skill, SkillLibrary, SkillOrFile, bundled_skills};
use serde_json::{Value, json};

use crate::commands::{Context, waiting};
use crate::exit::{Failure, Outcome, skill_failure};

#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List skills (the default)
    List(ListArgs),
    /// Print a skill, or one of its files
    #[command(visible_alias = "show")]
    View {
        /// Name, or category/name
        name: String,
        /// A file in the skill, such as references/api.md
        file: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// List changes that wait for approval
    Pending {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve a pending change
    Approve { id: String },
    /// Reject a pending change
    Reject { id: String },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Show only this category
    #[arg(long)]
    category: Option<String>,
    /// Show only skills from this source
    #[arg(long, value_enum, default_value_t = SkillSourceFilter::All)]
    source: SkillSourceFilter,
    /// Omit disabled skills
    #[arg(long)]
    enabled_only: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SkillSourceFilter {
    All,
    /// Installed from a hub
    Hub,
    /// Bundled with Hermes Agent
    Builtin,
    /// Created here
    Local,
    /// From skills.external_dirs
    External,
}

impl SkillSourceFilter {
    fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hub => "hub",
            Self::Builtin => "builtin",
            Self::Local => "local",
            Self::External => "external",
        }
    }
}

pub(crate) fn run(args: SkillsArgs, cx: &Context) -> Outcome {
    let config = cx.config()?;
    let library = SkillLibrary::of_home(&cx.home, &config, Some("cli"));
    let all = ListArgs {
        category: None,
        source: SkillSourceFilter::All,
        enabled_only: false,
        json: false,
    };
    match args.action.unwrap_or(Action::List(all)) {
        Action::List(args) => list(cx, &library, &args),
        Action::View { name, file, json } => view(cx, &library, &name, file.as_deref(), json),
        Action::Pending { json } => waiting::list(cx, Subsystem::Skills, json),
        Action::Approve { id } => {
            let write = waiting::find(cx, Subsystem::Skills, &id)?;
            let done = apply_pending_skill(&library, &write.payload).map_err(Failure::failed)?;
            waiting::discard(cx, Subsystem::Skills, &write)?;
            Ok(cx.out.line(done.message)?)
        }
        Action::Reject { id } => waiting::reject(cx, Subsystem::Skills, &id),
    }
}

fn list(cx: &Context, library: &SkillLibrary, args: &ListArgs) -> Outcome {
    let origins = SkillOrigins::read(library)?;
    let mut rows: Vec<(Skill, SkillSourceFilter)> = library
        .scan()
        .into_iter()
        .map(|skill| {
            let source = origins.of(library, &skill);
            (skill, source)
        })
        .collect();
    rows.retain(|(skill, source)| {
        let category = args.category.as_deref();
        (category.is_none() || skill.category.as_deref() == category)
            && (args.source == SkillSourceFilter::All || args.source == *source)
            && (skill.enabled || !args.enabled_only)
    });
    if args.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(skill, source)| {
                json!({
                    "name": skill.name, "description": skill.description,
                    "category": skill.category, "source": source.as_str(),
                    "enabled": skill.enabled, "path": skill.dir,
                })
            })
            .collect();
        return Ok(cx.out.json(&rows)?);
    }
    if rows.is_empty() {
        return Ok(cx.out.line("No skills.")?);
    }
    let widest = |text: fn(&(Skill, SkillSourceFilter)) -> &str, least: usize| {
        let widths = rows.iter().map(|row| text(row).chars().count());
        widths.max().unwrap_or(0).max(least)
    };
    let name = widest(|(skill, _)| &skill.name, 4);
    let category = widest(
        |(skill, _)| skill.category.as_deref().unwrap_or_default(),
        8,
    );
    let head = format!(
        "{:name$}  {:category$}  {:8}  Status",
        "Name", "Category", "Source"
    );
    cx.out.line(head)?;
    for (skill, source) in &rows {
        cx.out.line(format!(
            "{:name$}  {:category$}  {:8}  {}",
            skill.name,
            skill.category.as_deref().unwrap_or_default(),
            source.as_str(),
            if skill.enabled { "enabled" } else { "disabled" }
        ))?;
    }
    let enabled = rows.iter().filter(|(skill, _)| skill.enabled).count();
    let disabled = rows.len() - enabled;
    Ok(cx
        .out
        .line(format!("{enabled} enabled, {disabled} disabled"))?)
}

fn view(
    cx: &Context,
    library: &SkillLibrary,
    name: &str,
    file: Option<&str>,
    as_json: bool,
) -> Outcome {
    let view = library
        .view(name, file, None)
        .map_err(|error| skill_failure(&error))?;
    if as_json {
        return Ok(cx.out.json(&view.to_json())?);
    }
    match view {
        SkillOrFile::Skill(skill) => cx.out.line(skill.content.trim_end())?,
        SkillOrFile::File(file) => {
            let Some(content) = file.content else {
                let text = format!("{} is not text ({} bytes)", file.file, file.bytes);
                return Err(Failure::failed(text));
            };
            cx.out.line(content.trim_end())?;
        }
    }
    Ok(())
}

/// Where skills come from, by the records that installers keep.
struct SkillOrigins {
    shipped: BTreeSet<String>,
    hub: Vec<String>,
}

impl SkillOrigins {
    fn read(library: &SkillLibrary) -> Result<Self, Failure> {
        let hub = std::fs::read(library.dir().join(".hub/lock.json")).unwrap_or_default();
        let hub: Value = serde_json::from_slice(&hub).unwrap_or_default();
        let installed = hub["installed"].as_object();
        Ok(Self {
            shipped: bundled_skills(library.dir())?,
            hub: installed
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
        })
    }

    fn of(&self, library: &SkillLibrary, skill: &Skill) -> SkillSourceFilter {
        let dir = skill.dir.file_name().unwrap_or_default().to_string_lossy();
        let known = |name: &str| name == skill.name || name == dir;
        if !skill.dir.starts_with(library.dir()) {
            SkillSourceFilter::External
        } else if self.hub.iter().any(|name| known(name)) {
            SkillSourceFilter::Hub
        } else if self.shipped.iter().any(|name| known(name)) {
            SkillSourceFilter::Builtin
        } else {
            SkillSourceFilter::Local
        }
    }
}
