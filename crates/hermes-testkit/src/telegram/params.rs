//! What a client asked for, in any of the four ways in which the Bot API takes it: query string,
//! urlencoded form, JSON, multipart.

use std::collections::HashMap;

use serde_json::Value;

use super::answer::{BotError, bad};
use crate::model_server::http::ArrivedRequest;

/// A file in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelegramUpload {
    pub name: String,
    pub mime: Option<String>,
    pub bytes: Vec<u8>,
}

/// The parameters of one call. Values are texts, JSON where they are structured.
#[derive(Clone, Debug, Default)]
pub struct BotParams {
    pub fields: HashMap<String, String>,
    pub files: HashMap<String, TelegramUpload>,
}

impl BotParams {
    pub(super) fn read(request: &ArrivedRequest) -> Result<Self, BotError> {
        let mut params = Self::default();
        if let Some((_, query)) = request.path.split_once('?') {
            params.urlencoded(query);
        }
        let kind = request
            .headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map_or("", |(_, value)| value.as_str());
        if kind.starts_with("multipart/form-data") {
            params.multipart(kind, &request.body)?;
        } else if kind.starts_with("application/json") {
            params.json(&request.body)?;
        } else {
            params.urlencoded(&String::from_utf8_lossy(&request.body));
        }
        Ok(params)
    }

    fn urlencoded(&mut self, text: &str) {
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.fields.insert(decode(name), decode(value));
        }
    }

    fn json(&mut self, body: &[u8]) -> Result<(), BotError> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
            return Err(bad("can't parse JSON object"));
        };
        for (name, value) in fields {
            match value {
                Value::Null => {}
                Value::String(text) => drop(self.fields.insert(name, text)),
                other => drop(self.fields.insert(name, other.to_string())),
            }
        }
        Ok(())
    }

    fn multipart(&mut self, kind: &str, body: &[u8]) -> Result<(), BotError> {
        let broken = || bad("can't parse multipart form data");
        let boundary = kind.split("boundary=").nth(1).ok_or_else(broken)?;
        let boundary = boundary.split(';').next().unwrap_or("").trim_matches('"');
        let mark = format!("--{boundary}");
        let mut at = find(body, mark.as_bytes(), 0).ok_or_else(broken)? + mark.len();
        while !body[at..].starts_with(b"--") {
            at += 2;
            let head_end = find(body, b"\r\n\r\n", at).ok_or_else(broken)?;
            let end =
                find(body, format!("\r\n{mark}").as_bytes(), head_end + 2).ok_or_else(broken)?;
            let head = String::from_utf8_lossy(&body[at..head_end]).into_owned();
            self.part(&head, &body[(head_end + 4).min(end)..end]);
            at = end + 2 + mark.len();
        }
        Ok(())
    }

    fn part(&mut self, head: &str, content: &[u8]) {
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let disposition = header("content-disposition").unwrap_or_default();
        let Some(name) = argument(&disposition, "name") else {
            return;
        };
        if let Some(file) = argument(&disposition, "filename") {
            let upload = TelegramUpload {
                name: file,
                mime: header("content-type"),
                bytes: content.to_vec(),
            };
            self.files.insert(name, upload);
        } else {
            self.fields
                .insert(name, String::from_utf8_lossy(content).into_owned());
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.trim().parse().ok()
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | "True" | "1"))
    }

    pub(super) fn value(&self, name: &str) -> Result<Option<Value>, BotError> {
        match self.text(name) {
            None | Some("") => Ok(None),
            Some(text) => serde_json::from_str(text)
                .map(Some)
                .map_err(|_| bad(&format!("can't parse {name} JSON object"))),
        }
    }
}

fn find(body: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let rest = body.get(from..)?;
    rest.windows(what.len())
        .position(|window| window == what)
        .map(|at| at + from)
}

/// `name="value"` in a header.
fn argument(header: &str, name: &str) -> Option<String> {
    header.split(';').find_map(|piece| {
        let (key, value) = piece.trim().split_once('=')?;
        (key == name).then(|| decode_quoted(value))
    })
}

fn decode_quoted(value: &str) -> String {
    value.trim_matches('"').replace("%22", "\"")
}

/// Decodes percent-encoding and plus signs.
pub(super) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let code = std::str::from_utf8(&hex)
                    .ok()
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(code.unwrap_or(b'%'));
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
