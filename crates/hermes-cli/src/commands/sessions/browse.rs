//! `hermes sessions browse`: find a conversation by typing and resume it.

use std::io::{self, Write as _};
use std::time::Instant;

use hermes_store::{ListFilter, SessionOrder, SessionSummary};
use hermes_tui::Theme;
use hermes_tui::input::{InputReader, TerminalInput};
use hermes_tui::keys::Keymap;
use hermes_tui::panel::{PanelOutcome, PanelView};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRow};
use hermes_tui::screen::{
    InlineScreen, ModesOptions, ProcessSignal, ScreenOptions, SignalStream, Size,
    TerminalCapabilities, TerminalModes,
};

use super::{reader, show};
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{SafeStderr, harmless};
use crate::{chat, choose, wiring};

#[derive(Debug, clap::Args)]
pub(super) struct BrowseArgs {
    /// Show only this source (cli, telegram, cron, …)
    #[arg(long)]
    source: Option<String>,
    /// Show at most the newest N conversations
    #[arg(long, default_value_t = 500)]
    limit: usize,
}

const RESUME: &str = "resume";

pub(super) fn run(args: &BrowseArgs, cx: &Context) -> Outcome {
    if cx.no_input || !cx.out.stdin_tty || !cx.out.stdout_tty {
        return Err(Failure::usage(
            "browsing needs a terminal; for scripts: hermes sessions list --json, hermes sessions search WORDS",
        ));
    }
    let sessions = sessions(args, cx)?;
    if sessions.is_empty() {
        cx.out.remark("no sessions");
        return Ok(());
    }
    let chosen = if choose::can_show(cx) {
        wiring::runtime()?.block_on(on_screen(panel(&sessions), cx))?
    } else {
        by_number(&sessions)?
    };
    let Some(id) = chosen else {
        return Ok(());
    };
    let turn = TurnArgs {
        resume: Some(id),
        ..TurnArgs::default()
    };
    chat::run(chat::ChatRequest::from_cli(None, turn), cx)
}

fn sessions(args: &BrowseArgs, cx: &Context) -> Result<Vec<SessionSummary>, Failure> {
    let Some(store) = reader(cx)? else {
        return Ok(Vec::new());
    };
    let filter = ListFilter {
        exclude_sources: if args.source.is_some() {
            Vec::new()
        } else {
            vec!["tool".to_owned()]
        },
        source: args.source.clone(),
        order: SessionOrder::LastActive,
        limit: args.limit,
        ..ListFilter::default()
    };
    Ok(wiring::runtime()?.block_on(store.list(filter))?)
}

fn name(session: &SessionSummary) -> &str {
    match &session.title {
        Some(title) => title,
        None if session.preview.is_empty() => "—",
        None => &session.preview,
    }
}

fn panel(sessions: &[SessionSummary]) -> Panel {
    let now = show::now();
    let rows = sessions.iter().map(|session| {
        let path = show::workspace(session).unwrap_or_default();
        PanelRow {
            id: session.id.clone(),
            cells: vec![
                show::fit(name(session), 44).trim_end().to_owned(),
                path.rsplit('/').next().unwrap_or_default().to_owned(),
                session.message_count.to_string(),
                show::ago(now, session.last_active),
            ],
            detail: format!("{}  {}  {path}", session.id, session.source),
            also: format!(
                "{} {} {path} {}",
                session.id, session.source, session.preview
            ),
            ..PanelRow::default()
        }
    });
    Panel {
        id: "sessions".to_owned(),
        title: "Sessions".to_owned(),
        note: sessions.len().to_string(),
        columns: ["Title", "Directory", "Messages", "Last active"]
            .map(str::to_owned)
            .into(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![PanelKey {
            key: "enter".to_owned(),
            label: "resume it".to_owned(),
            action: RESUME.to_owned(),
            row: true,
            closes: true,
            ..PanelKey::default()
        }],
        filters: true,
        ..Panel::default()
    }
}

/// The panel on the alternate screen, until something is chosen or it is closed.
async fn on_screen(panel: Panel, cx: &Context) -> Result<Option<String>, Failure> {
    let fail = |error: io::Error| Failure::failed(format!("drawing on the terminal: {error}"));
    let (look, theme) = if cx.out.color {
        (TerminalCapabilities::from_environment(), Theme::default())
    } else {
        (
            TerminalCapabilities::from_environment().without_colour(),
            Theme::default().without_color(),
        )
    };
    let mut screen = InlineScreen::new(io::stdout(), Size::of_terminal(), ScreenOptions::new(look));
    let options = ModesOptions {
        keyboard: false,
        stderr: None,
    };
    // Dropped last, whatever happens: it gives the terminal back.
    let mut modes = TerminalModes::enter(options, screen.placement()).map_err(fail)?;
    let mut signals = SignalStream::new().map_err(fail)?;
    let mut inputs = InputReader::start(io::stdin()).map_err(fail)?;
    let keys = Keymap::default();
    let mut view = PanelView::new(panel, Instant::now());
    screen.enter_overlay().map_err(fail)?;
    loop {
        let size = screen.size();
        screen
            .draw_overlay(&view.view(size.width, size.height, &theme))
            .map_err(fail)?;
        let outcome = tokio::select! {
            input = inputs.next() => match input {
                TerminalInput::Key(key) => view.key(key, &keys, Instant::now()),
                TerminalInput::Paste(text) => view.paste(&text, &keys, Instant::now()),
                TerminalInput::Closed => return Ok(None),
                TerminalInput::Focus(_) | TerminalInput::Report(_) => PanelOutcome::Nothing,
            },
            signal = signals.next() => match signal {
                ProcessSignal::End(15) => return Err(Failure::silent(Exit::Terminated)),
                ProcessSignal::End(_) => return Err(Failure::silent(Exit::Interrupted)),
                ProcessSignal::Hangup => return Err(Failure::silent(Exit::Failed)),
                ProcessSignal::Resize => {
                    screen.resized(Size::of_terminal());
                    PanelOutcome::Nothing
                }
                ProcessSignal::Continue => {
                    modes.resume().map_err(fail)?;
                    screen.redraw();
                    PanelOutcome::Nothing
                }
                ProcessSignal::Suspend => PanelOutcome::Nothing,
            },
        };
        if let PanelOutcome::Close(ask) | PanelOutcome::Ask(ask) = outcome {
            screen.leave_overlay().map_err(fail)?;
            return Ok((ask.action == RESUME).then_some(ask.row).flatten());
        }
    }
}

/// The same in lines, for terminals that cannot be drawn on and for screen readers.
fn by_number(sessions: &[SessionSummary]) -> Result<Option<String>, Failure> {
    const MAX_ROWS: usize = 20;
    let now = show::now();
    let mut words = String::new();
    loop {
        let found: Vec<&SessionSummary> = sessions
            .iter()
            .filter(|session| fits(session, &words))
            .take(MAX_ROWS)
            .collect();
        let mut err = SafeStderr;
        for (number, session) in found.iter().enumerate() {
            let ago = show::ago(now, session.last_active);
            writeln!(
                err,
                "{:>3}  {}  ({ago})",
                number + 1,
                harmless(name(session))
            )?;
        }
        write!(
            err,
            "number to resume, words to search for, or Enter to leave: "
        )?;
        err.flush()?;
        let mut line = String::new();
        if io::stdin().read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(None);
        }
        let chosen = line.trim().parse::<usize>().ok();
        match chosen.and_then(|number| found.get(number.checked_sub(1)?)) {
            Some(session) => return Ok(Some(session.id.clone())),
            None => line.trim().clone_into(&mut words),
        }
    }
}

/// Whether every word occurs somewhere in what is known of the session.
fn fits(session: &SessionSummary, words: &str) -> bool {
    let path = show::workspace(session).unwrap_or_default();
    let all = format!(
        "{} {} {} {path}",
        session.id,
        name(session),
        session.preview
    )
    .to_lowercase();
    words
        .to_lowercase()
        .split_whitespace()
        .all(|word| all.contains(word))
}
