//! Telegram.
