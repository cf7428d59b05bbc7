//! A remote tool, as the engine sees it.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::ask::Asker;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::actor::call_origin::CallOrigin;
use crate::actor::op::{Op, OpOutput};
use crate::actor::{CallError, CallOptions, ServerHandle};
use crate::tools::known_tools::KnownTools;
use crate::tools::result::{self, MediaStore};
use crate::tools::schema::SanitisedSchema;

mod recording_asker;

use recording_asker::RecordingAsker;

/// Number of progress texts waiting to be shown; more are dropped.
const PROGRESS_CAPACITY: usize = 16;
/// Maximum length of a description in a question to the user.
const MAX_SHOWN_CHARS: usize = 2000;

/// Sends requests to a server.
pub trait Caller: Send + Sync {
    fn server(&self) -> &str;
    fn call(&self, op: Op, options: CallOptions) -> BoxFuture<'_, Result<OpOutput, CallError>>;
}

impl Caller for ServerHandle {
    fn server(&self) -> &str {
        self.name()
    }

    fn call(&self, op: Op, options: CallOptions) -> BoxFuture<'_, Result<OpOutput, CallError>> {
        Box::pin(ServerHandle::call(self, op, options))
    }
}

/// The operation that a call of the tool performs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Call {
        tool: String,
        schema: SanitisedSchema,
    },
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// The question to the user before a tool with a changed description is used.
#[derive(Clone)]
pub(crate) struct ToolConsent {
    pub(crate) known: KnownTools,
    /// The new description.
    pub(crate) description: String,
}

/// One tool of one server.
pub(crate) struct RemoteTool {
    pub(crate) spec: ToolSpec,
    pub(crate) action: Action,
    /// Set where the user must agree before it is used.
    pub(crate) consent: Option<ToolConsent>,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) media: Arc<MediaStore>,
}

impl RemoteTool {
    /// The server's own name of the tool; `None` for our utilities.
    pub(crate) fn raw_name(&self) -> Option<&str> {
        match &self.action {
            Action::Call { tool, .. } => Some(tool),
            _ => None,
        }
    }

    async fn run(&self, args: ToolArgs, cx: &ToolContext) -> ToolOutcome {
        if let (Some(consent), Some(tool)) = (&self.consent, self.raw_name())
            && let Err(refused) = self.ask_consent(consent, tool, cx).await
        {
            return refused;
        }
        let asker = Arc::new(RecordingAsker::new(Arc::clone(&cx.asker)));
        let outcome = self.act(args, cx, &asker).await;
        asker.explain(outcome)
    }

    /// Asks once; the answer holds until the description changes again.
    async fn ask_consent(
        &self,
        consent: &ToolConsent,
        tool: &str,
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let server = self.caller.server();
        if cx.approver.presence() == Presence::Standing {
            consent.known.allow(server, tool);
            return Ok(());
        }
        let description: String = consent.description.chars().take(MAX_SHOWN_CHARS).collect();
        let question = ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: cx.call_id.clone(),
            tool: self.spec.name.clone(),
            action: format!("use {tool} of the MCP server {server}, which now says: {description}"),
            reasons: vec![
                "what the server says about this tool is not what it said before; it steers the model"
                    .to_owned(),
            ],
            rule: None,
            posture: None,
        };
        match cx.decide(question).await? {
            Verdict::Once | Verdict::Session | Verdict::Always(_) => {
                consent.known.allow(server, tool);
                Ok(())
            }
            Verdict::Deny { why } => {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                Err(ToolOutcome::error(
                    ToolErrorKind::Denied,
                    format!(
                        "{tool} was not called: the MCP server {server} changed what it says about this \
                         tool, and that was not allowed{why}. Do not try another way"
                    ),
                ))
            }
        }
    }

    async fn act(
        &self,
        args: ToolArgs,
        cx: &ToolContext,
        asker: &Arc<RecordingAsker>,
    ) -> ToolOutcome {
        let op = match self.op(args) {
            Ok(op) => op,
            Err(outcome) => return outcome,
        };
        let output = match self.request(op, cx, asker).await {
            Ok(output) => output.result,
            Err(error) => {
                return result::refusal_outcome(
                    &error.server,
                    &error.failure,
                    error.outcome_unknown,
                );
            }
        };
        match &self.action {
            Action::Call { .. } => result::call_outcome(&output, &self.media).await,
            Action::ReadResource => result::resource_outcome(&output, &self.media).await,
            Action::GetPrompt => result::prompt_outcome(&output, &self.media).await,
            Action::ListPrompts => result::listing_outcome(&output, "prompts"),
            Action::ListResources => {
                // Servers without templates refuse this; the list is useful without them.
                let templates = self
                    .request(Op::ListResourceTemplates, cx, asker)
                    .await
                    .ok();
                let templates = templates.map(|output| output.result);
                result::resources_outcome(&output, templates.as_ref())
            }
        }
    }

    fn op(&self, mut args: ToolArgs) -> Result<Op, ToolOutcome> {
        Ok(match &self.action {
            Action::Call { tool, schema } => Op::CallTool {
                name: tool.clone(),
                arguments: schema.restore(args),
            },
            Action::ListResources => Op::ListResources,
            Action::ListPrompts => Op::ListPrompts,
            Action::ReadResource => Op::ReadResource {
                uri: text(&mut args, "uri")?,
            },
            Action::GetPrompt => Op::GetPrompt {
                name: text(&mut args, "name")?,
                arguments: match args.remove("arguments") {
                    Some(Value::Object(arguments)) => arguments,
                    None | Some(Value::Null) => Map::new(),
                    Some(_) => {
                        return Err(ToolOutcome::error(
                            ToolErrorKind::BadArguments,
                            "arguments must be an object",
                        ));
                    }
                },
            },
        })
    }

    /// Shows progress to the user while it waits.
    async fn request(
        &self,
        op: Op,
        cx: &ToolContext,
        asker: &Arc<RecordingAsker>,
    ) -> Result<OpOutput, CallError> {
        let (progress, mut reports) = mpsc::channel(PROGRESS_CAPACITY);
        let options = CallOptions {
            deadline: None,
            cancel: cx.cancel.clone(),
            progress: Some(progress),
            origin: Some(CallOrigin {
                session: cx.session.to_string(),
                asker: Arc::clone(asker) as Arc<dyn Asker>,
            }),
        };
        let mut call = self.caller.call(op, options);
        loop {
            tokio::select! {
                biased;
                done = &mut call => return done,
                Some(text) = reports.recv() => cx.progress.report(text),
            }
        }
    }
}

fn text(args: &mut ToolArgs, key: &str) -> Result<String, ToolOutcome> {
    match args.remove(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        _ => Err(ToolOutcome::error(
            ToolErrorKind::BadArguments,
            format!("{key} is missing: a text is needed"),
        )),
    }
}

impl Tool for RemoteTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.run(args, cx))
    }
}

/// Calls run exclusively unless the user allowed parallel ones, or a trusted server declares the
/// tool read-only.
pub(crate) fn effects(parallel: bool, trusted_read_only: bool) -> Effects {
    if parallel || trusted_read_only {
        Effects::ReadOnly
    } else {
        Effects::Exclusive
    }
}

#[cfg(test)]
mod tests;
