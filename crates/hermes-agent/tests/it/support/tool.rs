//! Tools made of a closure.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::tool::{Effects, Tool, ToolArgs, ToolContext, ToolOutcome, ToolSpec};

type Work =
    Box<dyn for<'a> Fn(ToolArgs, &'a ToolContext) -> BoxFuture<'a, ToolOutcome> + Send + Sync>;

pub(crate) struct FakeTool {
    spec: ToolSpec,
    work: Work,
}

impl FakeTool {
    pub(crate) fn new(
        name: &str,
        effects: Effects,
        work: impl for<'a> Fn(ToolArgs, &'a ToolContext) -> BoxFuture<'a, ToolOutcome>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            spec: ToolSpec {
                name: name.into(),
                description: format!("does {name}"),
                parameters: Arc::new(serde_json::json!({"type": "object"})),
                toolset: "test",
                effects,
                untrusted: false,
            },
            work: Box::new(work),
        }
    }

    /// Answers at once.
    pub(crate) fn saying(name: &str, effects: Effects, text: &str) -> Self {
        let text = text.to_owned();
        Self::new(name, effects, move |_, _| {
            let done = ToolOutcome::Done(text.as_str().into());
            Box::pin(std::future::ready(done))
        })
    }

    /// Answers after a while with its arguments.
    pub(crate) fn slow(name: &str, effects: Effects, time: Duration) -> Self {
        Self::new(name, effects, move |args, _| {
            Box::pin(async move {
                tokio::time::sleep(time).await;
                ToolOutcome::json(&args.into())
            })
        })
    }

    pub(crate) fn spec(mut self, change: impl FnOnce(&mut ToolSpec)) -> Self {
        change(&mut self.spec);
        self
    }
}

impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        (self.work)(args, cx)
    }
}
