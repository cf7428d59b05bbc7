use std::fmt::Write as _;

use super::*;
use crate::panel::tests::{THEMES, drawn, theme};

fn press(palette: &mut CommandPalette, keys: &[&str]) -> PaletteOutcome {
    let mut last = PaletteOutcome::Nothing;
    for key in keys {
        last = palette.key(key.parse().unwrap(), &Keymap::default(), Instant::now());
    }
    last
}

fn typed(text: &str) -> CommandPalette {
    let mut palette = CommandPalette::new(&Keymap::default(), Instant::now());
    for c in text.chars() {
        palette.key(KeyPress::char(c), &Keymap::default(), Instant::now());
    }
    palette
}

#[test]
fn everything_is_found_and_done() {
    assert_eq!(
        press(&mut typed("whole transcript"), &["enter"]),
        PaletteOutcome::Act(KeyAction::Transcript)
    );
    assert_eq!(
        press(&mut typed("/help"), &["enter"]),
        PaletteOutcome::Run("/help".to_owned())
    );
    assert_eq!(
        press(&mut typed("/mcp"), &["enter"]),
        PaletteOutcome::Run("/mcp".to_owned())
    );
    assert_eq!(
        press(&mut typed("nothing like that"), &["enter"]),
        PaletteOutcome::Nothing
    );
    assert_eq!(press(&mut typed(""), &["ctrl+p"]), PaletteOutcome::Close);
    assert_eq!(press(&mut typed("x"), &["esc"]), PaletteOutcome::Redraw);
    assert_eq!(
        press(&mut typed("x"), &["esc", "esc"]),
        PaletteOutcome::Close
    );
}

#[test]
fn the_cursor_goes_to_what_fits_best_in_whatever_group() {
    assert_eq!(
        press(&mut typed("theme"), &["enter"]),
        PaletteOutcome::Run("/theme".to_owned())
    );
}

#[test]
fn a_command_that_wants_more_goes_to_the_composer() {
    let wants = COMMANDS
        .iter()
        .find(|command| command.surfaces.terminal && command.args.starts_with('<'))
        .unwrap();
    let name = format!("/{}", wants.name);
    assert_eq!(
        press(&mut typed(&name), &["enter"]),
        PaletteOutcome::Draft(format!("{name} "))
    );
}

#[test]
fn keys_are_those_of_the_person() {
    let wish = ["f9".to_owned()];
    let (keys, errors) = Keymap::from_config([("transcript", wish.as_slice())]);
    assert!(errors.is_empty());
    let palette = CommandPalette::new(&keys, Instant::now());
    let frame = palette.view(80, 30, &theme("ascii"));
    let text: Vec<String> = frame.lines.iter().map(ToString::to_string).collect();
    assert!(
        text.iter()
            .any(|line| line.contains("whole transcript") && line.contains("F9")),
        "{text:#?}"
    );
}

#[test]
fn pictures_of_the_palette() {
    let palette = typed("transcript");
    for name in THEMES {
        let mut text = String::new();
        for width in [40, 80, 120] {
            let drawn = drawn(&palette.view(width, 14, &theme(name)));
            // How many commands there are is not for this picture.
            let drawn = drawn.lines().filter(|line| !line.contains("of "));
            let _ = writeln!(
                text,
                "== {width} columns\n{}",
                drawn.collect::<Vec<_>>().join("\n")
            );
        }
        insta::assert_snapshot!(format!("palette_{name}"), text);
    }
}
