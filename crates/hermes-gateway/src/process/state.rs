//! State for other programs: `gateway_state.json` and the heartbeat file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use hermes_config::Home;
use hermes_config::fs::{create_private_dir, write_atomic};
use hermes_platforms::PlatformState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::machine::since_boot;
use super::record::ProcessRecord;

const STATE: &str = "gateway_state.json";
const HEARTBEAT: &str = "state/gateway.heartbeat";

/// The state of a gateway, as written to its state file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayState {
    #[default]
    Starting,
    Running,
    Draining,
    Stopped,
    StartupFailed,
}

impl GatewayState {
    /// The state in the content of a state file; `None` if it is missing or unknown.
    pub fn of(content: &Value) -> Option<Self> {
        Self::deserialize(&content["gateway_state"]).ok()
    }
}

/// The published state of the gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaySnapshot {
    pub state: GatewayState,
    pub exit_reason: Option<String>,
    pub restart_requested: bool,
    pub active: usize,
    pub queued: usize,
    pub platforms: BTreeMap<String, PlatformSnapshot>,
}

/// The state of one platform.
#[derive(Clone, Debug, PartialEq)]
pub struct PlatformSnapshot {
    pub state: PlatformState,
    pub error: Option<String>,
    /// Seconds since the epoch.
    pub received_at: Option<f64>,
}

/// Writes the files of one gateway.
#[derive(Debug)]
pub struct GatewayStateFile {
    path: PathBuf,
    heartbeat: PathBuf,
    own: ProcessRecord,
    started_at: f64,
    last: Option<GatewaySnapshot>,
    /// When each platform last changed.
    changed: BTreeMap<String, String>,
}

impl GatewayStateFile {
    pub fn new(home: &Home, now: DateTime<Utc>) -> Self {
        Self {
            path: home.join(STATE),
            heartbeat: home.join(HEARTBEAT),
            own: ProcessRecord::own(),
            started_at: seconds(now),
            last: None,
            changed: BTreeMap::new(),
        }
    }

    /// Writes the snapshot if it differs from the last one.
    pub fn write(&mut self, snapshot: GatewaySnapshot, now: DateTime<Utc>) {
        if self.last.as_ref() == Some(&snapshot) {
            return;
        }
        let at = now.to_rfc3339();
        for (name, row) in &snapshot.platforms {
            let before = self.last.as_ref().and_then(|last| last.platforms.get(name));
            if before.is_none_or(|before| (before.state, &before.error) != (row.state, &row.error))
            {
                self.changed.insert(name.clone(), at.clone());
            }
        }
        let mut value = self.own.json();
        let platforms: Map<String, Value> = snapshot
            .platforms
            .iter()
            .map(|(name, row)| (name.clone(), self.row(name, row)))
            .collect();
        let fields = json!({
            "gateway_state": snapshot.state,
            "exit_reason": snapshot.exit_reason,
            "restart_requested": snapshot.restart_requested,
            "active_agents": snapshot.active,
            "queued": snapshot.queued,
            "platforms": platforms,
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": self.started_at,
            "updated_at": at,
        });
        if let Value::Object(fields) = fields {
            value.extend(fields);
        }
        let text = Value::Object(value).to_string();
        if let Err(error) = write_atomic(&self.path, text.as_bytes(), 0o600) {
            tracing::warn!("{}: {error}", self.path.display());
        }
        self.last = Some(snapshot);
    }

    fn row(&self, name: &str, row: &PlatformSnapshot) -> Value {
        let state = match row.state {
            PlatformState::Connecting => "connecting",
            PlatformState::Connected => "connected",
            PlatformState::Retrying => "retrying",
            PlatformState::Fatal => "fatal",
            PlatformState::Paused => "paused",
        };
        json!({
            "state": state,
            "error_code": row.error.as_ref().map(|_| state),
            "error_message": row.error,
            "received_at": row.received_at,
            "updated_at": self.changed.get(name),
        })
    }

    /// Writes the heartbeat, which stops when the process hangs.
    pub fn write_heartbeat(&self, now: DateTime<Utc>) {
        let value = json!({
            "pid": self.own.pid,
            "updated_at": now.to_rfc3339(),
            "monotonic": since_boot(),
            "start_time": self.started_at,
        });
        let dir = self.heartbeat.parent().map(create_private_dir);
        let written = match dir {
            Some(Err(error)) => Err(error),
            _ => write_atomic(&self.heartbeat, value.to_string().as_bytes(), 0o600),
        };
        if let Err(error) = written {
            tracing::warn!("{}: {error}", self.heartbeat.display());
        }
    }
}

fn seconds(now: DateTime<Utc>) -> f64 {
    now.timestamp_millis() as f64 / 1000.0
}

/// The last state that a home's gateway published, running or not.
pub fn read(root: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(root.join(STATE)).ok()?;
    serde_json::from_str(&text).ok().filter(Value::is_object)
}
