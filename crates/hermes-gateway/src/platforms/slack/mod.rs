//! Slack.
