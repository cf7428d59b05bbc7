//! The web: guarded fetching, pages as text, search services, images for models.
//!
//! | module | what it does |
//! |---|---|
//! | [`guard`] | decides what may be fetched: addresses, names, redirects, the website blocklist |
//! | [`Fetcher`] | the HTTP client that enforces it |
//! | [`page`] | fetched content as text: HTML, PDF, JSON, plain |
//! | [`service`] | search services and page readers of vendors, and their selection |
//! | [`image`] | prepares images for models |

mod body;
mod fetcher;
pub mod guard;
pub mod image;
pub mod page;
pub mod service;

pub use fetcher::{FetchError, FetchOptions, FetchResponse, Fetcher, HttpBuilder, ServiceCall};
pub use guard::{BlockedUrl, Blocklist, GuardPolicy, UrlGuard};
