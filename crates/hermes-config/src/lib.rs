//! The home directory, config.yaml, .env and profiles: load, validate, edit without losing comments
