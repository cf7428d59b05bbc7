//! The shapes that go over the wire.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

/// An item of `input`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ResponsesItem<'a> {
    Message {
        role: &'static str,
        content: Vec<ResponsesPart<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    FunctionCall {
        call_id: String,
        name: &'a str,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        call_id: String,
        output: ResponsesOutput<'a>,
    },
    #[serde(untagged)]
    Verbatim(Map<String, Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ResponsesPart<'a> {
    InputText {
        text: Cow<'a, str>,
    },
    OutputText {
        text: Cow<'a, str>,
    },
    InputImage {
        image_url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResponsesOutput<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ResponsesPart<'a>>),
}

#[derive(Serialize)]
pub(super) struct ResponsesTool<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) strict: bool,
    pub(super) parameters: Cow<'a, Value>,
}
