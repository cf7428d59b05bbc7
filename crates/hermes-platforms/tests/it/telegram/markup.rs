use hermes_gateway::render::pieces;
use hermes_platforms::{Capabilities, Markup, render};
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

/// Blocks in blocks, as deep as models put them: each level is indented by what it stands in.
fn nested() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        markdown(),
        prop::sample::select(vec![
            "plain _it_ **b**",
            "# Head `c`",
            "```py\nx > 1 `y`\n```",
            "    indented > code",
            "| a | b |\n|---|---|\n| > 1 | 2 |",
            "> said",
            "[**b** `c` _i_](http://x.test/(a))",
            "one\n\ntwo > three",
            "---",
            "",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let mark = prop::sample::select(vec!["> ", "- ", "1. ", "* [ ] ", "> > ", "- > ", "> - "]);
        (mark, prop::collection::vec(inner, 1..3)).prop_map(|(mark, blocks)| {
            let mut out = String::new();
            for block in blocks {
                for (at, line) in block.lines().enumerate() {
                    // Quotes are marked on every line, lists on the first.
                    let begin = match (mark, at) {
                        (mark, 0) => mark.to_owned(),
                        ("> " | "> > ", _) => mark.to_owned(),
                        ("> - ", _) => ">   ".to_owned(),
                        ("- > ", _) => "  > ".to_owned(),
                        (mark, _) => " ".repeat(mark.len()),
                    };
                    out.push_str(&begin);
                    out.push_str(line);
                    out.push('\n');
                }
                out.push('\n');
            }
            out
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 192,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever a model writes, Telegram reads what we make of it, whole and in pieces.
    #[test]
    fn telegram_reads_what_is_made_of_any_markdown(text in prop_oneof![markdown(), nested()]) {
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
    let telegram = FakeTelegram::start();
    let platform = platform(&telegram, &json!({}));
    let mut capabilities = platform.outbound.capabilities().clone();
    capabilities.limits.text = 300;
    capabilities
}
