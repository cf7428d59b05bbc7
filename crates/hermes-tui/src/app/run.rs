//! The event loop: keys, events and timers go to the [`App`], its requests go to the terminal.
//!
//! It sleeps while nothing happens. At most 60 frames are drawn per second; the first after a pause
//! is drawn at once, and a key does not wait behind streamed output.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::editor;
use super::options::{AppError, AppOptions, ExitReason};
use super::state::{App, Appearance, UiRequest};
use crate::composer::{CompletionCommand, Composer, ComposerResult, ComposerSetup};
use crate::input::{InputReader, TerminalInput, TerminalReport};
use crate::port::{HostUpdate, UiAsk, UiPort};
use crate::row::StyledRow;
use crate::screen::{
    Attention, InlineScreen, ModesOptions, ProcessSignal, Reflow, ScreenOptions, SignalStream,
    Size, TerminalCapabilities, TerminalModes, record_panics, stop_here,
};
use crate::width;

/// Minimum time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_micros(16_600);
/// Minimum time between a frame and one that shows a key, so that typing is visible within one
/// screen refresh.
const KEY_FRAME_INTERVAL: Duration = Duration::from_millis(4);
/// How long a size must stay unchanged before everything is printed again for it.
const RESIZE_SETTLE_TIME: Duration = Duration::from_millis(75);
/// Maximum number of rows printed again.
const MAX_REFLOW_ROWS: usize = 5000;
/// The exit signal that is not sent by a key.
const SIGTERM: i32 = 15;
/// Events and keys processed before the next frame.
const MAX_EVENTS_PER_FRAME: usize = 512;

/// Shows a conversation until the person leaves. The terminal is restored when this returns.
pub async fn run(port: UiPort, options: AppOptions) -> Result<ExitReason, AppError> {
    let mut face = EventLoop::open(port, options)?;
    let farewell = face.run_loop().await;
    face.close();
    farewell
}

struct EventLoop {
    app: App,
    port: UiPort,
    /// Requests waiting for capacity in the channel.
    outbox: VecDeque<UiAsk>,
    arrivals: mpsc::Receiver<ComposerResult>,
    screen: InlineScreen<File>,
    inputs: InputReader,
    signals: SignalStream,
    modes: TerminalModes,
    attention: Attention,
    /// Everything is drawn in the alternate screen.
    full: bool,
    /// Printed rows may be erased and printed again (`tui.reflow`).
    reprints: bool,
    drawn: Option<Instant>,
    /// Typed input that is not drawn yet.
    key_pending: bool,
    /// When the rows are printed again.
    reflow: Option<Instant>,
    /// The process stopped itself, so SIGCONT is expected.
    stopped: bool,
}

enum LoopEvent {
    Signal(ProcessSignal),
    Input(TerminalInput),
    Update(Box<HostUpdate>),
    ComposerResult(ComposerResult),
    Timer,
    /// A request was sent to the program.
    Sent,
    /// The program closed its end of the channel.
    Ended,
}

/// Whether the loop continues.
enum LoopControl {
    Continue,
    End(ExitReason),
}

impl EventLoop {
    fn open(port: UiPort, options: AppOptions) -> Result<Self, AppError> {
        record_panics();
        width::set_wide_ambiguous(options.tui.wide_ambiguous.unwrap_or_default());
        let mut look = TerminalCapabilities::from_environment();
        if !options.colour {
            look = look.without_colour();
        }
        let appearance = Appearance {
            colour: look.depth != crate::screen::ColorDepth::None,
            ascii: !is_utf8(),
            hyperlinks: look.links,
            clock: time_of_day,
        };
        let mut commands = CompletionCommand::all();
        commands.extend(options.commands.iter().cloned());
        let (composer, arrivals) = Composer::new(ComposerSetup {
            keep: options.keep.clone(),
            project: options.status.cwd.clone(),
            seeds: options.seeds.clone(),
            commands,
            placeholder: "Ask anything, or type / for commands".to_owned(),
        });
        let full = options.tui.is_full_screen();
        let attention = match options.tui.notifications.as_deref() {
            Some("off") => Attention::Off,
            Some("bell") => Attention::Bell,
            Some("osc9") => Attention::Osc9,
            _ => Attention::detect(|name| std::env::var(name).ok()),
        };
        let modes = ModesOptions {
            keyboard: options.tui.keyboard_protocol.unwrap_or(true),
            stderr: options.log.as_deref().and_then(open_log),
        };
        let reflow = if options.tui.is_reflow_on() && !full {
            Reflow::Full
        } else {
            Reflow::Off
        };
        let screen_options = ScreenOptions {
            reflow,
            reflow_rows: MAX_REFLOW_ROWS,
            ..ScreenOptions::new(look)
        };
        let out = rustix::stdio::stdout().try_clone_to_owned()?;
        let mut screen = InlineScreen::new(File::from(out), Size::of_terminal(), screen_options);
        let app = App::new(options, composer, appearance);
        let signals = SignalStream::new()?;
        let modes = TerminalModes::enter(modes, screen.placement())?;
        if full {
            screen.enter_overlay()?;
        }
        let inputs = InputReader::start(io::stdin())?;
        Ok(Self {
            app,
            port,
            outbox: VecDeque::new(),
            arrivals,
            screen,
            inputs,
            signals,
            modes,
            attention,
            full,
            reprints: reflow == Reflow::Full || full,
            drawn: None,
            key_pending: false,
            reflow: None,
            stopped: false,
        })
    }

    async fn run_loop(&mut self) -> Result<ExitReason, AppError> {
        loop {
            if let LoopControl::End(farewell) = self.perform().await? {
                return Ok(farewell);
            }
            self.draw_if_due()?;
            if let LoopControl::End(farewell) = self.next_event().await? {
                return Ok(farewell);
            }
        }
    }

    /// Waits for the next event and handles it.
    async fn next_event(&mut self) -> Result<LoopControl, AppError> {
        let wakes = self.next_wakeup();
        let happened = tokio::select! {
            biased;
            signal = self.signals.next() => LoopEvent::Signal(signal),
            input = self.inputs.next() => LoopEvent::Input(input),
            permit = self.port.asks.reserve(), if !self.outbox.is_empty() => {
                match (permit, self.outbox.pop_front()) {
                    (Ok(permit), Some(ask)) => {
                        permit.send(ask);
                        LoopEvent::Sent
                    }
                    (Ok(_), None) => LoopEvent::Sent,
                    (Err(_), _) => LoopEvent::Ended,
                }
            }
            update = self.port.updates.recv() => {
                update.map_or(LoopEvent::Ended, |update| LoopEvent::Update(Box::new(update)))
            }
            Some(arrived) = self.arrivals.recv() => LoopEvent::ComposerResult(arrived),
            () = wait(wakes) => LoopEvent::Timer,
        };
        match happened {
            LoopEvent::Signal(signal) => return self.on_signal(signal),
            LoopEvent::Input(input) => return self.on_input(input),
            LoopEvent::Update(update) => self.drain_ready(*update),
            LoopEvent::ComposerResult(arrived) => {
                self.app.on_composer_result(arrived, Instant::now());
            }
            LoopEvent::Timer => self.app.tick(Instant::now()),
            LoopEvent::Sent => {}
            LoopEvent::Ended => return Ok(LoopControl::End(ExitReason::Disconnected)),
        }
        Ok(LoopControl::Continue)
    }

    /// Handles everything that is already available before the next frame.
    fn drain_ready(&mut self, first: HostUpdate) {
        let now = Instant::now();
        self.app.on_port_event(first, now);
        for _ in 0..MAX_EVENTS_PER_FRAME {
            match self.port.updates.try_recv() {
                Ok(update) => self.app.on_port_event(update, now),
                Err(_) => break,
            }
        }
    }

    /// When the loop must wake up on its own. `None`: never.
    fn next_wakeup(&self) -> Option<Instant> {
        let now = Instant::now();
        let frame = self
            .app
            .is_dirty()
            .then(|| self.drawn.map_or(now, |drawn| drawn + self.frame_delay()));
        [self.app.next_wakeup(now), frame, self.reflow]
            .into_iter()
            .flatten()
            .min()
    }

    /// How long until the next frame may be drawn.
    fn frame_delay(&self) -> Duration {
        if self.key_pending {
            KEY_FRAME_INTERVAL
        } else {
            FRAME_INTERVAL
        }
    }

    fn on_input(&mut self, first: TerminalInput) -> Result<LoopControl, AppError> {
        self.key_pending = true;
        let mut next = Some(first);
        for _ in 0..MAX_EVENTS_PER_FRAME {
            let Some(input) = next else {
                break;
            };
            match input {
                TerminalInput::Closed => return Ok(LoopControl::End(ExitReason::TerminalGone)),
                TerminalInput::Report(TerminalReport::Keyboard) => self.modes.keyboard_known()?,
                TerminalInput::Report(TerminalReport::Background(red, green, blue)) => {
                    let deep = self.screen.look().depth == crate::screen::ColorDepth::True;
                    self.app.on_background((red, green, blue), deep);
                }
                TerminalInput::Report(TerminalReport::Pastes) => {}
                input => self.app.input(input, Instant::now()),
            }
            // What a key opened must be visible before the next key counts.
            if self.app.has_requests() {
                break;
            }
            next = self.inputs.try_next();
        }
        Ok(LoopControl::Continue)
    }

    fn on_signal(&mut self, signal: ProcessSignal) -> Result<LoopControl, AppError> {
        match signal {
            ProcessSignal::End(_) | ProcessSignal::Hangup => {
                return Ok(LoopControl::End(ExitReason::TerminalGone));
            }
            ProcessSignal::Suspend => self.suspend()?,
            ProcessSignal::Continue if std::mem::take(&mut self.stopped) => {}
            ProcessSignal::Continue => {
                self.modes.resume()?;
                self.screen.forget();
                self.on_resize();
            }
            ProcessSignal::Resize => self.on_resize(),
        }
        Ok(LoopControl::Continue)
    }

    fn on_resize(&mut self) {
        self.screen.resized(Size::of_terminal());
        if self.full {
            self.app.replay(self.screen.size().width, usize::MAX);
        }
        if self.screen.needs_reflow() {
            self.reflow = Some(Instant::now() + RESIZE_SETTLE_TIME);
        }
        self.app.touch();
    }

    fn draw_if_due(&mut self) -> Result<(), AppError> {
        // The signal may arrive long after the terminal was resized: everything is written for the
        // current size, otherwise rows of the frame would be left behind.
        if Size::of_terminal() != self.screen.size() {
            self.on_resize();
        }
        let now = Instant::now();
        if self.reflow.is_some_and(|at| at <= now) {
            self.reflow = None;
            if self.screen.needs_reflow() {
                return self.reprint(now);
            }
        }
        let rests = self
            .drawn
            .is_none_or(|drawn| now >= drawn + self.frame_delay());
        if !self.app.is_dirty() || !rests {
            return Ok(());
        }
        let Size { width, height } = self.screen.size();
        let drawing = self.app.draw(width, height, now);
        if let Some(overlay) = &drawing.overlay {
            if !self.full {
                self.screen.update(&drawing.rows, &drawing.frame)?;
            }
            self.screen.enter_overlay()?;
            self.screen.draw_overlay(overlay)?;
        } else {
            self.screen.leave_overlay()?;
            self.screen.update(&drawing.rows, &drawing.frame)?;
            if self.screen.needs_reflow() && self.reflow.is_none() {
                self.reflow = Some(now);
            }
        }
        self.drawn = Some(now);
        self.key_pending = false;
        Ok(())
    }

    /// Prints everything again, for the current width and theme.
    fn reprint(&mut self, now: Instant) -> Result<(), AppError> {
        let Size { width, height } = self.screen.size();
        // Rows finished meanwhile are included.
        let drawing = self.app.draw(width, height, now);
        if self.full || drawing.overlay.is_some() {
            if !self.full {
                self.screen.update(&drawing.rows, &drawing.frame)?;
            }
            self.screen.redraw();
            self.app.touch();
            return Ok(());
        }
        let rows = self.app.replay(width, MAX_REFLOW_ROWS);
        self.screen.leave_overlay()?;
        self.screen.reflow(&rows, &drawing.frame)?;
        self.drawn = Some(now);
        Ok(())
    }

    /// Performs a request of the state.
    async fn perform(&mut self) -> Result<LoopControl, AppError> {
        while let Some(wish) = self.app.next_request() {
            match wish {
                UiRequest::Send(ask) => self.outbox.push_back(ask),
                UiRequest::Title(title) => self.screen.title(&title)?,
                UiRequest::Notify(text) => self.screen.notify(self.attention, "hermes", &text)?,
                UiRequest::TakeTypeAhead => {
                    let now = Instant::now();
                    for input in self.inputs.drain() {
                        self.app.input(input, now);
                    }
                }
                UiRequest::Edit(text) => {
                    if let LoopControl::End(farewell) = self.edit(text).await? {
                        return Ok(LoopControl::End(farewell));
                    }
                }
                UiRequest::Copy(text) => {
                    let copied = self.screen.copy(&text)?;
                    self.app.on_copied(copied, Instant::now());
                }
                UiRequest::Suspend => self.suspend()?,
                UiRequest::Clear => {
                    let rows = vec![StyledRow::default(); usize::from(self.screen.size().height)];
                    self.screen.commit(&rows)?;
                }
                UiRequest::Redraw if self.reprints => self.reprint(Instant::now())?,
                UiRequest::Redraw => {
                    self.screen.redraw();
                    self.app.touch();
                }
                UiRequest::Leave => return Ok(LoopControl::End(ExitReason::UserLeft)),
            }
        }
        Ok(LoopControl::Continue)
    }

    /// Releases the terminal for another program.
    fn yield_terminal(&mut self) -> Result<(), AppError> {
        self.inputs.pause();
        self.screen.release()?;
        self.modes.pause()?;
        Ok(())
    }

    fn take_terminal(&mut self) -> Result<(), AppError> {
        self.modes.resume()?;
        self.screen.forget();
        if self.full {
            self.screen.enter_overlay()?;
        }
        self.inputs.resume();
        self.on_resize();
        Ok(())
    }

    fn suspend(&mut self) -> Result<(), AppError> {
        self.yield_terminal()?;
        self.stopped = stop_here()?;
        self.take_terminal()?;
        if !self.stopped {
            self.app
                .show_notice("there is no shell to go back to", Instant::now());
        }
        Ok(())
    }

    /// Runs the person's editor; events that arrive meanwhile are processed and shown afterwards.
    async fn edit(&mut self, text: String) -> Result<LoopControl, AppError> {
        self.yield_terminal()?;
        let mut edited = editor::start(text);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut edited => {
                    break result.unwrap_or_else(|_| Err("the editor's thread is gone".to_owned()));
                }
                signal = self.signals.next() => match signal {
                    ProcessSignal::Hangup | ProcessSignal::End(SIGTERM) => return Ok(LoopControl::End(ExitReason::TerminalGone)),
                    // These keys were meant for the editor.
                    ProcessSignal::End(_) | ProcessSignal::Suspend | ProcessSignal::Continue | ProcessSignal::Resize => {}
                },
                update = self.port.updates.recv() => match update {
                    Some(update) => self.app.on_port_event(update, Instant::now()),
                    None => return Ok(LoopControl::End(ExitReason::Disconnected)),
                },
            }
        };
        self.take_terminal()?;
        self.app.on_edited(result);
        Ok(LoopControl::Continue)
    }

    /// Prints the end of the transcript, removes the frame and restores the terminal.
    fn close(mut self) {
        self.inputs.pause();
        let now = Instant::now();
        let Size { width, height } = self.screen.size();
        for ask in self.app.leave() {
            self.outbox.push_back(ask);
        }
        for ask in self.outbox.drain(..) {
            // The program may have stopped reading.
            let _ = self.port.asks.try_send(ask);
        }
        let drawing = self.app.draw(width, height, now);
        let rows = if self.full {
            self.app.replay(width, MAX_REFLOW_ROWS)
        } else {
            drawing.rows
        };
        // The terminal may be gone.
        let _ = self.screen.leave_overlay();
        let _ = self.screen.update(&rows, &drawing.frame);
        let _ = self.screen.release();
        let _ = self.modes.pause();
    }
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

fn open_log(path: &std::path::Path) -> Option<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened
        .inspect_err(|error| tracing::warn!(?path, "stderr goes to the terminal: {error}"))
        .ok()
}

/// Whether the locale supports symbols.
pub(crate) fn is_utf8() -> bool {
    let usage = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    usage.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8") || !matches!(&*locale, "c" | "posix")
    })
}

fn time_of_day() -> String {
    chrono::Local::now().format("%H:%M").to_string()
}
