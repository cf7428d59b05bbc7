//! Parts that the conversations of a long-lived process share: built once, until the files of the
//! home change.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::home::{HomePrompt, ToolsetChoice};
use chrono::NaiveDate;
use hermes_agent::{PromptContext, PromptSource, PromptText};
use hermes_config::Config;
use hermes_core::BoxFuture;
use hermes_core::model::{ModelClient, ModelError, ModelRouter, Route, RouteError};
use hermes_models::{Overrides, Router};

use crate::hooks::{self, Hooks};

use super::no_model;
use crate::context::AppContext;
use crate::failure::Failure;

/// Maximum number of cached routers; conversations may choose models.
const MAX_ROUTERS: usize = 16;
const MAX_HELPERS: usize = 64;
const MAX_PLATFORMS: usize = 64;
/// Maximum number of cached system prompts, and how long their files are not checked.
const MAX_PROMPTS: usize = 16;
const PROMPT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The home as it was loaded.
pub struct HomeParts {
    pub cx: AppContext,
    pub config: Arc<Config>,
    seen: Vec<Option<HomeFileVersion>>,
    /// The latest parts, for conversations that are open.
    cache: OnceLock<Weak<Mutex<Arc<Self>>>>,
    /// By model and provider.
    routers: Mutex<HashMap<ModelKey, Arc<Router>>>,
    helpers: Mutex<HashMap<(ModelKey, String), CachedHelper>>,
    prompts: Arc<PromptCache>,
    hooks: Mutex<Option<CachedHooks>>,
    /// The toolsets of each platform.
    choices: Mutex<HashMap<String, ToolsetChoice>>,
}

/// The hooks of the home, their load time, and the consents at that time.
struct CachedHooks {
    at: Instant,
    consents: Option<HomeFileVersion>,
    hooks: Hooks,
}

/// The model for an auxiliary task, and when it was determined.
struct CachedHelper {
    at: Instant,
    client: Result<Arc<dyn ModelClient>, RouteError>,
}

type ModelKey = (Option<String>, Option<String>);

/// The version of a file at the last check.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HomeFileVersion {
    modified: Option<SystemTime>,
    len: u64,
}

/// Holds the parts and reloads them when the files change.
pub(crate) struct PartsCache {
    current: Arc<Mutex<Arc<HomeParts>>>,
}

impl PartsCache {
    pub(crate) fn new(cx: &AppContext) -> Result<Self, Failure> {
        let seen = file_versions(cx);
        let config = Arc::new(cx.config()?);
        Ok(Self::from_parts(HomeParts::new(cx, config, seen)))
    }

    /// With a configuration that was read already.
    pub(super) fn with(cx: &AppContext, config: &Arc<Config>) -> Self {
        Self::from_parts(HomeParts::new(cx, Arc::clone(config), file_versions(cx)))
    }

    fn from_parts(parts: HomeParts) -> Self {
        let current = Arc::new(Mutex::new(Arc::new(parts)));
        let cache = Arc::downgrade(&current);
        let parts = current.lock().unwrap_or_else(PoisonError::into_inner);
        // It is new: not set yet.
        let _ = parts.cache.set(cache);
        drop(parts);
        Self { current }
    }

    /// The current parts. An invalid file (perhaps in the middle of an edit) is ignored, and the
    /// last parts stay in use.
    pub(crate) fn current(&self) -> Arc<HomeParts> {
        newest(&self.current)
    }
}

fn newest(current: &Arc<Mutex<Arc<HomeParts>>>) -> Arc<HomeParts> {
    let mut parts = current.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = file_versions(&parts.cx);
    if seen != parts.seen {
        let read = parts.cx.reread().and_then(|cx| {
            let config = Arc::new(cx.config()?);
            Ok(HomeParts::new(&cx, config, seen))
        });
        match read {
            Ok(new) => {
                // It is new: not set yet.
                let _ = new.cache.set(Arc::downgrade(current));
                *parts = Arc::new(new);
            }
            Err(failure) => {
                tracing::warn!("the configuration stays as it was: {}", failure.message);
            }
        }
    }
    Arc::clone(&parts)
}

impl HomeParts {
    fn new(cx: &AppContext, config: Arc<Config>, seen: Vec<Option<HomeFileVersion>>) -> Self {
        Self {
            config,
            cx: cx.clone(),
            seen,
            cache: OnceLock::new(),
            routers: Mutex::default(),
            helpers: Mutex::default(),
            prompts: Arc::default(),
            hooks: Mutex::default(),
            choices: Mutex::default(),
        }
    }

    /// The parts for the current files.
    fn newest(self: &Arc<Self>) -> Arc<Self> {
        let cache = self.cache.get().and_then(Weak::upgrade);
        cache.map_or_else(|| Arc::clone(self), |cache| newest(&cache))
    }

    /// The hooks; changes of consent take effect immediately.
    pub(super) fn hooks(&self) -> Hooks {
        let consents = file_version(hooks::consent::path(&self.cx.home));
        let mut cached_hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached_hooks.as_ref()
            && known.at.elapsed() < PROMPT_CHECK_INTERVAL
            && known.consents == consents
        {
            return known.hooks.clone();
        }
        // Their problems were reported when the process started.
        let hooks = super::tool_hooks::load_hooks(&self.cx, &self.config, true);
        *cached_hooks = Some(CachedHooks {
            at: Instant::now(),
            consents,
            hooks: hooks.clone(),
        });
        hooks
    }

    /// The configured toolsets of a platform.
    pub(super) fn choice(&self, platform: &str) -> ToolsetChoice {
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(choice) = choices.get(platform) {
            return choice.clone();
        }
        let choice = ToolsetChoice::from_config(&self.config, platform);
        if choices.len() < MAX_PLATFORMS {
            choices.insert(platform.to_owned(), choice.clone());
        }
        choice
    }

    /// The router for these flags. Keys that rest and connections are shared by all who use it.
    pub(super) fn router(&self, overrides: Overrides) -> Arc<Router> {
        let key = (overrides.model.clone(), overrides.provider.clone());
        let mut routers = self.routers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(router) = routers.get(&key) {
            return Arc::clone(router);
        }
        if routers.len() >= MAX_ROUTERS {
            routers.clear();
        }
        let router = super::router(&self.cx, &self.config, overrides);
        routers.insert(key, Arc::clone(&router));
        router
    }

    /// Finding an auxiliary model checks the keys of every provider, which is too slow for each
    /// conversation.
    fn helper(
        &self,
        router: &Router,
        named: &ModelKey,
        task: &str,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let key = (named.clone(), task.to_owned());
        let helpers = || self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(helper) = helpers().get(&key)
            && helper.at.elapsed() < PROMPT_CHECK_INTERVAL
        {
            return helper.client.clone();
        }
        let client = router.auxiliary(task);
        let at = Instant::now();
        let mut helpers = helpers();
        if helpers.len() >= MAX_HELPERS {
            helpers.clear();
        }
        let known = client.clone();
        helpers.insert(key, CachedHelper { at, client });
        known
    }

    /// A router for one conversation, which can switch models independently.
    pub(super) fn conversation_router(
        self: &Arc<Self>,
        router: Arc<Router>,
        overrides: &Overrides,
        missing: Option<&RouteError>,
    ) -> Arc<dyn ModelRouter> {
        let named = (overrides.model.clone(), overrides.provider.clone());
        let own = Arc::new(ConversationRouter {
            now: Mutex::new((named, router, Arc::clone(self))),
            cache: self.cache.get().and_then(Weak::upgrade),
        });
        no_model::or_missing(own, missing)
    }

    pub(super) fn prompt(&self, prompt: HomePrompt) -> Arc<dyn PromptSource> {
        Arc::new(CachingPrompt {
            prompt,
            prompts: Arc::clone(&self.prompts),
        })
    }
}

/// Files whose change reloads everything.
fn file_versions(cx: &AppContext) -> Vec<Option<HomeFileVersion>> {
    let home = &cx.home;
    let files = [home.config_path(), home.env_path(), home.auth_path()];
    files.into_iter().map(file_version).collect()
}

fn file_version(path: PathBuf) -> Option<HomeFileVersion> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(HomeFileVersion {
        modified: metadata.modified().ok(),
        len: metadata.len(),
    })
}

/// Uses a shared router until another model is chosen in this conversation.
struct ConversationRouter {
    /// The model key, its router, and the parts it is from.
    now: Mutex<(ModelKey, Arc<Router>, Arc<HomeParts>)>,
    /// Keeps the parts current while the conversation is open.
    #[expect(dead_code, reason = "it is held, not read")]
    cache: Option<Arc<Mutex<Arc<HomeParts>>>>,
}

impl ConversationRouter {
    fn now(&self) -> MutexGuard<'_, (ModelKey, Arc<Router>, Arc<HomeParts>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn router(&self) -> Arc<Router> {
        Arc::clone(&self.now().1)
    }

    /// Switches to the current parts.
    fn refresh(&self) {
        let known = Arc::clone(&self.now().2);
        let newest = known.newest();
        if Arc::ptr_eq(&known, &newest) {
            return;
        }
        let mut now = self.now();
        let (model, provider) = now.0.clone();
        now.1 = newest.router(Overrides {
            model,
            provider,
            ..Overrides::default()
        });
        now.2 = newest;
    }
}

impl ModelRouter for ConversationRouter {
    /// Called at the start of each turn, so that a changed model, address or key takes effect.
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.refresh();
        self.router().primary()
    }

    fn rotate(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        self.router().rotate(failed, error)
    }

    fn fallback(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        self.router().fallback(failed, error)
    }

    fn auxiliary(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        let (named, router, parts) = self.now().clone();
        parts.helper(&router, &named, task)
    }

    fn switch(
        &self,
        model: &str,
        provider: Option<&str>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let overrides = Overrides {
            model: Some(model.to_owned()),
            provider: provider.map(str::to_owned),
            ..Overrides::default()
        };
        let named = (overrides.model.clone(), overrides.provider.clone());
        self.refresh();
        let parts = Arc::clone(&self.now().2);
        let router = parts.router(overrides);
        let client = router.primary()?;
        *self.now() = (named, router, parts);
        Ok(client)
    }
}

/// Cached prompts by their inputs.
#[derive(Default)]
struct PromptCache(Mutex<HashMap<PromptCacheKey, CachedPrompt>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct PromptCacheKey {
    source: String,
    provider: String,
    model: String,
    window: u32,
    cwd: PathBuf,
    tools: Vec<String>,
    further: Option<String>,
}

struct CachedPrompt {
    at: Instant,
    /// The agent writes these files itself; changes take effect immediately.
    memory: Vec<Option<HomeFileVersion>>,
    prompt: PromptText,
}

/// A prompt that is cached across conversations.
struct CachingPrompt {
    prompt: HomePrompt,
    prompts: Arc<PromptCache>,
}

impl CachingPrompt {
    fn memory(&self) -> Vec<Option<HomeFileVersion>> {
        let dir = self.prompt.home.memories_dir();
        let files = [dir.join("MEMORY.md"), dir.join("USER.md")];
        let soul = self.prompt.home.soul_path();
        files.into_iter().chain([soul]).map(file_version).collect()
    }
}

impl PromptSource for CachingPrompt {
    fn build<'a>(&'a self, cx: PromptContext<'a>) -> BoxFuture<'a, PromptText> {
        let wanted = PromptCacheKey {
            source: cx.source.to_owned(),
            provider: cx.route.provider.clone(),
            model: cx.route.model.clone(),
            window: cx.model.context_length,
            cwd: cx.cwd.to_owned(),
            tools: cx.registry.names().map(str::to_owned).collect(),
            further: self.prompt.options.system_message.clone(),
        };
        let memory = self.memory();
        let known = |made: &&CachedPrompt| {
            made.at.elapsed() < PROMPT_CHECK_INTERVAL && made.memory == memory
        };
        if let Some(made) = self.prompts.lock().get(&wanted).filter(known) {
            return Box::pin(std::future::ready(made.prompt.clone()));
        }
        Box::pin(async move {
            let prompt = self.prompt.build(cx).await;
            let mut prompts = self.prompts.lock();
            if prompts.len() >= MAX_PROMPTS {
                prompts.retain(|_, made| made.at.elapsed() < PROMPT_CHECK_INTERVAL);
            }
            if prompts.len() < MAX_PROMPTS {
                let at = Instant::now();
                let made = CachedPrompt {
                    at,
                    memory,
                    prompt: prompt.clone(),
                };
                prompts.insert(wanted, made);
            }
            prompt
        })
    }

    fn today(&self) -> Option<NaiveDate> {
        self.prompt.today()
    }
}

impl PromptCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<PromptCacheKey, CachedPrompt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
