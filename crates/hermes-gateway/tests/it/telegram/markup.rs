use hermes_gateway::platform::{Capabilities, Markup};
use hermes_gateway::render::{pieces, render};
use hermes_testkit::telegram::shown_text;
use proptest::prelude::*;

use super::*;

/// Pieces of markdown as models write it, broken ones included.
fn markdown() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "word ",
        "a_b ",
        "*it* ",
        "**bold** ",
        "***both*** ",
        "_em_",
        "__init__",
        "~~old~~ ",
        "`x_1` ",
        "`a``b` ",
        "```py\nif a > b: `c`\n```\n",
        "```\nopen",
        "# Title\n",
        "\n- one\n",
        "\n1. two\n",
        "\n> quote *q*\n> more\n",
        "\n> \n\n",
        "[t](http://x.test/a_(b)) ",
        "[e]() ",
        "![p](http://x.test/p.png) ",
        "<b>x</b> ",
        "| a | b |\n|---|---|\n| 1 | *2* |\n",
        "\\* ",
        "**",
        "*",
        "_",
        "`",
        "~",
        "||spoiler|| ",
        "1.5! (x) {y} #z +-= ",
        "😀 ",
        "\n\n",
        "\n---\n",
        "- [x] done\n",
        "https://a.test/b-c_d?e=f ",
        "**a *b* c** ",
        "_**x**_",
        "*a*b*c* ",
        "@name ",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever a model writes, Telegram reads what we make of it, whole and in pieces.
    #[test]
    fn telegram_reads_what_is_made_of_any_markdown(text in markdown()) {
        let platform = small();
        for (markup, mode) in [(Markup::TelegramV2, "MarkdownV2"), (Markup::TelegramHtml, "HTML")] {
            for piece in pieces(&text, &platform).into_iter().chain([text.clone()]) {
                let rendered = render(markup, &piece);
                if let Err(error) = shown_text(mode, &rendered) {
                    return Err(TestCaseError::fail(format!("{error}\n{piece:?}\n{rendered:?}")));
                }
            }
        }
    }
}

/// As Telegram's, with a limit that makes pieces.
fn small() -> Capabilities {
    let telegram = Telegram::start();
    let platform = platform(&telegram, &json!({}));
    let mut capabilities = platform.outbound.capabilities().clone();
    capabilities.limits.text = 300;
    capabilities
}
