//! Text for a platform. Replies are markdown throughout, also in the store; platform markup is
//! generated last, and its length is what counts against the limit.

mod silence;
mod split;

pub use silence::{is_silence, may_become_silence};
pub use split::{TextChunk, split};

use hermes_platforms::{Capabilities, Markup, render};

use crate::delivery::DUPLICATE_MARK;

/// Splits a reply for a platform. Each piece leaves space for [`DUPLICATE_MARK`].
pub fn pieces(markdown: &str, platform: &Capabilities) -> Vec<String> {
    let (limits, markup) = (platform.limits, platform.markup);
    let measure = |text: &str| {
        let marked = format!("{DUPLICATE_MARK}{text}");
        let len = |markup| limits.unit.len(&render(markup, &marked));
        // Markup may be refused, and then the plain text must fit too.
        len(markup).max(len(Markup::Plain))
    };
    split(markdown, limits.text, measure)
        .into_iter()
        .map(|piece| piece.text)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use hermes_platforms::{PlatformLimits, Recourse, TextUnit};

    fn platform(markup: Markup, text: usize, unit: TextUnit) -> Capabilities {
        Capabilities {
            edit: true,
            typing: true,
            threads: true,
            buttons: true,
            reactions: true,
            drafts: false,
            markup,
            limits: PlatformLimits {
                text,
                unit,
                file_bytes: 1,
            },
            recourse: Recourse::History {
                grace: Duration::from_secs(1),
            },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 32,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_sent_fits_also_marked(
            text in "([a-z.!()_*~>#+=|-]{0,12}[ \n]|`[a-z.]{1,9}`|\n```py\n([a-z(.)]{0,20}\n){1,9}```\n|😀){0,120}",
            markup in prop::sample::select(vec![
                Markup::Plain, Markup::Discord, Markup::TelegramV2, Markup::TelegramHtml, Markup::SlackMrkdwn,
            ]),
        ) {
            let platform = platform(markup, 300, TextUnit::Utf16);
            for piece in pieces(&text, &platform) {
                for text in [piece.clone(), format!("{DUPLICATE_MARK}{piece}")] {
                    let sent = render(markup, &text);
                    prop_assert!(TextUnit::Utf16.len(&sent) <= 300, "{}", sent);
                    let plain = render(Markup::Plain, &text);
                    prop_assert!(TextUnit::Utf16.len(&plain) <= 300, "{}", plain);
                }
            }
        }
    }
}
