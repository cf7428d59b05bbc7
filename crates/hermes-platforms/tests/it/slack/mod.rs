//! Slack against the fake that Slack's own SDK takes for Slack.

mod harness;
mod hearing;
mod links;
mod speaking;
