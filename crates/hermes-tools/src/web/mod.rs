//! The web and images: `web_search`, `web_extract`, `vision_analyze`.
//!
//! | module | what it does |
//! |---|---|
//! | `search` | queries a search service |
//! | `extract` | reads pages as text |
//! | `keep` | long pages: what is shown, and where the rest is stored |
//! | `vision` | analyzes images |

mod extract;
mod keep;
mod search;
mod vision;

use std::path::PathBuf;
use std::sync::Arc;

use hermes_config::schema::Web;
use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use hermes_core::model::ModelRouter;
use hermes_core::tool::{Tool, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_fetch::service::{ServiceAccess, Services};
use hermes_fetch::{Blocklist, Fetcher, GuardPolicy, HttpBuilder, UrlGuard};
use serde_json::{Value, json};

pub(crate) use vision::VisionSettings;

/// Reads whole files for tools that take a path. The rules of `read_file` apply.
pub trait WholeFiles: Send + Sync {
    /// At most `limit` bytes; the error is a message for the model.
    fn read<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>>;
}

/// Dependencies of the tools.
#[derive(Clone)]
pub struct WebDeps {
    /// For addresses chosen by the model.
    pub pages: Fetcher,
    pub services: Services,
    pub settings: Web,
    /// Where long pages are stored.
    pub cache: PathBuf,
    /// `None`: images come from addresses only.
    pub files: Option<Arc<dyn WholeFiles>>,
    pub router: Arc<dyn ModelRouter>,
    pub vision: VisionSettings,
}

/// Parameters of [`WebDeps::from_config`].
pub struct WebParts<'a> {
    pub home: &'a Home,
    pub config: &'a Config,
    pub env: &'a Env,
    pub http: HttpBuilder,
    /// The hosts of the proxies that `http` uses.
    pub proxies: Vec<String>,
    /// For images by path: `files::whole_files`. `None` if no files may be read.
    pub files: Option<Arc<dyn WholeFiles>>,
    pub router: Arc<dyn ModelRouter>,
}

impl WebDeps {
    pub fn from_config(parts: WebParts<'_>) -> Self {
        let (home, config) = (parts.home, parts.config);
        let policy = GuardPolicy {
            proxies: parts.proxies,
            ..GuardPolicy::from_config(config, parts.env)
        };
        let blocklist = Blocklist::of_home(home, parts.env, config);
        let configured = UrlGuard::new(policy.for_configured_endpoints());
        let guard = UrlGuard::new(policy).with_blocklist(Arc::new(blocklist));
        let services = Fetcher::new(configured, Arc::clone(&parts.http));
        Self {
            pages: Fetcher::new(guard.clone(), parts.http),
            services: Services::new(services, ServiceAccess::from_env(parts.env)).guarded_by(guard),
            settings: config.web.clone(),
            cache: home.dir("cache/web", "web_cache"),
            files: parts.files,
            router: parts.router,
            vision: VisionSettings::from_config(config),
        }
    }
}

/// The tools, including `vision_analyze` if a vision model is available.
pub fn tools(deps: WebDeps) -> Vec<Arc<dyn Tool>> {
    let deps = Arc::new(deps);
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(search::WebSearch::new(Arc::clone(&deps))),
        Arc::new(extract::WebExtract::new(Arc::clone(&deps))),
    ];
    if vision::available(deps.router.as_ref()).is_ok() {
        tools.push(Arc::new(vision::VisionAnalyze::new(deps)));
    }
    tools
}

/// Why `vision_analyze` is not available.
pub fn vision_missing(router: &dyn ModelRouter) -> Option<String> {
    vision::available(router).err()
}

/// A failure in the format of tool results.
fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutcome {
    let value: Value = json!({ "success": false, "error": text.into() });
    ToolOutcome::error(kind, value.to_string())
}

#[cfg(test)]
mod tests;
