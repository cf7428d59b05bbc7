//! What words and buttons mean as answers, and how questions read.

use std::fmt::Write as _;

use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Choice, Field, Want};
use hermes_core::event::AgentCommand;
use serde_json::{Map, Value};

use crate::platform::{Button, Tone};

const BUTTONS: usize = 12;

pub(super) fn button(id: &str, choice: &str, label: &str, tone: Tone) -> Button {
    Button {
        label: label.chars().take(60).collect(),
        data: format!("ap:{id}:{choice}"),
        tone,
    }
}

pub(super) fn verdict_word(text: &str) -> Option<&'static str> {
    Some(
        match text
            .trim()
            .trim_end_matches(['.', '!'])
            .to_lowercase()
            .as_str()
        {
            "yes" | "y" | "ok" | "okay" | "once" | "approve" | "👍" => "yes",
            "no" | "n" | "deny" | "👎" => "no",
            "always" => "always",
            "session" => "session",
            _ => return None,
        },
    )
}

/// `None`: "always" where there is no rule that it could mean.
pub(super) fn verdict(
    word: &str,
    request: &ApprovalRequest,
    why: Option<String>,
) -> Option<Verdict> {
    Some(match word {
        "yes" => Verdict::Once,
        "session" => Verdict::Session,
        "always" => Verdict::Always(request.rule.clone()?),
        _ => Verdict::Deny { why },
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
        .take(BUTTONS)
        .map(|(number, option)| {
            vec![button(
                id,
                &number.to_string(),
                &option.title,
                Tone::Neutral,
            )]
        });
    let say = if other {
        "Answer with a number, or in your own words."
    } else {
        "Answer with a number."
    };
    if other {
        text.push_str("\nOr say it in your own words.");
    }
    (rows.collect(), say.to_owned())
}

pub(super) fn form(fields: &[Field], text: &mut String) -> String {
    for field in fields {
        let need = if field.required {
            ""
        } else {
            " (may be left out)"
        };
        let _ = write!(text, "\n• {}{need}", field.title);
        if let Some(about) = &field.description {
            let _ = write!(text, ": {about}");
        }
    }
    match fields {
        [_] => "Answer with your next message; say **no** to decline.".to_owned(),
        _ => "Answer with one line per field, `name: value`; say **no** to decline.".to_owned(),
    }
}

/// The answer that a button means.
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

/// The answer that words mean. `Err`: what is wrong with them.
pub(super) fn read(want: &Want, text: &str) -> Result<Answer, String> {
    let declined = matches!(text.to_lowercase().as_str(), "no" | "/cancel" | "cancel");
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
                None => Err(format!("Answer with a number from 1 to {}.", options.len())),
            }
        }
        Want::Visit { .. } | Want::Form { .. } if declined => Ok(Answer::Declined { why: None }),
        Want::Visit { .. } => match verdict_word(text) {
            Some("yes") => Ok(Answer::Agreed),
            _ => Err("Say yes when you have been there, or no.".to_owned()),
        },
        Want::Form { fields } => fill(fields, text),
    }
}

fn fill(fields: &[Field], text: &str) -> Result<Answer, String> {
    let mut given: Map<String, Value> = Map::new();
    for field in fields {
        let typed = match fields {
            [_] => text,
            _ => typed(field, text),
        };
        if let Some(value) = field.read(typed)? {
            given.insert(field.name.clone(), value);
        }
    }
    Ok(Answer::Form { values: given })
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
    use hermes_core::ask::FieldKind;
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
}
