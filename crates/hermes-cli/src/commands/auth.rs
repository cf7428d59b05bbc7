//! `hermes auth`: the keys of this home. A secret goes in and is never printed.

mod add;
mod show;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use hermes_config::env::{EnvSource, writer};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_models::credentials::manage::KeyEntry;
use hermes_models::credentials::store::{AuthStore, AuthStoreError};
use hermes_models::credentials::{KeyStatus, is_usable_for};
use hermes_models::{Overrides, Router, providers};
use secrecy::ExposeSecret as _;

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

pub(crate) use add::{KeyCheck, verify};

#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    command: Option<AuthCommand>,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// Test a provider's key and store it
    Add(AddArgs),
    /// List keys by provider, without the secrets (the default)
    List {
        provider: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a key
    Remove {
        provider: String,
        /// Its number, id or label in the list
        target: String,
    },
    /// Re-enable keys that were paused after an error
    Reset { provider: String },
    /// Show whether a provider can be used
    Status {
        /// Provider (default: the one in use)
        provider: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete all stored credentials for a provider
    Logout {
        /// Provider (default: the one you logged in to last, or the one in use)
        provider: Option<String>,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    provider: String,
    /// Type of credential
    #[arg(long = "type", value_enum, default_value_t = CredentialKind::ApiKey)]
    kind: CredentialKind,
    /// A name for the key
    #[arg(long)]
    label: Option<String>,
    /// The key; if omitted, it is prompted for or read from the first line of stdin
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    api_key: Option<String>,
    /// Store it without testing it
    #[arg(long)]
    no_test: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CredentialKind {
    #[value(alias = "api_key")]
    ApiKey,
    /// Browser login
    #[value(name = "oauth")]
    OAuth,
}

pub(crate) fn run(args: AuthArgs, cx: &Context) -> Outcome {
    let command = args.command.unwrap_or(AuthCommand::List {
        provider: None,
        json: false,
    });
    match command {
        AuthCommand::Add(args) => add::run(&args, cx),
        AuthCommand::List { provider, json } => show::list(provider.as_deref(), json, cx),
        AuthCommand::Remove { provider, target } => remove(&provider, &target, cx),
        AuthCommand::Reset { provider } => reset(&provider, cx),
        AuthCommand::Status { provider, json } => show::status(provider.as_deref(), json, cx),
        AuthCommand::Logout { provider } => logout(provider.as_deref(), cx),
    }
}

/// Everything the commands look at.
struct AuthContext<'a> {
    cx: &'a Context,
    router: Arc<Router>,
    store: AuthStore,
    now: DateTime<Utc>,
}

/// One key, wherever it is kept.
struct CredentialRow {
    entry: KeyEntry,
    /// It is in the environment and auth.json knows nothing of it.
    only_env: bool,
}

impl<'a> AuthContext<'a> {
    fn open(cx: &'a Context) -> Result<Self, Failure> {
        let config = Arc::new(cx.config()?);
        Ok(Self {
            cx,
            router: wiring::router(cx, &config, Overrides::default()),
            store: AuthStore::new(&cx.home),
            now: SystemClock.now(),
        })
    }

    /// The name that auth.json knows a provider by, and its address.
    fn pool_of(&self, provider: &str) -> Result<(String, String), Failure> {
        // Logins of other programs are stored under names that are no providers here.
        let stored = self
            .store
            .providers()
            .map_err(|error| store_failure(&error))?;
        let name = provider.trim().to_lowercase();
        if providers::find(&name).is_none() && stored.contains(&name) {
            return Ok((name, String::new()));
        }
        self.router.pool_of(provider).map_err(Failure::from)
    }

    /// All keys of a provider, in the order they are listed and numbered.
    fn rows(&self, pool: &str) -> Result<Vec<CredentialRow>, Failure> {
        let listed = self
            .store
            .entries(pool)
            .map_err(|error| store_failure(&error))?;
        let suppressed = self.store.suppressed(pool);
        let mut rows: Vec<CredentialRow> = listed
            .entries
            .into_iter()
            // An entry that only remembers a variable says nothing once the variable is gone.
            .filter(|entry| match entry.source.strip_prefix("env:") {
                Some(name) if !entry.holds_secret => {
                    self.cx.env.credential(name).is_some() && !suppressed.contains(&entry.source)
                }
                _ => true,
            })
            .map(|entry| CredentialRow {
                entry,
                only_env: false,
            })
            .collect();
        for name in providers::by_id(pool).map_or(&[][..], |provider| provider.key_envs) {
            let source = format!("env:{name}");
            let known = rows.iter().any(|row| row.entry.source == source);
            let usable = self
                .cx
                .env
                .credential(name)
                .is_some_and(|(secret, _)| is_usable_for(pool, secret.expose_secret()));
            if known || !usable || suppressed.contains(&source) {
                continue;
            }
            rows.push(CredentialRow {
                entry: KeyEntry {
                    id: String::new(),
                    label: (*name).to_owned(),
                    kind: "api_key".to_owned(),
                    source,
                    status: KeyStatus::Ready,
                    error_code: None,
                    error_message: None,
                    request_count: 0,
                    base_url: None,
                    holds_secret: false,
                },
                only_env: true,
            });
        }
        Ok(rows)
    }
}

fn store_failure(error: &AuthStoreError) -> Failure {
    let exit = match error {
        AuthStoreError::Lock(hermes_config::fs::LockError::Busy(_)) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// The row that a number, an id or a label means.
fn find<'r>(
    rows: &'r [CredentialRow],
    target: &str,
    pool: &str,
) -> Result<&'r CredentialRow, Failure> {
    let target = target.trim().trim_start_matches('#');
    if let Some(row) = rows
        .iter()
        .find(|row| !row.entry.id.is_empty() && row.entry.id == target)
    {
        return Ok(row);
    }
    let labelled: Vec<&CredentialRow> = rows
        .iter()
        .filter(|row| row.entry.label.eq_ignore_ascii_case(target) || row.entry.source == target)
        .collect();
    match (labelled.as_slice(), target.parse::<usize>()) {
        ([row], _) => Ok(row),
        ([], Ok(number)) => number
            .checked_sub(1)
            .and_then(|index| rows.get(index))
            .ok_or_else(|| {
                Failure::not_found(format!("{pool} has no key {number} (hermes auth list)"))
            }),
        ([], Err(_)) => Err(Failure::not_found(format!(
            "{pool} has no key {target:?} (hermes auth list {pool})"
        ))),
        _ => Err(Failure::usage(format!(
            "{pool} has several keys labelled {target:?}: give the number or the id"
        ))),
    }
}

fn remove(provider: &str, target: &str, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    let (pool, _) = desk.pool_of(provider)?;
    let rows = desk.rows(&pool)?;
    let row = find(&rows, target, &pool)?;
    let entry = &row.entry;
    if let Some(name) = entry
        .source
        .strip_prefix("config:")
        .or((entry.source == "model_config").then_some("model"))
    {
        return Err(Failure::usage(format!(
            "this key is written in config.yaml ({name}): hermes config edit"
        )));
    }
    if !row.only_env {
        let removed = desk
            .store
            .remove_entry(&pool, &entry.id, desk.now)
            .map_err(|error| store_failure(&error))?;
        if !removed {
            return Err(Failure::failed(format!(
                "{} is kept in the root home and shared by all profiles: hermes -p default auth remove {pool} {target}",
                entry.label
            )));
        }
    }
    cx.out.line(format!("removed {} of {pool}", entry.label))?;
    if let Some(name) = entry.source.strip_prefix("env:") {
        take_away_variable(&desk, &pool, name)?;
    }
    Ok(())
}

/// Takes a variable out of .env, and remembers that it is not wanted wherever else it is set.
fn take_away_variable(desk: &AuthContext<'_>, pool: &str, name: &str) -> Outcome {
    let cx = desk.cx;
    let held_by = cx.env.credential(name).map(|(_, source)| source);
    let cleared = writer::unset(&cx.home.env_path(), name)
        .map_err(|error| Failure::failed(error.to_string()))?;
    if cleared {
        cx.out.remark(format!("{name} was removed from .env"));
    }
    desk.store
        .suppress(pool, &format!("env:{name}"), desk.now)
        .map_err(|error| store_failure(&error))?;
    if matches!(held_by, Some(EnvSource::Shell)) || (held_by.is_some() && !cleared) {
        cx.out.remark(format!(
            "{name} is still set outside .env and is ignored from now on (hermes auth add {pool} takes it back)"
        ));
    }
    Ok(())
}

fn reset(provider: &str, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    let (pool, _) = desk.pool_of(provider)?;
    let count = desk
        .store
        .reset(&pool, desk.now)
        .map_err(|error| store_failure(&error))?;
    Ok(cx.out.line(format!(
        "{} of {pool} may be used again",
        super::counted(count, "key")
    ))?)
}

fn logout(provider: Option<&str>, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    let active = desk
        .store
        .active_provider()
        .map_err(|error| store_failure(&error))?;
    let current = || desk.router.describe().ok().map(|route| route.provider);
    let Some(name) = provider.map(str::to_owned).or(active).or_else(current) else {
        return Ok(cx.out.line("no provider is logged in")?);
    };
    let logins = desk.store.logins().map_err(|error| store_failure(&error))?;
    let pool = if logins.contains(&name) {
        name
    } else {
        desk.pool_of(&name)?.0
    };
    if !desk
        .store
        .forget(&pool, desk.now)
        .map_err(|error| store_failure(&error))?
    {
        return Err(Failure::not_found(format!(
            "no keys or logins of {pool} are stored in {}",
            cx.home.auth_path().display()
        )));
    }
    cx.out
        .line(format!("forgot the keys and logins of {pool}"))?;
    let left = desk.rows(&pool)?;
    if !left.is_empty() {
        cx.out.remark(format!(
            "{} elsewhere: hermes auth list {pool}",
            super::counted(left.len(), "key")
        ));
    }
    Ok(())
}
