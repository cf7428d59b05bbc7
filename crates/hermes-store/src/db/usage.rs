//! Tokens and cost of a session, and of each model within it.

use hermes_core::store::UsageEntry;
use hermes_core::usage::{Cost, PriceSource};
use rusqlite::{Connection, named_params};

use super::connection::DbError;
use super::layout::SchemaLayout;

/// `estimated`, `actual`, `status`, `source`, as state.db writes them.
struct CostColumns {
    estimated: Option<f64>,
    actual: Option<f64>,
    status: &'static str,
    source: &'static str,
}

impl CostColumns {
    fn from_cost(cost: &Cost) -> Self {
        let (estimated, actual, status, source) = match cost {
            Cost::Actual { usd } => (None, Some(*usd), "actual", "provider_cost_api"),
            Cost::Estimated { usd, source } => (
                Some(*usd),
                None,
                "estimated",
                match source {
                    PriceSource::OfficialDocsSnapshot => "official_docs_snapshot",
                    PriceSource::UserOverride => "user_override",
                    PriceSource::ProviderModelsApi => "provider_models_api",
                },
            ),
            Cost::Included => (Some(0.0), None, "included", "none"),
            Cost::Unknown => (None, None, "unknown", "none"),
        };
        Self {
            estimated,
            actual,
            status,
            source,
        }
    }
}

/// Adds one model call. Auxiliary calls (`task`) count per model only, never in the session's
/// totals.
pub(crate) fn record(
    conn: &Connection,
    layout: &SchemaLayout,
    session: &str,
    entry: &UsageEntry,
) -> Result<(), DbError> {
    let money = CostColumns::from_cost(&entry.cost);
    if entry.task.is_empty() {
        fix_first_route(conn, session, entry)?;
        add_to_session(conn, session, entry, &money)?;
    }
    if layout.has("session_model_usage") {
        add_to_model(conn, session, entry, &money)?;
    }
    Ok(())
}

/// The row was created with the requested route; the first accounted call may have used another
/// one, which is then stored. Later switches do not change it.
fn fix_first_route(conn: &Connection, session: &str, entry: &UsageEntry) -> Result<(), DbError> {
    conn.prepare_cached(
        "UPDATE sessions SET model = ?2, billing_provider = ?3, billing_base_url = ?4,
                billing_mode = NULL
         WHERE id = ?1 AND COALESCE(api_call_count, 0) = 0
           AND (model IS NOT ?2 OR billing_provider IS NOT ?3)",
    )?
    .execute([
        session,
        &entry.route.model,
        &entry.route.provider,
        &entry.route.base_url,
    ])?;
    Ok(())
}

fn add_to_session(
    conn: &Connection,
    session: &str,
    entry: &UsageEntry,
    money: &CostColumns,
) -> Result<(), DbError> {
    conn.prepare_cached(
        "UPDATE sessions SET
            input_tokens = COALESCE(input_tokens, 0) + :input,
            output_tokens = COALESCE(output_tokens, 0) + :output,
            cache_read_tokens = COALESCE(cache_read_tokens, 0) + :read,
            cache_write_tokens = COALESCE(cache_write_tokens, 0) + :write,
            reasoning_tokens = COALESCE(reasoning_tokens, 0) + :reasoning,
            estimated_cost_usd = COALESCE(estimated_cost_usd, 0) + COALESCE(:estimated, 0),
            actual_cost_usd = CASE WHEN :actual IS NULL THEN actual_cost_usd
                                   ELSE COALESCE(actual_cost_usd, 0) + :actual END,
            cost_status = :status, cost_source = :source,
            billing_provider = COALESCE(billing_provider, :provider),
            billing_base_url = COALESCE(billing_base_url, :base_url),
            model = COALESCE(model, :model),
            api_call_count = COALESCE(api_call_count, 0) + 1
         WHERE id = :id",
    )?
    .execute(named_params! {
        ":input": entry.usage.input as i64,
        ":output": entry.usage.output as i64,
        ":read": entry.usage.cache_read as i64,
        ":write": entry.usage.cache_write as i64,
        ":reasoning": entry.usage.reasoning as i64,
        ":estimated": money.estimated,
        ":actual": money.actual,
        ":status": money.status,
        ":source": money.source,
        ":provider": entry.route.provider,
        ":base_url": entry.route.base_url,
        ":model": entry.route.model,
        ":id": session,
    })?;
    Ok(())
}

fn add_to_model(
    conn: &Connection,
    session: &str,
    entry: &UsageEntry,
    money: &CostColumns,
) -> Result<(), DbError> {
    conn.prepare_cached(
        "INSERT INTO session_model_usage (session_id, model, billing_provider, billing_base_url,
            task, api_call_count, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd,
            cost_status, cost_source, first_seen, last_seen)
         VALUES (:id, :model, :provider, :base_url, :task, 1, :input, :output, :read, :write,
            :reasoning, COALESCE(:estimated, 0), COALESCE(:actual, 0), :status, :source, :at, :at)
         ON CONFLICT (session_id, model, billing_provider, billing_base_url, billing_mode, task)
         DO UPDATE SET
            api_call_count = api_call_count + excluded.api_call_count,
            input_tokens = input_tokens + excluded.input_tokens,
            output_tokens = output_tokens + excluded.output_tokens,
            cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,
            cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
            reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
            estimated_cost_usd = estimated_cost_usd + excluded.estimated_cost_usd,
            actual_cost_usd = actual_cost_usd + excluded.actual_cost_usd,
            cost_status = excluded.cost_status, cost_source = excluded.cost_source,
            last_seen = excluded.last_seen",
    )?
    .execute(named_params! {
        ":id": session,
        ":model": if entry.route.model.is_empty() { "unknown" } else { &entry.route.model },
        ":provider": entry.route.provider,
        ":base_url": entry.route.base_url,
        ":task": entry.task,
        ":input": entry.usage.input as i64,
        ":output": entry.usage.output as i64,
        ":read": entry.usage.cache_read as i64,
        ":write": entry.usage.cache_write as i64,
        ":reasoning": entry.usage.reasoning as i64,
        ":estimated": money.estimated,
        ":actual": money.actual,
        ":status": money.status,
        ":source": money.source,
        ":at": entry.at,
    })?;
    Ok(())
}
