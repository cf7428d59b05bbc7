//! `hermes model show`.

use hermes_config::redact;
use hermes_core::model::ModelRouter;
use hermes_models::Overrides;
use serde_json::json;

use super::{router, tokens};
use crate::commands::Context;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(super) struct ModelShowArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ModelShowArgs, cx: &Context) -> Outcome {
    let (config, router) = router(cx, Overrides::default())?;
    let client = router.primary()?;
    let (route, info) = (client.route(), client.info());
    let address = redact::url(&route.base_url);
    let chain: Vec<String> = config
        .fallbacks()
        .iter()
        .map(|step| format!("{} {}", step.provider, step.model))
        .collect();
    if args.json {
        cx.out.json(&json!({
            "provider": route.provider,
            "model": route.model,
            "base_url": address,
            "format": route.format,
            "credential": route.credential,
            "context_length": info.context_length,
            "context_source": info.context_source,
            "max_output": info.max_output,
            "images": info.images,
            "tools": info.tools,
            "local": info.local,
            "prices": info.prices,
            "fallbacks": chain,
        }))?;
        return Ok(());
    }
    cx.out.line(format!("model     {}", route.model))?;
    cx.out
        .line(format!("provider  {} at {address}", route.provider))?;
    cx.out.line(format!(
        "key       {}",
        route.credential.as_deref().unwrap_or("none")
    ))?;
    cx.out.line(format!(
        "context   {} ({})",
        tokens(info.context_length),
        info.context_source
    ))?;
    let yes_no = |flag: bool| if flag { "yes" } else { "no" };
    cx.out.line(format!("images    {}", yes_no(info.images)))?;
    cx.out.line(format!("tools     {}", yes_no(info.tools)))?;
    match info.prices {
        Some(prices) => {
            cx.out.line(format!(
                "price     ${} in, ${} out per M tokens",
                prices.input, prices.output
            ))?;
        }
        None if info.local => cx.out.line("price     none, it runs here")?,
        None => cx.out.line("price     not known")?,
    }
    for step in chain {
        cx.out.line(format!("fallback  {step}"))?;
    }
    Ok(())
}
