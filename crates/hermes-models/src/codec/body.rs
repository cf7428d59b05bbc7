//! The JSON body, written field by field without copying the conversation.

use serde::Serialize;
use serde_json::{Map, Value};

/// Writes a JSON object. Fields in `extra` override ours.
pub(super) struct JsonBodyWriter<'a> {
    out: Vec<u8>,
    extra: &'a Map<String, Value>,
}

impl<'a> JsonBodyWriter<'a> {
    pub(super) fn new(extra: &'a Map<String, Value>) -> Self {
        Self {
            out: vec![b'{'],
            extra,
        }
    }

    pub(super) fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        if self.extra.contains_key(name) {
            return Ok(());
        }
        self.write(name, value)
    }

    /// A field that is already encoded as JSON.
    pub(super) fn written(&mut self, name: &str, json: &[u8]) -> Result<(), serde_json::Error> {
        if self.extra.contains_key(name) {
            return Ok(());
        }
        self.name(name)?;
        self.out.extend_from_slice(json);
        Ok(())
    }

    pub(super) fn optional<T: Serialize>(
        &mut self,
        name: &str,
        value: Option<T>,
    ) -> Result<(), serde_json::Error> {
        match value {
            Some(value) => self.field(name, &value),
            None => Ok(()),
        }
    }

    fn write<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        self.name(name)?;
        serde_json::to_writer(&mut self.out, value)
    }

    fn name(&mut self, name: &str) -> Result<(), serde_json::Error> {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        serde_json::to_writer(&mut self.out, name)?;
        self.out.push(b':');
        Ok(())
    }

    /// Closes the object after the extra fields, with `{session}` substituted.
    pub(super) fn finish(mut self, session: &str) -> Result<Vec<u8>, serde_json::Error> {
        for (name, value) in self.extra {
            // A null removes a field.
            if !value.is_null() {
                self.write(name, &fill_value(value, session))?;
            }
        }
        self.out.push(b'}');
        Ok(self.out)
    }
}

/// `{session}` substituted in every string of `value`.
fn fill_value(value: &Value, session: &str) -> Value {
    match value {
        Value::String(text) => fill(text, session).into(),
        Value::Array(items) => items.iter().map(|item| fill_value(item, session)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), fill_value(value, session)))
            .collect(),
        scalar => scalar.clone(),
    }
}

pub(super) fn fill(text: &str, session: &str) -> String {
    text.replace("{session}", session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn extra_fields_win_and_know_the_session() {
        let extra = json!({ "a": 2, "gone": null, "tags": ["s={session}"] });
        let mut body = JsonBodyWriter::new(extra.as_object().unwrap());
        body.field("a", &1).unwrap();
        body.field("gone", &true).unwrap();
        body.field("b", "x").unwrap();
        body.optional::<u8>("c", None).unwrap();
        let bytes = body.finish("id-1").unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            r#"{"b":"x","a":2,"tags":["s=id-1"]}"#
        );
    }
}
