//! Reasoning parameters in every form that servers accept.

use hermes_core::model::ReasoningEffort as Effort;
use serde_json::{Value, json};

use super::EncodeScope;
use crate::quirks::{LOW_TO_HIGH, ReasoningShape, ThinkingToggle, effort_name, nearest_level};

type ReasoningFields = Vec<(&'static str, Value)>;

const OBJECT_LEVELS: &[Effort] = &[
    Effort::Minimal,
    Effort::Low,
    Effort::Medium,
    Effort::High,
    Effort::Xhigh,
];
const VERBOSITY_LEVELS: &[Effort] = &[Effort::Low, Effort::Medium, Effort::High, Effort::Max];
const ADAPTIVE_LEVELS: &[Effort] = &[
    Effort::Low,
    Effort::Medium,
    Effort::High,
    Effort::Xhigh,
    Effort::Max,
];

/// Tokens for the answer in addition to the thinking budget.
const MIN_ANSWER_TOKENS: u32 = 4_096;

/// The effort of the request. `None`: the parameter is omitted.
pub(super) fn effort(scope: &EncodeScope<'_>) -> Option<Effort> {
    scope.request.reasoning.or(scope.quirks.default_reasoning)
}

/// Top-level fields of the body that request reasoning.
pub(super) fn fields(scope: &EncodeScope<'_>) -> ReasoningFields {
    let effort = effort(scope);
    match &scope.quirks.reasoning {
        ReasoningShape::None => Vec::new(),
        ReasoningShape::Object { omit_when_off } => object(effort, *omit_when_off),
        ReasoningShape::Verbosity => match level(effort, VERBOSITY_LEVELS) {
            Some(level) => vec![("verbosity", level.into())],
            None => Vec::new(),
        },
        ReasoningShape::Effort { levels } => match named(effort, levels) {
            Some(level) => vec![("reasoning_effort", level.into())],
            None => Vec::new(),
        },
        ReasoningShape::Thinking(toggle) => thinking(effort, toggle),
        ReasoningShape::AnthropicAdaptive { xhigh } => adaptive(effort, *xhigh),
        ReasoningShape::AnthropicBudget => match budget(effort) {
            Some(budget) => vec![(
                "thinking",
                json!({ "type": "enabled", "budget_tokens": budget }),
            )],
            None => Vec::new(),
        },
        ReasoningShape::Local => local(effort),
        ReasoningShape::Responses { levels } => match named(effort, levels) {
            Some(level) => vec![("reasoning", json!({ "effort": level, "summary": "auto" }))],
            None if effort.is_none() => vec![("reasoning", json!({ "summary": "auto" }))],
            None => Vec::new(),
        },
        ReasoningShape::Google => google(effort, &scope.route.model),
    }
}

/// The thinking budget in tokens, if the form has one: it is part of `max_tokens`.
pub(super) fn thinking_budget(scope: &EncodeScope<'_>) -> Option<u32> {
    match scope.quirks.reasoning {
        ReasoningShape::AnthropicBudget => budget(effort(scope)),
        _ => None,
    }
}

/// `max_tokens` with room for the thinking budget.
pub(super) fn with_budget(max_tokens: u32, budget: Option<u32>) -> u32 {
    budget.map_or(max_tokens, |budget| {
        max_tokens.max(budget.saturating_add(MIN_ANSWER_TOKENS))
    })
}

/// The name of the nearest level; `None` if reasoning is off or not requested.
fn level(effort: Option<Effort>, levels: &[Effort]) -> Option<&'static str> {
    let effort = effort.filter(|effort| *effort != Effort::None)?;
    nearest_level(effort, levels).map(effort_name)
}

/// Like [`level`], but "off" is a level if the server supports it.
fn named(effort: Option<Effort>, levels: &[Effort]) -> Option<&'static str> {
    match effort? {
        Effort::None => levels.contains(&Effort::None).then_some("none"),
        _ => level(effort, levels),
    }
}

fn object(effort: Option<Effort>, omit_when_off: bool) -> ReasoningFields {
    match effort {
        None => Vec::new(),
        Some(Effort::None) if omit_when_off => Vec::new(),
        Some(Effort::None) => vec![("reasoning", json!({ "enabled": false }))],
        Some(_) => vec![(
            "reasoning",
            json!({ "enabled": true, "effort": level(effort, OBJECT_LEVELS) }),
        )],
    }
}

fn thinking(effort: Option<Effort>, toggle: &ThinkingToggle) -> ReasoningFields {
    let switch = |state: &str| ("thinking", json!({ "type": state }));
    match (effort, level(effort, toggle.levels)) {
        (None, _) if toggle.always => vec![switch("enabled")],
        (None, _) => Vec::new(),
        (Some(Effort::None), _) => vec![switch("disabled")],
        (Some(_), None) => vec![switch("enabled")],
        (Some(_), Some(level)) => {
            let mut fields = vec![("reasoning_effort", level.into())];
            if !toggle.exclusive {
                fields.push(switch("enabled"));
            }
            fields
        }
    }
}

fn adaptive(effort: Option<Effort>, xhigh: bool) -> ReasoningFields {
    let Some(mut level) = level(effort, ADAPTIVE_LEVELS) else {
        // These models cannot turn it off: omitting the parameter gives the least thinking.
        return Vec::new();
    };
    if level == "xhigh" && !xhigh {
        level = "max";
    }
    vec![
        (
            "thinking",
            json!({ "type": "adaptive", "display": "summarized" }),
        ),
        ("output_config", json!({ "effort": level })),
    ]
}

fn budget(effort: Option<Effort>) -> Option<u32> {
    match effort? {
        Effort::None => None,
        Effort::Minimal | Effort::Low => Some(4_000),
        Effort::Medium => Some(8_000),
        Effort::High => Some(16_000),
        Effort::Xhigh | Effort::Max | Effort::Ultra => Some(32_000),
    }
}

fn local(effort: Option<Effort>) -> ReasoningFields {
    match effort {
        None => Vec::new(),
        Some(Effort::None) => vec![("reasoning_effort", "none".into()), ("think", false.into())],
        Some(_) => level(effort, LOW_TO_HIGH)
            .map(|level| ("reasoning_effort", level.into()))
            .into_iter()
            .collect(),
    }
}

/// Gemini's own fields inside the OpenAI-compatible body. Other models refuse them.
fn google(effort: Option<Effort>, model: &str) -> ReasoningFields {
    let slug = model
        .rsplit('/')
        .next()
        .unwrap_or(model)
        .to_ascii_lowercase();
    let Some(effort) = effort.filter(|_| slug.starts_with("gemini")) else {
        return Vec::new();
    };
    let strong = matches!(
        effort,
        Effort::High | Effort::Xhigh | Effort::Max | Effort::Ultra
    );
    let level = match effort {
        _ if !slug.starts_with("gemini-3") => None,
        _ if strong => Some("high"),
        Effort::Medium if slug.contains("flash") => Some("medium"),
        _ => Some("low"),
    };
    let config = match (effort, level) {
        (Effort::None, _) => json!({ "include_thoughts": false }),
        (_, None) => json!({ "include_thoughts": true }),
        (_, Some(level)) => json!({ "include_thoughts": true, "thinking_level": level }),
    };
    vec![(
        "extra_body",
        json!({ "google": { "thinking_config": config } }),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::samples;

    fn asked(shape: ReasoningShape, effort: Option<Effort>, model: &str) -> Value {
        let mut sample = samples::Sample::chat();
        sample.quirks.reasoning = shape;
        sample.route.model = model.into();
        sample.request.reasoning = effort;
        let fields = fields(&sample.scope());
        fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
    }

    type Row = (ReasoningShape, Option<Effort>, Value);

    fn check(rows: &[Row]) {
        for (shape, effort, expected) in rows {
            let asked = asked(shape.clone(), *effort, "m");
            assert_eq!(asked, *expected, "{shape:?} {effort:?}");
        }
    }

    #[test]
    fn routers_and_plain_efforts() {
        let router = |omit_when_off| ReasoningShape::Object { omit_when_off };
        let on = |level: &str| json!({"reasoning": {"enabled": true, "effort": level}});
        let effort = || ReasoningShape::Effort {
            levels: &[Effort::None, Effort::Low, Effort::High],
        };
        let level = |level: &str| json!({"reasoning_effort": level});
        let verbosity = ReasoningShape::Verbosity;
        let off = json!({"reasoning": {"enabled": false}});
        let local_off = json!({"reasoning_effort": "none", "think": false});
        check(&[
            (ReasoningShape::None, Some(Effort::High), json!({})),
            (router(false), None, json!({})),
            (router(false), Some(Effort::None), off),
            (router(true), Some(Effort::None), json!({})),
            (router(true), Some(Effort::Ultra), on("xhigh")),
            (
                verbosity.clone(),
                Some(Effort::Minimal),
                json!({"verbosity": "low"}),
            ),
            (verbosity, Some(Effort::None), json!({})),
            (effort(), Some(Effort::None), level("none")),
            (effort(), Some(Effort::Minimal), level("low")),
            (effort(), Some(Effort::Medium), level("low")),
            (ReasoningShape::Local, Some(Effort::None), local_off),
            (ReasoningShape::Local, Some(Effort::Xhigh), level("high")),
            (ReasoningShape::Local, None, json!({})),
        ]);
    }

    #[test]
    fn thinking_switches() {
        let toggle = |exclusive, always| {
            ReasoningShape::Thinking(ThinkingToggle {
                always,
                levels: LOW_TO_HIGH,
                exclusive,
            })
        };
        let switch = |state: &str| json!({"thinking": {"type": state}});
        let both = json!({"reasoning_effort": "low", "thinking": {"type": "enabled"}});
        check(&[
            (toggle(true, true), None, switch("enabled")),
            (toggle(true, true), Some(Effort::None), switch("disabled")),
            (
                toggle(true, true),
                Some(Effort::Max),
                json!({"reasoning_effort": "high"}),
            ),
            (toggle(false, false), Some(Effort::Low), both),
            (toggle(false, false), None, json!({})),
        ]);
    }

    #[test]
    fn anthropic_and_responses() {
        let adaptive = |xhigh| ReasoningShape::AnthropicAdaptive { xhigh };
        let thinking = json!({ "type": "adaptive", "display": "summarized" });
        let effort =
            |level: &str| json!({"thinking": thinking, "output_config": {"effort": level}});
        let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 16_000}});
        let responses = || ReasoningShape::Responses {
            levels: LOW_TO_HIGH,
        };
        let low = json!({"reasoning": {"effort": "low", "summary": "auto"}});
        let silent = json!({"reasoning": {"summary": "auto"}});
        check(&[
            (adaptive(false), Some(Effort::Xhigh), effort("max")),
            (adaptive(true), Some(Effort::Xhigh), effort("xhigh")),
            (adaptive(true), Some(Effort::None), json!({})),
            (ReasoningShape::AnthropicBudget, Some(Effort::High), budget),
            (responses(), Some(Effort::Minimal), low),
            (responses(), None, silent),
            (responses(), Some(Effort::None), json!({})),
        ]);
    }

    #[test]
    fn gemini_takes_levels_by_family() {
        let config = |model: &str, effort| {
            let fields = asked(ReasoningShape::Google, Some(effort), model);
            fields
                .pointer("/extra_body/google/thinking_config")
                .cloned()
        };
        assert_eq!(
            config("gemini-3-pro", Effort::Medium),
            Some(json!({"include_thoughts": true, "thinking_level": "low"}))
        );
        assert_eq!(
            config("google/gemini-3-flash", Effort::Medium),
            Some(json!({"include_thoughts": true, "thinking_level": "medium"}))
        );
        assert_eq!(
            config("gemini-2.5-pro", Effort::High),
            Some(json!({"include_thoughts": true}))
        );
        assert_eq!(
            config("gemini-2.5-pro", Effort::None),
            Some(json!({"include_thoughts": false}))
        );
        assert_eq!(config("gemma-3", Effort::High), None);
    }
}
