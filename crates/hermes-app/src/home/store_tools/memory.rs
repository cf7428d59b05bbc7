//! The `memory` tool.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_store::{MemoryError, MemoryOperation, MemoryStatus, MemoryTarget, Subsystem};
use serde_json::{Value, json};

use super::{StoreTools, blocking, waits};
use hermes_core::args::Args;

const NAME: &str = "memory";
const OLD_TEXT: &str = "old_text";
/// After so many vain attempts to make room in one turn, the answer matters more.
const MAX_FAILURES: u32 = 3;

pub(super) struct Memory {
    spec: ToolSpec,
    deps: Arc<StoreTools>,
    failures: Mutex<Option<(SessionId, TurnId, u32)>>,
}

/// A call that was understood.
struct Request {
    target: MemoryTarget,
    operations: Vec<MemoryOperation>,
    batch: bool,
}

impl Memory {
    pub(super) fn new(deps: Arc<StoreTools>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string", "enum": ["add", "replace", "remove"],
                    "description": "What to do, for a single change. Leave out with operations.",
                },
                "target": {
                    "type": "string", "enum": ["memory", "user"],
                    "description": "user: who the person is and what they want. memory: your own notes on the environment, conventions and lessons.",
                },
                "content": { "type": "string", "description": "The entry, for add and replace." },
                "old_text": {
                    "type": "string",
                    "description": "For replace and remove: a part of the entry that no other entry has.",
                },
                "operations": {
                    "type": "array",
                    "description": "Several changes in one call: all are made or none, and only the final length counts.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "action": { "type": "string", "enum": ["add", "replace", "remove"] },
                            "content": { "type": "string" },
                            "old_text": { "type": "string" },
                        },
                        "required": ["action"],
                    },
                },
            },
            "required": ["target"],
        }));
        let description = "Save lasting facts that every later conversation starts with. \
            Save without being asked when the person states a preference, corrects you or tells \
            something about themselves, and when you learn a stable fact about their machine, \
            project or way of working. Write one compact statement per entry. Leave out what is \
            easy to find again, progress of the current task and raw data; a procedure belongs in \
            a skill. Space is short: make all changes in one call with operations, and when it is \
            full, remove or shorten entries in the same call. What you save is on disk at once; \
            it appears in your prompt from the next conversation on.";
        Self {
            spec: ToolSpec::new(NAME, NAME, Effects::Exclusive, description, parameters),
            deps,
            failures: Mutex::new(None),
        }
    }

    async fn run(&self, args: ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let request = match self.parse(&args)? {
            Ok(request) => request,
            Err((target, why)) => return Err(self.inventory(target, &why).await),
        };
        let setting = (self.deps.memory_approval).then_some("memory.write_approval");
        if let Some(why) = waits(cx, NAME, setting, &lines(&request)).await? {
            return self.stage(request, cx, &why).await;
        }
        match self.apply(request).await? {
            Ok(saved) => {
                self.count(cx, false);
                Ok(saved.to_json())
            }
            Err(error) => Err(self.refused(&error, cx)),
        }
    }

    /// The outer error is final; the inner one wants the entries shown.
    fn parse(
        &self,
        args: &ToolArgs,
    ) -> Result<Result<Request, (MemoryTarget, MemoryCallError)>, ToolOutcome> {
        let args = Args::new(NAME, args);
        let target = match args.text("target")? {
            None => MemoryTarget::Memory,
            Some(name) => MemoryTarget::parse(name)
                .ok_or_else(|| args.bad(&format!("target is {name:?}; use memory or user")))?,
        };
        if !self.deps.memory_targets.contains(&target) {
            let name = target.as_str();
            return Err(args.bad(&format!("{name} is switched off in config.yaml; leave it")));
        }
        let list = args.list("operations")?.unwrap_or_default();
        if !list.is_empty() {
            let mut operations = Vec::with_capacity(list.len());
            for (at, item) in list.iter().enumerate() {
                let parsed = item
                    .as_object()
                    .ok_or(MemoryCallError::NotAnObject)
                    .and_then(operation);
                match parsed {
                    Ok(operation) => operations.push(operation),
                    Err(why) => return Err(args.bad(&format!("operation {}: {why}", at + 1))),
                }
            }
            return Ok(Ok(Request {
                target,
                operations,
                batch: true,
            }));
        }
        match operation(args.all()) {
            Ok(operation) => Ok(Ok(Request {
                target,
                operations: vec![operation],
                batch: false,
            })),
            Err(
                why @ MemoryCallError::Missing {
                    field: OLD_TEXT, ..
                },
            ) => Ok(Err((target, why))),
            Err(why) => Err(args.bad(&why.to_string())),
        }
    }

    async fn apply(
        &self,
        request: Request,
    ) -> Result<Result<MemoryStatus, MemoryError>, ToolOutcome> {
        let memory = self.deps.memory.clone();
        blocking(move || {
            let Request {
                target,
                operations,
                batch,
            } = request;
            match &operations[..] {
                [single] if !batch => memory.apply(target, single),
                all => memory.batch(target, all),
            }
        })
        .await
    }

    /// Which entry is meant was not said: shows what there is.
    async fn inventory(&self, target: MemoryTarget, why: &MemoryCallError) -> ToolOutcome {
        let memory = self.deps.memory.clone();
        let entries = blocking(move || memory.entries(target)).await;
        let entries = match entries {
            Ok(Ok(entries)) => entries,
            Ok(Err(error)) => {
                return ToolOutcome::error(ToolErrorKind::Failed, error.to_json().to_string());
            }
            Err(outcome) => return outcome,
        };
        let value = json!({
            "success": false,
            "error": format!("{NAME}: {why}; pass a part of one of current_entries"),
            "current_entries": entries,
        });
        ToolOutcome::error(ToolErrorKind::BadArguments, value.to_string())
    }

    fn refused(&self, error: &MemoryError, cx: &ToolContext) -> ToolOutcome {
        let kind = match error {
            MemoryError::Blocked { .. } => ToolErrorKind::Denied,
            MemoryError::Missing { .. } => ToolErrorKind::BadArguments,
            _ => ToolErrorKind::Failed,
        };
        if error.is_correctable() && self.count(cx, true) > MAX_FAILURES {
            let value = json!({
                "success": false,
                "done": true,
                "error": "Memory could not be changed after several attempts in this turn. Leave it as it is and answer the person; it can be saved another time.",
            });
            return ToolOutcome::error(kind, value.to_string());
        }
        ToolOutcome::error(kind, error.to_json().to_string())
    }

    /// Failed attempts in a row in this turn.
    fn count(&self, cx: &ToolContext, failed: bool) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match &*failures {
            Some((session, turn, count)) if *session == cx.session && *turn == cx.turn => *count,
            _ => 0,
        };
        let count = if failed { before + 1 } else { 0 };
        *failures = Some((cx.session.clone(), cx.turn, count));
        count
    }

    async fn stage(
        &self,
        request: Request,
        cx: &ToolContext,
        why: &str,
    ) -> Result<Value, ToolOutcome> {
        let deps = Arc::clone(&self.deps);
        let clock = Arc::clone(&cx.clock);
        let staged = blocking(move || {
            // What could never be saved is refused now, not when the person looks at it.
            deps.memory.check(&request.operations).map_err(|error| {
                ToolOutcome::error(ToolErrorKind::Failed, error.to_json().to_string())
            })?;
            let (payload, summary) = payload(&request);
            deps.pending()
                .stage(
                    Subsystem::Memory,
                    payload,
                    &summary,
                    deps.origin(),
                    (&*clock, &*deps.rng),
                )
                .map_err(|error| {
                    let text = format!("the change could not be put aside for approval: {error}");
                    ToolOutcome::error(ToolErrorKind::Failed, text)
                })
        })
        .await??;
        Ok(json!({
            "success": true,
            "staged": true,
            "pending_id": staged.id,
            "message": format!("Not saved yet: {why}. Go on without it."),
        }))
    }
}

impl Tool for Memory {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(args, cx).await) })
    }
}

/// Why the arguments name no change of the memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum MemoryCallError {
    #[error("{action} needs {field}")]
    Missing {
        action: &'static str,
        field: &'static str,
    },
    #[error("pass action (add, replace or remove), or a list of operations")]
    NoAction,
    #[error("action is {0:?}; use add, replace or remove")]
    UnknownAction(String),
    #[error("must be an object")]
    NotAnObject,
}

fn operation(fields: &ToolArgs) -> Result<MemoryOperation, MemoryCallError> {
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (content, old_text) = (text("content"), text(OLD_TEXT));
    let need = |field: &'static str, value: &str, action: &'static str| {
        if value.trim().is_empty() {
            Err(MemoryCallError::Missing { action, field })
        } else {
            Ok(())
        }
    };
    match text("action").as_str() {
        "add" => need("content", &content, "add").map(|()| MemoryOperation::Add { content }),
        "replace" => need(OLD_TEXT, &old_text, "replace")
            .and_then(|()| need("content", &content, "replace"))
            .map(|()| MemoryOperation::Replace { old_text, content }),
        "remove" => {
            need(OLD_TEXT, &old_text, "remove").map(|()| MemoryOperation::Remove { old_text })
        }
        "" => Err(MemoryCallError::NoAction),
        other => Err(MemoryCallError::UnknownAction(other.to_owned())),
    }
}

/// The change as a pending record holds it, and a line about it.
/// What would be changed, for the person.
fn lines(request: &Request) -> String {
    let line = |operation: &MemoryOperation| match operation {
        MemoryOperation::Add { content } => format!("add: {content}"),
        MemoryOperation::Replace { old_text, content } => {
            format!("replace: {old_text} → {content}")
        }
        MemoryOperation::Remove { old_text } => format!("remove: {old_text}"),
    };
    let lines: Vec<String> = request.operations.iter().map(line).collect();
    format!("{}: {}", request.target.as_str(), lines.join("; "))
}

fn payload(request: &Request) -> (Value, String) {
    let one = |operation: &MemoryOperation| match operation {
        MemoryOperation::Add { content } => json!({ "action": "add", "content": content }),
        MemoryOperation::Replace { old_text, content } => {
            json!({ "action": "replace", "content": content, "old_text": old_text })
        }
        MemoryOperation::Remove { old_text } => json!({ "action": "remove", "old_text": old_text }),
    };
    let target = request.target.as_str();
    let summary: String = lines(request).chars().take(160).collect();
    let payload = match &request.operations[..] {
        [single] if !request.batch => {
            let mut payload = one(single);
            payload["target"] = json!(target);
            payload
        }
        all => json!({
            "action": "batch",
            "target": target,
            "operations": all.iter().map(one).collect::<Vec<_>>(),
        }),
    };
    (payload, summary)
}
