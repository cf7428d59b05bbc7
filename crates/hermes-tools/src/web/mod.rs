//! The web and images: `web_search`, `web_extract`, `vision_analyze`.
//!
//! | module | what it does |
//! |---|---|
//! | `search` | asks a search service |
//! | `extract` | reads pages as text |
//! | `keep` | long pages: what is shown, and where the rest is |
//! | `vision` | looks at images |

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
use hermes_fetch::service::{Access, Backend, Services, select_extract, select_search};
use hermes_fetch::{Blocklist, Fetcher, Guard, HttpBuilder, Policy};
use serde_json::{Value, json};

pub use vision::VisionSettings;

/// Reads whole files for tools that take a path. The rules of `read_file` apply.
pub trait WholeFiles: Send + Sync {
    /// At most `limit` bytes; why not, in words for the model.
    fn read<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>>;
}

/// What the tools work with.
#[derive(Clone)]
pub struct WebDeps {
    /// For addresses that the model chose.
    pub pages: Fetcher,
    pub services: Services,
    pub settings: Web,
    /// Where long pages are kept whole.
    pub cache: PathBuf,
    /// `None`: images come from addresses only.
    pub files: Option<Arc<dyn WholeFiles>>,
    pub router: Arc<dyn ModelRouter>,
    pub vision: VisionSettings,
}

/// What [`WebDeps::from_config`] is made from.
pub struct WebParts<'a> {
    pub home: &'a Home,
    pub config: &'a Config,
    pub env: &'a Env,
    pub http: HttpBuilder,
    /// The hosts of the proxies that `http` uses.
    pub proxies: Vec<String>,
    /// For images by path: `files::whole_files`. `None` where no files may be read.
    pub files: Option<Arc<dyn WholeFiles>>,
    pub router: Arc<dyn ModelRouter>,
}

impl WebDeps {
    pub fn from_config(parts: WebParts<'_>) -> Self {
        let (home, config) = (parts.home, parts.config);
        let policy = Policy {
            proxies: parts.proxies,
            ..Policy::from_config(config, parts.env)
        };
        let blocklist = Blocklist::of_home(home, parts.env, config);
        let configured = Guard::new(policy.for_configured_endpoints());
        let guard = Guard::new(policy).with_blocklist(Arc::new(blocklist));
        let services = Fetcher::new(configured, Arc::clone(&parts.http));
        Self {
            pages: Fetcher::new(guard.clone(), parts.http),
            services: Services::new(services, Access::from_env(parts.env)).guarded_by(guard),
            settings: config.web.clone(),
            cache: home.dir("cache/web", "web_cache"),
            files: parts.files,
            router: parts.router,
            vision: VisionSettings::from_config(config),
        }
    }

    /// Who searches, and who reads pages.
    pub fn backends(&self) -> (Backend, Backend) {
        let access = self.services.access();
        (
            select_search(&self.settings, access).backend,
            select_extract(&self.settings, access).backend,
        )
    }
}

/// The tools. `vision_analyze` is among them when a model that sees can be reached.
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

/// Why `vision_analyze` cannot be offered.
pub fn vision_missing(router: &dyn ModelRouter) -> Option<String> {
    vision::available(router).err()
}

/// A failure in the shape of the tools' results.
fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutcome {
    let value: Value = json!({ "success": false, "error": text.into() });
    ToolOutcome::error(kind, value.to_string())
}

#[cfg(test)]
mod tests;
