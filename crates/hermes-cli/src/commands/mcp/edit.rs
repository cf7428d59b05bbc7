//! Changing `mcp_servers` of config.yaml; comments and everything else stay.

use hermes_app::AppContext;
use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use serde_json::Value;

use crate::exit::{Exit, Failure, Outcome};

/// One change below `mcp_servers.<name>`; `None` removes.
pub(crate) type ServerEdit<'a> = (&'a [&'a str], Option<Value>);

/// Makes all changes or none.
pub(crate) fn apply(cx: &AppContext, server: &str, changes: &[ServerEdit<'_>]) -> Outcome {
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(|error| failure(&error))?;
    for (path, value) in changes {
        let path = KeyPath::new(["mcp_servers", server].iter().chain(*path).copied());
        match value {
            Some(value) => doc.set(&path, value),
            None => doc.unset(&path),
        }
        .map_err(|error| failure(&error))?;
    }
    doc.save().map_err(|error| failure(&error))?;
    Ok(())
}

fn failure(error: &EditError) -> Failure {
    let exit = match error {
        EditError::Changed(_) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
