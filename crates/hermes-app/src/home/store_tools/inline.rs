//! Commands that stand in the text of a skill (`skills.inline_shell`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::redact;
use hermes_store::skills::{inline_commands, with_outputs};

/// Characters of one output.
const MAX_OUTPUT: usize = 4_000;

/// A command of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineLine {
    pub command: String,
    /// The directory of the skill.
    pub dir: Option<PathBuf>,
}

/// Runs such a command and gives what it wrote. `Err`: why there is nothing.
pub type RunInline =
    Arc<dyn Fn(InlineLine) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// The text with the outputs of its commands in their places. What cannot be run says why.
pub async fn expand_inline(text: String, dir: Option<&Path>, run: Option<&RunInline>) -> String {
    let Some(run) = run else { return text };
    let mut outputs = Vec::new();
    for found in inline_commands(&text) {
        let output = if found.command.is_empty() {
            String::new()
        } else {
            let line = InlineLine {
                command: found.command.clone(),
                dir: dir.map(Path::to_owned),
            };
            match run(line).await {
                Ok(output) => shortened(&redact::secrets(output.trim_end_matches('\n'))),
                Err(why) => format!("[not run: {}: {}]", found.command, redact::secrets(&why)),
            }
        };
        outputs.push((found, output));
    }
    with_outputs(&text, &outputs)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_OUTPUT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… [cut]", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner() -> RunInline {
        Arc::new(|line: InlineLine| {
            Box::pin(async move {
                match line.command.as_str() {
                    "long" => Ok("x".repeat(9_000)),
                    "bad" => Err("refused".to_owned()),
                    other => Ok(format!("<{other} in {:?}>\n\n", line.dir)),
                }
            })
        })
    }

    #[tokio::test]
    async fn outputs_are_bounded_and_failures_say_why() {
        let run = runner();
        let text = "a !`one` b !`bad` c !`long` d !` `.".to_owned();
        let filled = expand_inline(text, Some(Path::new("/s")), Some(&run)).await;
        assert!(filled.starts_with("a <one in Some(\"/s\")> b [not run: bad: refused] c xxx"));
        assert!(filled.ends_with("x… [cut] d ."), "{filled}");
        assert!(filled.chars().count() < 4_200);
    }

    #[tokio::test]
    async fn switched_off_the_text_stays() {
        let text = "a !`one`".to_owned();
        assert_eq!(expand_inline(text.clone(), None, None).await, text);
    }
}
