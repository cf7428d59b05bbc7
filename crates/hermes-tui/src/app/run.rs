//! The loop: keys, news and time go to the [`App`], what it wishes goes to the terminal.
//!
//! Nothing wakes it while nothing happens. Drawings are at most 60 in a second; the first after a
//! pause is drawn at once, and a key does not wait for its turn behind what the model writes.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::editor;
use super::options::{AppError, Farewell, Options};
use super::state::{App, Appearance, Wish};
use crate::composer::{Arrived, Command, Composer, Setup};
use crate::input::{Input, Inputs, Report};
use crate::port::{Ask, News, Port};
use crate::row::Row;
use crate::screen::{
    Attention, Look, Modes, ModesOptions, Reflow, Screen, ScreenOptions, Signal, Signals, Size,
    record_panics, stop_here,
};
use crate::width;

/// Between two drawings.
const FRAME: Duration = Duration::from_micros(16_600);
/// Between a drawing and one that shows a key: whoever types sees it within a frame of the screen.
const KEY_FRAME: Duration = Duration::from_millis(4);
/// So long a size must last before everything is printed anew for it.
const SETTLED: Duration = Duration::from_millis(75);
/// Rows that are printed anew at most.
const REFLOW_ROWS: usize = 5000;
/// The signal that nobody types.
const TERM: i32 = 15;
/// News and keys that are taken at once before something is drawn.
const BATCH: usize = 512;

/// Shows a conversation until the person leaves. The terminal is as before when this returns.
pub async fn run(port: Port, options: Options) -> Result<Farewell, AppError> {
    let mut face = Face::open(port, options)?;
    let farewell = face.live().await;
    face.close();
    farewell
}

struct Face {
    app: App,
    port: Port,
    /// What waits for room in the channel.
    outbox: VecDeque<Ask>,
    arrivals: mpsc::Receiver<Arrived>,
    screen: Screen<File>,
    inputs: Inputs,
    signals: Signals,
    modes: Modes,
    attention: Attention,
    /// Everything is in the alternate screen.
    full: bool,
    /// What was printed may be erased and printed anew (`tui.reflow`).
    reprints: bool,
    drawn: Option<Instant>,
    /// Something was typed that is not drawn yet.
    keyed: bool,
    /// When the rows are printed anew.
    reflow: Option<Instant>,
    /// The process stopped itself: the signal that it goes on is expected.
    stopped: bool,
}

enum Happened {
    Signal(Signal),
    Typed(Input),
    News(Box<News>),
    Arrived(Arrived),
    Woken,
    /// A wish has gone to the program.
    Sent,
    /// The program has closed its end.
    Ended,
}

/// Why the loop goes on, or not.
enum Next {
    On,
    End(Farewell),
}

impl Face {
    fn open(port: Port, options: Options) -> Result<Self, AppError> {
        record_panics();
        width::set_wide_ambiguous(options.tui.wide_ambiguous.unwrap_or_default());
        let mut look = Look::of_environment();
        if !options.colour {
            look = look.without_colour();
        }
        let appearance = Appearance {
            colour: look.depth != crate::screen::Depth::None,
            ascii: !is_utf8(),
            hyperlinks: look.links,
            clock: time_of_day,
        };
        let mut commands = Command::all();
        commands.extend(options.commands.iter().cloned());
        let (composer, arrivals) = Composer::new(Setup {
            keep: options.keep.clone(),
            project: options.status.cwd.clone(),
            seeds: options.seeds.clone(),
            commands,
            placeholder: "Ask anything, or type / for commands".to_owned(),
        });
        let full = options.tui.fills_the_screen();
        let attention = match options.tui.notifications.as_deref() {
            Some("off") => Attention::Off,
            Some("bell") => Attention::Bell,
            Some("osc9") => Attention::Osc9,
            _ => Attention::detect(|name| std::env::var(name).ok()),
        };
        let modes = ModesOptions {
            keyboard: options.tui.keyboard_protocol.unwrap_or(true),
            stderr: options.log.as_deref().and_then(log),
        };
        let reflow = if options.tui.reflows() && !full {
            Reflow::Full
        } else {
            Reflow::Off
        };
        let screen_options = ScreenOptions {
            reflow,
            reflow_rows: REFLOW_ROWS,
            ..ScreenOptions::new(look)
        };
        let out = rustix::stdio::stdout().try_clone_to_owned()?;
        let mut screen = Screen::new(File::from(out), Size::of_terminal(), screen_options);
        let app = App::new(options, composer, appearance);
        let signals = Signals::new()?;
        let modes = Modes::enter(modes, screen.placement())?;
        if full {
            screen.enter_overlay()?;
        }
        let inputs = Inputs::start(io::stdin())?;
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
            keyed: false,
            reflow: None,
            stopped: false,
        })
    }

    async fn live(&mut self) -> Result<Farewell, AppError> {
        loop {
            if let Next::End(farewell) = self.grant().await? {
                return Ok(farewell);
            }
            self.draw_if_due()?;
            if let Next::End(farewell) = self.event().await? {
                return Ok(farewell);
            }
        }
    }

    /// Waits for the next thing that happens, and does what follows.
    async fn event(&mut self) -> Result<Next, AppError> {
        let wakes = self.wakes();
        let happened = tokio::select! {
            biased;
            signal = self.signals.next() => Happened::Signal(signal),
            input = self.inputs.next() => Happened::Typed(input),
            permit = self.port.asks.reserve(), if !self.outbox.is_empty() => {
                match (permit, self.outbox.pop_front()) {
                    (Ok(permit), Some(ask)) => {
                        permit.send(ask);
                        Happened::Sent
                    }
                    (Ok(_), None) => Happened::Sent,
                    (Err(_), _) => Happened::Ended,
                }
            }
            news = self.port.news.recv() => {
                news.map_or(Happened::Ended, |news| Happened::News(Box::new(news)))
            }
            Some(arrived) = self.arrivals.recv() => Happened::Arrived(arrived),
            () = wait(wakes) => Happened::Woken,
        };
        match happened {
            Happened::Signal(signal) => return self.signal(signal),
            Happened::Typed(input) => return self.typed(input),
            Happened::News(news) => self.heard(*news),
            Happened::Arrived(arrived) => self.app.arrived(arrived, Instant::now()),
            Happened::Woken => self.app.tick(Instant::now()),
            Happened::Sent => {}
            Happened::Ended => return Ok(Next::End(Farewell::Ended)),
        }
        Ok(Next::On)
    }

    /// Everything that is there already, before it is drawn.
    fn heard(&mut self, first: News) {
        let now = Instant::now();
        self.app.news(first, now);
        for _ in 0..BATCH {
            match self.port.news.try_recv() {
                Ok(news) => self.app.news(news, now),
                Err(_) => break,
            }
        }
    }

    /// When something is to be done without being asked. `None`: never.
    fn wakes(&self) -> Option<Instant> {
        let now = Instant::now();
        let frame = self
            .app
            .is_dirty()
            .then(|| self.drawn.map_or(now, |drawn| drawn + self.pause()));
        [self.app.wakes(now), frame, self.reflow]
            .into_iter()
            .flatten()
            .min()
    }

    /// So long the drawing that was last stands.
    fn pause(&self) -> Duration {
        if self.keyed { KEY_FRAME } else { FRAME }
    }

    fn typed(&mut self, first: Input) -> Result<Next, AppError> {
        self.keyed = true;
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(input) = next else {
                break;
            };
            match input {
                Input::Closed => return Ok(Next::End(Farewell::Hung)),
                Input::Report(Report::Keyboard) => self.modes.keyboard_known()?,
                Input::Report(Report::Background(red, green, blue)) => {
                    let deep = self.screen.look().depth == crate::screen::Depth::True;
                    self.app.background((red, green, blue), deep);
                }
                Input::Report(Report::Pastes) => {}
                input => self.app.input(input, Instant::now()),
            }
            // What a key opened must be seen before the next one counts.
            if self.app.has_wishes() {
                break;
            }
            next = self.inputs.try_next();
        }
        Ok(Next::On)
    }

    fn signal(&mut self, signal: Signal) -> Result<Next, AppError> {
        match signal {
            Signal::End(_) | Signal::Hangup => return Ok(Next::End(Farewell::Hung)),
            Signal::Suspend => self.suspend()?,
            Signal::Continue if std::mem::take(&mut self.stopped) => {}
            Signal::Continue => {
                self.modes.resume()?;
                self.screen.forget();
                self.resized();
            }
            Signal::Resize => self.resized(),
        }
        Ok(Next::On)
    }

    fn resized(&mut self) {
        self.screen.resized(Size::of_terminal());
        if self.full {
            self.app.replay(self.screen.size().width, usize::MAX);
        }
        if self.screen.needs_reflow() {
            self.reflow = Some(Instant::now() + SETTLED);
        }
        self.app.touch();
    }

    fn draw_if_due(&mut self) -> Result<(), AppError> {
        // The signal may come long after the terminal has changed: what is written is for the size it has
        // now, else rows of the frame would be left behind.
        if Size::of_terminal() != self.screen.size() {
            self.resized();
        }
        let now = Instant::now();
        if self.reflow.is_some_and(|at| at <= now) {
            self.reflow = None;
            if self.screen.needs_reflow() {
                return self.reprint(now);
            }
        }
        let rests = self.drawn.is_none_or(|drawn| now >= drawn + self.pause());
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
        self.keyed = false;
        Ok(())
    }

    /// Everything anew, for this width and theme.
    fn reprint(&mut self, now: Instant) -> Result<(), AppError> {
        let Size { width, height } = self.screen.size();
        // What is finished meanwhile is among the rows.
        let drawing = self.app.draw(width, height, now);
        if self.full || drawing.overlay.is_some() {
            if !self.full {
                self.screen.update(&drawing.rows, &drawing.frame)?;
            }
            self.screen.redraw();
            self.app.touch();
            return Ok(());
        }
        let rows = self.app.replay(width, REFLOW_ROWS);
        self.screen.leave_overlay()?;
        self.screen.reflow(&rows, &drawing.frame)?;
        self.drawn = Some(now);
        Ok(())
    }

    /// What the state wants of the world.
    async fn grant(&mut self) -> Result<Next, AppError> {
        while let Some(wish) = self.app.next_wish() {
            match wish {
                Wish::Ask(ask) => self.outbox.push_back(ask),
                Wish::Title(title) => self.screen.title(&title)?,
                Wish::Call(text) => self.screen.notify(self.attention, "hermes", &text)?,
                Wish::Drain => {
                    let now = Instant::now();
                    for input in self.inputs.drain() {
                        self.app.input(input, now);
                    }
                }
                Wish::Edit(text) => {
                    if let Next::End(farewell) = self.edit(text).await? {
                        return Ok(Next::End(farewell));
                    }
                }
                Wish::Copy(text) => {
                    let copied = self.screen.copy(&text)?;
                    self.app.copied(copied, Instant::now());
                }
                Wish::Suspend => self.suspend()?,
                Wish::Clear => {
                    let rows = vec![Row::default(); usize::from(self.screen.size().height)];
                    self.screen.commit(&rows)?;
                }
                Wish::Redraw if self.reprints => self.reprint(Instant::now())?,
                Wish::Redraw => {
                    self.screen.redraw();
                    self.app.touch();
                }
                Wish::Leave => return Ok(Next::End(Farewell::Left)),
            }
        }
        Ok(Next::On)
    }

    /// The terminal is somebody else's for a while.
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
        self.resized();
        Ok(())
    }

    fn suspend(&mut self) -> Result<(), AppError> {
        self.yield_terminal()?;
        self.stopped = stop_here()?;
        self.take_terminal()?;
        if !self.stopped {
            self.app
                .tell("there is no shell to go back to", Instant::now());
        }
        Ok(())
    }

    /// The person's editor; what happens meanwhile is heard and shown afterwards.
    async fn edit(&mut self, text: String) -> Result<Next, AppError> {
        self.yield_terminal()?;
        let mut edited = editor::start(text);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut edited => {
                    break result.unwrap_or_else(|_| Err("the editor's thread is gone".to_owned()));
                }
                signal = self.signals.next() => match signal {
                    Signal::Hangup | Signal::End(TERM) => return Ok(Next::End(Farewell::Hung)),
                    // Keys of the editor.
                    Signal::End(_) | Signal::Suspend | Signal::Continue | Signal::Resize => {}
                },
                news = self.port.news.recv() => match news {
                    Some(news) => self.app.news(news, Instant::now()),
                    None => return Ok(Next::End(Farewell::Ended)),
                },
            }
        };
        self.take_terminal()?;
        self.app.edited(result);
        Ok(Next::On)
    }

    /// The last of the transcript is printed, the frame is gone, the terminal is as it was.
    fn close(mut self) {
        self.inputs.pause();
        let now = Instant::now();
        let Size { width, height } = self.screen.size();
        for ask in self.app.leave() {
            self.outbox.push_back(ask);
        }
        for ask in self.outbox.drain(..) {
            // Whoever does not read any more knows that we are gone.
            let _ = self.port.asks.try_send(ask);
        }
        let drawing = self.app.draw(width, height, now);
        let rows = if self.full {
            self.app.replay(width, REFLOW_ROWS)
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

fn log(path: &std::path::Path) -> Option<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened
        .inspect_err(|error| tracing::warn!(?path, "stderr goes to the terminal: {error}"))
        .ok()
}

/// Whether symbols can be shown at all.
pub(crate) fn is_utf8() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    said.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8") || !matches!(&*locale, "c" | "posix")
    })
}

fn time_of_day() -> String {
    chrono::Local::now().format("%H:%M").to_string()
}
