//! Builds the web tools, with the guarded HTTP client.

use std::sync::Arc;

use hermes_config::Config;
use hermes_core::model::ModelRouter;
use hermes_core::tool::Tool;
use hermes_http::HttpSettings;
use hermes_tools::web::{self, WebDeps, WebParts, WholeFiles};

use crate::context::AppContext;

/// `web_search`, `web_extract` and, where a model sees, `vision_analyze`.
pub(crate) fn tools(
    cx: &AppContext,
    config: &Config,
    router: Arc<dyn ModelRouter>,
    files: Option<Arc<dyn WholeFiles>>,
) -> Vec<Arc<dyn Tool>> {
    let settings = HttpSettings::from_env(|name| cx.env.get(name).map(str::to_owned));
    let proxies = settings.proxy.hosts();
    let deps = WebDeps::from_config(WebParts {
        home: &cx.home,
        config,
        env: &cx.env,
        http: Arc::new(move || hermes_http::builder(&settings).map_err(|error| error.to_string())),
        proxies,
        files,
        router,
    });
    web::tools(deps)
}
