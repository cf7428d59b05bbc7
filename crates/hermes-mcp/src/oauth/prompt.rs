//! The person at the other end of a login.

use std::time::Duration;

use hermes_core::BoxFuture;

/// Where a person can be asked to open a page. Without one, nobody is there.
pub trait AuthPrompt: Send + Sync {
    /// Shows the page to open, and opens it where there is a browser.
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>>;
    /// The next line the person pasted. `None`: nothing can be pasted (any more).
    fn pasted(&self) -> BoxFuture<'_, Option<String>>;
    /// A remark that needs no answer.
    fn note(&self, text: &str);
}

/// A page on which a person grants access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPage {
    pub server: String,
    pub url: String,
    /// Where the browser ends up.
    pub redirect_uri: String,
    /// Whether we hear of it by ourselves. Otherwise the person has to paste the address.
    pub listening: bool,
    pub timeout: Duration,
}
