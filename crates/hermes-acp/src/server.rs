//! The agent's side of the protocol: requests of an editor, answered.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthMethodTerminal, AuthenticateRequest, AuthenticateResponse,
    CancelNotification, ClientCapabilities, CloseSessionRequest, CloseSessionResponse,
    Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, McpCapabilities, McpServer,
    NewSessionRequest, NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities,
    SessionInfo, SessionListCapabilities, SessionResumeCapabilities, SetSessionModeRequest,
    SetSessionModeResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, ErrorCode, JsonRpcResponse};
use futures_util::future::join_all;
use hermes_app::{ConversationHost, ListQuery, OpeningRequest, OwnServer, ServerAddress};
use hermes_core::command_host::CommandHost;
use hermes_core::event::NoticeLevel;
use hermes_core::front_end::TranscriptEntry;
use hermes_core::task;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::editor_texts::EditorTexts;
use crate::edits::Edits;
use crate::mode::EditorMode;
use crate::session::{
    self, EditorRequest, EditorSession, ORDER_QUEUE_CAPACITY, PendingPrompt, PromptResponder,
    SessionParts, SetModelRequest, SetModelResponse, UpdateSink,
};
use crate::terminals::EditorTerminals;
use crate::updates;
use crate::wire::{self, OutputBacklog};

/// Conversations that may be open at once.
const MAX_OPEN_SESSIONS: usize = 64;
/// Stored conversations per page.
const PAGE_SIZE: usize = 50;
/// How long output may still be written after the editor has closed its side.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The one way to log in: choosing a model in a terminal.
const SETUP: &str = "setup";

/// How long a request may still take after the editor has disconnected.
const REQUEST_GRACE: Duration = Duration::from_secs(10);

/// Serves one editor until it closes its end, or `stop` is cancelled. When this returns, every
/// conversation has ended.
pub async fn serve<R, W>(
    host: Arc<dyn ConversationHost>,
    (name, version): (&'static str, &'static str),
    (input, output): (R, W),
    stop: CancellationToken,
) -> Result<(), Error>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let shared = Arc::new(AcpState {
        host,
        about: (name, version),
        gauge: Arc::default(),
        client: Mutex::default(),
        newer: AtomicBool::new(false),
        open: Mutex::default(),
        tasks: TaskTracker::new(),
        stop: stop.child_token(),
    });
    let ended = CancellationToken::new();
    let gauge = Arc::clone(&shared.gauge);
    let transport = wire::lines(input, output, gauge, ended.clone());
    let served = serve_lines(Arc::clone(&shared), transport);
    // An editor that no longer reads must not block us.
    let leaving = async {
        ended.cancelled().await;
        shared.stop.cancel();
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    let outcome = tokio::select! {
        outcome = served => outcome,
        () = leaving => Ok(()),
        () = stop.cancelled() => Ok(()),
    };
    shared.close().await;
    outcome
}

async fn serve_lines(
    shared: Arc<AcpState>,
    transport: impl agent_client_protocol::ConnectTo<Agent> + 'static,
) -> Result<(), Error> {
    let [greeted, checked, started, loaded, resumed] = [(); 5].map(|()| Arc::clone(&shared));
    let [listed, prompted, switched, chosen, closed] = [(); 5].map(|()| Arc::clone(&shared));
    let agent = Agent.v1().name(shared.about.0);
    agent
        .on_receive_request(
            async move |request: InitializeRequest, responder, _: ConnectionTo<Client>| {
                responder.respond(greeted.initialize(request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: AuthenticateRequest, responder, _: ConnectionTo<Client>| {
                responder.respond_with_result(checked.authenticate(&request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, cx| {
                started.new_session(request, responder, cx);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, cx| {
                loaded.load_session(request, responder, cx);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, cx| {
                resumed.resume_session(request, responder, cx);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _: ConnectionTo<Client>| {
                listed.list_sessions(request, responder);
                Ok(())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _: ConnectionTo<Client>| {
                prompted.prompt(request, responder)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionModeRequest, responder, _: ConnectionTo<Client>| {
                responder.respond_with_result(switched.set_mode(&request))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetModelRequest, responder, _: ConnectionTo<Client>| {
                chosen.set_model(&request, responder)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, _: ConnectionTo<Client>| {
                closed.close_session(&request, responder)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _: ConnectionTo<Client>| {
                shared.cancel(&request);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(transport)
        .await
}

struct AcpState {
    host: Arc<dyn ConversationHost>,
    about: (&'static str, &'static str),
    gauge: Arc<OutputBacklog>,
    client: Mutex<Arc<ClientCapabilities>>,
    /// The editor supports newer kinds of updates.
    newer: AtomicBool,
    open: Mutex<HashMap<String, OpenEditorSession>>,
    /// Requests that are being answered.
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A conversation that is open.
struct OpenEditorSession {
    orders: mpsc::Sender<EditorRequest>,
    edits: Edits,
    stop: CancellationToken,
    done: JoinHandle<Result<(), task::Panicked>>,
}

/// An opened session.
struct StartedSession {
    id: String,
    mode: EditorMode,
    outlet: UpdateSink,
    past: Vec<TranscriptEntry>,
    title: Option<String>,
    remarks: Vec<String>,
}

impl AcpState {
    fn open(&self) -> MutexGuard<'_, HashMap<String, OpenEditorSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> MutexGuard<'_, Arc<ClientCapabilities>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn initialize(&self, request: InitializeRequest) -> InitializeResponse {
        let terminal = request.client_capabilities.auth.terminal;
        self.newer
            .store(updates::is_newer(&request), Ordering::Relaxed);
        *self.client() = Arc::new(request.client_capabilities);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
            .session_capabilities(sessions);
        let mut methods = Vec::new();
        if terminal {
            let setup = AuthMethodTerminal::new(SETUP, "Set up a model")
                .description("Opens hermes setup in a terminal".to_owned())
                .args(vec!["--setup".to_owned()]);
            methods.push(AuthMethod::Terminal(setup));
        }
        let (name, version) = self.about;
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(methods)
            .agent_info(Implementation::new(name, version).title("Hermes".to_owned()))
    }

    /// Succeeds for an offered method once a model is configured.
    fn authenticate(&self, request: &AuthenticateRequest) -> Result<AuthenticateResponse, Error> {
        let offered = self.client().auth.terminal;
        if !offered || &*request.method_id.0 != SETUP {
            let there = if offered { SETUP } else { "none" };
            let text = format!(
                "no authentication method {:?}; offered: {there}. Run hermes setup in a terminal",
                request.method_id.0
            );
            return Err(session::invalid(text));
        }
        self.host.ready().map_err(|why| session::error(&why))?;
        Ok(AuthenticateResponse::new())
    }

    fn new_session(
        self: &Arc<Self>,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
        cx: ConnectionTo<Client>,
    ) {
        let this = Arc::clone(self);
        self.answer("acp new", async move {
            let opening = this.opening(request.cwd, None, request.mcp_servers);
            let started = this.begin(opening, cx).await;
            let response = started.as_ref().map(|started| {
                NewSessionResponse::new(started.id.clone()).modes(started.mode.state())
            });
            respond(responder, response.map_err(Clone::clone));
            if let Ok(started) = started {
                this.send_initial_updates(&started).await;
            }
        });
    }

    fn load_session(
        self: &Arc<Self>,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
        cx: ConnectionTo<Client>,
    ) {
        let this = Arc::clone(self);
        self.answer("acp load", async move {
            let id = request.session_id.0.to_string();
            let opening = this.opening(request.cwd.clone(), Some(id), request.mcp_servers);
            let started = this.begin(opening, cx).await;
            if let Ok(started) = &started {
                // Everything before the response, so that the editor knows where the history ends.
                for update in updates::past(&started.past, &request.cwd) {
                    started.outlet.update(update).await;
                }
            }
            let response = started
                .as_ref()
                .map(|started| LoadSessionResponse::new().modes(started.mode.state()));
            respond(responder, response.map_err(Clone::clone));
            if let Ok(started) = started {
                this.send_initial_updates(&started).await;
            }
        });
    }

    fn resume_session(
        self: &Arc<Self>,
        request: ResumeSessionRequest,
        responder: Responder<ResumeSessionResponse>,
        cx: ConnectionTo<Client>,
    ) {
        let this = Arc::clone(self);
        self.answer("acp resume", async move {
            let id = request.session_id.0.to_string();
            let opening = this.opening(request.cwd, Some(id), request.mcp_servers);
            let started = this.begin(opening, cx).await;
            let response = started
                .as_ref()
                .map(|started| ResumeSessionResponse::new().modes(started.mode.state()));
            respond(responder, response.map_err(Clone::clone));
            if let Ok(started) = started {
                this.send_initial_updates(&started).await;
            }
        });
    }

    fn opening(
        &self,
        cwd: PathBuf,
        resume: Option<String>,
        servers: Vec<McpServer>,
    ) -> Result<OpeningRequest, Error> {
        self.host.ready().map_err(|why| session::error(&why))?;
        if !cwd.is_absolute() || !cwd.is_dir() {
            let text = format!(
                "cwd is not an absolute path of a directory: {}",
                cwd.display()
            );
            return Err(session::invalid(text));
        }
        Ok(OpeningRequest {
            cwd: Some(cwd),
            resume,
            servers: servers.into_iter().map(server).collect::<Result<_, _>>()?,
            ..OpeningRequest::default()
        })
    }

    /// Opens a conversation and starts its task.
    async fn begin(
        self: &Arc<Self>,
        opening: Result<OpeningRequest, Error>,
        connection: ConnectionTo<Client>,
    ) -> Result<StartedSession, Error> {
        let mut opening = opening?;
        if let Some(id) = &opening.resume {
            // An editor that opens it again has forgotten that it is open.
            self.end(id).await;
        }
        if self.open().len() >= MAX_OPEN_SESSIONS {
            let text = format!("{MAX_OPEN_SESSIONS} conversations are open; close some first");
            return Err(Error::new(ErrorCode::INVALID_REQUEST, text));
        }
        let (cwd, edits) = (opening.cwd.clone().unwrap_or_default(), Edits::default());
        let client = Arc::clone(&self.client());
        let side = (connection.clone(), Arc::clone(&self.gauge));
        let texts = EditorTexts::new(side, &client, &cwd);
        if let Some(texts) = &texts {
            edits.share(Arc::clone(texts));
        }
        opening.open_texts = edits.open_texts();
        let terminals = EditorTerminals::new(connection.clone(), &client);
        opening.command_host = terminals
            .clone()
            .map(|terminals| -> Arc<dyn CommandHost> { terminals });
        let guarding = edits.clone();
        opening.guard = Some(Arc::new(move |tool, local| guarding.guard(tool, local)));
        let asked_for = opening.resume.clone();
        let opened = self.host.open(opening).await;
        let opened = opened.map_err(|why| session::error(&why))?;
        if opened.approvals_off {
            edits.set_mode(EditorMode::DontAsk);
        }
        // The editor keeps using the id that it knows.
        let id = asked_for.unwrap_or(opened.id);
        if let Some(texts) = &texts {
            texts.opened(&id);
        }
        let outlet = UpdateSink {
            session: id.clone(),
            connection,
            gauge: Arc::clone(&self.gauge),
            client,
            newer: self.newer.load(Ordering::Relaxed),
        };
        if let Some(terminals) = &terminals {
            terminals.opened(outlet.clone());
        }
        let (orders, receiver) = mpsc::channel(ORDER_QUEUE_CAPACITY);
        let stop = self.stop.child_token();
        let session = EditorSession::new(SessionParts {
            outlet: outlet.clone(),
            cwd,
            edits: edits.clone(),
            terminals,
            spent: opened.cost,
            orders: receiver,
            answers: orders.downgrade(),
            conversation: opened.conversation,
            stop: stop.clone(),
        });
        let mode = edits.mode();
        let open = OpenEditorSession {
            orders,
            edits,
            stop,
            done: task::spawn("acp session", session.run()),
        };
        self.open().insert(id.clone(), open);
        Ok(StartedSession {
            id,
            mode,
            outlet,
            past: opened.past,
            title: opened.title,
            remarks: opened.remarks,
        })
    }

    /// The initial updates once the editor knows the session id.
    async fn send_initial_updates(&self, started: &StartedSession) {
        let outlet = &started.outlet;
        let commands = self.host.commands();
        outlet.update(updates::commands(commands)).await;
        if let Some(title) = &started.title {
            outlet.update(updates::title(title)).await;
        }
        for remark in &started.remarks {
            outlet.notice(NoticeLevel::Warning, remark).await;
        }
    }

    fn list_sessions(
        self: &Arc<Self>,
        request: ListSessionsRequest,
        responder: Responder<ListSessionsResponse>,
    ) {
        let this = Arc::clone(self);
        self.answer("acp list", async move {
            respond(responder, this.listed(request).await);
        });
    }

    async fn listed(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        let offset = match &request.cursor {
            None => 0,
            Some(cursor) => cursor
                .parse()
                .map_err(|_| session::invalid("invalid cursor"))?,
        };
        let query = ListQuery {
            cwd: request.cwd,
            offset,
            // One more, to find out whether there are more.
            limit: PAGE_SIZE + 1,
        };
        let listed = self.host.list(query).await;
        let mut listed = listed.map_err(|why| session::error(&why))?;
        let more = listed.len() > PAGE_SIZE;
        listed.truncate(PAGE_SIZE);
        let info = listed.into_iter().map(|row| {
            SessionInfo::new(row.id, row.cwd)
                .title(row.title)
                .updated_at(row.updated_at)
        });
        let next = more.then(|| (offset + PAGE_SIZE).to_string());
        Ok(ListSessionsResponse::new(info.collect()).next_cursor(next))
    }

    fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
    ) -> Result<(), Error> {
        let orders = match self.orders(&request.session_id.0) {
            Ok(orders) => orders,
            Err(error) => return responder.respond_with_error(error),
        };
        let cancelled = responder.cancellation();
        let end_guard = CancellationToken::new();
        let watched = end_guard.clone();
        let prompt = Box::new(PendingPrompt {
            responder: PromptResponder::Prompt(responder),
            end_guard: end_guard.drop_guard(),
        });
        let blocks = request.prompt;
        match orders.try_send(EditorRequest::Prompt { blocks, prompt }) {
            Ok(()) => {
                // `$/cancel_request` for a prompt means what `session/cancel` means.
                task::spawn("acp cancel", async move {
                    tokio::select! {
                        () = watched.cancelled() => {}
                        () = cancelled.cancelled() => drop(orders.try_send(EditorRequest::Cancel)),
                    }
                });
            }
            Err(refused) => {
                if let EditorRequest::Prompt { prompt, .. } = refused.into_inner() {
                    prompt.answer(Err(session::busy()));
                }
            }
        }
        Ok(())
    }

    fn set_model(
        &self,
        request: &SetModelRequest,
        responder: Responder<SetModelResponse>,
    ) -> Result<(), Error> {
        let orders = match self.orders(&request.session_id) {
            Ok(orders) => orders,
            Err(error) => return responder.respond_with_error(error),
        };
        let model = request.model_id.trim().to_owned();
        if model.is_empty() || model.contains(char::is_whitespace) {
            let text = format!("{:?} is not a model name", request.model_id);
            return responder.respond_with_error(session::invalid(text));
        }
        let prompt = Box::new(PendingPrompt {
            responder: PromptResponder::Model(responder),
            end_guard: CancellationToken::new().drop_guard(),
        });
        if let Err(refused) = orders.try_send(EditorRequest::SetModel { model, prompt })
            && let EditorRequest::SetModel { prompt, .. } = refused.into_inner()
        {
            prompt.answer(Err(session::busy()));
        }
        Ok(())
    }

    fn set_mode(&self, request: &SetSessionModeRequest) -> Result<SetSessionModeResponse, Error> {
        let id = &request.session_id.0;
        let Some(mode) = EditorMode::of(&request.mode_id.0) else {
            let known = EditorMode::ALL.map(EditorMode::id).join(", ");
            let text = format!("no mode {:?}; there are: {known}", request.mode_id.0);
            return Err(session::invalid(text));
        };
        let open = self.open();
        let session = open.get(&**id).ok_or_else(|| not_open(id))?;
        session.edits.set_mode(mode);
        Ok(SetSessionModeResponse::new())
    }

    fn close_session(
        self: &Arc<Self>,
        request: &CloseSessionRequest,
        responder: Responder<CloseSessionResponse>,
    ) -> Result<(), Error> {
        let id = request.session_id.0.to_string();
        if !self.open().contains_key(&id) {
            return responder.respond_with_error(not_open(&id));
        }
        let this = Arc::clone(self);
        self.answer("acp close", async move {
            this.end(&id).await;
            respond(responder, Ok(CloseSessionResponse::new()));
        });
        Ok(())
    }

    fn cancel(&self, request: &CancelNotification) {
        // A session that is not open has nothing to cancel.
        if let Ok(orders) = self.orders(&request.session_id.0) {
            let _ = orders.try_send(EditorRequest::Cancel);
        }
    }

    fn orders(&self, id: &str) -> Result<mpsc::Sender<EditorRequest>, Error> {
        let open = self.open();
        // A broken one stays in the list until it is opened again.
        let session = open.get(id).filter(|open| !open.orders.is_closed());
        let session = session.ok_or_else(|| not_open(id))?;
        Ok(session.orders.clone())
    }

    /// Ends a conversation, if it is open.
    async fn end(&self, id: &str) {
        let open = self.open().remove(id);
        if let Some(open) = open {
            open.stop.cancel();
            // A panic in it was reported already.
            let _ = open.done.await;
        }
    }

    /// Answers a request beside the others.
    fn answer(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        drop(task::spawn(name, self.tasks.track_future(work)));
    }

    async fn close(&self) {
        self.stop.cancel();
        // A conversation that is being opened is added to the list first.
        self.tasks.close();
        if tokio::time::timeout(REQUEST_GRACE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("a request of the editor takes long to end");
        }
        let open = std::mem::take(&mut *self.open());
        join_all(open.into_values().map(|open| open.done)).await;
    }
}

fn not_open(id: &str) -> Error {
    let text = format!("the session {id} is not open; session/load opens it");
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, text)
}

fn respond<T: JsonRpcResponse>(responder: Responder<T>, response: Result<T, Error>) {
    if let Err(error) = responder.respond_with_result(response) {
        tracing::debug!("a request is not answered: {error}");
    }
}

/// A server as the editor names it.
fn server(server: McpServer) -> Result<OwnServer, Error> {
    let (name, address) = match server {
        McpServer::Stdio(server) => {
            let env = server.env.into_iter().map(|v| (v.name, v.value)).collect();
            let address = ServerAddress::Stdio {
                command: server.command,
                args: server.args,
                env,
            };
            (server.name, address)
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|h| (h.name, h.value));
            let address = ServerAddress::Http {
                url: server.url,
                headers: headers.collect(),
            };
            (server.name, address)
        }
        McpServer::Sse(server) => {
            let headers = server.headers.into_iter().map(|h| (h.name, h.value));
            let address = ServerAddress::Sse {
                url: server.url,
                headers: headers.collect(),
            };
            (server.name, address)
        }
        _ => {
            return Err(session::invalid(
                "an MCP server is reached in a way that is not known here",
            ));
        }
    };
    Ok(OwnServer { name, address })
}
