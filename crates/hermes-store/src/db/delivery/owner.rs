//! Which process may deliver: one at a time, identified by pid, start time and a heartbeat.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Delivery, RecoveredWork, tables};
use crate::db::Store;
use crate::db::connection::DbError;

const NAME: &str = "gateway";

/// A delivering process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    /// In the system's unit, as the original stores it. Pids alone are reused.
    pub started_at: Option<i64>,
    /// Random: distinguishes two process runs with the same pid and start time, as in containers.
    pub instance: String,
}

/// Tells which processes are alive.
pub trait Processes: Send + Sync {
    fn alive(&self, pid: u32, started_at: Option<i64>) -> bool;
}

impl Store {
    /// Takes over delivery on this home if it has no owner, the owner is dead, or its last
    /// heartbeat is older than `lease`. Chunks that the previous owner was sending become
    /// ambiguous.
    pub async fn own_delivery(
        &self,
        owner: Owner,
        lease: Duration,
        processes: Arc<dyn Processes>,
    ) -> Result<(Delivery, RecoveredWork), StoreError> {
        let (now, me) = (self.now(), owner.clone());
        let left = self
            .write("taking over delivery", move |conn, _| {
                tables::create(conn)?;
                if let Some(holder) = current_owner(conn)? {
                    let free = holder.owner.instance == me.instance
                        || now - holder.heartbeat_at > lease.as_secs_f64()
                        || !processes.alive(holder.owner.pid, holder.owner.started_at);
                    if !free {
                        return Err(not_owner_error(&holder.owner).into());
                    }
                }
                write_owner(conn, &me, now)?;
                take_over_rows(conn, &me, now)
            })
            .await?;
        let delivery = Delivery {
            store: self.clone(),
            owner,
            hook: None,
        };
        Ok((delivery, left))
    }
}

impl Delivery {
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Records that this process is alive. Must be called several times per lease.
    pub async fn heartbeat(&self) -> Result<(), StoreError> {
        let now = self.store.now();
        self.write("heartbeat of delivery", move |conn, _| {
            conn.prepare_cached("UPDATE hermes_delivery_owner SET heartbeat_at = ?1")?
                .execute([now])?;
            Ok(())
        })
        .await
    }

    /// Gives up ownership, so that the next process need not wait.
    pub async fn release(self) -> Result<(), StoreError> {
        self.write("giving up delivery", move |conn, _| {
            conn.execute("DELETE FROM hermes_delivery_owner WHERE name = ?1", [NAME])?;
            Ok(())
        })
        .await
    }
}

/// Must be the first step of every transaction.
pub(super) fn check(conn: &Connection, instance: &str) -> Result<(), DbError> {
    match current_owner(conn)? {
        Some(holder) if holder.owner.instance == instance => Ok(()),
        Some(holder) => Err(not_owner_error(&holder.owner).into()),
        None => Err(StoreError::NotOwner {
            holder: "nobody: it was given up".to_owned(),
        }
        .into()),
    }
}

struct CurrentOwner {
    owner: Owner,
    heartbeat_at: f64,
}

fn current_owner(conn: &Connection) -> Result<Option<CurrentOwner>, DbError> {
    Ok(conn
        .prepare_cached(
            "SELECT pid, started_at, instance, heartbeat_at FROM hermes_delivery_owner WHERE name = ?1",
        )?
        .query_row([NAME], |row| {
            Ok(CurrentOwner {
                owner: Owner {
                    pid: row.get(0)?,
                    started_at: row.get(1)?,
                    instance: row.get(2)?,
                },
                heartbeat_at: row.get(3)?,
            })
        })
        .optional()?)
}

fn not_owner_error(holder: &Owner) -> StoreError {
    StoreError::NotOwner {
        holder: format!("process {}", holder.pid),
    }
}

fn write_owner(conn: &Connection, me: &Owner, now: f64) -> Result<(), DbError> {
    conn.execute(
        "INSERT OR REPLACE INTO hermes_delivery_owner (name, instance, pid, started_at, heartbeat_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![NAME, me.instance, me.pid, me.started_at, now],
    )?;
    Ok(())
}

/// Takes over the rows of the previous owner.
fn take_over_rows(conn: &Connection, me: &Owner, now: f64) -> Result<RecoveredWork, DbError> {
    // The original may have finished or discarded our rows.
    conn.execute(
        "UPDATE hermes_outbox SET open = 0 WHERE open = 1 AND NOT EXISTS (
            SELECT 1 FROM delivery_obligations d WHERE d.obligation_id = hermes_outbox.obligation_id
              AND d.state IN ('pending', 'attempting', 'failed'))",
        [],
    )?;
    conn.execute(
        "UPDATE hermes_outbox SET ambiguous = 1, unclear = unclear + 1, due_at = ?1 WHERE open = 1 AND ambiguous = 0
           AND EXISTS (SELECT 1 FROM delivery_obligations d
                       WHERE d.obligation_id = hermes_outbox.obligation_id AND d.state = 'attempting')",
        [now],
    )?;
    conn.execute(
        "UPDATE delivery_obligations SET owner_pid = ?1, owner_started_at = ?2
         WHERE obligation_id IN (SELECT obligation_id FROM hermes_outbox WHERE open = 1)",
        params![me.pid, me.started_at],
    )?;
    let count = |sql: &str| -> Result<usize, DbError> {
        Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))? as usize)
    };
    Ok(RecoveredWork {
        waiting: count("SELECT COUNT(*) FROM hermes_inbox WHERE state <> 'done'")?,
        pending: count("SELECT COUNT(*) FROM hermes_outbox WHERE open = 1 AND ambiguous = 0")?,
        ambiguous: count("SELECT COUNT(*) FROM hermes_outbox WHERE open = 1 AND ambiguous = 1")?,
    })
}
