//! The `session_search` tool.

use std::collections::BTreeSet;

use hermes_agent::turn::read_before;
use hermes_config::home::{Home, is_profile_id};
use hermes_core::BoxFuture;
use hermes_core::ids::SessionId;
use hermes_core::schema;
use hermes_core::store::{SessionStore as _, StoreError};
use hermes_core::taint::FROM_OUTSIDE;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_store::{DiscoverRequest, ScrollRequest, SearchOrder, Store};
use serde::Serialize;
use serde_json::{Value, json};

use super::blocking;
use hermes_core::args::Args;

const NAME: &str = "session_search";

pub(super) struct SessionSearch {
    spec: ToolSpec,
    store: Store,
    home: Home,
}

/// A call that was understood.
enum Request {
    Discover(DiscoverRequest),
    Scroll(ScrollRequest),
    Read(SessionId),
    Browse(usize),
}

impl SessionSearch {
    pub(super) fn new(store: Store, home: Home) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words to find. All must occur; OR, NOT, \"exact phrases\" and prefix* work.",
                },
                "limit": {
                    "type": "integer", "default": 3,
                    "description": "Conversations to return, 1 to 10.",
                },
                "sort": {
                    "type": "string", "enum": ["newest", "oldest"],
                    "description": "newest for where something was left, oldest for how it began. Leave out to sort by relevance.",
                },
                "session_id": {
                    "type": "string",
                    "description": "A conversation to read; with around_message_id, to scroll in. @session:profile/id is understood too.",
                },
                "around_message_id": {
                    "type": "integer",
                    "description": "The message to show the surroundings of; take it from a result. The last id shown scrolls forward, the first one back.",
                },
                "window": {
                    "type": "integer", "default": 5,
                    "description": "Messages on each side when scrolling, 1 to 20.",
                },
                "role_filter": {
                    "type": "string",
                    "description": "Roles to search, comma list. Default user,assistant; add tool for tool results.",
                },
                "profile": {
                    "type": "string",
                    "description": "Look into another profile of this machine. Read only.",
                },
            },
            "required": [],
        }));
        let description = "Search what was said in earlier conversations. \
            Four ways: query finds conversations, each with the match in its surroundings and the \
            beginning and end; session_id with around_message_id scrolls; session_id alone reads \
            one; no arguments list the newest. Use it when the person refers to earlier work or \
            words. It knows only what was said: for what a file, page or system holds now, look \
            there.";
        Self {
            spec: ToolSpec::new(NAME, NAME, Effects::ReadOnly, description, parameters),
            store,
            home,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let session = args.text("session_id")?.map(str::trim);
        let session = session.filter(|session| !session.is_empty());
        let (linked_profile, session) = session.map_or((None, None), linked);
        let profile = args.text("profile")?.map(str::trim);
        let profile = profile.filter(|profile| !profile.is_empty());
        let other = match profile.or(linked_profile.as_deref()) {
            Some(profile) => self.open_other(&args, profile, cx).await?,
            None => None,
        };
        // Another profile knows nothing of the running conversation.
        let current = other.is_none().then(|| cx.session.clone());
        let request = parse(&args, session, current.clone())?;
        let store = other.as_ref().unwrap_or(&self.store);
        let mut value = answer(store, request, current).await?;
        if has_read_outside(store, &value).await {
            cx.taint.mark();
            value[FROM_OUTSIDE] = json!(true);
        }
        Ok(value)
    }

    /// The store of another profile; `None` when it is the one in use.
    async fn open_other(
        &self,
        args: &Args<'_>,
        profile: &str,
        cx: &ToolContext,
    ) -> Result<Option<Store>, ToolOutcome> {
        let root = self.home.profiles_root();
        let dir = match profile.to_lowercase().as_str() {
            "default" => root.to_path_buf(),
            id if is_profile_id(id) => root.join("profiles").join(id),
            _ => return Err(args.bad(&format!("{profile:?} is not a profile name"))),
        };
        if dir == self.home.root() {
            return Ok(None);
        }
        let (path, clock) = (dir.join("state.db"), cx.clock.clone());
        let opened = blocking(move || Store::open_read_only(path, clock)).await?;
        opened.map(Some).map_err(|error| {
            let text = format!("{NAME}: profile {profile:?} has no readable history: {error}");
            ToolOutcome::error(ToolErrorKind::Failed, text)
        })
    }
}

/// Whether one of the shown conversations read untrusted content, which its messages may repeat. One
/// that cannot be read may have.
async fn has_read_outside(store: &Store, value: &Value) -> bool {
    let mut shown = BTreeSet::new();
    add_session_ids(value, &mut shown);
    for id in shown {
        match store.load(&SessionId::new(id)).await {
            Ok(Some(session)) if !read_before(&session.items) => {}
            Ok(None) => {}
            _ => return true,
        }
    }
    false
}

fn add_session_ids(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let id = fields.get("session_id").and_then(Value::as_str);
            found.extend(id.map(str::to_owned));
            fields
                .values()
                .for_each(|value| add_session_ids(value, found));
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| add_session_ids(value, found)),
        _ => {}
    }
}

impl Tool for SessionSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

/// `@session:profile/id` → profile and id.
fn linked(session: &str) -> (Option<String>, Option<String>) {
    let Some(link) = session.strip_prefix("@session:") else {
        return (None, Some(session.to_owned()));
    };
    match link.split_once('/') {
        Some((profile, id)) => (Some(profile.to_owned()), Some(id.to_owned())),
        None => (None, Some(link.to_owned())),
    }
}

fn parse(
    args: &Args<'_>,
    session: Option<String>,
    current: Option<SessionId>,
) -> Result<Request, ToolOutcome> {
    let clamped = |name: &str, default: i64, high: i64| {
        Ok::<_, ToolOutcome>(args.integer(name)?.unwrap_or(default).clamp(1, high) as usize)
    };
    let limit = clamped("limit", 3, 10)?;
    let query = args.text("query")?.map_or("", str::trim);
    let around = args.integer("around_message_id")?;
    let sort = match args.text("sort")?.map(str::trim).unwrap_or_default() {
        "" => SearchOrder::Relevance,
        "newest" => SearchOrder::Newest,
        "oldest" => SearchOrder::Oldest,
        other => return Err(args.bad(&format!("sort is {other:?}; use newest or oldest"))),
    };
    Ok(match (session, around) {
        (Some(session), Some(around)) => Request::Scroll(ScrollRequest {
            session: SessionId::new(session),
            around,
            window: clamped("window", 5, 20)?,
            current,
        }),
        (Some(session), None) => Request::Read(SessionId::new(session)),
        (None, Some(_)) => {
            return Err(args.bad("around_message_id needs the session_id of the same result"));
        }
        (None, None) if query.is_empty() => Request::Browse(limit),
        (None, None) => Request::Discover(DiscoverRequest {
            query: query.to_owned(),
            roles: args
                .text("role_filter")?
                .unwrap_or_default()
                .split(',')
                .map(|role| role.trim().to_lowercase())
                .filter(|role| !role.is_empty())
                .collect(),
            limit,
            sort,
            current,
        }),
    })
}

async fn answer(
    store: &Store,
    request: Request,
    current: Option<SessionId>,
) -> Result<Value, ToolOutcome> {
    match request {
        Request::Discover(request) => shown(store.discover(request).await),
        Request::Scroll(request) => shown(store.scroll(request).await),
        Request::Read(id) => shown(store.read_session(&id).await),
        Request::Browse(limit) => shown(store.browse(limit, current).await),
    }
}

fn shown<T: Serialize>(result: Result<T, StoreError>) -> Result<Value, ToolOutcome> {
    let failed = |text: String| ToolOutcome::error(ToolErrorKind::Failed, text);
    let value = result.map_err(|error| match error {
        StoreError::NotFound(what) => failed(format!(
            "{NAME}: there is no session {what}; take session_id from a result of {NAME}"
        )),
        StoreError::Invalid(why) => {
            ToolOutcome::error(ToolErrorKind::BadArguments, format!("{NAME}: {why}"))
        }
        error => failed(format!("{NAME}: {error}")),
    })?;
    serde_json::to_value(value).map_err(|error| failed(format!("{NAME}: {error}")))
}
