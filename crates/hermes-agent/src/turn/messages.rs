//! Messages of the engine to the model.

pub(super) const GO_ON: &str = "Your answer was cut off by the length limit. Continue exactly where it stopped; repeat nothing.";
pub(super) const GO_ON_CUT: &str = "The connection broke in the middle of your answer. Continue exactly where it stopped; repeat nothing.";
pub(super) const SMALLER_STEPS: &str = "The connection broke while you were writing a tool call, so it was not run. Make the call again with shorter arguments: write long content in several calls of at most about 8000 tokens each.";
pub(super) const BROKEN_CALL: &str = "(a tool call that broke off)";
pub(super) const EMPTY: &str = "(empty)";
pub(super) const EMPTY_AFTER_TOOLS: &str = "You have the results of your tool calls, but your answer was empty. Look at the results and go on: take the next step, or answer the request.";
pub(super) const ONLY_THOUGHTS: &str = "(thoughts without an answer)";
pub(super) const SAY_IT: &str =
    "Your answer held thoughts but nothing to read. Give the answer itself now, or call a tool.";
pub(super) const INCOMPLETE: &str = "Your answer ended before it was complete. Go on.";
pub(super) const DO_IT: &str = "You said what you are about to do, but did nothing. Do it now with your tools; answer when it is done.";
pub(super) const BUDGET_GONE: &str = "The limit of steps for this request is reached: no more tools can be called. Say what was done, what was found, and what remains to be done.";
pub(super) const STOPPED: &str = "[The user stopped this turn here.]";
pub(super) const UNFINISHED: &str =
    "[This answer was cut off here: Hermes ended before it was finished.]";
pub(super) const SKIPPED_STOP: &str = "Not run: the user stopped the turn.";
pub(super) const SKIPPED_LATE: &str =
    "Not run: the calls before it took all the time. Make fewer calls at once.";
pub(super) const SKIPPED_GUARD: &str = "Not run: the turn was stopped because it went in circles.";

/// The row that ends a turn whose last row is a tool result.
pub(super) fn ended(why: &str) -> String {
    format!("[This turn ended without an answer: {why}]")
}

/// Told to the person, not to the model.
pub(super) const LONG_ENOUGH: &str =
    "The answer was stopped here: a small model seldom finds the end by itself.";
