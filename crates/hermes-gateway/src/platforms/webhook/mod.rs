//! Webhooks of other services.
