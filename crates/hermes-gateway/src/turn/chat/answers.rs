//! Parses answers from text and buttons, and formats questions.

use std::fmt::Write as _;

use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Choice, Field, FieldKind, Want};
use hermes_core::event::AgentCommand;
use hermes_platforms::{Button, Tone};
use serde_json::{Map, Value};

const MAX_BUTTONS: usize = 12;

pub(super) fn button(id: &str, choice: &str, label: &str, tone: Tone) -> Button {
    Button {
        label: label.chars().take(60).collect(),
        data: format!("ap:{id}:{choice}"),
        tone,
    }
}

/// An answer to a permission, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerdictWord {
    Yes,
    Session,
    Always,
    No,
}

pub(super) fn verdict_word(text: &str) -> Option<VerdictWord> {
    Some(
        match text
            .trim()
            .trim_end_matches(['.', '!'])
            .to_lowercase()
            .as_str()
        {
            "yes" | "y" | "ok" | "okay" | "once" | "approve" | "👍" => VerdictWord::Yes,
            "no" | "n" | "deny" | "👎" => VerdictWord::No,
            "always" => VerdictWord::Always,
            "session" => VerdictWord::Session,
            _ => return None,
        },
    )
}

/// `None`: "always" without a rule to remember.
pub(super) fn verdict(
    word: VerdictWord,
    request: &ApprovalRequest,
    why: Option<String>,
) -> Option<Verdict> {
    Some(match word {
        VerdictWord::Yes => Verdict::Once,
        VerdictWord::Session => Verdict::Session,
        VerdictWord::Always => Verdict::Always(request.rule.clone()?),
        VerdictWord::No => Verdict::Deny { why },
    })
}

pub(super) fn outcome(command: &AgentCommand, by: &str) -> String {
    let what = match command {
        AgentCommand::Answer { verdict, .. } => match verdict {
            Verdict::Once => "✅ Allowed once",
            Verdict::Session => "✅ Allowed for this session",
            Verdict::Always(_) => "✅ Allowed for always",
            Verdict::Deny { .. } => "🚫 Denied",
        }
        .to_owned(),
        AgentCommand::Reply { answer, .. } => match answer {
            Answer::Text { text } => {
                let short: String = text.chars().take(200).collect();
                format!("✅ {short}")
            }
            Answer::Declined { .. } => "🚫 Declined".to_owned(),
            _ => "✅ Answered".to_owned(),
        },
        _ => String::new(),
    };
    if by.is_empty() {
        what
    } else {
        let by: String = by.chars().filter(|ch| !ch.is_control()).take(64).collect();
        format!("{what} by {by}")
    }
}

pub(super) fn choices(
    id: &str,
    options: &[Choice],
    other: bool,
    text: &mut String,
) -> (Vec<Vec<Button>>, String) {
    for (number, option) in options.iter().enumerate() {
        let _ = write!(text, "\n{}. {}", number + 1, option.title);
    }
    let rows = options
        .iter()
        .enumerate()
        .take(MAX_BUTTONS)
        .map(|(number, option)| {
            vec![button(
                id,
                &number.to_string(),
                &option.title,
                Tone::Neutral,
            )]
        });
    let instructions = if other {
        "Answer with a number, or in your own words; **!no** declines."
    } else {
        "Answer with a number; **!no** declines."
    };
    if other {
        text.push_str("\nOr say it in your own words.");
    }
    (rows.collect(), instructions.to_owned())
}

/// The fields of a form, followed by instructions for answering.
pub(super) fn form(fields: &[Field], text: &mut String) -> String {
    for field in fields {
        let _ = write!(text, "\n• **{}**", field.title);
        if field.title != field.name && fields.len() > 1 {
            let _ = write!(text, " (`{}`)", field.name);
        }
        if let Some(about) = &field.description {
            let _ = write!(text, ": {about}");
        }
        let _ = write!(text, "\n  {}", wanted(field));
    }
    let default = match fields {
        [field] if field.default.is_some() => " **default** takes the default;",
        _ => "",
    };
    match fields {
        [] => "Say **yes** to agree, or **!no** to decline.".to_owned(),
        [_] => format!("Answer with your next message;{default} **!no** declines."),
        _ => {
            "Answer with one line per field, `name: value`; a field with a default may be left out; \
             **!no** declines."
                .to_owned()
        }
    }
}

/// Describes a field: kind, choices, bounds, default.
fn wanted(field: &Field) -> String {
    let bounds = |low: Option<String>, high: Option<String>| match (low, high) {
        (Some(low), Some(high)) => format!(" from {low} to {high}"),
        (Some(low), None) => format!(", at least {low}"),
        (None, Some(high)) => format!(", at most {high}"),
        (None, None) => String::new(),
    };
    let mut text = match &field.kind {
        FieldKind::Text {
            format,
            min_length,
            max_length,
        } => {
            let length = bounds(
                min_length.map(|low| format!("{low} characters")),
                max_length.map(|high| format!("{high} characters")),
            );
            format!("{}{length}", format.as_deref().unwrap_or("text"))
        }
        FieldKind::Number {
            integer,
            minimum,
            maximum,
        } => {
            let kind = if *integer { "whole number" } else { "number" };
            let range = bounds(
                minimum.map(|low| low.to_string()),
                maximum.map(|high| high.to_string()),
            );
            format!("{kind}{range}")
        }
        FieldKind::Boolean => "yes or no".to_owned(),
        FieldKind::One { options } => format!("one of: {}", listed(options)),
        FieldKind::Several {
            options,
            min_items,
            max_items,
        } => {
            let count = bounds(
                min_items.map(|low| low.to_string()),
                max_items.map(|high| high.to_string()),
            );
            format!("any of these, with commas{count}: {}", listed(options))
        }
    };
    match &field.default {
        Some(default) => {
            let shown = match default {
                Value::String(text) => text.clone(),
                Value::Array(list) => {
                    let words = list.iter().map(|one| one.as_str().unwrap_or_default());
                    words.collect::<Vec<_>>().join(", ")
                }
                Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
                other => other.to_string(),
            };
            let _ = write!(text, "; default: {shown}");
        }
        None if !field.required => text.push_str("; may be left out"),
        None => {}
    }
    text
}

fn listed(options: &[Choice]) -> String {
    let one = |(at, option): (usize, &Choice)| format!("{}. {}", at + 1, option.title);
    let all: Vec<String> = options.iter().enumerate().map(one).collect();
    all.join(", ")
}

/// The answer behind a button.
pub(super) fn pick(want: &Want, choice: &str) -> Option<Answer> {
    match want {
        Want::Choice { options, .. } => {
            let option = options.get(choice.parse::<usize>().ok()?)?;
            Some(Answer::Text {
                text: option.value.clone(),
            })
        }
        Want::Visit { .. } => match choice {
            "y" => Some(Answer::Agreed),
            "n" => Some(Answer::Declined { why: None }),
            _ => None,
        },
        Want::Text | Want::Form { .. } => None,
    }
}

/// Whether a text declines a question. `!no` always does; plain words only where they cannot be an
/// answer.
fn declines(want: &Want, text: &str) -> bool {
    let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
    match word.as_str() {
        "!no" | "/no" | "/cancel" | "!cancel" => true,
        "no" | "cancel" => match want {
            Want::Text => false,
            Want::Choice { options, other } => {
                let named = |one: &Choice| {
                    one.title.eq_ignore_ascii_case(&word) || one.value.eq_ignore_ascii_case(&word)
                };
                !other && !options.iter().any(named)
            }
            Want::Visit { .. } => true,
            Want::Form { fields } => !matches!(fields.as_slice(), [field] if takes(field, &word)),
        },
        _ => false,
    }
}

/// Whether this word is one of the few values of a field.
fn takes(field: &Field, word: &str) -> bool {
    match &field.kind {
        FieldKind::Boolean | FieldKind::One { .. } | FieldKind::Several { .. } => {
            matches!(field.read(word), Ok(Some(_)))
        }
        FieldKind::Text { .. } | FieldKind::Number { .. } => false,
    }
}

/// Parses a text as an answer. `Err`: what is wrong and what is expected.
pub(super) fn read(want: &Want, text: &str) -> Result<Answer, String> {
    if declines(want, text) {
        return Ok(Answer::Declined { why: None });
    }
    match want {
        Want::Text => Ok(Answer::Text {
            text: text.to_owned(),
        }),
        Want::Choice { options, other } => {
            let number = text.trim_end_matches('.').parse::<usize>().ok();
            let by_number = number.and_then(|number| options.get(number.checked_sub(1)?));
            let found = by_number.or_else(|| {
                let same = |one: &&Choice| {
                    one.title.eq_ignore_ascii_case(text) || one.value.eq_ignore_ascii_case(text)
                };
                options.iter().find(same)
            });
            match found {
                Some(option) => Ok(Answer::Text {
                    text: option.value.clone(),
                }),
                None if *other => Ok(Answer::Text {
                    text: text.to_owned(),
                }),
                None => Err(format!(
                    "That is not one of the choices. Answer with a number from 1 to {} ({}), or **!no** to \
                     decline.",
                    options.len(),
                    listed(options)
                )),
            }
        }
        Want::Visit { .. } => match verdict_word(text) {
            Some(VerdictWord::Yes) => Ok(Answer::Agreed),
            _ => Err("Say yes when you have been there, or no.".to_owned()),
        },
        Want::Form { fields } => fill(fields, text),
    }
}

fn fill(fields: &[Field], text: &str) -> Result<Answer, String> {
    if fields.is_empty() {
        return match verdict_word(text) {
            Some(VerdictWord::Yes) => Ok(Answer::Form { values: Map::new() }),
            _ => Err("Say **yes** to agree, or **!no** to decline.".to_owned()),
        };
    }
    let mut given: Map<String, Value> = Map::new();
    let mut wrong = Vec::new();
    for field in fields {
        let typed = match fields {
            [_] => text,
            _ => typed(field, text),
        };
        let default = field.default.is_some() && typed.trim().eq_ignore_ascii_case("default");
        match field.read(if default { "" } else { typed }) {
            Ok(Some(value)) => {
                given.insert(field.name.clone(), value);
            }
            Ok(None) => {}
            Err(why) => wrong.push(format!("• **{}**: {why} ({})", field.title, wanted(field))),
        }
    }
    if wrong.is_empty() {
        return Ok(Answer::Form { values: given });
    }
    let how = match fields {
        [_] => "Answer again, or **!no** to decline.",
        _ => "Answer again with one line per field, `name: value`, or **!no** to decline.",
    };
    Err(format!("{}\n{how}", wrong.join("\n")))
}

/// The line of a field, without its name.
fn typed<'a>(field: &Field, text: &'a str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(name, _)| {
        let name = name.trim();
        field.name.eq_ignore_ascii_case(name) || field.title.eq_ignore_ascii_case(name)
    });
    found.next().map_or("", |(_, rest)| rest.trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_become_answers() {
        let want = Want::Choice {
            options: vec![Choice::plain("red"), Choice::plain("blue")],
            other: false,
        };
        let text = |text: &str| Answer::Text {
            text: text.to_owned(),
        };
        assert_eq!(read(&want, "2"), Ok(text("blue")));
        assert_eq!(read(&want, "Red"), Ok(text("red")));
        assert!(read(&want, "3").is_err() && read(&want, "green").is_err());
        assert_eq!(pick(&want, "0"), Some(text("red")));
        assert_eq!(pick(&want, "9"), None);
        let field = |name: &str, kind: FieldKind| Field {
            name: name.to_owned(),
            title: name.to_owned(),
            description: None,
            required: true,
            kind,
            default: None,
        };
        let number = FieldKind::Number {
            integer: true,
            minimum: None,
            maximum: None,
        };
        let fields = vec![field("age", number), field("ok", FieldKind::Boolean)];
        let want = Want::Form { fields };
        let Ok(Answer::Form { values }) = read(&want, "Age: 7\nok: yes") else {
            panic!("a form");
        };
        assert_eq!(Value::from(values), json!({"age": 7, "ok": true}));
        assert!(read(&want, "age: x\nok: yes").is_err());
        assert_eq!(read(&want, "no"), Ok(Answer::Declined { why: None }));
    }

    fn field(name: &str, kind: FieldKind, default: Option<Value>) -> Field {
        Field {
            name: name.to_owned(),
            title: name.to_uppercase(),
            description: None,
            required: default.is_none(),
            kind,
            default,
        }
    }

    fn colours() -> FieldKind {
        FieldKind::One {
            options: vec![Choice::plain("red"), Choice::plain("blue")],
        }
    }

    #[test]
    fn every_question_can_be_turned_down() {
        let declined = Ok(Answer::Declined { why: None });
        let choice = |other| Want::Choice {
            options: vec![Choice::plain("a"), Choice::plain("b")],
            other,
        };
        let form = |kind| Want::Form {
            fields: vec![field("f", kind, None)],
        };
        let text = FieldKind::Text {
            format: None,
            min_length: None,
            max_length: None,
        };
        let visit = Want::Visit {
            url: "http://x".to_owned(),
        };
        let all = [
            Want::Text,
            choice(true),
            choice(false),
            visit,
            form(text),
            form(colours()),
            form(FieldKind::Boolean),
            Want::Form { fields: Vec::new() },
        ];
        for want in all {
            for word in ["!no", "!NO", "/cancel"] {
                assert_eq!(read(&want, word), declined, "{want:?} {word}");
            }
        }
        // A plain "no" is an answer where it is a valid value.
        let no = read(&form(FieldKind::Boolean), "no").unwrap();
        assert_eq!(
            no,
            Answer::Form {
                values: Map::from_iter([("f".to_owned(), json!(false))])
            }
        );
        assert!(matches!(read(&Want::Text, "no"), Ok(Answer::Text { .. })));
        assert_eq!(read(&choice(false), "no"), declined);
    }

    #[test]
    fn a_form_shows_choices_and_defaults_and_errors_say_what_is_wanted() {
        let age = FieldKind::Number {
            integer: true,
            minimum: Some(1.0),
            maximum: Some(9.0),
        };
        let fields = vec![
            field("age", age, None),
            field("colour", colours(), Some(json!("blue"))),
        ];
        let mut text = String::new();
        let say = form(&fields, &mut text);
        assert!(text.contains("whole number from 1 to 9"), "{text}");
        assert!(
            text.contains("one of: 1. red, 2. blue; default: blue"),
            "{text}"
        );
        assert!(say.contains("name: value") && say.contains("!no"), "{say}");
        let want = Want::Form { fields };
        let why = read(&want, "age: twelve\ncolour: green").unwrap_err();
        for part in [
            "AGE",
            "whole number from 1 to 9",
            "COLOUR",
            "1. red, 2. blue",
            "!no",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let why = read(&want, "I do not know").unwrap_err();
        assert!(why.contains("AGE") && why.contains("name: value"), "{why}");
        let Ok(Answer::Form { values }) = read(&want, "age: 7") else {
            panic!("the default is taken");
        };
        assert_eq!(Value::from(values), json!({"age": 7, "colour": "blue"}));
        let one = Want::Form {
            fields: vec![field("colour", colours(), Some(json!("blue")))],
        };
        let Ok(Answer::Form { values }) = read(&one, "default") else {
            panic!("the default by its name");
        };
        assert_eq!(Value::from(values), json!({"colour": "blue"}));
        let why = read(&one, "green").unwrap_err();
        assert!(why.contains("1. red, 2. blue"), "{why}");
    }
}
