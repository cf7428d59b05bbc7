//! Classifies an answer: final, empty, cut off, only reasoning, announced but not done. Each case
//! has its own limit.

use hermes_core::event::TurnExit;
use hermes_core::message::{AssistantMessage, FinishReason};

use crate::repair::RepairedArguments;

/// How often each rule was applied in this turn.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleCounts {
    pub continued: u32,
    pub incomplete: u32,
    pub cut_calls: u32,
    pub empty_nudges: u32,
    pub thoughts: u32,
    pub empty: u32,
    pub intents: u32,
    pub fell_back: bool,
    pub unknown_tools: u32,
}

const MAX_CONTINUATIONS: u32 = 4;
const MAX_INCOMPLETE: u32 = 3;
const MAX_CUT_CALLS: u32 = 4;
const MAX_THOUGHT_NUDGES: u32 = 2;
const MAX_EMPTY: u32 = 3;
const MAX_INTENT_NUDGES: u32 = 2;
pub(super) const MAX_UNKNOWN_TOOLS: u32 = 3;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AnswerVerdict {
    /// The calls are complete: run them.
    Tools,
    /// This is the answer.
    Answer,
    /// This is as much of the answer as is wanted.
    LongEnough,
    /// Keep what is there and let the model continue.
    Continue {
        cut: bool,
    },
    /// Forget the answer and ask again, with more room.
    AskAgain,
    /// Forget the answer and ask for smaller calls.
    SmallerSteps,
    /// Nothing came after tool results.
    NudgeEmpty,
    /// The format's own "not finished", with nothing in it.
    NudgeIncomplete,
    /// Thoughts without an answer.
    NudgeThoughts,
    /// Work announced and not done.
    NudgeIntent,
    /// The same request again.
    Repeat,
    /// Another model may do better; if there is none, the exit.
    Fallback(TurnExit),
    /// A text of an earlier step was the answer.
    Earlier(String),
    End(TurnExit),
}

/// What the judgement rests on.
pub(super) struct AnswerFacts<'a> {
    pub message: &'a AssistantMessage,
    pub counts: &'a RuleCounts,
    /// Tool results precede this answer in the turn.
    pub after_tools: bool,
    /// The text of the step before, if it ran nothing but housekeeping tools.
    pub earlier: Option<&'a str>,
    pub intent_nudges: bool,
    /// The model is a small one: what it did not end by itself, it would not end in more room.
    pub small: bool,
}

pub(super) fn judge(facts: &AnswerFacts<'_>) -> AnswerVerdict {
    let message = facts.message;
    if message.finish == Some(FinishReason::ContentFilter) {
        return filtered(facts);
    }
    if !message.tool_calls.is_empty() {
        return judge_calls(facts);
    }
    if message.text.trim().is_empty() {
        return judge_empty(facts);
    }
    match message.finish {
        Some(FinishReason::Length) if facts.small => AnswerVerdict::LongEnough,
        Some(FinishReason::Length) => go_on(facts, false),
        Some(FinishReason::Cut | FinishReason::Other(_)) | None => go_on(facts, true),
        Some(FinishReason::Incomplete) if facts.counts.incomplete < MAX_INCOMPLETE => {
            AnswerVerdict::Continue { cut: false }
        }
        Some(FinishReason::Incomplete) => partial("the model did not finish it"),
        _ if facts.intent_nudges
            && facts.counts.intents < MAX_INTENT_NUDGES
            && !facts.after_tools
            && announces_work(&message.text) =>
        {
            AnswerVerdict::NudgeIntent
        }
        _ => AnswerVerdict::Answer,
    }
}

fn partial(why: &str) -> AnswerVerdict {
    AnswerVerdict::End(TurnExit::Partial { why: why.into() })
}

fn filtered(facts: &AnswerFacts<'_>) -> AnswerVerdict {
    let exit = TurnExit::Refused {
        message: "its content filter stopped the answer".into(),
    };
    if facts.counts.fell_back {
        AnswerVerdict::End(exit)
    } else {
        AnswerVerdict::Fallback(exit)
    }
}

fn go_on(facts: &AnswerFacts<'_>, cut: bool) -> AnswerVerdict {
    if facts.counts.continued < MAX_CONTINUATIONS {
        AnswerVerdict::Continue { cut }
    } else if cut {
        partial("the connection broke again and again")
    } else {
        partial("it is longer than the model may write, even in several parts")
    }
}

fn judge_calls(facts: &AnswerFacts<'_>) -> AnswerVerdict {
    let calls = &facts.message.tool_calls;
    let cut = facts
        .message
        .finish
        .as_ref()
        .is_none_or(FinishReason::is_cut);
    // Of a stream that broke, only calls that are visibly complete count. An empty object may stand
    // for arguments that were still to come.
    let whole = |text: &str| {
        !matches!(text.trim(), "" | "{}")
            && matches!(RepairedArguments::read(text), RepairedArguments::Exact(_))
    };
    if cut && calls.iter().all(|call| whole(&call.arguments)) {
        return AnswerVerdict::Tools;
    }
    let truncated = calls
        .iter()
        .any(|call| RepairedArguments::read(&call.arguments).is_truncated());
    let too_long = facts.message.finish == Some(FinishReason::Length);
    if !cut && !truncated && !too_long {
        return AnswerVerdict::Tools;
    }
    if facts.counts.cut_calls >= MAX_CUT_CALLS {
        partial("its tool call was cut off each time, so it was not run")
    } else if cut {
        AnswerVerdict::SmallerSteps
    } else {
        AnswerVerdict::AskAgain
    }
}

fn judge_empty(facts: &AnswerFacts<'_>) -> AnswerVerdict {
    let counts = facts.counts;
    let thoughts = facts
        .message
        .reasoning
        .as_ref()
        .is_some_and(|text| !text.trim().is_empty());
    if thoughts && facts.message.finish == Some(FinishReason::Length) {
        return AnswerVerdict::End(TurnExit::NoAnswer {
            why: "it spent its whole budget on thinking; lower the reasoning effort or raise max_tokens".into(),
        });
    }
    if facts.message.finish == Some(FinishReason::Incomplete) && counts.incomplete < MAX_INCOMPLETE
    {
        return AnswerVerdict::NudgeIncomplete;
    }
    if let Some(text) = facts.earlier {
        return AnswerVerdict::Earlier(text.to_owned());
    }
    if facts.after_tools && counts.empty_nudges == 0 {
        return AnswerVerdict::NudgeEmpty;
    }
    if thoughts && counts.thoughts < MAX_THOUGHT_NUDGES {
        return AnswerVerdict::NudgeThoughts;
    }
    if counts.empty < MAX_EMPTY {
        return AnswerVerdict::Repeat;
    }
    let exit = TurnExit::NoAnswer {
        why: if thoughts {
            "only thoughts came, several times".into()
        } else {
            "its answers were empty, several times".into()
        },
    };
    if counts.fell_back {
        AnswerVerdict::End(exit)
    } else {
        AnswerVerdict::Fallback(exit)
    }
}

/// Whether a short text only says what is about to be done.
fn announces_work(text: &str) -> bool {
    const MAX_INTENT_CHARS: usize = 1_200;
    const FUTURE: [&str; 8] = [
        "i'll ",
        "i’ll ",
        "i will ",
        "let me ",
        "i'm going to ",
        "i’m going to ",
        "i am going to ",
        "i can do that",
    ];
    const WORK: [&str; 18] = [
        "look",
        "inspect",
        "scan",
        "check",
        "analy",
        "review",
        "explore",
        "read",
        "open",
        "run",
        "test",
        "fix",
        "debug",
        "search",
        "find",
        "report back",
        "summari",
        "start",
    ];
    if text.len() > MAX_INTENT_CHARS || text.trim_end().ends_with('?') {
        return false;
    }
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    has(&FUTURE) && has(&WORK)
}

#[cfg(test)]
mod tests {
    use hermes_core::message::ToolCall;

    use super::*;

    fn text(text: &str, finish: FinishReason) -> AssistantMessage {
        AssistantMessage {
            text: text.into(),
            finish: Some(finish),
            ..AssistantMessage::default()
        }
    }

    fn call(arguments: &str, finish: FinishReason) -> AssistantMessage {
        AssistantMessage {
            tool_calls: vec![ToolCall {
                name: "write_file".into(),
                arguments: arguments.into(),
                ..ToolCall::default()
            }],
            finish: Some(finish),
            ..AssistantMessage::default()
        }
    }

    fn thoughts(finish: FinishReason) -> AssistantMessage {
        AssistantMessage {
            reasoning: Some("hm".into()),
            ..text("", finish)
        }
    }

    fn verdict(
        message: &AssistantMessage,
        counts: &RuleCounts,
        after_tools: bool,
    ) -> AnswerVerdict {
        judge(&AnswerFacts {
            message,
            counts,
            after_tools,
            earlier: None,
            intent_nudges: false,
            small: false,
        })
    }

    fn first(message: &AssistantMessage) -> AnswerVerdict {
        verdict(message, &RuleCounts::default(), false)
    }

    fn exits(verdict: &AnswerVerdict) -> bool {
        matches!(verdict, AnswerVerdict::End(_))
    }

    #[test]
    fn plain_answers_and_complete_calls_pass() {
        assert_eq!(
            first(&text("hi", FinishReason::Stop)),
            AnswerVerdict::Answer
        );
        assert_eq!(first(&call("{}", FinishReason::Stop)), AnswerVerdict::Tools);
        assert_eq!(
            first(&call("", FinishReason::ToolCalls)),
            AnswerVerdict::Tools
        );
        assert_eq!(
            first(&call("nonsense}", FinishReason::ToolCalls)),
            AnswerVerdict::Tools
        );
    }

    #[test]
    fn cut_text_goes_on_four_times() {
        let cut = text("half", FinishReason::Length);
        assert_eq!(first(&cut), AnswerVerdict::Continue { cut: false });
        let broken = text("half", FinishReason::Cut);
        assert_eq!(first(&broken), AnswerVerdict::Continue { cut: true });
        // A reason that is not known to be good is none.
        for word in [
            "error",
            "network_error",
            "insufficient_system_resource",
            "7",
        ] {
            let ended = text("half", FinishReason::Other(word.into()));
            assert_eq!(
                first(&ended),
                AnswerVerdict::Continue { cut: true },
                "{word}"
            );
            let call = call(r#"{"a":"#, FinishReason::Other(word.into()));
            assert_eq!(first(&call), AnswerVerdict::SmallerSteps, "{word}");
        }
        let counts = RuleCounts {
            continued: 4,
            ..RuleCounts::default()
        };
        assert!(exits(&verdict(&cut, &counts, false)));
    }

    #[test]
    fn a_small_model_that_finds_no_end_is_not_given_more_room() {
        let small = |message: &AssistantMessage| {
            judge(&AnswerFacts {
                message,
                counts: &RuleCounts::default(),
                after_tools: false,
                earlier: None,
                intent_nudges: false,
                small: true,
            })
        };
        let rambling = text("and so on", FinishReason::Length);
        assert_eq!(small(&rambling), AnswerVerdict::LongEnough);
        // A broken connection is no fault of the model.
        let broken = text("half", FinishReason::Cut);
        assert_eq!(small(&broken), AnswerVerdict::Continue { cut: true });
    }

    #[test]
    fn cut_calls_are_never_run() {
        assert_eq!(
            first(&call(r#"{"a":"#, FinishReason::ToolCalls)),
            AnswerVerdict::AskAgain
        );
        assert_eq!(
            first(&call("{}", FinishReason::Length)),
            AnswerVerdict::AskAgain
        );
        assert_eq!(
            first(&call(r#"{"a":"#, FinishReason::Cut)),
            AnswerVerdict::SmallerSteps
        );
        assert_eq!(
            first(&call("", FinishReason::Cut)),
            AnswerVerdict::SmallerSteps
        );
        assert_eq!(
            first(&call("{}", FinishReason::Cut)),
            AnswerVerdict::SmallerSteps
        );
        assert_eq!(
            first(&call(r#"{"a":1}"#, FinishReason::Cut)),
            AnswerVerdict::Tools
        );
        let counts = RuleCounts {
            cut_calls: 4,
            ..RuleCounts::default()
        };
        assert!(exits(&verdict(
            &call("{", FinishReason::Length),
            &counts,
            false
        )));
    }

    #[test]
    fn an_empty_answer_after_tools_is_nudged_once_then_repeated_then_another_model_is_tried() {
        let empty = text(" ", FinishReason::Stop);
        let mut counts = RuleCounts::default();
        assert_eq!(verdict(&empty, &counts, true), AnswerVerdict::NudgeEmpty);
        counts.empty_nudges = 1;
        assert_eq!(verdict(&empty, &counts, true), AnswerVerdict::Repeat);
        counts.empty = 3;
        assert!(matches!(
            verdict(&empty, &counts, true),
            AnswerVerdict::Fallback(_)
        ));
        counts.fell_back = true;
        assert!(exits(&verdict(&empty, &counts, true)));
    }

    #[test]
    fn thoughts_alone_are_nudged_twice_and_end_when_the_budget_is_gone() {
        assert_eq!(
            first(&thoughts(FinishReason::Stop)),
            AnswerVerdict::NudgeThoughts
        );
        let counts = RuleCounts {
            thoughts: 2,
            ..RuleCounts::default()
        };
        let again = verdict(&thoughts(FinishReason::Stop), &counts, false);
        assert_eq!(again, AnswerVerdict::Repeat);
        assert!(exits(&first(&thoughts(FinishReason::Length))));
    }

    #[test]
    fn a_filtered_answer_is_never_repeated() {
        let filtered = text("", FinishReason::ContentFilter);
        assert!(matches!(
            first(&filtered),
            AnswerVerdict::Fallback(TurnExit::Refused { .. })
        ));
        let counts = RuleCounts {
            fell_back: true,
            ..RuleCounts::default()
        };
        assert!(exits(&verdict(&filtered, &counts, false)));
    }

    #[test]
    fn the_text_before_housekeeping_counts_as_the_answer() {
        let message = text("", FinishReason::Stop);
        let verdict = judge(&AnswerFacts {
            message: &message,
            counts: &RuleCounts::default(),
            after_tools: true,
            earlier: Some("Done."),
            intent_nudges: false,
            small: false,
        });
        assert_eq!(verdict, AnswerVerdict::Earlier("Done.".into()));
    }

    #[test]
    fn announced_work_is_nudged_only_where_asked_for() {
        let message = text("I'll check the logs now.", FinishReason::Stop);
        assert_eq!(first(&message), AnswerVerdict::Answer);
        let nudged = |message: &AssistantMessage| {
            judge(&AnswerFacts {
                message,
                counts: &RuleCounts::default(),
                after_tools: false,
                earlier: None,
                intent_nudges: true,
                small: false,
            })
        };
        assert_eq!(nudged(&message), AnswerVerdict::NudgeIntent);
        let question = text("I'll check the logs. Which ones?", FinishReason::Stop);
        assert_eq!(nudged(&question), AnswerVerdict::Answer);
    }
}
