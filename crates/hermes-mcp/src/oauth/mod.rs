//! OAuth 2.1 for MCP servers over HTTP.
//!
//! | module | for |
//! |---|---|
//! | [`client`] | the token source of one server: reads, renews, replaces, watches |
//! | `login` | interactive login, through an [`AuthPrompt`] |
//! | `renew` | refresh tokens, once for all tasks and processes |
//! | `discover` | the authorization server and its endpoints (RFC 9728, RFC 8414, OpenID Connect) |
//! | `identity` | the client identity (configured, CIMD, RFC 7591) |
//! | [`store`] | the files, shared with the original |
//! | [`challenge`] | the `WWW-Authenticate` header |

mod callback;
pub(crate) mod challenge;
pub(crate) mod client;
mod context;
mod discover;
pub(crate) mod error;
mod grant;
mod http;
mod identity;
mod login;
mod pkce;
pub(crate) mod prompt;
mod renew;
mod scope;
pub(crate) mod store;
mod tokens;

pub use client::{OAuthClient, OAuthParts};
pub use error::{OAuthError, OAuthErrorKind};
pub use prompt::{AuthPrompt, LoginPage};
