//! Requests from a server, answered as its config allows: questions to the user
//! (`elicitation/create`) and model completions (`sampling/createMessage`).

mod elicit;
mod form;
pub(crate) mod sampling;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::actor::call_origin::AskerResult;
use crate::config::{Elicitation, ServerConfig};
use crate::transport::connect::{Declined, ServerRequests};
use sampling::{LimitedSampler, Sampler};

/// Maximum number of simultaneously open questions of one server.
const MAX_OPEN_QUESTIONS: usize = 4;

/// Answers the requests of one server.
pub struct ServerRequestHandler {
    server: String,
    elicitation: Elicitation,
    sampling: Option<LimitedSampler>,
    open_questions: Semaphore,
    audit: Audit,
}

impl ServerRequestHandler {
    /// `sampler`: access to a model, where there is one.
    pub fn new(config: &ServerConfig, sampler: Option<Arc<dyn Sampler>>) -> Self {
        let sampler = sampler.filter(|_| config.sampling.enabled);
        Self {
            server: config.name.clone(),
            elicitation: config.elicitation.clone(),
            sampling: sampler.map(|sampler| LimitedSampler::new(config.sampling.clone(), sampler)),
            open_questions: Semaphore::new(MAX_OPEN_QUESTIONS),
            audit: Audit::default(),
        }
    }
}

impl ServerRequests for ServerRequestHandler {
    fn capabilities(&self) -> Value {
        let mut offered = Map::new();
        if self.elicitation.enabled {
            offered.insert("elicitation".to_owned(), json!({"form": {}, "url": {}}));
        }
        if let Some(sampling) = &self.sampling {
            offered.insert("sampling".to_owned(), sampling.capability());
        }
        Value::Object(offered)
    }

    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: Value,
        asker: AskerResult,
    ) -> BoxFuture<'a, Result<Value, Declined>> {
        Box::pin(async move {
            match (method, &self.sampling) {
                ("elicitation/create", _) => self.elicit(&params, asker).await,
                ("sampling/createMessage", Some(sampling)) => {
                    sampling.answer(&self.server, &params, &self.audit).await
                }
                ("sampling/createMessage", None) => {
                    self.audit.count("sampling/off");
                    Err(Declined {
                        code: -32601,
                        message: format!(
                            "sampling is off for this server; the person allows it with \
                             mcp_servers.{}.sampling.enabled: true",
                            self.server
                        ),
                    })
                }
                _ => Err(Declined {
                    code: -32601,
                    message: format!("this client does not offer {method}"),
                }),
            }
        })
    }

    fn audit(&self) -> BTreeMap<String, u64> {
        self.audit.counts()
    }
}

/// Number of server requests, by method and outcome.
#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<BTreeMap<String, u64>>);

impl Audit {
    pub(crate) fn count(&self, label: &str) {
        self.add(label, 1);
    }

    pub(crate) fn add(&self, label: &str, amount: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(label.to_owned()).or_default() += amount;
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }
}

/// An id that is unique in this process.
fn question_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("mcp-q{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
