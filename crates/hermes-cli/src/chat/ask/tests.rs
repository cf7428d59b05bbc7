use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

struct Typed(VecDeque<&'static str>);

impl LineSource for Typed {
    fn line(&mut self) -> Option<String> {
        self.0.pop_front().map(|line| format!("{line}\n"))
    }
}

fn answer(want: Want, typed: &[&'static str]) -> (Option<Answer>, String) {
    let question = Question {
        id: "1".into(),
        from: "MCP server wiki".into(),
        text: "What\u{1b}[2J now?".into(),
        want,
    };
    let mut screen = Vec::new();
    let mut lines = Typed(typed.iter().copied().collect());
    let answer = ask(&question, &mut lines, &mut screen).unwrap();
    (answer, String::from_utf8(screen).unwrap())
}

fn field(name: &str, kind: FieldKind, default: Option<Value>) -> Field {
    Field {
        name: name.into(),
        title: name.to_uppercase(),
        description: None,
        required: default.is_none(),
        kind,
        default,
    }
}

#[test]
fn a_form_is_filled_field_by_field_until_it_fits() {
    let fields = vec![
        field(
            "age",
            FieldKind::Number {
                integer: true,
                minimum: Some(18.0),
                maximum: None,
            },
            None,
        ),
        field("vip", FieldKind::Boolean, Some(json!(true))),
    ];
    let want = Want::Form { fields };
    let (filled, screen) = answer(want.clone(), &["old", "3", "40", ""]);
    let Some(Answer::Form { values }) = filled else {
        panic!("{filled:?}")
    };
    assert_eq!(Value::Object(values), json!({"age": 40, "vip": true}));
    assert!(screen.contains("at least 18"), "{screen}");
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
    let declined = Some(Answer::Declined { why: None });
    assert_eq!(answer(want.clone(), &["40", "!no"]).0, declined);
    // The terminal closed, or the question was withdrawn.
    assert_eq!(answer(want, &["40"]).0, None);
}

#[test]
fn defaults_read_like_the_answers_they_stand_for() {
    let hero = |value: &str, title: &str| Choice {
        value: value.into(),
        title: title.into(),
    };
    let options = vec![hero("hero-1", "Superman"), hero("hero-2", "Lantern")];
    let several = FieldKind::Several {
        options: options.clone(),
        min_items: None,
        max_items: None,
    };
    let one = FieldKind::One { options };
    let text = FieldKind::Text {
        format: None,
        min_length: None,
        max_length: None,
    };
    for (kind, default, shown) in [
        (one, json!("hero-1"), "[Superman]"),
        (several, json!(["hero-1", "hero-2"]), "[Superman, Lantern]"),
        (FieldKind::Boolean, json!(false), "[n]"),
        (text, json!("a\u{1b}[2Jb"), "[a"),
    ] {
        let screen = label(&field("f", kind, Some(default)));
        assert!(screen.contains(shown), "{screen}");
        assert!(!screen.contains('\u{1b}'), "{screen:?}");
    }
}

#[test]
fn choices_words_and_pages() {
    let want = Want::Choice {
        options: vec![Choice::plain("red"), Choice::plain("green")],
        other: false,
    };
    let text = |text: &str| Some(Answer::Text { text: text.into() });
    assert_eq!(answer(want.clone(), &["blue", "2"]).0, text("green"));
    let declined = Some(Answer::Declined { why: None });
    assert_eq!(answer(want, &[""]).0, declined);
    let open = Want::Choice {
        options: vec![Choice::plain("red")],
        other: true,
    };
    assert_eq!(answer(open, &["blue"]).0, text("blue"));
    assert_eq!(answer(Want::Text, &[" yes "]).0, text("yes"));
    let page = Want::Visit {
        url: "https://example.org/".into(),
    };
    let (agreed, screen) = answer(page.clone(), &["y"]);
    assert_eq!(agreed, Some(Answer::Agreed));
    assert!(screen.contains("https://example.org/"));
    assert_eq!(answer(page, &["nope"]).0, declined);
}
