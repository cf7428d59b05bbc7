//! The `mixture_of_agents` tool: several models answer, one makes the best answer of theirs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use hermes_config::Config;
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::message::Message;
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelRequest, ModelRouter, RouteError, ToolChoice,
};
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

const NAME: &str = "mixture_of_agents";
const TASK: &str = "moa";
const REFERENCE_TEMPERATURE: f32 = 0.6;
const AGGREGATOR_TEMPERATURE: f32 = 0.4;
const MAX_TRIES: u32 = 3;
/// Pause before the second try; doubled before the third.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const MAX_REFERENCES: usize = 8;
const AGGREGATE: &str = "Several models answered the same question; their answers follow. Write the best answer to it: keep what is right and well supported, drop what is wrong, settle contradictions by your own judgement, and do not mention that there were several answers.";

/// A model by name, as the config writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSlot {
    pub provider: Option<String>,
    pub model: String,
}

/// Which models take part (`moa.presets.<default_preset>`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoaPreset {
    pub references: Vec<ModelSlot>,
    pub aggregator: ModelSlot,
    pub max_tokens: Option<u32>,
    /// For one model (`auxiliary.moa_reference.timeout`).
    pub timeout: Duration,
}

impl MoaPreset {
    /// `Err` says why the tool is not offered.
    pub fn from_config(config: &Config) -> Result<Self, String> {
        let name = match config.moa.default_preset.trim() {
            "" => "default",
            name => name,
        };
        let preset = config
            .moa
            .presets
            .get(name)
            .ok_or_else(|| format!("moa.presets.{name} names no models"))?;
        if preset["enabled"] == json!(false) {
            return Err(format!("moa.presets.{name} is switched off"));
        }
        let references: Vec<ModelSlot> = preset["reference_models"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(slot)
            .take(MAX_REFERENCES)
            .collect();
        if references.is_empty() {
            return Err(format!("moa.presets.{name}.reference_models is empty"));
        }
        let aggregator = slot(&preset["aggregator"])
            .ok_or_else(|| format!("moa.presets.{name}.aggregator names no model"))?;
        let seconds = config.auxiliary.task("moa_reference").timeout.max(1);
        Ok(Self {
            references,
            aggregator,
            max_tokens: preset["max_tokens"]
                .as_u64()
                .and_then(|most| u32::try_from(most).ok()),
            timeout: Duration::from_secs(seconds),
        })
    }
}

fn slot(value: &Value) -> Option<ModelSlot> {
    if let Some(model) = value.as_str() {
        return Some(ModelSlot {
            provider: None,
            model: model.to_owned(),
        });
    }
    let provider = value["provider"].as_str().filter(|name| !name.is_empty());
    Some(ModelSlot {
        provider: provider.map(str::to_owned),
        model: value["model"]
            .as_str()
            .filter(|name| !name.is_empty())?
            .to_owned(),
    })
}

/// The tool, or why it is not offered: it needs the aggregator and at least one other model.
/// `router` makes a router whose primary route is the slot.
pub fn mixture_of_agents(
    preset: &MoaPreset,
    router: impl Fn(&ModelSlot) -> Arc<dyn ModelRouter>,
) -> Result<Arc<dyn Tool>, String> {
    let aggregator = router(&preset.aggregator);
    aggregator
        .primary()
        .map_err(|error| format!("{}: {error}", preset.aggregator.model))?;
    let mut references = Vec::new();
    let mut missing: Option<RouteError> = None;
    for slot in &preset.references {
        let router = router(slot);
        match router.primary() {
            Ok(_) => references.push(router),
            Err(error) => missing = Some(error),
        }
    }
    match (references.is_empty(), missing) {
        (true, Some(error)) => Err(error.to_string()),
        (true, None) => Err("no reference model is named".to_owned()),
        (false, _) => Ok(Arc::new(Moa::new(references, aggregator, preset))),
    }
}

struct Moa {
    spec: ToolSpec,
    references: Vec<Arc<dyn ModelRouter>>,
    aggregator: Arc<dyn ModelRouter>,
    max_tokens: Option<u32>,
    timeout: Duration,
}

impl Moa {
    fn new(
        references: Vec<Arc<dyn ModelRouter>>,
        aggregator: Arc<dyn ModelRouter>,
        preset: &MoaPreset,
    ) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "user_prompt": {
                    "type": "string",
                    "description": "The whole question; the models see nothing else.",
                },
            },
            "required": ["user_prompt"],
        });
        let description = "Have several strong models answer a hard question and get the best of their answers. \
            For difficult mathematics, algorithms or analysis where one model may err. It costs \
            several long model calls: not for what you can answer yourself.";
        Self {
            spec: ToolSpec::new(NAME, TASK, Effects::ReadOnly, description, parameters),
            references,
            aggregator,
            max_tokens: preset.max_tokens,
            timeout: preset.timeout,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let prompt = args.required("user_prompt", "the question")?;
        let asked = self.references.iter().map(|router| {
            let ask = ModelQuestion {
                text: prompt,
                system: "",
                temperature: REFERENCE_TEMPERATURE,
            };
            self.ask(&**router, ask, cx)
        });
        let answers = join_all(asked).await;
        let mut models = Vec::new();
        let mut material = format!("{AGGREGATE}\n\nQuestion:\n{prompt}");
        let mut errors = Vec::new();
        for answer in answers {
            match answer {
                Ok((model, text)) => {
                    models.push(model);
                    let nth = models.len();
                    let _ = write!(material, "\n\n## Answer {nth}\n{text}");
                }
                Err(error) => errors.push(error),
            }
        }
        if models.is_empty() {
            let text = format!("no reference model answered: {}", errors.join("; "));
            return Err(refused(&text, &models));
        }
        let ask = ModelQuestion {
            text: &material,
            system: "",
            temperature: AGGREGATOR_TEMPERATURE,
        };
        match self.ask(&*self.aggregator, ask, cx).await {
            Ok((model, response)) => Ok(json!({
                "success": true,
                "response": response,
                "models_used": { "reference_models": models, "aggregator_model": model },
            })),
            Err(error) => Err(refused(&error, &models)),
        }
    }

    async fn ask(
        &self,
        router: &dyn ModelRouter,
        ask: ModelQuestion<'_>,
        cx: &ToolContext,
    ) -> Result<(String, String), String> {
        let client = router.primary().map_err(|error| error.to_string())?;
        let model = client.route().model.clone();
        let mut pause = RETRY_PAUSE;
        let mut last = String::new();
        for attempt in 0..MAX_TRIES {
            if attempt > 0 {
                tokio::select! {
                    () = cx.cancel.cancelled() => return Err("it was stopped".to_owned()),
                    () = tokio::time::sleep(pause) => pause *= 2,
                }
            }
            let call = self.once(&*client, &ask, cx);
            match tokio::time::timeout(self.timeout, call).await {
                Ok(Ok(text)) if !text.trim().is_empty() => return Ok((model, text)),
                Ok(Ok(_)) => last = format!("{model} gave an empty answer"),
                Ok(Err((class, text))) => {
                    last = format!("{model}: {text}");
                    let passes = matches!(
                        class,
                        ErrorClass::RateLimit
                            | ErrorClass::UpstreamRateLimit
                            | ErrorClass::Overloaded
                            | ErrorClass::Server
                            | ErrorClass::Timeout
                            | ErrorClass::EmptyStream
                            | ErrorClass::BadResponse
                    );
                    if !passes {
                        break;
                    }
                }
                Err(_) => {
                    last = format!("{model} took longer than {} s", self.timeout.as_secs());
                    break;
                }
            }
        }
        Err(last)
    }

    async fn once(
        &self,
        client: &dyn ModelClient,
        ask: &ModelQuestion<'_>,
        cx: &ToolContext,
    ) -> Result<String, (ErrorClass, String)> {
        let request = ModelRequest {
            session: cx.session.clone(),
            system: ask.system.into(),
            messages: vec![Arc::new(Message::user(ask.text))],
            tools: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            max_tokens: self.max_tokens,
            temperature: Some(ask.temperature),
            reasoning: None,
        };
        let mut stream = client.stream(request, cx.cancel.child_token());
        let mut collector = Collector::default();
        let mut failure = None;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => collector.push(&event),
                Err(error) => {
                    failure = Some((error.class, error.to_string()));
                    break;
                }
            }
        }
        let (message, usage) = collector.finish();
        if let Some(usage) = usage {
            cx.spent_on(client, TASK, usage);
        }
        match failure {
            Some(failure) => Err(failure),
            None if message.is_cut() => {
                Err((ErrorClass::BadResponse, "the answer was cut off".to_owned()))
            }
            None => Ok(message.text),
        }
    }
}

/// One question to one model.
struct ModelQuestion<'a> {
    text: &'a str,
    system: &'a str,
    temperature: f32,
}

fn refused(error: &str, models: &[String]) -> ToolOutcome {
    let value = json!({
        "success": false,
        "response": "",
        "models_used": { "reference_models": models },
        "error": error,
    });
    ToolOutcome::error(ToolErrorKind::Failed, value.to_string())
}

impl Tool for Moa {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}
