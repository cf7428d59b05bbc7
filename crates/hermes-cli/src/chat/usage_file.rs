//! `--usage-file`: what a run used, for scripts that keep accounts.

use std::path::Path;

use hermes_agent::turn::explain;
use hermes_core::event::{TurnExit, TurnSummary};
use hermes_core::ids::SessionId;
use hermes_core::model::Route;
use hermes_core::usage::{Cost, PriceSource};
use serde_json::{Value, json};

use crate::exit::Failure;

/// Writes the report. Failing to is an error: someone relies on it.
pub(super) fn write(
    path: &Path,
    summary: &TurnSummary,
    session: &SessionId,
    route: Option<&Route>,
) -> Result<(), Failure> {
    let mut text = format!("{:#}", report(summary, session, route));
    text.push('\n');
    let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    parent
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| Failure::failed(format!("--usage-file {}: {error}", path.display())))
}

/// The keys are those of the original's report.
fn report(summary: &TurnSummary, session: &SessionId, route: Option<&Route>) -> Value {
    let usage = &summary.usage;
    let (status, source) = match summary.cost {
        Cost::Actual { .. } => ("actual", "provider_cost_api"),
        Cost::Estimated {
            source: PriceSource::OfficialDocsSnapshot,
            ..
        } => ("estimated", "official_docs_snapshot"),
        Cost::Estimated {
            source: PriceSource::UserOverride,
            ..
        } => ("estimated", "user_override"),
        Cost::Estimated {
            source: PriceSource::ProviderModelsApi,
            ..
        } => ("estimated", "provider_models_api"),
        Cost::Included => ("included", "none"),
        Cost::Unknown => ("unknown", "none"),
    };
    let failed = !matches!(
        summary.exit,
        TurnExit::Answered | TurnExit::BudgetExhausted { .. } | TurnExit::Partial { .. }
    );
    let mut report = json!({
        "estimated_cost_usd": summary.cost.usd(),
        "cost_status": status,
        "cost_source": source,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "total_tokens": usage.prompt_tokens() + usage.output,
        "api_calls": summary.calls,
        "model": route.map(|route| &route.model),
        "provider": route.map(|route| &route.provider),
        "session_id": session,
        "completed": summary.exit == TurnExit::Answered,
        "failed": failed,
        "service_tier": null,
    });
    if failed {
        report["failure"] = json!(explain(&summary.exit, route));
    }
    report
}
