//! Questions: a form if the editor supports forms, buttons if the answer is one of a few choices,
//! otherwise none, and the model is informed.

use std::collections::BTreeMap;

use agent_client_protocol::v1::schema::{
    BooleanPropertySchema, CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction,
    ElicitationCapabilities, ElicitationContentValue, ElicitationFormMode,
    ElicitationPropertySchema, ElicitationSchema, ElicitationSessionScope, ElicitationUrlMode,
    EnumOption, IntegerPropertySchema, MultiSelectPropertySchema, NumberPropertySchema,
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    StringPropertySchema, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use hermes_core::ask::{Answer, Choice, Field, FieldKind, Question, Want};
use serde_json::{Map, Value};

/// The only field of a question with a single answer.
const ANSWER: &str = "answer";
const NONE: &str = "none";
/// Maximum number of buttons.
const MAX_BUTTONS: usize = 8;

/// How a question is asked.
#[derive(Debug)]
pub(crate) enum QuestionForm {
    Form(Box<CreateElicitationRequest>),
    Buttons(Box<RequestPermissionRequest>),
    /// It cannot be shown.
    Not(Answer),
}

pub(crate) fn asking(
    session: &str,
    question: &Question,
    can: Option<&ElicitationCapabilities>,
) -> QuestionForm {
    let forms = can.is_some_and(|can| can.form.is_some());
    let pages = can.is_some_and(|can| can.url.is_some());
    let message = format!("{}: {}", question.from, question.text);
    let scope = ElicitationSessionScope::new(session.to_owned());
    let form = |schema| {
        let mode = ElicitationFormMode::new(scope.clone(), schema);
        QuestionForm::Form(Box::new(CreateElicitationRequest::new(
            mode,
            message.clone(),
        )))
    };
    match &question.want {
        Want::Text if forms => form(single(StringPropertySchema::new().into())),
        Want::Choice {
            options,
            other: false,
        } if forms => form(single(one_of(options).into())),
        // Free text is possible, so the choices are listed but not enforced.
        Want::Choice { options, .. } if forms => {
            let titles: Vec<&str> = options.iter().map(|option| option.title.as_str()).collect();
            let about = format!("one of: {}; or something else", titles.join(" · "));
            form(single(
                StringPropertySchema::new().description(about).into(),
            ))
        }
        Want::Form { fields } if forms => form(schema(fields)),
        Want::Visit { url } if pages => {
            let mode = ElicitationUrlMode::new(scope, question.id.clone(), url.clone());
            QuestionForm::Form(Box::new(CreateElicitationRequest::new(mode, message)))
        }
        Want::Choice { options, .. } if options.len() <= MAX_BUTTONS => {
            QuestionForm::Buttons(Box::new(buttons(session, question, options)))
        }
        _ => QuestionForm::Not(Answer::Unanswered {
            why: "this editor cannot show the question; put it into your answer and end the turn, \
                  the person will reply"
                .to_owned(),
        }),
    }
}

fn single(property: ElicitationPropertySchema) -> ElicitationSchema {
    ElicitationSchema::new().property(ANSWER, property, true)
}

fn one_of(options: &[Choice]) -> StringPropertySchema {
    StringPropertySchema::new().one_of(titled(options))
}

fn titled(options: &[Choice]) -> Vec<EnumOption> {
    let option = |choice: &Choice| EnumOption::new(choice.value.clone(), choice.title.clone());
    options.iter().map(option).collect()
}

fn schema(fields: &[Field]) -> ElicitationSchema {
    let mut schema = ElicitationSchema::new();
    for field in fields {
        schema = schema.property(field.name.clone(), property(field), field.required);
    }
    schema
}

fn property(field: &Field) -> ElicitationPropertySchema {
    let title = field.title.clone();
    let about = field.description.clone();
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let default_text = || {
        let text = field.default.as_ref().and_then(Value::as_str);
        text.map(str::to_owned)
    };
    match &field.kind {
        FieldKind::Text {
            min_length,
            max_length,
            ..
        } => StringPropertySchema::new()
            .title(title)
            .description(about)
            .min_length(small(*min_length))
            .max_length(small(*max_length))
            .default_value(default_text())
            .into(),
        FieldKind::Number {
            integer: true,
            minimum,
            maximum,
        } => IntegerPropertySchema::new()
            .title(title)
            .description(about)
            .minimum(minimum.map(|number| number.ceil() as i64))
            .maximum(maximum.map(|number| number.floor() as i64))
            .default_value(field.default.as_ref().and_then(Value::as_i64))
            .into(),
        FieldKind::Number {
            minimum, maximum, ..
        } => NumberPropertySchema::new()
            .title(title)
            .description(about)
            .minimum(*minimum)
            .maximum(*maximum)
            .default_value(field.default.as_ref().and_then(Value::as_f64))
            .into(),
        FieldKind::Boolean => BooleanPropertySchema::new()
            .title(title)
            .description(about)
            .default_value(field.default.as_ref().and_then(Value::as_bool))
            .into(),
        FieldKind::One { options } => one_of(options)
            .title(title)
            .description(about)
            .default_value(default_text())
            .into(),
        FieldKind::Several {
            options,
            min_items,
            max_items,
        } => MultiSelectPropertySchema::titled(titled(options))
            .title(title)
            .description(about)
            .min_items(*min_items)
            .max_items(*max_items)
            .into(),
    }
}

fn buttons(session: &str, question: &Question, options: &[Choice]) -> RequestPermissionRequest {
    let mut choices: Vec<PermissionOption> = options
        .iter()
        .enumerate()
        .map(|(at, choice)| {
            let kind = PermissionOptionKind::AllowOnce;
            PermissionOption::new(at.to_string(), choice.title.clone(), kind)
        })
        .collect();
    let none = "None of these";
    choices.push(PermissionOption::new(
        NONE,
        none,
        PermissionOptionKind::RejectOnce,
    ));
    let fields = ToolCallUpdateFields::new()
        .title(crate::calls::shorten(&question.text))
        .kind(ToolKind::Think)
        .content(vec![crate::calls::block(question.text.clone())]);
    let call = ToolCallUpdate::new(question.id.clone(), fields);
    RequestPermissionRequest::new(session.to_owned(), call, choices)
}

/// The button that was pressed.
pub(crate) fn pressed(outcome: &RequestPermissionOutcome, question: &Question) -> Answer {
    let RequestPermissionOutcome::Selected(selected) = outcome else {
        return unanswered("the question was dismissed");
    };
    let Want::Choice { options, .. } = &question.want else {
        return unanswered("the question was dismissed");
    };
    let chosen = selected.option_id.0.parse::<usize>().ok();
    match chosen.and_then(|at| options.get(at)) {
        Some(choice) => Answer::Text {
            text: choice.value.clone(),
        },
        None => Answer::Declined {
            why: Some("none of the choices fits; ask in words".to_owned()),
        },
    }
}

/// The values of a submitted form, validated again because editors differ.
pub(crate) fn filled(action: ElicitationAction, question: &Question) -> Answer {
    let content = match action {
        ElicitationAction::Accept(ElicitationAcceptAction { content, .. }) => {
            content.unwrap_or_default()
        }
        ElicitationAction::Decline => return Answer::Declined { why: None },
        _ => return unanswered("the question was dismissed"),
    };
    match &question.want {
        Want::Visit { .. } => Answer::Agreed,
        Want::Text | Want::Choice { .. } => match content.get(ANSWER) {
            Some(ElicitationContentValue::String(text)) => chosen(text, &question.want),
            _ => unanswered("the editor gave no answer"),
        },
        Want::Form { fields } => form(fields, content),
    }
}

fn chosen(text: &str, want: &Want) -> Answer {
    let text = match want {
        Want::Choice { options, other } => {
            let fits = |choice: &&Choice| choice.value == text || choice.title == text;
            match options.iter().find(fits) {
                Some(choice) => choice.value.clone(),
                None if *other => text.to_owned(),
                None => return unanswered("the answer was none of the choices"),
            }
        }
        _ => text.to_owned(),
    };
    Answer::Text { text }
}

fn form(fields: &[Field], mut content: BTreeMap<String, ElicitationContentValue>) -> Answer {
    let mut values = Map::new();
    for field in fields {
        let given = content.remove(&field.name).map(value);
        let Some(given) = given.or_else(|| field.default.clone()) else {
            if field.required {
                return unanswered(&format!("{} was not filled in", field.title));
            }
            continue;
        };
        if let Err(why) = field.check(&given) {
            return unanswered(&format!("{}: {why}", field.title));
        }
        values.insert(field.name.clone(), given);
    }
    Answer::Form { values }
}

fn value(value: ElicitationContentValue) -> Value {
    match value {
        ElicitationContentValue::String(text) => Value::from(text),
        ElicitationContentValue::Integer(number) => Value::from(number),
        ElicitationContentValue::Number(number) => Value::from(number),
        ElicitationContentValue::Boolean(flag) => Value::from(flag),
        ElicitationContentValue::StringArray(texts) => Value::from(texts),
        _ => Value::Null,
    }
}

pub(crate) fn unanswered(why: &str) -> Answer {
    Answer::Unanswered {
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
