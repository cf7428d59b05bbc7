//! The web: guarded fetching, pages as text, search services, images made fit for models.
//!
//! | module | what it does |
//! |---|---|
//! | [`guard`] | decides what may be fetched: addresses, names, redirects, the website blocklist |
//! | [`Fetcher`] | the HTTP client that obeys it |
//! | [`page`] | what was fetched, as text: HTML, PDF, JSON, plain |
//! | [`service`] | search services and page readers of vendors, and who of them is asked |
//! | [`image`] | images made fit for models |

mod body;
mod fetcher;
pub mod guard;
pub mod image;
pub mod page;
pub mod service;

pub use fetcher::{Call, FetchError, Fetched, Fetcher, HttpBuilder, Want};
pub use guard::{Blocked, Blocklist, Guard, Policy};
