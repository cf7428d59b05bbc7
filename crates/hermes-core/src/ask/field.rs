//! Converts typed text to the value of a field.

use serde_json::{Value, json};

use super::{Choice, Field, FieldKind};

impl Field {
    /// The value of the typed text. An empty text gives the default; `None`: the field stays empty.
    /// The error states what is expected.
    pub fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        let typed = typed.trim();
        if typed.is_empty() {
            return match &self.default {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("an answer is needed here".to_owned()),
                None => Ok(None),
            };
        }
        let value = match &self.kind {
            FieldKind::Text { .. } => json!(typed),
            FieldKind::Number { integer: true, .. } => {
                let number: Result<i64, _> = typed.parse();
                json!(number.map_err(|_| "a whole number is needed".to_owned())?)
            }
            FieldKind::Number { .. } => {
                let number = typed
                    .parse::<f64>()
                    .ok()
                    .filter(|number| number.is_finite());
                json!(number.ok_or("a number is needed")?)
            }
            FieldKind::Boolean => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" | "1" => json!(true),
                "n" | "no" | "false" | "0" => json!(false),
                _ => return Err("y or n is needed".to_owned()),
            },
            FieldKind::One { options } => json!(pick(options, typed)?),
            FieldKind::Several { options, .. } => {
                let picked: Result<Vec<&str>, String> = typed
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(|word| pick(options, word))
                    .collect();
                json!(picked?)
            }
        };
        self.check(&value)?;
        Ok(Some(value))
    }

    /// Whether a value is valid for this field; the error states what is expected.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match &self.kind {
            FieldKind::Text {
                format,
                min_length,
                max_length,
            } => {
                let text = value.as_str().ok_or("a text is needed")?;
                within(text.chars().count(), *min_length, *max_length, "characters")?;
                match format.as_deref() {
                    Some(format) => of_format(text, format),
                    None => Ok(()),
                }
            }
            FieldKind::Number {
                integer,
                minimum,
                maximum,
            } => {
                let number = value.as_f64().ok_or("a number is needed")?;
                if *integer && number.fract() != 0.0 {
                    return Err("a whole number is needed".to_owned());
                }
                match (minimum, maximum) {
                    (Some(min), _) if number < *min => Err(format!("at least {min} is needed")),
                    (_, Some(max)) if number > *max => Err(format!("at most {max} is allowed")),
                    _ => Ok(()),
                }
            }
            FieldKind::Boolean => value
                .is_boolean()
                .then_some(())
                .ok_or_else(|| "yes or no is needed".to_owned()),
            FieldKind::One { options } => known(options, value),
            FieldKind::Several {
                options,
                min_items,
                max_items,
            } => {
                let items = value.as_array().ok_or("a list is needed")?;
                items.iter().try_for_each(|item| known(options, item))?;
                within(items.len(), *min_items, *max_items, "choices")
            }
        }
    }
}

/// By number, value or title.
fn pick<'a>(options: &'a [Choice], typed: &str) -> Result<&'a str, String> {
    let same = |text: &str| text.eq_ignore_ascii_case(typed);
    let by_word = options
        .iter()
        .find(|choice| same(&choice.value) || same(&choice.title));
    let by_number = || {
        let number: usize = typed.parse().ok()?;
        options.get(number.checked_sub(1)?)
    };
    by_word
        .or_else(by_number)
        .map(|choice| choice.value.as_str())
        .ok_or_else(|| format!("{typed:?} is not one of the choices"))
}

fn known(options: &[Choice], value: &Value) -> Result<(), String> {
    let text = value.as_str();
    if options
        .iter()
        .any(|choice| Some(choice.value.as_str()) == text)
    {
        Ok(())
    } else {
        Err(format!("{value} is not one of the choices"))
    }
}

fn within(count: usize, min: Option<u64>, max: Option<u64>, what: &str) -> Result<(), String> {
    let count = count as u64;
    match (min, max) {
        (Some(min), _) if count < min => Err(format!("at least {min} {what} are needed")),
        (_, Some(max)) if count > max => Err(format!("at most {max} {what} are allowed")),
        _ => Ok(()),
    }
}

/// Catches typos only; the asker validates the rest.
fn of_format(text: &str, format: &str) -> Result<(), String> {
    let fits = match format {
        "email" => text
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && host.contains('.')),
        "uri" => text
            .split_once(':')
            .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()),
        "date" => chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok(),
        "date-time" => chrono::DateTime::parse_from_rfc3339(text).is_ok(),
        _ => true,
    };
    let example = match format {
        "email" => "name@example.org",
        "uri" => "https://example.org/",
        "date" => "2026-07-28",
        _ => "2026-07-28T12:00:00Z",
    };
    fits.then_some(())
        .ok_or_else(|| format!("not a valid {format}; it looks like {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: FieldKind) -> Field {
        Field {
            name: "f".into(),
            title: "F".into(),
            description: None,
            required: true,
            kind,
            default: None,
        }
    }

    fn colours() -> Vec<Choice> {
        vec![
            Choice::plain("red"),
            Choice {
                value: "#0f0".into(),
                title: "Green".into(),
            },
        ]
    }

    #[test]
    fn typed_text_becomes_a_value_of_the_field() {
        let whole = field(FieldKind::Number {
            integer: true,
            minimum: Some(1.0),
            maximum: Some(9.0),
        });
        assert_eq!(whole.read(" 7 "), Ok(Some(json!(7))));
        assert!(whole.read("0").is_err());
        assert!(whole.read("10").is_err());
        assert!(whole.read("1.5").is_err());
        let real = field(FieldKind::Number {
            integer: false,
            minimum: None,
            maximum: None,
        });
        assert_eq!(real.read("1.5"), Ok(Some(json!(1.5))));
        assert!(real.read("NaN").is_err());
        let yes = field(FieldKind::Boolean);
        assert_eq!(yes.read("Y"), Ok(Some(json!(true))));
        assert_eq!(yes.read("no"), Ok(Some(json!(false))));
        assert!(yes.read("maybe").is_err());
        let one = field(FieldKind::One { options: colours() });
        assert_eq!(one.read("2"), Ok(Some(json!("#0f0"))));
        assert_eq!(one.read("green"), Ok(Some(json!("#0f0"))));
        assert_eq!(one.read("red"), Ok(Some(json!("red"))));
        assert!(one.read("3").is_err());
        let several = field(FieldKind::Several {
            options: colours(),
            min_items: Some(2),
            max_items: None,
        });
        assert_eq!(several.read("1, green"), Ok(Some(json!(["red", "#0f0"]))));
        assert!(several.read("1").is_err());
        let mail = field(FieldKind::Text {
            format: Some("email".into()),
            min_length: None,
            max_length: Some(12),
        });
        assert!(mail.read("a@b.c").is_ok());
        assert!(mail.read("nobody").is_err());
        assert!(mail.read("somebody@far.away").is_err());
    }

    #[test]
    fn nothing_typed_is_the_default_or_nothing() {
        let mut yes = field(FieldKind::Boolean);
        assert!(yes.read("").is_err());
        yes.default = Some(json!(true));
        assert_eq!(yes.read(""), Ok(Some(json!(true))));
        yes.default = None;
        yes.required = false;
        assert_eq!(yes.read(""), Ok(None));
    }
}
