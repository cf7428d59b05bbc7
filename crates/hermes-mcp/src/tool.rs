//! A tool of a server, as the engine sees it.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::ask::Asker;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::actor::{CallError, CallOptions, ServerHandle};
use crate::behalf::Behalf;
use crate::op::{Op, OpOutput};
use crate::result::{self, MediaStore};
use crate::schema::Sanitised;

mod heard;

use heard::Heard;

/// Progress texts that wait to be shown; more are dropped.
const PROGRESS: usize = 16;

/// Whoever carries a request to its server.
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

/// What calling it does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Call { tool: String, schema: Sanitised },
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// One tool of one server.
pub struct RemoteTool {
    pub(crate) spec: ToolSpec,
    pub(crate) action: Action,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) media: Arc<MediaStore>,
}

impl RemoteTool {
    /// The server's own name of it; `None` for our utilities.
    pub fn raw_name(&self) -> Option<&str> {
        match &self.action {
            Action::Call { tool, .. } => Some(tool),
            _ => None,
        }
    }

    async fn run(&self, args: ToolArgs, cx: &ToolContext) -> ToolOutcome {
        let heard = Arc::new(Heard::new(Arc::clone(&cx.asker)));
        let outcome = self.act(args, cx, &heard).await;
        heard.explain(outcome)
    }

    async fn act(&self, args: ToolArgs, cx: &ToolContext, heard: &Arc<Heard>) -> ToolOutcome {
        let op = match self.op(args) {
            Ok(op) => op,
            Err(outcome) => return outcome,
        };
        let output = match self.request(op, cx, heard).await {
            Ok(output) => output.result,
            Err(error) => {
                return result::refusal(&error.server, &error.failure, error.outcome_unknown);
            }
        };
        match &self.action {
            Action::Call { .. } => result::of_call(&output, &self.media).await,
            Action::ReadResource => result::of_resource(&output, &self.media).await,
            Action::GetPrompt => result::of_prompt(&output, &self.media).await,
            Action::ListPrompts => result::of_listing(&output, "prompts"),
            Action::ListResources => {
                // Servers without templates refuse; the list is worth having all the same.
                let templates = self
                    .request(Op::ListResourceTemplates, cx, heard)
                    .await
                    .ok();
                let templates = templates.map(|output| output.result);
                result::of_resources(&output, templates.as_ref())
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

    /// Carries progress to the person while it waits.
    async fn request(
        &self,
        op: Op,
        cx: &ToolContext,
        asker: &Arc<Heard>,
    ) -> Result<OpOutput, CallError> {
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let options = CallOptions {
            deadline: None,
            cancel: cx.cancel.clone(),
            progress: Some(progress),
            behalf: Some(Behalf {
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

/// A call runs alone unless the person allowed parallel ones, or a trusted server says that the
/// tool changes nothing.
pub(crate) fn effects(parallel: bool, trusted_read_only: bool) -> Effects {
    if parallel || trusted_read_only {
        Effects::ReadOnly
    } else {
        Effects::Exclusive
    }
}

#[cfg(test)]
mod tests;
