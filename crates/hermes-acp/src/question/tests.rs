use agent_client_protocol::v1::schema::{
    ElicitationFormCapabilities, ElicitationUrlCapabilities, PermissionOptionId,
    SelectedPermissionOutcome,
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn question(want: Want) -> Question {
    Question {
        id: "q1".into(),
        from: "clarify".into(),
        text: "Which one?".into(),
        want,
    }
}

fn choice(other: bool) -> Question {
    question(Want::Choice {
        options: vec![
            Choice {
                value: "a".into(),
                title: "The first".into(),
            },
            Choice::plain("b"),
        ],
        other,
    })
}

fn forms() -> ElicitationCapabilities {
    ElicitationCapabilities::new()
        .form(ElicitationFormCapabilities::new())
        .url(ElicitationUrlCapabilities::new())
}

fn press(option: &str, question: &Question) -> Answer {
    let id = PermissionOptionId::new(option.to_owned());
    let selected = SelectedPermissionOutcome::new(id);
    pressed(&RequestPermissionOutcome::Selected(selected), question)
}

fn accept(value: &serde_json::Value, question: &Question) -> Answer {
    let content = serde_json::from_value(value.clone()).unwrap();
    let accepted = ElicitationAcceptAction::new().content(Some(content));
    filled(ElicitationAction::Accept(accepted), question)
}

fn text(text: &str) -> Answer {
    Answer::Text { text: text.into() }
}

#[test]
fn an_editor_with_forms_gets_a_form() {
    for want in [
        Want::Text,
        choice(false).want,
        choice(true).want,
        Want::Visit {
            url: "https://example.org".into(),
        },
    ] {
        let asking = asking("s", &question(want), Some(&forms()));
        assert!(matches!(asking, QuestionForm::Form(_)), "{asking:?}");
    }
}

#[test]
fn without_forms_a_choice_is_buttons_and_the_rest_is_left_to_the_model() {
    let QuestionForm::Buttons(buttons) = asking("s", &choice(true), None) else {
        panic!("no buttons");
    };
    let names: Vec<&str> = buttons.options.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["The first", "b", "None of these"]);
    assert_eq!(press("0", &choice(true)), text("a"));
    assert_eq!(press("1", &choice(true)), text("b"));
    assert!(matches!(
        press(NONE, &choice(true)),
        Answer::Declined { .. }
    ));
    assert!(matches!(press("9", &choice(true)), Answer::Declined { .. }));
    assert!(matches!(
        pressed(&RequestPermissionOutcome::Cancelled, &choice(true)),
        Answer::Unanswered { .. }
    ));
    assert!(matches!(
        asking("s", &question(Want::Text), None),
        QuestionForm::Not(Answer::Unanswered { .. })
    ));
}

#[test]
fn answers_are_held_against_what_was_asked() {
    let words = question(Want::Text);
    assert_eq!(accept(&json!({"answer": "blue"}), &words), text("blue"));
    assert!(matches!(
        accept(&json!({}), &words),
        Answer::Unanswered { .. }
    ));
    assert_eq!(
        accept(&json!({"answer": "The first"}), &choice(false)),
        text("a")
    );
    assert_eq!(accept(&json!({"answer": "c"}), &choice(true)), text("c"));
    assert!(matches!(
        accept(&json!({"answer": "c"}), &choice(false)),
        Answer::Unanswered { .. }
    ));
    assert_eq!(
        filled(ElicitationAction::Decline, &words),
        Answer::Declined { why: None }
    );
    let visit = question(Want::Visit { url: "u".into() });
    assert_eq!(accept(&json!({}), &visit), Answer::Agreed);
}

#[test]
fn a_form_comes_back_checked() {
    let field = |name: &str, required, kind| Field {
        name: name.into(),
        title: name.into(),
        description: None,
        required,
        kind,
        default: None,
    };
    let form = question(Want::Form {
        fields: vec![
            field(
                "port",
                true,
                FieldKind::Number {
                    integer: true,
                    minimum: Some(1.0),
                    maximum: Some(9.0),
                },
            ),
            field("fast", false, FieldKind::Boolean),
            field(
                "tags",
                false,
                FieldKind::Several {
                    options: vec![Choice::plain("x"), Choice::plain("y")],
                    min_items: None,
                    max_items: Some(1),
                },
            ),
        ],
    });
    assert!(matches!(
        asking("s", &form, Some(&forms())),
        QuestionForm::Form(_)
    ));
    let Answer::Form { values } = accept(&json!({"port": 3, "fast": true, "tags": ["x"]}), &form)
    else {
        panic!("not taken");
    };
    assert_eq!(
        serde_json::Value::Object(values),
        json!({"port": 3, "fast": true, "tags": ["x"]})
    );
    for wrong in [
        json!({}),
        json!({"port": 77}),
        json!({"port": "three"}),
        json!({"port": 3, "tags": ["z"]}),
    ] {
        assert!(
            matches!(accept(&wrong, &form), Answer::Unanswered { .. }),
            "{wrong}"
        );
    }
}
