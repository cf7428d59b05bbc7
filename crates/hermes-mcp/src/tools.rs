//! Tools of servers: calls, lists, names, schemas, results.
//!
//! | module | what it does |
//! |---|---|
//! | [`toolbox`], [`tool`] | the tools of all servers; one tool and its calls |
//! | [`catalogue`], [`naming`], [`schema`], [`result`] | lists, names, schemas and results |
//! | [`known_tools`], [`remembered`] | descriptions that changed; tool lists of lazy servers |

pub mod catalogue;
pub mod known_tools;
pub mod naming;
pub mod remembered;
pub mod result;
pub mod schema;
pub mod tool;
pub mod toolbox;
