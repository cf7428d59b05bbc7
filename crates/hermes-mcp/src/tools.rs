//! Tools of servers: calls, lists, names, schemas, results.
//!
//! | module | purpose |
//! |---|---|
//! | [`toolbox`], [`tool`] | the tools of all servers; one tool and its calls |
//! | [`catalogue`], [`naming`], [`schema`], [`result`] | lists, names, schemas and results |
//! | [`known_tools`], [`remembered`] | changed descriptions; tool lists of lazy servers |

pub(crate) mod catalogue;
pub(crate) mod known_tools;
pub mod naming;
pub(crate) mod remembered;
pub(crate) mod result;
pub(crate) mod schema;
pub(crate) mod tool;
pub(crate) mod toolbox;
