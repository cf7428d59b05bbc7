//! Estimates the size of a prompt in tokens.
//!
//! The raw estimate is four characters to a token (one character for scripts whose characters
//! are words or syllables). [`TokenMeter`] corrects it by what the provider last reported.

use std::sync::Arc;

use hermes_core::message::{Content, Message, Part};
use hermes_core::tool::ToolSpec;

/// What an image costs, whatever its size: providers differ, this is a cautious middle.
pub const IMAGE_TOKENS: u64 = 1_500;
/// Role, separators and the like.
const MESSAGE_TOKENS: u64 = 4;
/// Id, name and framing of a tool call or a tool.
const CALL_TOKENS: u64 = 8;

/// Tokens of a text.
pub fn text(text: &str) -> u64 {
    if text.is_ascii() {
        return (text.len() as u64).div_ceil(4);
    }
    let quarters: u64 = text
        .chars()
        .map(|c| if (c as u32) < 0x2E80 { 1 } else { 4 })
        .sum();
    quarters.div_ceil(4)
}

pub fn content(content: &Content) -> u64 {
    match content {
        Content::Text(body) => text(body),
        Content::Parts(parts) => parts.iter().map(part).sum(),
    }
}

fn part(part: &Part) -> u64 {
    match part {
        Part::Text { text: body, .. } => text(body),
        Part::Image { .. } => IMAGE_TOKENS,
        Part::Other(value) => text(&value.to_string()),
    }
}

pub fn message(message: &Message) -> u64 {
    let body = match message {
        Message::User(user) => match &user.wire_text {
            Some(wire) => text(wire) + user.content.image_count() as u64 * IMAGE_TOKENS,
            None => content(&user.content),
        },
        Message::Assistant(assistant) => {
            let calls: u64 = assistant
                .tool_calls
                .iter()
                .map(|call| CALL_TOKENS + text(&call.name) + text(&call.arguments))
                .sum();
            text(&assistant.text) + calls
        }
        Message::Tool(tool) => CALL_TOKENS + content(&tool.content),
    };
    body + MESSAGE_TOKENS
}

pub fn messages(view: &[Arc<Message>]) -> u64 {
    view.iter().map(|row| message(row)).sum()
}

/// Tokens of the tools array.
pub fn tools(specs: &[ToolSpec]) -> u64 {
    specs
        .iter()
        .map(|spec| {
            CALL_TOKENS
                + text(&spec.name)
                + text(&spec.description)
                + text(&spec.parameters.to_string())
        })
        .sum()
}

/// The raw estimate of a whole request.
pub fn request(system: &str, specs: &[ToolSpec], view: &[Arc<Message>]) -> u64 {
    text(system) + tools(specs) + messages(view)
}

/// Corrects raw estimates by the provider's last real prompt size.
///
/// What was sent last is known exactly; only what has come since is estimated. A small prompt says
/// little about the tokens of text, as the provider's own framing weighs in, so its ratio counts
/// less for what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenMeter {
    /// The last reading: raw estimate and real size of the same request.
    last: Option<(u64, u64)>,
}

/// A prompt of this raw size gives its ratio half the weight.
const HALF_WEIGHT_TOKENS: f64 = 8_000.0;

impl TokenMeter {
    /// Tells the real size of a request whose raw estimate was `raw`. A nonsensical reading
    /// (zero: the provider reports nothing) is ignored.
    pub fn observe(&mut self, raw: u64, real: u64) {
        if raw == 0 || real == 0 {
            return;
        }
        // Some servers report only the uncached part: a ratio this far off is not tokenisation.
        self.last = Some((raw, real.clamp(raw.div_ceil(2), raw * 4)));
    }

    /// Real tokens per raw token: of what was sent, and of what is added.
    fn ratios(raw: u64, real: u64) -> (f64, f64) {
        let ratio = real as f64 / raw as f64;
        let weight = raw as f64 / (raw as f64 + HALF_WEIGHT_TOKENS);
        (ratio, 1.0 + (ratio - 1.0) * weight)
    }

    /// Expected real size of a request whose raw estimate is `raw`.
    pub fn real(&self, raw: u64) -> u64 {
        let Some((last, real)) = self.last else {
            return raw;
        };
        let (ratio, slope) = Self::ratios(last, real);
        if raw >= last {
            real + ((raw - last) as f64 * slope).ceil() as u64
        } else {
            (raw as f64 * ratio).ceil() as u64
        }
    }

    /// The raw estimate that corresponds to a real size: for budgets.
    pub fn raw(&self, size: u64) -> u64 {
        let Some((last, real)) = self.last else {
            return size;
        };
        let (ratio, slope) = Self::ratios(last, real);
        if size >= real {
            last + ((size - real) as f64 / slope).floor() as u64
        } else {
            (size as f64 / ratio).floor() as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_ascii_characters_are_a_token_and_one_ideograph_is_one() {
        assert_eq!(text(""), 0);
        assert_eq!(text("abcde"), 2);
        assert_eq!(text("äöüß"), 1);
        assert_eq!(text("日本語"), 3);
    }

    #[test]
    fn images_cost_the_same_whatever_their_bytes() {
        let small = Content::Parts(vec![Part::image("data:image/png;base64,AA")]);
        let large = Content::Parts(vec![Part::image("A".repeat(100_000))]);
        assert_eq!(content(&small), IMAGE_TOKENS);
        assert_eq!(content(&large), IMAGE_TOKENS);
    }

    #[test]
    fn what_goes_over_the_wire_counts() {
        let mut row = Message::user("short");
        let before = message(&row);
        if let Message::User(user) = &mut row {
            user.wire_text = Some("x".repeat(4_000));
        }
        assert!(message(&row) > before + 900);
    }

    #[test]
    fn the_meter_follows_the_provider_and_ignores_nonsense() {
        let mut meter = TokenMeter::default();
        assert_eq!((meter.real(1_000), meter.raw(1_000)), (1_000, 1_000));
        meter.observe(100_000, 130_000);
        assert_eq!(meter.real(100_000), 130_000);
        assert_eq!(meter.real(50_000), 65_000);
        let more = meter.real(110_000);
        assert!((142_000..143_000).contains(&more), "{more}");
        meter.observe(100_000, 0);
        assert_eq!(meter.last.map(|(_, real)| real), Some(130_000));
        meter.observe(1_000, 3);
        assert_eq!(meter.real(1_000), 500, "bounded below");
    }

    #[test]
    fn a_small_prompt_says_little_about_a_large_one() {
        let mut meter = TokenMeter::default();
        meter.observe(1_000, 4_000);
        let large = meter.real(61_000);
        assert!(large < 90_000, "{large}");
    }

    #[test]
    fn raw_and_real_are_inverse() {
        let mut meter = TokenMeter::default();
        meter.observe(20_000, 27_000);
        for raw in [100, 5_000, 20_000, 80_000] {
            let back = meter.raw(meter.real(raw));
            assert!(back.abs_diff(raw) <= 1, "{raw} {back}");
        }
    }
}
