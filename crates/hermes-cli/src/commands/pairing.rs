//! `hermes pairing`: who may talk to the agent in chats.

use std::sync::Arc;

use clap::{Args, Subcommand};
use hermes_config::env::writer;
use hermes_core::clock::SystemClock;
use hermes_gateway::authorize::{allow_list_var, list_with};
use hermes_gateway::{ApprovedPairing, Pairing, PairingApproval, PairingError, PendingPairing};
use serde_json::json;

use super::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, Args)]
pub(crate) struct PairingArgs {
    #[command(subcommand)]
    command: PairingCommand,
}

#[derive(Debug, Subcommand)]
enum PairingCommand {
    /// List pending and approved users
    List(ListArgs),
    /// Approve a user
    Approve(ApproveArgs),
    /// Revoke the access of a user
    Revoke(RevokeArgs),
    /// Delete pending requests
    ClearPending(ClearArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Show only this platform
    platform: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ApproveArgs {
    /// Platform: telegram, discord, slack, email, …
    platform: String,
    /// The code the person received, the part shown by `list`, or their user id
    who: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// Platform: telegram, discord, slack, email, …
    platform: String,
    /// Id of the user on the platform
    user: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClearArgs {
    /// Delete only the requests of this platform
    platform: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: PairingArgs, cx: &Context) -> Outcome {
    let pairing = Pairing::new(&cx.home, Arc::new(SystemClock));
    match args.command {
        PairingCommand::List(args) => list(&args, &pairing, cx),
        PairingCommand::Approve(args) => approve(&args, &pairing, cx),
        PairingCommand::Revoke(args) => revoke(&args, &pairing, cx),
        PairingCommand::ClearPending(args) => clear(&args, &pairing, cx),
    }
}

fn failure(error: &PairingError) -> Failure {
    let exit = match error {
        PairingError::Platform(_) => Exit::Usage,
        PairingError::Lock(_) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn list(args: &ListArgs, pairing: &Pairing, cx: &Context) -> Outcome {
    let only = args.platform.as_deref();
    let waiting = pairing.pending(only).map_err(|error| failure(&error))?;
    let let_in = pairing.approved(only).map_err(|error| failure(&error))?;
    if args.json {
        let pending = |row: &PendingPairing| {
            json!({
                "platform": row.platform,
                "code": row.handle,
                "user_id": row.user.id,
                "user_name": row.user.name,
                "age_seconds": row.age_seconds,
            })
        };
        let approved = |row: &ApprovedPairing| {
            json!({
                "platform": row.platform,
                "user_id": row.user.id,
                "user_name": row.user.name,
                "approved_at": row.approved_at,
            })
        };
        return Ok(cx.out.json(&json!({
            "pending": waiting.iter().map(pending).collect::<Vec<_>>(),
            "approved": let_in.iter().map(approved).collect::<Vec<_>>(),
        }))?);
    }
    if waiting.is_empty() && let_in.is_empty() {
        cx.out.line("no pending requests; no one has been paired")?;
        return Ok(());
    }
    if !waiting.is_empty() {
        cx.out
            .line("waiting (hermes pairing approve PLATFORM CODE):")?;
    }
    for row in &waiting {
        let age = super::sessions::ago(row.age_seconds as f64, 0.0);
        let line = format!(
            "  {:<12} {:<10} {:<20} {:<24} {age}",
            row.platform, row.handle, row.user.id, row.user.name
        );
        cx.out.foreign_line(line.trim_end())?;
    }
    if !let_in.is_empty() {
        cx.out.line("let in:")?;
    }
    for row in &let_in {
        let line = format!(
            "  {:<12} {:<20} {}",
            row.platform, row.user.id, row.user.name
        );
        cx.out.foreign_line(line.trim_end())?;
    }
    Ok(())
}

fn approve(args: &ApproveArgs, pairing: &Pairing, cx: &Context) -> Outcome {
    let platform = args.platform.trim().to_lowercase();
    let approval = pairing
        .approve(&platform, args.who.trim())
        .map_err(|error| failure(&error))?;
    let user = match approval {
        PairingApproval::Approved(user) => user,
        PairingApproval::Unknown => {
            return Err(Failure::not_found(format!(
                "no request of {platform} fits {:?}: codes are valid for an hour; \
                 hermes pairing list shows who waits",
                args.who
            )));
        }
        PairingApproval::Locked { seconds } => {
            return Err(Failure::new(
                Exit::Busy,
                format!(
                    "too many wrong codes were tried on {platform}; codes are taken again in {} min \
                     (a user id is taken now)",
                    seconds.div_ceil(60)
                ),
            ));
        }
    };
    let mirrored = mirror(&platform, &user.id, true, cx)?;
    if args.json {
        return Ok(cx.out.json(&json!({
            "approved": true,
            "platform": platform,
            "user_id": user.id,
            "user_name": user.name,
            "listed_in_env": mirrored,
        }))?);
    }
    let name = if user.name.is_empty() {
        &user.id
    } else {
        &user.name
    };
    cx.out
        .foreign_line(&format!("{name} may talk to the agent on {platform} now"))?;
    Ok(())
}

fn revoke(args: &RevokeArgs, pairing: &Pairing, cx: &Context) -> Outcome {
    let platform = args.platform.trim().to_lowercase();
    let user = args.user.trim();
    let was = pairing
        .revoke(&platform, user)
        .map_err(|error| failure(&error))?;
    let listed = mirror(&platform, user, false, cx)?;
    if !was && !listed {
        return Err(Failure::not_found(format!(
            "{user} has no access on {platform}"
        )));
    }
    if args.json {
        return Ok(cx.out.json(&json!({
            "revoked": true,
            "platform": platform,
            "user_id": user,
            "removed_from_env": listed,
        }))?);
    }
    cx.out.foreign_line(&format!(
        "{user} may no longer talk to the agent on {platform}"
    ))?;
    Ok(())
}

fn clear(args: &ClearArgs, pairing: &Pairing, cx: &Context) -> Outcome {
    let gone = pairing
        .clear_pending(args.platform.as_deref())
        .map_err(|error| failure(&error))?;
    if args.json {
        return Ok(cx.out.json(&json!({"cleared": gone}))?);
    }
    cx.out
        .line(format!("{} deleted", counted(gone, "request")))?;
    Ok(())
}

/// Where `.env` has a list of people, it says the same. A list that is not there is not made: it
/// would lock out everybody who is on none. Returns whether it was changed.
fn mirror(platform: &str, user: &str, add: bool, cx: &Context) -> Result<bool, Failure> {
    let var = allow_list_var(platform);
    let list = cx.env.get(&var).unwrap_or_default();
    let Some(list) = list_with(list, user, add) else {
        return Ok(false);
    };
    writer::set(&cx.home.env_path(), &var, &list)
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(true)
}
