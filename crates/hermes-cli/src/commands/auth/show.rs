//! `hermes auth list` and `status`.

use chrono::{DateTime, Local, Utc};
use hermes_models::credentials::KeyStatus;
use hermes_models::credentials::manage::KeyEntry;
use hermes_models::providers::PROVIDERS;
use serde_json::{Value, json};

use super::{AuthContext, CredentialRow, store_failure};
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

pub(super) fn list(provider: Option<&str>, as_json: bool, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    let pools = match provider {
        Some(name) => vec![desk.pool_of(name)?.0],
        None => all_pools(&desk)?,
    };
    let mut listed = Vec::new();
    for pool in pools {
        let rows = desk.rows(&pool)?;
        if !rows.is_empty() {
            listed.push((pool, rows));
        }
    }
    if as_json {
        let value: Vec<Value> = listed
            .iter()
            .map(|(pool, rows)| {
                let keys: Vec<Value> = rows
                    .iter()
                    .enumerate()
                    .map(|(index, row)| row_json(index, row, desk.now))
                    .collect();
                json!({"provider": pool, "credentials": keys})
            })
            .collect();
        return Ok(cx.out.json(&value)?);
    }
    if listed.is_empty() {
        cx.out.line("no keys yet")?;
        cx.out
            .remark("add one: hermes auth add PROVIDER (names: hermes model list)");
    }
    for (pool, rows) in listed {
        cx.out
            .line(format!("{pool}: {}", counted(rows.len(), "key")))?;
        for (index, row) in rows.iter().enumerate() {
            let entry = &row.entry;
            let line = format!(
                "  #{}  {:<22} {:<8} {:<26} {}",
                index + 1,
                entry.label,
                entry.kind.replace('_', "-"),
                entry.source,
                standing(entry, desk.now)
            );
            cx.out.foreign_line(line.trim_end())?;
        }
    }
    Ok(())
}

/// Providers with a stored entry, then those with a variable set, in the order of the table.
fn all_pools(desk: &AuthContext<'_>) -> Result<Vec<String>, Failure> {
    let mut pools = desk
        .store
        .providers()
        .map_err(|error| store_failure(&error))?;
    for provider in PROVIDERS {
        if !pools.iter().any(|pool| pool == provider.id) && !desk.rows(provider.id)?.is_empty() {
            pools.push(provider.id.to_owned());
        }
    }
    Ok(pools)
}

/// How a key fares, in words. Empty: nothing is wrong.
fn standing(entry: &KeyEntry, now: DateTime<Utc>) -> String {
    let code = entry
        .error_code
        .map(|code| format!(" ({code})"))
        .unwrap_or_default();
    match entry.status {
        KeyStatus::Exhausted(until) if until > now => format!(
            "paused until {}{code}",
            until.with_timezone(&Local).format("%H:%M")
        ),
        KeyStatus::Dead => format!("refused{code}: replace it"),
        KeyStatus::Ready | KeyStatus::Exhausted(_) => String::new(),
    }
}

fn state(entry: &KeyEntry, now: DateTime<Utc>) -> &'static str {
    match entry.status {
        KeyStatus::Exhausted(until) if until > now => "resting",
        KeyStatus::Dead => "refused",
        KeyStatus::Ready | KeyStatus::Exhausted(_) => "ready",
    }
}

fn row_json(index: usize, row: &CredentialRow, now: DateTime<Utc>) -> Value {
    let entry = &row.entry;
    let until = match entry.status {
        KeyStatus::Exhausted(until) if until > now => Some(until.to_rfc3339()),
        _ => None,
    };
    json!({
        "index": index + 1,
        "id": entry.id,
        "label": entry.label,
        "type": entry.kind,
        "source": entry.source,
        "state": state(entry, now),
        "rests_until": until,
        "error_code": entry.error_code,
        "error_message": entry.error_message,
        "request_count": entry.request_count,
        "base_url": entry.base_url,
    })
}

pub(super) fn status(provider: Option<&str>, as_json: bool, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    let name = match provider {
        Some(name) => name.to_owned(),
        None => desk.router.describe()?.provider,
    };
    let (pool, _) = desk.pool_of(&name)?;
    let rows = desk.rows(&pool)?;
    let ready = rows
        .iter()
        .filter(|row| state(&row.entry, desk.now) == "ready")
        .count();
    let login = desk
        .store
        .logins()
        .map_err(|error| store_failure(&error))?
        .contains(&pool);
    let known = desk.router.providers();
    let listed = known.iter().find(|provider| provider.id == pool);
    let needs_none = listed.is_some_and(|provider| provider.own);
    let key = listed.and_then(|provider| provider.key.clone());
    let usable = ready > 0 || needs_none || key.is_some();
    if as_json {
        cx.out.json(&json!({
            "provider": pool,
            "usable": usable,
            "credentials": rows.len(),
            "ready": ready,
            "login": login,
            "key": key,
        }))?;
    } else {
        let says = if ready > 0 {
            format!("{} of {} ready", ready, counted(rows.len(), "key"))
        } else if needs_none {
            "needs no key".to_owned()
        } else if let Some(key) = key {
            format!("key: {key}")
        } else if rows.is_empty() {
            "no key".to_owned()
        } else {
            format!("no usable key of {} (hermes auth list {pool})", rows.len())
        };
        let login = if login { ", a login is stored" } else { "" };
        cx.out.line(format!("{pool}: {says}{login}"))?;
    }
    if usable {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}
