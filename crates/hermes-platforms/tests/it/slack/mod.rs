//! Slack against the fake that Slack's own SDK takes for Slack.

mod hearing;
mod life;
mod links;
mod speaking;
