//! Commands that the gateway executes itself. They never wait for a turn.

use std::fmt::Write as _;

use hermes_app::ConversationRequest;
use hermes_core::slash::{self, CHAT_COMMANDS, CommandDef, Parsed, Verb};
use hermes_platforms::{Offer, PlatformState};
use serde_json::json;
use tokio::time::Instant;

use super::switch::SessionSwitch;
use super::{ChatTask, TurnStart, events};
use crate::gateway::RestartRequest;
use crate::settings::{BusyMode, QuickKind};
use crate::turn::message::InboxMessage;
use crate::turn::voice_mode::VoiceMode;
use crate::turn::{background, messages};

/// The commands of a chat: those of the program and the chat-only ones.
pub(in crate::turn) fn offers(mut program: Vec<Offer>) -> Vec<Offer> {
    for command in CHAT_COMMANDS {
        if program.iter().all(|one| one.name != command.name) {
            program.push(Offer {
                name: command.name.to_owned(),
                about: command.summary.to_owned(),
                args: (!command.args.is_empty()).then(|| command.args.to_owned()),
            });
        }
    }
    program
}

/// Maximum length of a chain of aliases.
const MAX_ALIAS_CHAIN: usize = 8;

/// Commands per page of the list.
const COMMANDS_PER_PAGE: usize = 30;

impl ChatTask {
    pub(super) async fn command(&mut self, mut msg: InboxMessage, line: &str) {
        // Aliases of the home are expanded; built-in commands take precedence.
        let expanded = self.expanded(line);
        if let Some(expanded) = &expanded {
            msg.incoming.text.clone_from(expanded);
        }
        let line = expanded.as_deref().unwrap_or(line);
        let rest = line.strip_prefix('/').unwrap_or(line);
        let (typed, args) = rest.split_once(' ').unwrap_or((rest, ""));
        let (typed, args) = (typed.to_ascii_lowercase(), args.trim().to_owned());
        let (verb, name) = match slash::parse_in_chat(line) {
            Parsed::Command(def, _) => (Some(def.verb), def.name),
            _ => (None, typed.as_str()),
        };
        if !self.shared.tier(&msg).may(name) {
            let text = format!("/{name} is for admins here. /help shows what you can use.");
            return self.answer(&msg, "cmd", Some(&text)).await;
        }
        (self.shared.callbacks.on_event)("command", json!({"name": name, "session_key": self.key}));
        let triggers = &self.shared.settings.reset_triggers;
        if triggers
            .iter()
            .any(|trigger| trigger.eq_ignore_ascii_case(line.trim()))
        {
            return self
                .begin_switch(msg, SessionSwitch::New { title: None })
                .await;
        }
        let title = (!args.is_empty()).then(|| args.clone());
        match verb {
            Some(Verb::Start) => self.answer(&msg, "cmd", None).await,
            Some(Verb::Stop) if args.is_empty() => self.stop(msg).await,
            Some(Verb::New) => self.begin_switch(msg, SessionSwitch::New { title }).await,
            Some(Verb::Branch) => {
                self.begin_switch(msg, SessionSwitch::Branch { title })
                    .await;
            }
            Some(Verb::Resume) if !args.is_empty() => match self.resumable(&msg, &args).await {
                Ok(session) => {
                    self.begin_switch(msg, SessionSwitch::Resume { session })
                        .await;
                }
                Err(error) => self.answer(&msg, "cmd", Some(&format!("⚠️ {error}"))).await,
            },
            Some(Verb::Resume | Verb::Sessions) => {
                let list = self.list(&msg).await;
                let text = list.unwrap_or_else(|error| format!("⚠️ {error}"));
                self.answer(&msg, "cmd", Some(&text)).await;
            }
            Some(Verb::Approve) => self.decide(msg, true, &args, None).await,
            Some(Verb::Deny) => self.decide(msg, false, &args, None).await,
            Some(Verb::Queue | Verb::Steer) if args.is_empty() => {
                let text = format!("Add the text after the command: /{name} <text>");
                self.answer(&msg, "cmd", Some(&text)).await;
            }
            Some(Verb::Queue) => self.talk(msg, BusyMode::Queue).await,
            Some(Verb::Steer) => self.talk(msg, BusyMode::Steer).await,
            Some(Verb::Background) => self.background(msg, args).await,
            Some(Verb::Restart) => self.restart(msg).await,
            Some(Verb::SetHome) => self.set_home(msg).await,
            Some(Verb::Status) => self.status(msg).await,
            Some(Verb::Whoami) => {
                let text = self.whoami(&msg);
                self.answer(&msg, "cmd", Some(&text)).await;
            }
            Some(Verb::Platforms) => self.platform(msg, &args).await,
            Some(Verb::Voice) => {
                let text = self.voice(&msg, &args);
                self.answer(&msg, "cmd", Some(&text)).await;
            }
            Some(Verb::Help) => {
                let text = self.help(&msg, &args);
                self.answer(&msg, "cmd", Some(&text)).await;
            }
            _ => match self.quick(line) {
                Some(QuickKind::Exec(command)) => self.run_quick(msg, command).await,
                _ => self.program_command(msg, line).await,
            },
        }
    }

    /// The quick command of a line, unless a command has that name.
    fn quick(&self, line: &str) -> Option<QuickKind> {
        let Parsed::Unknown { typed, .. } = slash::parse_in_chat(line) else {
            return None;
        };
        let name = typed.to_ascii_lowercase().replace('_', "-");
        let quick = self.shared.settings.quick.get(&name)?;
        Some(quick.does.clone())
    }

    /// Expands aliases, keeping the arguments. A cycle ends at some name in it, which is then
    /// unknown.
    fn expanded(&self, line: &str) -> Option<String> {
        let mut expanded: Option<String> = None;
        for _ in 0..MAX_ALIAS_CHAIN {
            let line = expanded.as_deref().unwrap_or(line);
            let Some(QuickKind::Alias(target)) = self.quick(line) else {
                break;
            };
            let args = line.split_once(' ').map_or("", |(_, args)| args);
            expanded = Some(format!("{target} {args}").trim().to_owned());
        }
        expanded
    }

    /// `/voice [on|off|tts|status]`; alone it turns over.
    fn voice(&self, msg: &InboxMessage, args: &str) -> String {
        let target = msg.target();
        let now = self.shared.voice_mode(&target);
        let mode = match args.to_ascii_lowercase().as_str() {
            "on" | "enable" => VoiceMode::Spoken,
            "tts" => VoiceMode::All,
            "" if now == VoiceMode::Off => VoiceMode::Spoken,
            "off" | "disable" | "" => VoiceMode::Off,
            "status" => now,
            _ => return "/voice [on | off | tts | status]".to_owned(),
        };
        if mode != now
            && let Err(error) = self.shared.set_voice_mode(&target, mode)
        {
            return format!("⚠️ This cannot be stored: {error}");
        }
        let mut text = format!("🔊 Voice is {}.", mode.label());
        let speaks = self
            .shared
            .speaker
            .as_ref()
            .is_some_and(|one| one.can_speak());
        if mode != VoiceMode::Off && !speaks {
            text.push_str(" No speech service is configured yet; see docs/voice.md.");
        }
        text
    }

    /// Commands of the program and names of skills; the program suggests similar names.
    async fn program_command(&mut self, msg: InboxMessage, line: &str) {
        let text = match slash::parse_in_chat(line) {
            Parsed::Command(def, _) if !def.surfaces.platform || def.verb == Verb::Quit => {
                format!("/{} works only at the machine itself.", def.name)
            }
            Parsed::Unknown {
                typed, close: None, ..
            } if typed.len() >= 4 && slash::instead_of(typed).is_none() => {
                let near = |own: &&CommandDef| slash::distance(own.name, typed) <= 2;
                match CHAT_COMMANDS.iter().find(near) {
                    Some(own) => format!("I do not know /{typed}. Did you mean /{}?", own.name),
                    None => return self.commands.waiting.push_back(msg),
                }
            }
            _ => return self.commands.waiting.push_back(msg),
        };
        self.answer(&msg, "cmd", Some(&text)).await;
    }

    /// The text after a command, treated as a message.
    async fn talk(&mut self, msg: InboxMessage, mode: BusyMode) {
        if self.defer_if_full(&msg) {
            return;
        }
        let msg = msg.unwrapped();
        if self.activity.turn().is_some() {
            self.dispatch_while_busy(msg, mode).await;
        } else {
            let apart = mode == BusyMode::Queue;
            self.enqueue(
                msg,
                if apart {
                    TurnStart::Apart
                } else {
                    TurnStart::Fresh
                },
            );
        }
    }

    async fn begin_switch(&mut self, msg: InboxMessage, switch: SessionSwitch) {
        if self.is_busy() {
            self.interrupt(events::TurnStopReason::Switch);
            if let Some((before, _)) = self.commands.switch.replace((msg, switch)) {
                self.answer(&before, "cmd", None).await;
            }
        } else {
            self.switch(msg, switch).await;
        }
    }

    /// Always works: the running turn is interrupted, and abandoned if it does not stop; queued
    /// messages are dropped, and their number is reported.
    async fn stop(&mut self, msg: InboxMessage) {
        let mut dropped = self.let_go_of_left(msg.id).await;
        if let Some(turn) = self.activity.turn_mut() {
            // Messages for the turn that it has not read.
            for (one, _) in std::mem::take(&mut turn.steers) {
                self.answer(&one, "cmd", None).await;
                dropped += 1;
            }
        }
        let preparing = self
            .activity
            .take_preparing()
            .and_then(|preparing| preparing.job);
        let jobs: Vec<_> = preparing
            .into_iter()
            .chain(self.queue.jobs.drain(..))
            .collect();
        self.queue.grows_until = None;
        for one in jobs
            .iter()
            .flat_map(|job| &job.msgs)
            .chain(&self.commands.waiting)
        {
            self.answer(one, "cmd", None).await;
            dropped += 1;
        }
        self.commands.waiting.clear();
        for one in std::mem::take(&mut self.cut.held) {
            self.answer(&one.msg, "cmd", None).await;
            dropped += 1;
        }
        let ran = self.activity.turn().is_some() || self.commands.running.is_some() || dropped > 0;
        if self.commands.running.is_some() {
            self.request(ConversationRequest::Stop);
        }
        self.interrupt(events::TurnStopReason::Stop);
        let mut text = if ran {
            messages::STOPPED
        } else {
            messages::NOTHING_RUNS
        }
        .to_owned();
        if dropped > 0 {
            let _ = write!(
                text,
                " {dropped} that waited will not be answered; send again what still matters."
            );
        }
        self.answer(&msg, "cmd", Some(&text)).await;
    }

    /// Drops older messages that are still in the database. Returns their number.
    async fn let_go_of_left(&mut self, until: i64) -> usize {
        let Some(mut after) = self.inbox.take_left() else {
            return 0;
        };
        let mut dropped = 0;
        loop {
            let Some(page) = self.waiting_page(after).await else {
                self.inbox.fall_behind(after);
                return dropped;
            };
            let full = page.len() == super::PAGE_SIZE;
            for waiting in page {
                after = after.max(waiting.id);
                let ours = waiting.turn.is_none() && waiting.id < until;
                if !ours || self.has_queued(waiting.id) {
                    continue;
                }
                if let Ok(msg) = InboxMessage::read(waiting) {
                    self.answer(&msg, "cmd", None).await;
                    dropped += 1;
                }
            }
            if !full || after >= until {
                return dropped;
            }
        }
    }

    async fn background(&mut self, msg: InboxMessage, text: String) {
        if text.is_empty() {
            let text = "Add the text after the command: /background <text>";
            return self.answer(&msg, "cmd", Some(text)).await;
        }
        let entry = self.shared.index.get(&self.key);
        let opening = match entry {
            Some(entry) => Some(self.opening_of(&msg, &entry)),
            None => self.opening(&msg).await,
        };
        let Some(opening) = opening else {
            let text = "⚠️ The home cannot be written now; try again in a moment.";
            return self.answer(&msg, "cmd", Some(text)).await;
        };
        let Some(under_way) = self.shared.side_work.begin(msg.id) else {
            return self.answer(&msg, "cmd", Some(messages::TOO_MUCH)).await;
        };
        let asked = background::BackgroundRequest {
            key: self.key.clone(),
            msg,
            text,
            opening,
        };
        background::begin(&self.shared, asked, under_way, self.cancel.clone()).await;
    }

    async fn restart(&mut self, msg: InboxMessage) {
        let source = msg.source();
        let request = RestartRequest {
            platform: source.platform.clone(),
            account: msg.incoming.account.clone(),
            chat_id: source.chat_id.clone(),
            thread_id: source.thread_id.clone(),
            message_id: msg.incoming.message_id.clone(),
        };
        // Answered first, so that a repeated request is recognised, also by the next process.
        let text = "♻️ Restarting; running turns continue afterwards.";
        self.answer(&msg, "cmd", Some(text)).await;
        (self.shared.callbacks.restart)(request);
    }

    async fn set_home(&mut self, msg: InboxMessage) {
        let text = match self.shared.set_home(msg.source()) {
            Ok(()) => format!(
                "🏠 This chat is the home of {} now: what has no other place comes here.",
                msg.source().platform
            ),
            Err(error) => format!("⚠️ {error}"),
        };
        self.answer(&msg, "cmd", Some(&text)).await;
    }

    async fn status(&mut self, msg: InboxMessage) {
        let status = self.shared.status();
        let entry = self.shared.index.get(&self.key);
        let session = entry.map_or_else(|| "none yet".to_owned(), |entry| entry.session_id);
        let running_note = match self.activity.turn() {
            Some(turn) => format!("working for {} s", turn.seconds(Instant::now())),
            None => "idle".to_owned(),
        };
        let mut lines = vec![
            format!("**Conversation** `{session}`, {running_note}"),
            format!(
                "**Gateway** {} at work, {} waiting, {} open conversations",
                status.active_turns, status.queued, status.conversations
            ),
        ];
        lines.extend(platform_lines(&status));
        self.answer(&msg, "cmd", Some(&lines.join("\n"))).await;
    }

    fn whoami(&self, msg: &InboxMessage) -> String {
        let source = msg.source();
        let name = source.user_name.as_deref().unwrap_or("no name");
        let id = source.user_id.as_deref().unwrap_or("no id");
        format!(
            "You are {name} (`{id}`) on {}, in a {} (`{}`). Commands: {}.",
            source.platform,
            source.chat_type,
            source.chat_id,
            self.shared.tier(msg).name()
        )
    }

    async fn platform(&mut self, msg: InboxMessage, args: &str) {
        let mut parts = args.split_whitespace();
        let (what, name) = (parts.next().unwrap_or("list"), parts.next());
        let text = match (what, name) {
            ("list", _) => platform_lines(&self.shared.status()).join("\n"),
            ("pause" | "resume", Some(name)) => {
                let pause = what == "pause";
                if pause && name == msg.source().platform {
                    "This is the platform you are using: you could not tell me to resume."
                        .to_owned()
                } else if self.shared.pause(name, pause) {
                    format!("{name}: {}d.", if pause { "pause" } else { "resume" })
                } else {
                    format!("There is no platform {name:?} here.")
                }
            }
            _ => "/platform [list | pause <name> | resume <name>]".to_owned(),
        };
        self.answer(&msg, "cmd", Some(&text)).await;
    }

    fn help(&self, msg: &InboxMessage, args: &str) -> String {
        let tier = self.shared.tier(msg);
        let page = args.trim().parse::<usize>().unwrap_or(1).max(1);
        let lines: Vec<String> = self
            .shared
            .commands()
            .iter()
            .filter(|one| tier.may(&one.name))
            .map(|one| {
                let args = one.args.as_ref().map(|args| format!(" {args}"));
                format!("/{}{}: {}", one.name, args.unwrap_or_default(), one.about)
            })
            .collect();
        let pages = lines.len().div_ceil(COMMANDS_PER_PAGE).max(1);
        let page = page.min(pages);
        let shown = lines
            .iter()
            .skip((page - 1) * COMMANDS_PER_PAGE)
            .take(COMMANDS_PER_PAGE);
        let mut text = shown.cloned().collect::<Vec<_>>().join("\n");
        if pages > 1 {
            let _ = write!(
                text,
                "\n\nPage {page} of {pages}; /commands <page> shows another."
            );
        }
        text
    }
}

fn platform_lines(status: &crate::gateway::GatewayStatus) -> Vec<String> {
    let lines = status.platforms.iter().map(|one| {
        let state = match one.condition.state {
            PlatformState::Connecting => "connecting",
            PlatformState::Connected => "connected",
            PlatformState::Retrying => "retrying",
            PlatformState::Fatal => "failed",
            PlatformState::Paused => "paused",
        };
        let error = one
            .condition
            .error
            .as_ref()
            .map(|error| format!(" ({error})"));
        format!("• {}: {state}{}", one.name, error.unwrap_or_default())
    });
    lines.collect()
}
