//! The actor: takes commands one by one and runs turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::approval::{ApproveAll, Approver};
use hermes_core::ask::Asker;
use hermes_core::event::{
    AgentCommand, AgentEvent, NoticeLevel, Setting, TurnExit, TurnSummary, UserInput,
};
use hermes_core::figures;
use hermes_core::ids::{RowId, SessionId, TurnId};
use hermes_core::message::{Message, WrittenBy};
use hermes_core::model::{ErrorClass, ModelClient, RouteError};
use hermes_core::store::{NewSession, SessionUpdate, StoreError, StoredSession};
use hermes_core::task;
use hermes_core::tool::{Registry, Taint};
use hermes_core::usage::{Cost, Usage};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command_queue::{CommandQueue, RunningWork};
use super::deps::{PromptContext, SessionDeps, SessionStart};
use super::naming::TitleTask;
use crate::compress::{CompactionCause, Compactor, ContextWindow};
use crate::context_files::DirectoryHints;
use crate::events::EventSink;
use crate::lean::PromptSize;
use crate::log::{Log, LogItem, Origin};
use crate::prompt;
use crate::spill;
use crate::subagent::missing_reports::mend;
use crate::tokens;
use crate::turn::outside::{self, ToolSpending};
use crate::turn::{RouteFixes, Turn, TurnCompaction, TurnConversation, TurnScope};
use crate::weight::ConversationMemory;

pub(super) struct SessionActor {
    deps: Arc<SessionDeps>,
    conv: TurnConversation,
    desk: CommandQueue,
    cancel: CancellationToken,
    background: TaskTracker,
    turns: u64,
    /// What the processes before this one left undone was looked at.
    mended: bool,
    /// The session has a title, or one is being made.
    titled: bool,
    warned_small: bool,
    /// What rewinds hid since the last turn, the latest last.
    undone: Vec<Vec<LogItem>>,
}

struct CloseOnDrop(EventSink);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl SessionActor {
    pub(super) fn new(
        deps: Arc<SessionDeps>,
        start: SessionStart,
        inbox: mpsc::Receiver<AgentCommand>,
        events: EventSink,
    ) -> Result<Self, RouteError> {
        let client = deps.router.primary()?;
        let (mended, titled) = match &start {
            SessionStart::New(_) => (true, false),
            SessionStart::Resume { session, .. } => (false, session.title.is_some()),
        };
        let conv = match start {
            SessionStart::New(new) => begin(&deps, client, *new),
            SessionStart::Resume { session, cwd } => resume(&deps, client, *session, cwd),
        };
        Ok(Self {
            cancel: deps.cancel.child_token(),
            conv,
            desk: CommandQueue {
                inbox,
                events,
                mailbox: super::steer::SteeringText::default(),
                informed: super::steer::SteeringText::default(),
                wake: false,
                spending: ToolSpending::default(),
                approvals: super::approvals::Approvals::default(),
                questions: super::questions::OpenQuestions::default(),
                queue: std::collections::VecDeque::new(),
                later: std::collections::VecDeque::new(),
                closing: false,
            },
            background: TaskTracker::new(),
            turns: 0,
            mended,
            titled: titled || !deps.settings.titles,
            warned_small: false,
            undone: Vec::new(),
            deps,
        })
    }

    pub(super) fn id(&self) -> &SessionId {
        &self.conv.id
    }

    pub(super) fn weight(&self) -> ConversationMemory {
        self.conv.log.weight()
    }

    /// Between turns a session only waits: what it does then is boxed, so that many can wait.
    pub(super) async fn run(mut self: Box<Self>) {
        // Whatever ends the actor ends its events, so that no reader waits forever.
        let _end = CloseOnDrop(self.desk.events.clone());
        self.sweep_spilled();
        while !self.desk.closing && !self.cancel.is_cancelled() {
            if let Some(command) = self.desk.later.pop_front() {
                Box::pin(self.handle_command(command)).await;
            } else if let Some(input) = self.desk.queue.pop_front() {
                self.desk.report_queue().await;
                Box::pin(self.turn(input)).await;
            } else {
                let command = tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => break,
                    command = self.desk.inbox.recv() => command,
                };
                match command {
                    Some(command) => Box::pin(self.handle_command(command)).await,
                    None => break,
                }
            }
        }
        self.close().await;
    }

    /// A command that arrives while nothing runs.
    async fn handle_command(&mut self, command: AgentCommand) {
        match command {
            AgentCommand::Submit(input) | AgentCommand::Queue(input) => self.turn(input).await,
            AgentCommand::Steer(text) => self.turn(text.as_str().into()).await,
            AgentCommand::Interrupt => {}
            AgentCommand::Answer { .. } | AgentCommand::Reply { .. } => {
                let text = "That question is no longer open.";
                self.notice(NoticeLevel::Info, text).await;
            }
            AgentCommand::Inform {
                headline,
                text,
                wakes,
            } => {
                self.desk.inform(headline, &text).await;
                if wakes && let Some(reports) = self.desk.informed.take() {
                    self.turn(reports.as_str().into()).await;
                }
            }
            AgentCommand::Compact { focus, keep } => self.compact(focus.as_deref(), keep).await,
            AgentCommand::SwitchRoute { model, provider } => {
                self.switch(&model, provider.as_deref()).await;
            }
            AgentCommand::Rewind { turns } => self.rewind(turns).await,
            AgentCommand::Restore => self.restore().await,
            AgentCommand::Set(setting) => self.set(setting),
            AgentCommand::Close => self.desk.closing = true,
        }
    }

    async fn turn(&mut self, mut input: UserInput) {
        self.turns += 1;
        self.undone.clear();
        let id = TurnId(self.turns);
        self.desk.events.set_turn(Some(id));
        self.settle_route().await;
        let deps = Arc::clone(&self.deps);
        let cancel = self.cancel.child_token();
        for text in self.prepare_tools(&cancel).await {
            self.notice(NoticeLevel::Warning, text).await;
        }
        let registry = deps.tools.registry();
        let ready = match self.settle_prompt(&registry).await {
            Ok(()) => self.mend(&mut input).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            self.fail_turn(&error).await;
            return;
        }
        if let Some(reports) = self.desk.informed.take() {
            let known = input.context.take().into_iter().chain([reports]);
            input.context = Some(known.collect::<Vec<_>>().join("\n\n"));
        }
        let approver: Arc<dyn Approver> = match &self.deps.approver {
            Some(approver) => Arc::clone(approver),
            None => Arc::new(
                self.desk
                    .approvals
                    .approver(self.desk.events.clone(), cancel.clone()),
            ),
        };
        let asker: Arc<dyn Asker> = match &self.deps.asker {
            Some(asker) => Arc::clone(asker),
            None => Arc::new(
                self.desk
                    .questions
                    .asker(self.desk.events.clone(), cancel.clone()),
            ),
        };
        let scope = TurnScope {
            id,
            deps: Arc::clone(&self.deps),
            events: self.desk.events.clone(),
            mailbox: self.desk.mailbox.clone(),
            informed: self.desk.informed.clone(),
            approver,
            asker,
            cancel: cancel.clone(),
            spending: self.desk.spending.clone(),
        };
        let turn = Turn::new(scope, &mut self.conv, registry).run(input);
        // Boxed: what a turn needs is given back when it ends, however long the session lives.
        let work = Box::pin(task::catch("turn", turn));
        match self.desk.attend(RunningWork::Turn, &cancel, work).await {
            Ok(summary) => {
                self.desk.events.set_turn(None);
                self.after_turn(summary).await;
            }
            // A bug of ours ends the turn, not the session.
            Err(panicked) => {
                self.end_turn(TurnExit::Failed {
                    class: ErrorClass::Unknown,
                    message: format!("internal error: {}", panicked.message),
                })
                .await;
            }
        }
    }

    /// Lets tools come and go before a turn. That may take its time: commands are attended to
    /// meanwhile; stopping the turn stops the wait.
    async fn prepare_tools(&mut self, cancel: &CancellationToken) -> Vec<String> {
        let tools = Arc::clone(&self.deps.tools);
        let prepared = async {
            tokio::select! {
                biased;
                told = tools.prepare() => told,
                () = cancel.cancelled() => Vec::new(),
            }
        };
        self.desk.attend(RunningWork::Turn, cancel, prepared).await
    }

    async fn after_turn(&mut self, summary: TurnSummary) {
        // A steer may have arrived between the summary and now.
        let late = self.desk.mailbox.take();
        let pending: Vec<String> = [summary.pending_steer, late]
            .into_iter()
            .flatten()
            .collect();
        let stopped = matches!(
            summary.exit,
            TurnExit::Interrupted | TurnExit::StoreFailed { .. }
        );
        if !pending.is_empty() && !stopped && !self.desk.closing {
            let input = UserInput::from(pending.join("\n").as_str());
            self.desk.queue.push_front(input);
            self.desk.report_queue().await;
        }
        let wake = std::mem::take(&mut self.desk.wake);
        if wake
            && !stopped
            && !self.desk.closing
            && let Some(reports) = self.desk.informed.take()
        {
            self.desk.enqueue(reports.as_str().into()).await;
        }
        if summary.exit == TurnExit::Answered {
            self.name_session(summary.text);
        }
    }

    /// Takes in what subagents did for a process that ended before it knew.
    async fn mend(&mut self, input: &mut UserInput) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.mended, true) {
            return Ok(());
        }
        let store = Arc::clone(&self.deps.store);
        let mended = mend(&self.conv.log, &self.conv.id, &*store).await?;
        let now = self.deps.clock.epoch_seconds();
        for result in mended.results {
            if outside::is_from_outside(&result.content.text()) {
                self.conv.taint.mark();
            }
            let item = LogItem::new(Message::Tool(result), Origin::Tool, now);
            self.conv.commit(&*store, item, None, None).await?;
        }
        if !mended.reports.is_empty() {
            if mended
                .reports
                .iter()
                .any(|report| outside::is_from_outside(report))
            {
                self.conv.taint.mark();
            }
            let known = input.context.take().into_iter().chain(mended.reports);
            input.context = Some(known.collect::<Vec<_>>().join("\n\n"));
        }
        Ok(())
    }

    /// A turn that could not begin still begins for whoever watches.
    async fn fail_turn(&mut self, error: &StoreError) {
        self.desk
            .events
            .emit(AgentEvent::TurnStarted {
                session: self.conv.id.clone(),
                route: self.conv.client.route().clone(),
            })
            .await;
        self.end_turn(TurnExit::StoreFailed {
            message: error.to_string(),
        })
        .await;
    }

    /// Reports the end of a turn that cannot do so itself. What was said meanwhile is treated as
    /// after any other turn.
    async fn end_turn(&mut self, exit: TurnExit) {
        let summary = TurnSummary {
            exit,
            text: String::new(),
            usage: Usage::default(),
            cost: Cost::Unknown,
            calls: 0,
            tool_calls: 0,
            millis: 0,
            pending_steer: self.desk.mailbox.take(),
        };
        self.desk
            .events
            .emit(AgentEvent::TurnFinished {
                summary: summary.clone(),
            })
            .await;
        self.desk.events.set_turn(None);
        self.after_turn(summary).await;
    }

    /// A turn starts on the primary route, whatever the one before fell back to.
    async fn settle_route(&mut self) {
        match self.deps.router.primary() {
            Ok(client) => {
                self.go_to(client, "the turn starts on the first choice")
                    .await;
            }
            Err(error) => {
                let text = format!(
                    "The configured model cannot be used ({error}); the previous one stays in use."
                );
                self.notice(NoticeLevel::Warning, text).await;
            }
        }
        let info = self.conv.client.info();
        if let Some(text) = PromptSize::for_model(info).warning(info.context_length)
            && !std::mem::replace(&mut self.warned_small, true)
        {
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Goes on with this client. `false`: it is the model that is in use already.
    async fn go_to(&mut self, client: Arc<dyn ModelClient>, why: &str) -> bool {
        let max_tokens = self.deps.settings.max_tokens;
        let Some(from) = self.conv.use_client(client, max_tokens) else {
            return false;
        };
        self.warned_small = false;
        self.desk
            .events
            .emit(AgentEvent::RouteChanged {
                from,
                to: self.conv.client.route().clone(),
                why: why.into(),
            })
            .await;
        true
    }

    /// Whether the prompt is one of ours and was made for a model that only chats, while this one
    /// acts, or the other way round. The model changed, so nothing cached is lost.
    fn prompt_is_for_others(&self) -> bool {
        let system = &self.conv.system;
        let chats = PromptSize::for_model(self.conv.client.info()) == PromptSize::Chat;
        prompt::told_date(system).is_some() && prompt::is_for_chat(system) != chats
    }

    /// Builds the system prompt of a session that has none that fits.
    async fn settle_prompt(&mut self, registry: &Registry) -> Result<(), StoreError> {
        if let Some(new) = &mut self.conv.unwritten {
            new.model
                .get_or_insert_with(|| self.conv.client.route().model.clone());
        }
        if !self.conv.system.is_empty() && !self.prompt_is_for_others() {
            return Ok(());
        }
        let deps = Arc::clone(&self.deps);
        let built = deps
            .prompt
            .build(PromptContext {
                session: &self.conv.id,
                source: &self.conv.source,
                route: self.conv.client.route(),
                model: self.conv.client.info(),
                registry,
                cwd: &self.conv.cwd,
            })
            .await;
        for text in built.notices {
            self.notice(NoticeLevel::Warning, text).await;
        }
        match &mut self.conv.unwritten {
            Some(new) => new.system_prompt = Some(built.text.clone()),
            None if built.text.is_empty() => {}
            None => {
                let update = SessionUpdate::SystemPrompt(built.text.clone());
                deps.store.update(&self.conv.id, update).await?;
            }
        }
        self.conv.system = built.text.into();
        Ok(())
    }

    async fn compact(&mut self, focus: Option<&str>, keep: Option<usize>) {
        if self.conv.log.is_empty() || self.conv.unwritten.is_some() {
            self.notice(NoticeLevel::Info, "There is nothing to compact yet.")
                .await;
            return;
        }
        let registry = self.deps.tools.registry();
        let specs = self.deps.tools.specs(&registry, self.conv.client.info());
        let overhead = tokens::text(&self.conv.system) + tokens::tools(&specs);
        let cancel = self.cancel.child_token();
        let events = self.desk.events.clone();
        let deps = Arc::clone(&self.deps);
        let compaction = TurnCompaction {
            deps: &deps,
            events: &events,
            cancel: &cancel,
            cause: CompactionCause::Manual,
            focus,
            keep,
            overhead,
        };
        let work = compaction.run(&mut self.conv);
        let done = self.desk.attend(RunningWork::Other, &cancel, work).await;
        let (level, text) = match done {
            Ok(applied) => match applied.result {
                Ok(()) => return,
                Err(unchanged) => (NoticeLevel::Info, unchanged.to_string()),
            },
            Err(error) => (NoticeLevel::Error, error.to_string()),
        };
        self.notice(level, text).await;
    }

    async fn switch(&mut self, model: &str, provider: Option<&str>) {
        let client = match self.deps.router.switch(model, provider) {
            Ok(client) => client,
            Err(error) => {
                self.notice(NoticeLevel::Error, error.to_string()).await;
                return;
            }
        };
        if !self.go_to(client, "you asked for it").await {
            // Whoever asked waits for a word.
            let route = self.conv.client.route();
            let text = format!("{} ({}) is in use already.", route.model, route.provider);
            self.notice(NoticeLevel::Info, text).await;
        }
        let model = self.conv.client.route().model.clone();
        if let Some(new) = &mut self.conv.unwritten {
            new.model = Some(model);
            return;
        }
        let update = SessionUpdate::Model {
            model,
            config: None,
        };
        if let Err(error) = self.deps.store.update(&self.conv.id, update).await {
            self.notice(NoticeLevel::Error, error.to_string()).await;
        }
    }

    async fn rewind(&mut self, turns: usize) {
        let Some((at, row)) = self.conv.log.start_of_last_turns(turns) else {
            self.notice(NoticeLevel::Info, "There is nothing to undo.")
                .await;
            return;
        };
        match self.deps.store.rewind(&self.conv.id, row).await {
            Ok(rows) => {
                self.undone.push(self.conv.log.split_off(at));
                // What was read in them the model does not know any more.
                self.deps.tools.compacted();
                let text = match rows {
                    1 => "Undone: 1 message is hidden.".to_owned(),
                    rows => format!("Undone: {rows} messages are hidden."),
                };
                self.notice(NoticeLevel::Info, text).await;
            }
            Err(error) => self.notice(NoticeLevel::Error, error.to_string()).await,
        }
    }

    async fn restore(&mut self) {
        let Some(items) = self.undone.pop() else {
            self.notice(NoticeLevel::Info, "There is nothing to bring back.")
                .await;
            return;
        };
        let rows: Vec<RowId> = items.iter().filter_map(|item| item.row).collect();
        let count = rows.len();
        let update = SessionUpdate::Restore { rows };
        match self.deps.store.update(&self.conv.id, update).await {
            Ok(()) => {
                for item in items {
                    self.conv.log.push(item);
                }
                let text = format!("Restored {}.", figures::count(count, "message"));
                self.notice(NoticeLevel::Info, text).await;
            }
            Err(error) => {
                self.undone.push(items);
                self.notice(NoticeLevel::Error, error.to_string()).await;
            }
        }
    }

    fn set(&mut self, setting: Setting) {
        let deps = Arc::make_mut(&mut self.deps);
        match setting {
            Setting::Reasoning(effort) => deps.settings.reasoning = effort,
            Setting::ApproveAll(true) => deps.approver = Some(Arc::new(ApproveAll)),
            Setting::ApproveAll(false) => deps.approver = None,
        }
    }

    /// Has the session named in the background, once.
    fn name_session(&mut self, answer: String) {
        if self.titled {
            return;
        }
        let first =
            self.conv
                .log
                .items()
                .iter()
                .find_map(|item| match (&*item.message, item.origin) {
                    (Message::User(user), Origin::Person) => Some(user.content.text().into_owned()),
                    _ => None,
                });
        let Some(user) = first else {
            return;
        };
        self.titled = true;
        let naming = TitleTask {
            deps: Arc::clone(&self.deps),
            events: self.desk.events.clone(),
            cancel: self.cancel.child_token(),
            session: self.conv.id.clone(),
            client: Arc::clone(&self.conv.client),
            user,
            answer,
        };
        let work = self.background.track_future(naming.run());
        let _detached = task::spawn("title", work);
    }

    fn sweep_spilled(&self) {
        let Some(dir) = self.deps.settings.tools.spill_dir.clone() else {
            return;
        };
        let now = self.deps.clock.now().into();
        if !spill::is_due(&dir, now) {
            return;
        }
        let work = async move {
            let _ = tokio::task::spawn_blocking(move || spill::sweep(&dir, now)).await;
        };
        let _detached = task::spawn("sweep", self.background.track_future(work));
    }

    async fn close(self: Box<Self>) {
        if !self.desk.queue.is_empty() {
            let waiting = self.desk.queue.len();
            let text = format!("{waiting} waiting messages were not read.");
            self.notice(NoticeLevel::Warning, text).await;
        }
        self.background.close();
        let grace = self.deps.settings.close_grace;
        if tokio::time::timeout(grace, self.background.wait())
            .await
            .is_err()
        {
            tracing::warn!("background work was given up");
        }
        self.cancel.cancel();
        self.desk.events.emit(AgentEvent::Closed).await;
    }

    async fn notice(&self, level: NoticeLevel, text: impl Into<String>) {
        self.desk.events.notice(level, text).await;
    }
}

fn compactor(deps: &SessionDeps, client: &Arc<dyn ModelClient>) -> Compactor {
    let window = ContextWindow {
        context: client.info().context_length,
        max_tokens: deps.settings.max_tokens,
    };
    let settings = deps.settings.compression.clone();
    Compactor::new(settings, window, Arc::clone(&deps.clock))
}

fn taint(deps: &SessionDeps) -> Taint {
    deps.settings.taint.clone().unwrap_or_default()
}

fn hints(deps: &SessionDeps, cwd: &Path) -> DirectoryHints {
    let home = deps.settings.user_home.as_deref();
    DirectoryHints::new(cwd, home, deps.settings.directory_hints)
}

fn begin(
    deps: &SessionDeps,
    client: Arc<dyn ModelClient>,
    mut new: NewSession,
) -> TurnConversation {
    let id = new.id.get_or_insert_with(|| new_id(deps)).clone();
    let system = new.system_prompt.clone().unwrap_or_default().into();
    let cwd = new.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
    let hints = hints(deps, &cwd);
    TurnConversation {
        id,
        source: new.source.clone(),
        cwd,
        log: Log::default(),
        system,
        compactor: compactor(deps, &client),
        client,
        fixes: RouteFixes::default(),
        unwritten: Some(Box::new(new)),
        reopen: false,
        context_used: 0,
        told_route: None,
        told_day: None,
        taint: taint(deps),
        hints,
    }
}

fn resume(
    deps: &SessionDeps,
    client: Arc<dyn ModelClient>,
    mut session: StoredSession,
    cwd: PathBuf,
) -> TurnConversation {
    name_writers(&mut session);
    let taint = taint(deps);
    if outside::read_before(&session.items) {
        taint.mark();
    }
    let mut compactor = compactor(deps, &client);
    compactor.restore(session.compacted_before, session.compaction_cooldown_until);
    let hints = hints(deps, &cwd);
    TurnConversation {
        id: session.id,
        source: session.source,
        cwd,
        log: Log::from_stored(session.items),
        system: session.system_prompt.unwrap_or_default().into(),
        compactor,
        client,
        fixes: RouteFixes::default(),
        unwritten: None,
        reopen: session.ended,
        context_used: 0,
        told_route: None,
        told_day: None,
        taint,
        hints,
    }
}

/// Rows of the original do not say which model wrote them: it was the session's, as far as that is
/// known.
fn name_writers(session: &mut StoredSession) {
    let of_session = session
        .billing_provider
        .as_ref()
        .zip(session.model.as_ref())
        .map(|(provider, model)| WrittenBy {
            provider: provider.clone(),
            model: model.clone(),
        });
    for item in &mut session.items {
        let Message::Assistant(message) = &mut item.message else {
            continue;
        };
        if message.written_by.is_none() {
            message.written_by = of_session.clone().map(Box::new);
        }
        let issuer = message.written_by.as_ref().map(|by| by.provider.clone());
        for blob in &mut message.blobs {
            if blob.issuer.is_none() {
                blob.issuer = issuer.clone().or_else(|| session.billing_provider.clone());
            }
        }
    }
}

/// Day, time and a few random digits, as other programs on the same home name sessions.
fn new_id(deps: &SessionDeps) -> SessionId {
    let now = deps.clock.now().format("%Y%m%d_%H%M%S");
    let random = deps.rng.next_u64() & 0xFF_FFFF;
    SessionId::new(format!("{now}_{random:06x}"))
}
