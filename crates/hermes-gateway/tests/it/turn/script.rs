//! A program whose model remembers only what is in the transcript, as a real one does: it answers
//! every message that the transcript has and that no answer followed.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::prompt::{STEER_CLOSE, STEER_OPEN, steer_block};
use hermes_app::wiring::{CommandLine, CommandOutput};
use hermes_app::{
    CommandFollowUp, ConversationHost, ConversationRequest, ConversationUpdate, HostError,
    OpenedConversation, OpeningRequest,
};
use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Rule, Verdict};
use hermes_core::ask::{Answer, Choice, Question, Want};
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, TurnExit, TurnSummary, UserInput};
use hermes_core::ids::SessionId;
use hermes_core::message::{AssistantMessage, Message, ToolCall};
use hermes_core::store::{NewItem, NewSession, SessionStore as _};
use hermes_core::task;
use hermes_platforms::Offer;
use hermes_store::Store;
use tokio::sync::{Notify, mpsc};

use crate::fake_conversation;
use crate::harness::Fuse;

pub(crate) struct ScriptedHost {
    pub store: Store,
    pub fuse: Fuse,
    /// Turns that wait for this before they end.
    pub gate: Arc<Notify>,
    pub opened: Mutex<Vec<OpeningRequest>>,
    /// Subagents work, and whoever reads the news has read that.
    pub delegated: Arc<AtomicBool>,
    /// Words in between that turns have taken.
    pub steered: Arc<AtomicUsize>,
    /// What is asked for where words say "permit": all lines at the same time.
    pub action: Arc<Mutex<String>>,
    /// Quick commands that were begun; they end when the gate opens.
    pub lines: Mutex<Vec<String>>,
}

impl ScriptedHost {
    pub(crate) fn new(store: Store, fuse: Fuse) -> Arc<Self> {
        Arc::new(Self {
            store,
            fuse,
            gate: Arc::new(Notify::new()),
            opened: Mutex::default(),
            delegated: Arc::default(),
            steered: Arc::default(),
            action: Arc::new(Mutex::new("rm -rf /tmp/x".to_owned())),
            lines: Mutex::default(),
        })
    }
}

impl ConversationHost for ScriptedHost {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        Box::pin(async move {
            let (opened, side) = fake_conversation::open(&opening.id);
            let conversation = ScriptedConversation {
                store: self.store.clone(),
                fuse: self.fuse.clone(),
                gate: Arc::clone(&self.gate),
                delegated: Arc::clone(&self.delegated),
                steered: Arc::clone(&self.steered),
                action: Arc::clone(&self.action),
                id: SessionId::new(opening.id.clone()),
                orders: side.requests,
                updates: side.updates,
                steers: VecDeque::new(),
                begun: false,
                source: opening.source.clone(),
                user: opening.user_id.clone(),
                history: opening.history.clone(),
            };
            self.opened.lock().unwrap().push(opening);
            drop(task::spawn("conversation", conversation.run()));
            Ok(opened)
        })
    }

    fn run_line(&self, line: CommandLine) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        Box::pin(async move {
            self.lines.lock().unwrap().push(line.command.clone());
            self.gate.notified().await;
            Ok(CommandOutput {
                status: Some(0),
                output: format!("did {}", line.command),
                errors: String::new(),
            })
        })
    }

    fn commands(&self) -> Vec<Offer> {
        let offer = |name: &str| Offer {
            name: name.to_owned(),
            about: format!("does {name}"),
            args: None,
        };
        vec![offer("usage"), offer("poem")]
    }
}

struct ScriptedConversation {
    store: Store,
    fuse: Fuse,
    gate: Arc<Notify>,
    delegated: Arc<AtomicBool>,
    steered: Arc<AtomicUsize>,
    action: Arc<Mutex<String>>,
    id: SessionId,
    orders: mpsc::Receiver<ConversationRequest>,
    updates: mpsc::Sender<ConversationUpdate>,
    steers: VecDeque<String>,
    begun: bool,
    source: String,
    user: Option<String>,
    history: Vec<Message>,
}

/// How a turn ends early.
enum EarlyEnd {
    Interrupted,
    Closed,
}

impl ScriptedConversation {
    async fn run(mut self) {
        while let Some(request) = self.orders.recv().await {
            let input: UserInput = match request {
                ConversationRequest::Input(input) => input,
                ConversationRequest::Agent(AgentCommand::Steer(text)) => text.as_str().into(),
                ConversationRequest::Slash(line) => {
                    self.tell(ConversationUpdate::Text {
                        level: NoticeLevel::Info,
                        text: format!("ran {line}"),
                        columns: false,
                    })
                    .await;
                    if !line.starts_with("/poem") {
                        self.tell(ConversationUpdate::CommandEnded(CommandFollowUp::Nothing))
                            .await;
                        continue;
                    }
                    self.tell(ConversationUpdate::CommandEnded(CommandFollowUp::Turn))
                        .await;
                    "roses are red".into()
                }
                _ => continue,
            };
            if !self.turns(input).await {
                return;
            }
        }
    }

    /// A turn, and those that begin with what came too late for the one before. `false`: nobody
    /// listens any more.
    async fn turns(&mut self, input: UserInput) -> bool {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let Some(late) = self.turn(input).await else {
                return false;
            };
            next = late.map(|text| text.as_str().into());
        }
        true
    }

    async fn tell(&self, update: ConversationUpdate) {
        let _ = self.updates.send(update).await;
    }

    async fn event(&self, event: AgentEvent) {
        self.tell(ConversationUpdate::Event(event)).await;
    }

    async fn commit(&mut self, message: Message, platform_message_id: Option<String>) {
        self.fuse.tick().await;
        if !self.begun {
            let new = NewSession {
                id: Some(self.id.clone()),
                source: self.source.clone(),
                user_id: self.user.clone(),
                ..NewSession::default()
            };
            self.store.begin(new).await.unwrap();
            self.begun = true;
            for message in std::mem::take(&mut self.history) {
                self.append(message, None).await;
            }
        }
        self.append(message, platform_message_id).await;
        self.fuse.tick().await;
    }

    async fn append(&self, message: Message, platform_message_id: Option<String>) {
        let item = NewItem {
            message,
            at: 2_000_000_000.0,
            token_count: None,
            platform_message_id,
        };
        self.store.append(&self.id, vec![item]).await.unwrap();
    }

    /// One turn. `None`: nobody listens any more. The words that came too late are returned.
    async fn turn(&mut self, input: UserInput) -> Option<Option<String>> {
        self.event(AgentEvent::TurnStarted {
            session: self.id.clone(),
            route: fake_conversation::route(),
        })
        .await;
        let words = input.text.clone();
        let mut shown = input.text.clone();
        if let Some(context) = &input.context {
            shown = format!("{shown}\n{context}");
        }
        if !input.images.is_empty() {
            shown = format!("{shown} +{} images", input.images.len());
        }
        self.commit(Message::user(shown), input.platform_message_id)
            .await;
        let again = words.starts_with("[The gateway stopped");
        let words = if again {
            // As a model would: from what it reads above.
            let open = self.answer().await;
            open.replace("slow", "")
                .replace("crash", "")
                .replace("hang", "")
        } else {
            words
        };
        let worked = self.work(&words).await;
        let (exit, text) = match worked {
            Ok(_) if words == "break down" => {
                let why = "nothing came".to_owned();
                (TurnExit::NoAnswer { why }, String::new())
            }
            Ok(text) => (TurnExit::Answered, text),
            Err(EarlyEnd::Interrupted) => (TurnExit::Interrupted, String::new()),
            Err(EarlyEnd::Closed) => return None,
        };
        if exit == TurnExit::Answered {
            self.commit(Message::assistant(text.clone()), None).await;
        }
        self.take_orders();
        let late = self.steers.drain(..).collect::<Vec<_>>().join("\n");
        let late = Some(late).filter(|late| !late.is_empty());
        let interrupted = exit == TurnExit::Interrupted;
        self.event(AgentEvent::TurnFinished {
            summary: TurnSummary {
                pending_steer: late.clone(),
                ..fake_conversation::summary(exit, text)
            },
        })
        .await;
        Some(late.filter(|_| !interrupted))
    }

    /// What the words ask for, and then the answer.
    async fn work(&mut self, words: &str) -> Result<String, EarlyEnd> {
        let mut extra = String::new();
        if words.contains("hang") {
            // Does not hear that it should stop.
            std::future::pending::<()>().await;
        }
        if words.contains("slow") {
            self.wait().await?;
        }
        if words.contains("tool") || words.contains("slow") {
            self.tool().await;
        }
        if let Some(path) = words.strip_prefix("give ") {
            return Ok(format!("MEDIA:{path}"));
        }
        if words.contains("delegate") {
            self.delegate().await?;
        }
        if words.contains("permit") {
            extra = format!(" {}", self.permit().await?);
        }
        if words.contains("clarify") {
            extra = format!(" {:?}", self.clarify().await?);
        }
        if words.contains("silent") {
            return Ok("NO_REPLY".to_owned());
        }
        if words.contains("stream") {
            for part in [
                "The beginning of a longer answer, ",
                "its middle, ",
                "and its end.",
            ] {
                let text = part.to_owned();
                self.event(AgentEvent::TextDelta { text }).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            if words.contains("crash") {
                self.wait().await?;
            }
        }
        Ok(format!("{}{extra}", self.answer().await))
    }

    /// Until the gate opens. Steers are collected meanwhile.
    async fn wait(&mut self) -> Result<(), EarlyEnd> {
        let gate = Arc::clone(&self.gate);
        let open = gate.notified();
        tokio::pin!(open);
        loop {
            tokio::select! {
                () = &mut open => return Ok(()),
                request = self.orders.recv() => match request {
                    None => return Err(EarlyEnd::Closed),
                    Some(ConversationRequest::Agent(AgentCommand::Interrupt)) => return Err(EarlyEnd::Interrupted),
                    Some(ConversationRequest::Agent(AgentCommand::Steer(text))) => {
                        self.steers.push_back(text);
                        self.steered.fetch_add(1, Ordering::SeqCst);
                    }
                    Some(ConversationRequest::Slash(line)) => {
                        let text = format!("ran {line}");
                        let level = NoticeLevel::Info;
                        self.tell(ConversationUpdate::Text { level, text, columns: false }).await;
                        self.tell(ConversationUpdate::CommandEnded(CommandFollowUp::Nothing)).await;
                    }
                    Some(_) => {}
                },
            }
        }
    }

    fn take_orders(&mut self) {
        while let Ok(request) = self.orders.try_recv() {
            if let ConversationRequest::Agent(AgentCommand::Steer(text)) = request {
                self.steers.push_back(text);
            }
        }
    }

    /// A tool runs; what was said meanwhile rides on its result.
    async fn tool(&mut self) {
        let call = ToolCall {
            id: "c1".to_owned(),
            name: "terminal".to_owned(),
            arguments: "{\"command\":\"ls\"}".to_owned(),
            ..ToolCall::default()
        };
        let asking = Message::Assistant(AssistantMessage {
            tool_calls: vec![call.clone()],
            ..AssistantMessage::default()
        });
        self.commit(asking, None).await;
        self.event(AgentEvent::ToolStarted {
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        })
        .await;
        self.take_orders();
        let text = self.steers.drain(..).collect::<Vec<_>>().join("\n");
        let mut result = "done".to_owned();
        if !text.is_empty() {
            result.push_str(&steer_block(&text));
        }
        self.commit(Message::tool(&call, result), None).await;
        if !text.is_empty() {
            self.event(AgentEvent::Steered { text }).await;
        }
    }

    /// Subagents work until the gate opens.
    async fn delegate(&mut self) -> Result<(), EarlyEnd> {
        self.event(AgentEvent::ToolStarted {
            call_id: "d1".to_owned(),
            name: "delegate_task".to_owned(),
            arguments: "{}".to_owned(),
        })
        .await;
        while self.updates.capacity() < self.updates.max_capacity() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.delegated.store(true, Ordering::SeqCst);
        self.wait().await?;
        self.event(AgentEvent::ToolFinished {
            call_id: "d1".to_owned(),
            name: "delegate_task".to_owned(),
            error: None,
            preview: String::new(),
            millis: 1,
        })
        .await;
        Ok(())
    }

    /// Asks for everything at once, as subagents that work side by side do.
    async fn permit(&mut self) -> Result<String, EarlyEnd> {
        let actions = self.action.lock().unwrap().clone();
        let actions: Vec<&str> = actions.lines().collect();
        for (number, action) in actions.iter().enumerate() {
            let request = ApprovalRequest {
                kind: hermes_core::approval::ApprovalKind::Action,
                id: format!("r{number}"),
                tool: "terminal".to_owned(),
                action: (*action).to_owned(),
                reasons: vec!["it deletes".to_owned()],
                rule: Some(Rule("rm".to_owned())),
                posture: None,
            };
            self.event(AgentEvent::ApprovalNeeded { request }).await;
        }
        let mut verdicts: Vec<Option<Verdict>> = vec![None; actions.len()];
        while verdicts.contains(&None) {
            match self.orders.recv().await {
                None => return Err(EarlyEnd::Closed),
                Some(ConversationRequest::Agent(AgentCommand::Interrupt)) => {
                    return Err(EarlyEnd::Interrupted);
                }
                Some(ConversationRequest::Agent(AgentCommand::Answer { request, verdict })) => {
                    let number: usize = request[1..].parse().unwrap();
                    verdicts[number] = Some(verdict);
                }
                Some(_) => {}
            }
        }
        let verdicts = verdicts.iter().flatten();
        let verdicts = verdicts.map(|verdict| format!("{verdict:?}"));
        Ok(verdicts.collect::<Vec<_>>().join(" "))
    }

    async fn clarify(&mut self) -> Result<Answer, EarlyEnd> {
        let question = Question {
            id: "q1".to_owned(),
            from: "clarify".to_owned(),
            text: "Which colour?".to_owned(),
            want: Want::Choice {
                options: vec![Choice::plain("red"), Choice::plain("blue")],
                other: true,
            },
        };
        self.event(AgentEvent::QuestionAsked { question }).await;
        loop {
            match self.orders.recv().await {
                None => return Err(EarlyEnd::Closed),
                Some(ConversationRequest::Agent(AgentCommand::Interrupt)) => {
                    return Err(EarlyEnd::Interrupted);
                }
                Some(ConversationRequest::Agent(AgentCommand::Reply { answer, .. })) => {
                    return Ok(answer);
                }
                Some(_) => {}
            }
        }
    }

    /// Everything that was said and not answered yet, as the transcript has it.
    async fn answer(&self) -> String {
        let stored = self.store.load(&self.id).await.unwrap().unwrap();
        let mut open: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for item in stored.items {
            match item.message {
                Message::User(user) => {
                    let text = user.content.text();
                    if !text.starts_with("[The gateway stopped") {
                        open.extend(text.lines().map(str::to_owned));
                    }
                }
                Message::Tool(tool) => {
                    let text = tool.content.text();
                    for part in text.split(STEER_OPEN).skip(1) {
                        let inner = part.split(STEER_CLOSE).next().unwrap_or_default();
                        open.extend(inner.trim().lines().map(str::to_owned));
                    }
                }
                Message::Assistant(said) if said.tool_calls.is_empty() => open.clear(),
                Message::Assistant(_) => {}
            }
        }
        open.retain(|line| seen.insert(line.clone()));
        format!("re: {}", open.join(" | "))
    }
}
