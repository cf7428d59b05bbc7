//! `hermes approvals`: which commands may run without asking, and why one may not.

use clap::{Args, Subcommand};
use hermes_config::Config;
use hermes_config::edit::EditError;
use hermes_core::approval::Rule;
use hermes_exec::backend;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, SandboxSettings};
use hermes_policy::rules::{self, Meaning};
use hermes_policy::{
    ApprovalMode, Assessment, CommandClass, CommandRequest, ConfinementLevel, Gate, PolicyConfig,
    UnattendedMode,
};
use serde_json::{Value, json};

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List stored rules (the default)
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow a command to run without asking
    Add {
        /// The command; quote it if it contains spaces
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        /// Match every command that starts with these words
        #[arg(long)]
        prefix: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a rule
    Revoke {
        /// The rule as `list` shows it, or its number there
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        rule: Vec<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show how a command is classified and what would happen. Exits 0 if it would run, 1 if it
    /// would ask, 5 if it would be refused
    Test {
        /// The command; quote it if it contains spaces
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        /// Classify it as if there were no sandbox
        #[arg(long)]
        no_sandbox: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: ApprovalsArgs, cx: &Context) -> Outcome {
    match args.action.unwrap_or(Action::List { json: false }) {
        Action::List { json } => list(cx, json),
        Action::Add {
            command,
            prefix,
            json,
        } => add(cx, &text(command), prefix, json),
        Action::Revoke { rule, json } => revoke(cx, &rule.join(" "), json),
        Action::Test {
            command,
            no_sandbox,
            json,
        } => test(cx, &text(command), no_sandbox, json),
    }
}

/// One argument is a command line; several are its words.
fn text(mut command: Vec<String>) -> String {
    match command.len() {
        1 => command.remove(0),
        _ => rules::line(&command),
    }
}

fn gate(cx: &Context) -> Result<Gate, Failure> {
    Ok(Gate::new(PolicyConfig::from_config(
        &cx.home,
        &cx.config()?,
    )))
}

fn edit_failed(error: &EditError) -> Failure {
    Failure::failed(error.to_string())
}

/// What `doctor` warns about: permissions wider than they look, and settings without effect.
pub(crate) fn concerns(config: &Config) -> Vec<String> {
    let approvals = &config.approvals;
    let mut concerns = Vec::new();
    for entry in &config.command_allowlist {
        match rules::meaning(entry) {
            Meaning::Category(_) => concerns.push(format!(
                "command_allowlist: {entry:?} allows a whole category while you are present; `hermes approvals revoke {entry:?}` ends that"
            )),
            Meaning::Ignored(why) => {
                concerns.push(format!("command_allowlist: {entry:?} allows nothing: {why}"));
            }
            _ => {}
        }
    }
    let mode = approvals.mode.as_str();
    match mode {
        "off" => concerns
            .push("approvals.mode is off: only the hardline and approvals.deny refuse".to_owned()),
        "smart" | "manual" => {}
        other => concerns.push(format!(
            "approvals.mode {other:?} is not known; every command that needs it asks"
        )),
    }
    match approvals.unattended.as_deref() {
        Some("allow") => concerns.push(
            "approvals.unattended is allow: headless runs may do everything but the hardline"
                .to_owned(),
        ),
        None | Some("deny" | "allow_workspace" | "smart") => {}
        Some(other) => concerns.push(format!(
            "approvals.unattended {other:?} is not known; headless runs are denied"
        )),
    }
    concerns
}

/// An administrator's list is not ours to change.
fn refuse_managed(cx: &Context) -> Outcome {
    let config = cx.config()?;
    let own = rules::stored(&cx.home.config_path()).map_err(|error| edit_failed(&error))?;
    if cx.env.managed_dir().is_some() && config.command_allowlist != own {
        return Err(Failure::new(
            Exit::Refused,
            "command_allowlist is fixed by the administrator and cannot be changed here",
        ));
    }
    Ok(())
}

fn describe(entry: &str) -> (&'static str, String) {
    match rules::meaning(entry) {
        Meaning::Exact { argv: Some(_), .. } => ("command", "this command".to_owned()),
        Meaning::Exact { .. } => ("line", "exactly this line".to_owned()),
        Meaning::Prefix(_) => ("prefix", "every command that begins like this".to_owned()),
        Meaning::Glob(_) => ("glob", "commands that match; written by hand".to_owned()),
        Meaning::Category(_) => (
            "category",
            "a whole category, from an older version; applies only while you are present"
                .to_owned(),
        ),
        Meaning::Ignored(why) => ("ignored", format!("allows nothing: {why}")),
    }
}

fn list(cx: &Context, as_json: bool) -> Outcome {
    let file = cx.home.config_path();
    let own = rules::stored(&file).map_err(|error| edit_failed(&error))?;
    let config = cx.config()?;
    let rows: Vec<Value> = config
        .command_allowlist
        .iter()
        .enumerate()
        .map(|(number, entry)| {
            let (kind, meaning) = describe(entry);
            let from = if own.contains(entry) {
                file.display().to_string()
            } else {
                "administrator".to_owned()
            };
            json!({"number": number + 1, "rule": entry, "kind": kind, "meaning": meaning, "from": from})
        })
        .collect();
    let approvals = &config.approvals;
    let unattended = approvals.unattended.as_deref().unwrap_or("deny");
    if as_json {
        return Ok(cx.out.json(&json!({
            "mode": approvals.mode.as_str(),
            "unattended": unattended,
            "deny": approvals.deny,
            "rules": rows,
        }))?);
    }
    cx.out.line(format!(
        "mode {} · unattended {unattended} · {} denied by approvals.deny",
        approvals.mode.as_str(),
        approvals.deny.len()
    ))?;
    if rows.is_empty() {
        return Ok(cx.out.line("no rules: everything that needs asking asks")?);
    }
    for row in rows {
        let field = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        cx.out.foreign_line(&format!(
            "{:>3}  {}\n     {} ({})",
            row["number"].to_string(),
            field("rule"),
            field("meaning"),
            field("from")
        ))?;
    }
    Ok(())
}

fn add(cx: &Context, command: &str, prefix: bool, as_json: bool) -> Outcome {
    refuse_managed(cx)?;
    wildcards(cx, command, prefix)?;
    let gate = gate(cx)?;
    let cwd = std::env::current_dir()?;
    let assessment = gate.assess(&CommandRequest::terminal(command, &cwd));
    if assessment.class == CommandClass::Forbidden {
        return Err(Failure::new(
            Exit::Refused,
            format!("no rule lets this run: {}", assessment.reasons().join("; ")),
        ));
    }
    let rule = if prefix {
        let words = rules::words(command.trim_end_matches('*').trim())
            .map_err(|why| Failure::usage(format!("{command:?} cannot begin a command: {why}")))?;
        rules::prefix(&words)
    } else {
        exact(command, &assessment)?
    };
    if let Some(pattern) = gate.denied_by(&assessment) {
        cx.out.remark(format!(
            "it stays refused as long as approvals.deny has {pattern:?}"
        ));
    }
    if prefix && is_anything(&rule) {
        cx.out
            .remark("what it runs is no longer checked: such a rule allows nearly everything");
    }
    if !prefix && assessment.class < CommandClass::Ask {
        cx.out.remark("it would not have been asked about anyway");
    }
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let added = rules::add(&cx.home.config_path(), &rule).map_err(|error| edit_failed(&error))?;
    if as_json {
        return Ok(cx.out.json(&json!({"rule": rule.0, "added": added}))?);
    }
    let what = if added {
        "added"
    } else {
        "already in the list:"
    };
    Ok(cx.out.foreign_line(&format!("{what} {}", rule.0))?)
}

/// A wildcard in a rule for one command stands for itself, which is seldom what is meant.
fn wildcards(cx: &Context, command: &str, prefix: bool) -> Outcome {
    let wild = |word: &str| word.contains(['*', '?', '[']);
    let program = command.split_whitespace().next().unwrap_or_default();
    if wild(program) {
        return Err(Failure::usage(format!(
            "{program:?} names no program, so the rule would allow nothing. A rule names a command, or its first words with --prefix; to be asked about nothing: hermes config set approvals.mode off"
        )));
    }
    if !prefix && command.trim_end().ends_with(" *") {
        cx.out.remark(
            "the * is literal: --prefix allows every command that begins with the words before it",
        );
    }
    Ok(())
}

fn exact(command: &str, assessment: &Assessment) -> Result<Rule, Failure> {
    // A command that needs no asking has no rule of its own to offer.
    if let Some(rule) = &assessment.rule {
        return Ok(rule.clone());
    }
    if assessment.class < CommandClass::Ask {
        return Ok(rules::exact(command));
    }
    Err(Failure::usage(
        "a rule must mean the same at every run: no variables, substitutions or line breaks in it, and at most 500 characters",
    ))
}

/// A prefix that ends where any program may begin.
fn is_anything(rule: &Rule) -> bool {
    let runs = [
        "sh", "bash", "zsh", "dash", "sudo", "doas", "env", "xargs", "eval", "python", "python3",
        "node", "perl", "ruby", "ssh",
    ];
    let Meaning::Prefix(words) = rules::meaning(&rule.0) else {
        return false;
    };
    words.len() <= 2
        && words
            .first()
            .is_some_and(|first| runs.contains(&first.as_str()))
}

fn revoke(cx: &Context, wanted: &str, as_json: bool) -> Outcome {
    refuse_managed(cx)?;
    let file = cx.home.config_path();
    let own = rules::stored(&file).map_err(|error| edit_failed(&error))?;
    let numbered = wanted
        .parse::<usize>()
        .ok()
        .and_then(|number| own.get(number.checked_sub(1)?));
    let entry = own
        .iter()
        .find(|entry| entry.as_str() == wanted || **entry == rules::exact(wanted).0)
        .or(numbered)
        .ok_or_else(|| {
            Failure::not_found(format!("no rule {wanted:?}; see: hermes approvals list"))
        })?;
    rules::remove(&file, entry).map_err(|error| edit_failed(&error))?;
    if as_json {
        return Ok(cx.out.json(&json!({"revoked": entry}))?);
    }
    Ok(cx.out.foreign_line(&format!("revoked {entry}"))?)
}

/// What would happen to a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PredictedDecision {
    Runs,
    Asks,
    Judged,
    Refused,
}

impl PredictedDecision {
    fn words(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Asks => "asks you",
            Self::Judged => "a model judges; where it does not approve, asks you",
            Self::Refused => "refused",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Runs => "run",
            Self::Asks => "ask",
            Self::Judged => "judge",
            Self::Refused => "refuse",
        }
    }
}

struct CommandTrial<'a> {
    gate: &'a Gate,
    request: CommandRequest,
    assessment: Assessment,
    denied: Option<String>,
    allowed: Option<String>,
}

impl<'a> CommandTrial<'a> {
    fn new(gate: &'a Gate, command: &str, confinement: ConfinementLevel) -> Result<Self, Failure> {
        let cwd = std::env::current_dir()?;
        let request = CommandRequest::terminal(command, &cwd).confined(confinement);
        let assessment = gate.assess(&request);
        Ok(Self {
            denied: gate.denied_by(&assessment),
            allowed: gate.allowed_by(&request, &assessment, true),
            gate,
            request,
            assessment,
        })
    }

    fn settled(&self) -> Option<PredictedDecision> {
        if self.assessment.class == CommandClass::Forbidden || self.denied.is_some() {
            return Some(PredictedDecision::Refused);
        }
        (self.assessment.class < CommandClass::Ask).then_some(PredictedDecision::Runs)
    }

    fn with_mode(&self, mode: ApprovalMode) -> PredictedDecision {
        let personal = self
            .assessment
            .findings
            .iter()
            .any(|finding| finding.category.needs_person());
        match (self.settled(), mode) {
            (Some(fate), _) => fate,
            (None, ApprovalMode::Off) => PredictedDecision::Runs,
            (None, _) if self.allowed.is_some() => PredictedDecision::Runs,
            (None, ApprovalMode::Smart) if !personal => PredictedDecision::Judged,
            (None, _) => PredictedDecision::Asks,
        }
    }

    /// When nobody is there.
    fn headless(&self) -> PredictedDecision {
        let alone = self
            .gate
            .allowed_by(&self.request, &self.assessment, false)
            .is_some();
        let harmless = self.assessment.firm().next().is_none();
        match (self.settled(), self.gate.config().unattended) {
            (Some(fate), _) => fate,
            (None, _) if alone || self.gate.config().mode == ApprovalMode::Off => {
                PredictedDecision::Runs
            }
            (None, UnattendedMode::Allow) => PredictedDecision::Runs,
            (None, UnattendedMode::AllowWorkspace) if harmless => PredictedDecision::Runs,
            (None, UnattendedMode::Smart) => match self.with_mode(ApprovalMode::Smart) {
                PredictedDecision::Judged => PredictedDecision::Judged,
                _ => PredictedDecision::Refused,
            },
            (None, _) => PredictedDecision::Refused,
        }
    }
}

/// What confines commands with these settings.
fn confinement(cx: &Context) -> Result<ConfinementLevel, Failure> {
    let config = cx.config()?;
    let cwd = std::env::current_dir().unwrap_or_default();
    let failed = |error: hermes_exec::ExecError| Failure::failed(error.to_string());
    let elsewhere = backend::select(&cx.home, &config, &cx.env, &cwd, &Declared::default());
    Ok(match elsewhere.map_err(failed)? {
        Some(environment) if environment.info().isolated => ConfinementLevel::Isolated,
        Some(_) => ConfinementLevel::None,
        None => {
            let sandbox = Sandbox::detect(SandboxSettings::from_config(&cx.home, &config));
            if sandbox.confinement(&cwd).is_off() {
                ConfinementLevel::None
            } else {
                ConfinementLevel::Sandboxed
            }
        }
    })
}

fn test(cx: &Context, command: &str, no_sandbox: bool, as_json: bool) -> Outcome {
    let gate = gate(cx)?;
    let confinement = if no_sandbox {
        ConfinementLevel::None
    } else {
        confinement(cx)?
    };
    let no_sandbox = confinement == ConfinementLevel::None;
    let trial = CommandTrial::new(&gate, command, confinement)?;
    let modes = [
        ("manual", trial.with_mode(ApprovalMode::Manual)),
        ("smart", trial.with_mode(ApprovalMode::Smart)),
        ("off", trial.with_mode(ApprovalMode::Off)),
        ("unattended", trial.headless()),
    ];
    let now = trial.with_mode(gate.config().mode);
    if as_json {
        let fates: serde_json::Map<String, Value> = modes
            .iter()
            .map(|(mode, fate)| ((*mode).to_owned(), json!(fate.name())))
            .collect();
        cx.out.json(&json!({
            "command": command,
            "sandbox": !no_sandbox,
            "class": trial.assessment.class,
            "findings": trial.assessment.findings,
            "rule": trial.assessment.rule,
            "allowed_by": trial.allowed,
            "denied_by": trial.denied,
            "modes": fates,
            "now": now.name(),
        }))?;
    } else {
        report(cx, &trial, no_sandbox, &modes)?;
    }
    match now {
        PredictedDecision::Runs => Ok(()),
        PredictedDecision::Asks | PredictedDecision::Judged => Err(Failure::silent(Exit::Failed)),
        PredictedDecision::Refused => Err(Failure::silent(Exit::Refused)),
    }
}

fn report(
    cx: &Context,
    trial: &CommandTrial<'_>,
    no_sandbox: bool,
    modes: &[(&str, PredictedDecision)],
) -> Outcome {
    let environment_text = if no_sandbox {
        "without a sandbox"
    } else {
        "in the sandbox"
    };
    cx.out.line(format!(
        "class       {} ({environment_text})",
        trial.assessment.class
    ))?;
    for finding in &trial.assessment.findings {
        cx.out.foreign_line(&format!(
            "finding     {} [{}]\n            {}",
            finding.why,
            finding.category,
            finding.excerpt.replace('\n', "\n            ")
        ))?;
    }
    if let Some(pattern) = &trial.denied {
        cx.out
            .foreign_line(&format!("denied by   {pattern} (approvals.deny)"))?;
    }
    let refused = trial.settled() == Some(PredictedDecision::Refused);
    match (&trial.allowed, &trial.assessment.rule) {
        (Some(rule), _) if refused => cx.out.foreign_line(&format!(
            "rule        {rule} (changes nothing: it is refused)"
        ))?,
        // No rule helps against a refusal.
        (None, Some(_)) if refused => {}
        (Some(rule), _) => cx.out.foreign_line(&format!("allowed by  {rule}"))?,
        (None, Some(rule)) => cx.out.foreign_line(&format!(
            "rule        {} (\"always\" would store this)",
            rule.0
        ))?,
        (None, None) => {}
    }
    for (mode, fate) in modes {
        cx.out.line(format!("{mode:<11} {}", fate.words()))?;
    }
    Ok(())
}
