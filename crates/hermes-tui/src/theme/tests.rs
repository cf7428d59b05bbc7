use std::collections::HashSet;

use ratatui_core::style::{Color, Style};
use unicode_width::UnicodeWidthStr;

use super::palettes::EVERY;
use super::{StyleRole, Theme, ThemeBackground, glyphs};

/// Backgrounds people have.
const DARK: [u32; 3] = [0x0000_0000, 0x001e_1e1e, 0x0028_2c34];
const LIGHT: [u32; 3] = [0x00ff_ffff, 0x00f6_f8fa, 0x00fd_f6e3];

fn luminance(hex: u32) -> f64 {
    let part = |value: u32| {
        let value = f64::from(value & 0xff) / 255.0;
        if value <= 0.03928 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(hex >> 16) + 0.7152 * part(hex >> 8) + 0.0722 * part(hex)
}

fn contrast(a: u32, b: u32) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn hex(color: Color) -> u32 {
    match color {
        Color::Rgb(r, g, b) => u32::from(r) << 16 | u32::from(g) << 8 | u32::from(b),
        other => panic!("not a true colour: {other:?}"),
    }
}

#[test]
fn true_colours_are_readable() {
    for (name, _) in Theme::names() {
        let theme = Theme::named(name).unwrap();
        let grounds = match theme.background() {
            ThemeBackground::Any => continue,
            ThemeBackground::Dark => DARK,
            ThemeBackground::Light => LIGHT,
        };
        for role in EVERY {
            let style = theme.style(role);
            let fore = hex(style.fg.unwrap());
            let backs = style.bg.map_or(grounds.to_vec(), |color| vec![hex(color)]);
            for back in backs {
                let ratio = contrast(fore, back);
                assert!(
                    ratio >= 4.5,
                    "{name} {role:?}: {fore:06x} on {back:06x} is {ratio:.2}"
                );
            }
        }
    }
}

#[test]
fn the_first_theme_leaves_the_background_and_white_and_black_alone() {
    let theme = Theme::default();
    for role in EVERY {
        let style = theme.style(role);
        assert_eq!(style.bg, None, "{role:?}");
        assert!(
            !matches!(
                style.fg,
                Some(Color::White | Color::Black | Color::Gray | Color::DarkGray | Color::Rgb(..))
            ),
            "{role:?} may vanish on some background"
        );
    }
}

#[test]
fn no_color_means_no_color() {
    for (name, _) in Theme::names() {
        let theme = Theme::named(name).unwrap().without_color();
        assert!(!theme.keeps_color(), "{name}");
        for role in EVERY {
            let Style { fg, bg, .. } = theme.style(role);
            assert_eq!((fg, bg), (None, None), "{name} {role:?}");
        }
    }
    assert!(Theme::default().keeps_color());
    assert!(!Theme::named("mono").unwrap().keeps_color());
}

#[test]
fn names_find_their_themes() {
    let mut seen = HashSet::new();
    for (name, about) in Theme::names() {
        assert_eq!(Theme::named(name).unwrap().name(), name);
        assert!(!about.is_empty() && seen.insert(name));
    }
    assert_eq!(Theme::named(" Dark ").unwrap().name(), "dark");
    assert_eq!(Theme::named("default"), Some(Theme::default()));
    assert_eq!(Theme::named("no such"), None);
}

#[test]
fn every_role_has_its_place() {
    for (index, role) in EVERY.into_iter().enumerate() {
        assert_eq!(index, role as usize);
    }
    assert_eq!(StyleRole::Text as usize, 0);
}

#[test]
fn ascii_signs_are_ascii_and_signs_are_narrow() {
    let text = format!("{:?}", glyphs::ASCII);
    assert!(text.is_ascii());
    for sign in [
        glyphs::UNICODE.bullet,
        glyphs::UNICODE.prompt,
        glyphs::UNICODE.good,
        glyphs::UNICODE.bad,
        glyphs::UNICODE.todo,
        glyphs::UNICODE.done,
        glyphs::UNICODE.ellipsis,
    ]
    .into_iter()
    .chain(glyphs::UNICODE.spinner.iter().copied())
    .chain(glyphs::UNICODE.bars.iter().copied())
    {
        assert_eq!(sign.width(), 1, "{sign}");
    }
}
