//! Shapes as text, and back.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::{Body, ErrorId, Extra, FRAMINGS, Framing, Shape, Words};

impl Display for Words {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(at) => write!(out, "s{at}"),
            Self::Handshake(at) => write!(out, "h{at}"),
            Self::Other(at) => write!(out, "o{at}"),
            Self::Foreign(at) => write!(out, "f{at}"),
            Self::Changing => write!(out, "c"),
            Self::Empty => write!(out, "e"),
        }
    }
}

impl FromStr for Words {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = || number(text.get(1..).unwrap_or_default());
        Ok(match text.chars().next() {
            Some('s') => Self::Session(at()?),
            Some('h') => Self::Handshake(at()?),
            Some('o') => Self::Other(at()?),
            Some('f') => Self::Foreign(at()?),
            Some('c') => Self::Changing,
            Some('e') => Self::Empty,
            _ => return Err(format!("no words: {text:?}")),
        })
    }
}

pub(in crate::mcp_server) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("no number: {text:?}"))
}

impl Display for Body {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "empty"),
            Self::Text(words) => write!(out, "text:{words}"),
            Self::Html(words) => write!(out, "html:{words}"),
            Self::Json(words) => write!(out, "json:{words}"),
            Self::Error { id, code, words } => {
                let id = match id {
                    ErrorId::Right => "right",
                    ErrorId::Null => "null",
                    ErrorId::Missing => "missing",
                    ErrorId::Other => "other",
                };
                write!(out, "rpc:{id}:{code}:{words}")
            }
            Self::NullResult => write!(out, "result:null"),
            Self::EmptyResult => write!(out, "result:object"),
            Self::ToolError(words) => write!(out, "toolerror:{words}"),
        }
    }
}

impl FromStr for Body {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        Ok(match parts[..] {
            ["empty"] => Self::Empty,
            ["text", words] => Self::Text(words.parse()?),
            ["html", words] => Self::Html(words.parse()?),
            ["json", words] => Self::Json(words.parse()?),
            ["rpc", id, code, words] => Self::Error {
                id: match id {
                    "right" => ErrorId::Right,
                    "null" => ErrorId::Null,
                    "missing" => ErrorId::Missing,
                    "other" => ErrorId::Other,
                    _ => return Err(format!("no id: {id:?}")),
                },
                code: number(code)?,
                words: words.parse()?,
            },
            ["result", "null"] => Self::NullResult,
            ["result", "object"] => Self::EmptyResult,
            ["toolerror", words] => Self::ToolError(words.parse()?),
            _ => return Err(format!("no body: {text:?}")),
        })
    }
}

impl Framing {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Events => "events",
            Self::EndsAtOnce => "ends",
            Self::Cut => "cut",
            Self::Gzip => "gzip",
            Self::RawGzip => "rawgzip",
            Self::Bom => "bom",
            Self::WrongType => "wrongtype",
            Self::NoType => "notype",
        }
    }
}

impl Display for Extra {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(out, "none"),
            Self::RetryAfter(seconds) => write!(out, "retry{seconds}"),
            Self::Challenge => write!(out, "challenge"),
            Self::Elsewhere => write!(out, "elsewhere"),
            Self::Login => write!(out, "login"),
        }
    }
}

impl Display for Shape {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            status,
            body,
            framing,
            extra,
        } = self;
        write!(out, "{status}/{body}/{}/{extra}", framing.name())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [status, body, framing, extra] = parts[..] else {
            return Err(format!("status/body/framing/header, not {text:?}"));
        };
        let known = FRAMINGS.iter().find(|known| known.name() == framing);
        Ok(Self {
            status: number(status)?,
            body: body.parse()?,
            framing: *known.ok_or_else(|| format!("no framing: {framing:?}"))?,
            extra: match extra {
                "none" => Extra::None,
                "challenge" => Extra::Challenge,
                "elsewhere" => Extra::Elsewhere,
                "login" => Extra::Login,
                _ => Extra::RetryAfter(number(extra.trim_start_matches("retry"))?),
            },
        })
    }
}
