//! Terminal capabilities, detected from the environment.

use ratatui_core::style::Color;

/// Colour depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColorDepth {
    /// No colours: bold and underline are still used.
    None,
    /// The 16 of the terminal's own palette.
    #[default]
    Ansi,
    /// 256 fixed ones.
    Fixed,
    /// All of them.
    True,
}

/// What a terminal can display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalCapabilities {
    pub depth: ColorDepth,
    /// Hyperlinks (OSC 8).
    pub links: bool,
    /// Inside tmux: sequences for the outer terminal must be wrapped.
    pub tmux: bool,
    /// The terminal is known to re-wrap its lines when its width changes. A false positive would
    /// lose rows; a false negative leaves part of an old frame.
    pub rewraps: bool,
}

impl TerminalCapabilities {
    /// From the variables of the environment.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = get("TERM").unwrap_or_default();
        let bare = matches!(term.as_str(), "linux" | "dumb" | "vt100" | "vt220");
        Self {
            depth: depth(&term, &get),
            links: !bare && get("STY").is_none() && shows_links(&term, &get),
            tmux: get("TMUX").is_some(),
            rewraps: !bare && rewraps(&term, &get),
        }
    }

    pub fn from_environment() -> Self {
        Self::detect(|name| std::env::var(name).ok())
    }

    /// Without colours, if they are not wanted (`--color never`).
    #[must_use]
    pub fn without_colour(self) -> Self {
        Self {
            depth: ColorDepth::None,
            ..self
        }
    }
}

fn rewraps(term: &str, get: &impl Fn(&str) -> Option<String>) -> bool {
    let named = [
        "TMUX",
        "VTE_VERSION",
        "KONSOLE_VERSION",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "ALACRITTY_WINDOW_ID",
        "GHOSTTY_RESOURCES_DIR",
        "WT_SESSION",
        "TERM_PROGRAM",
    ];
    let kinds = [
        "tmux",
        "kitty",
        "foot",
        "alacritty",
        "ghostty",
        "wezterm",
        "contour",
    ];
    // A variable of the terminal from which an xterm was started says nothing about the xterm.
    let outside = get("XTERM_VERSION").is_some() && get("TMUX").is_none();
    !outside
        && (named.iter().any(|name| get(name).is_some())
            || kinds.iter().any(|kind| term.contains(kind)))
}

/// Whether the terminal is known to support links. Elsewhere addresses are written out: a hidden
/// address that cannot be clicked is lost.
fn shows_links(term: &str, get: &impl Fn(&str) -> Option<String>) -> bool {
    let program = get("TERM_PROGRAM").unwrap_or_default();
    if get("TMUX").is_some() {
        // tmux supports them since 3.4, and reports its version.
        let version = get("TERM_PROGRAM_VERSION").unwrap_or_default();
        let number = |text: &str| -> u32 {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(0)
        };
        let (major, minor) = version.split_once('.').unwrap_or((&version, ""));
        return program == "tmux" && (number(major), number(minor)) >= (3, 4);
    }
    [
        "kitty",
        "foot",
        "alacritty",
        "ghostty",
        "wezterm",
        "contour",
    ]
    .iter()
    .any(|name| term.contains(name))
        || [
            "iTerm.app",
            "WezTerm",
            "vscode",
            "ghostty",
            "Hyper",
            "rio",
            "WarpTerminal",
        ]
        .contains(&program.as_str())
        || get("VTE_VERSION").is_some_and(|version| version.parse().unwrap_or(0) >= 5000)
        || ["WT_SESSION", "KONSOLE_VERSION", "KITTY_WINDOW_ID"]
            .iter()
            .any(|name| get(name).is_some())
}

fn depth(term: &str, get: &impl Fn(&str) -> Option<String>) -> ColorDepth {
    if get("NO_COLOR").is_some() || term == "dumb" {
        return ColorDepth::None;
    }
    let truecolour = get("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit");
    let known = ["kitty", "alacritty", "ghostty", "wezterm", "foot", "direct"];
    if truecolour || known.iter().any(|name| term.contains(name)) {
        ColorDepth::True
    } else if term.contains("256") {
        ColorDepth::Fixed
    } else {
        ColorDepth::Ansi
    }
}

/// The levels of the 6×6×6 cube of the 256 colours.
const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The 16 colours of xterm, to find the nearest.
const ANSI: [(u8, u8, u8); 16] = [
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (0, 0, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
];

/// The nearest colour that `depth` has; `None`: the terminal's default.
pub(super) fn nearest_color(colour: Color, depth: ColorDepth) -> Option<Color> {
    match (depth, colour) {
        (ColorDepth::None, _) | (_, Color::Reset) => None,
        (ColorDepth::Fixed, Color::Rgb(r, g, b)) => Some(Color::Indexed(fixed(r, g, b))),
        (ColorDepth::Ansi, Color::Rgb(r, g, b)) => Some(Color::Indexed(ansi((r, g, b)))),
        (ColorDepth::Ansi, Color::Indexed(index)) => Some(Color::Indexed(ansi(of_index(index)))),
        (_, colour) => Some(colour),
    }
}

fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> u32 {
    let part = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
    // The eye is most sensitive to green and least to blue.
    3 * part(a.0, b.0) + 6 * part(a.1, b.1) + part(a.2, b.2)
}

fn fixed(r: u8, g: u8, b: u8) -> u8 {
    let level = |value: u8| {
        let nearest = LEVELS.iter().enumerate();
        nearest
            .min_by_key(|(_, level)| level.abs_diff(value))
            .map_or(0, |(index, _)| index as u8)
    };
    let cube = 16 + 36 * level(r) + 6 * level(g) + level(b);
    let mean = ((u32::from(r) + u32::from(g) + u32::from(b)) / 3) as u8;
    let grey = 232 + (mean.saturating_sub(3) / 10).min(23);
    let wanted = (r, g, b);
    if distance(of_index(grey), wanted) < distance(of_index(cube), wanted) {
        grey
    } else {
        cube
    }
}

fn ansi(wanted: (u8, u8, u8)) -> u8 {
    let nearest = ANSI.iter().enumerate();
    nearest
        .min_by_key(|(_, known)| distance(**known, wanted))
        .map_or(7, |(index, _)| index as u8)
}

fn of_index(index: u8) -> (u8, u8, u8) {
    match index {
        0..16 => ANSI[usize::from(index)],
        16..232 => {
            let cube = index - 16;
            let level = |part: u8| LEVELS[usize::from(part % 6)];
            (level(cube / 36), level(cube / 6), level(cube))
        }
        232.. => {
            let grey = 8 + 10 * (index - 232);
            (grey, grey, grey)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> TerminalCapabilities {
        TerminalCapabilities::detect(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_says_what_can_be_shown() {
        for (variables, depth) in [
            (&[("TERM", "xterm")][..], ColorDepth::Ansi),
            (&[], ColorDepth::Ansi),
            (&[("TERM", "xterm-256color")], ColorDepth::Fixed),
            (
                &[("TERM", "screen-256color"), ("COLORTERM", "truecolor")],
                ColorDepth::True,
            ),
            (&[("TERM", "xterm-kitty")], ColorDepth::True),
            (
                &[("TERM", "xterm-kitty"), ("NO_COLOR", "1")],
                ColorDepth::None,
            ),
            (
                &[("TERM", "xterm-256color"), ("NO_COLOR", "")],
                ColorDepth::Fixed,
            ),
            (
                &[("TERM", "dumb"), ("COLORTERM", "truecolor")],
                ColorDepth::None,
            ),
        ] {
            assert_eq!(look(variables).depth, depth, "{variables:?}");
        }
        assert!(!look(&[("TERM", "linux")]).links);
        assert!(!look(&[("TERM", "xterm-256color")]).links);
        assert!(look(&[("TERM", "xterm-256color"), ("VTE_VERSION", "7600")]).links);
        assert!(look(&[("TERM", "xterm-kitty")]).links);
        let tmux = |version| {
            look(&[
                ("TMUX", "/tmp/x"),
                ("TERM_PROGRAM", "tmux"),
                ("TERM_PROGRAM_VERSION", version),
            ])
        };
        assert!(!tmux("3.3a").links && tmux("3.4").links && tmux("4.0").links);
        assert!(look(&[("TERM", "tmux-256color"), ("TMUX", "/tmp/x")]).tmux);
        assert!(!look(&[("TERM", "xterm"), ("XTERM_VERSION", "XTerm(390)")]).rewraps);
        assert!(!look(&[("TERM", "xterm-256color")]).rewraps, "nobody knows");
        assert!(look(&[("TERM", "xterm-256color"), ("VTE_VERSION", "7600")]).rewraps);
        assert!(look(&[("TERM", "xterm-kitty")]).rewraps);
    }

    #[test]
    fn a_colour_becomes_the_nearest_there_is() {
        let red = Color::Rgb(250, 10, 10);
        assert_eq!(nearest_color(red, ColorDepth::True), Some(red));
        assert_eq!(
            nearest_color(red, ColorDepth::Fixed),
            Some(Color::Indexed(196))
        );
        assert_eq!(
            nearest_color(red, ColorDepth::Ansi),
            Some(Color::Indexed(9))
        );
        assert_eq!(nearest_color(red, ColorDepth::None), None);
        assert_eq!(
            nearest_color(Color::Rgb(128, 128, 128), ColorDepth::Fixed),
            Some(Color::Indexed(244))
        );
        assert_eq!(
            nearest_color(Color::Indexed(231), ColorDepth::Ansi),
            Some(Color::Indexed(15))
        );
        assert_eq!(
            nearest_color(Color::Green, ColorDepth::Ansi),
            Some(Color::Green)
        );
        for index in 0..=255 {
            assert!(matches!(
                nearest_color(Color::Indexed(index), ColorDepth::Ansi),
                Some(Color::Indexed(0..16))
            ));
        }
    }
}
