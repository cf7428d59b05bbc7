//! The interface for interactive logins.

use std::time::Duration;

use hermes_core::BoxFuture;

/// Asks the user to open a page.
pub trait AuthPrompt: Send + Sync {
    /// Shows the page, and opens it if there is a browser.
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>>;
    /// The next line the user pasted; `None` if pasting is not possible (any more).
    fn pasted(&self) -> BoxFuture<'_, Option<String>>;
    /// Shows a message.
    fn note(&self, text: &str);
}

/// A page on which the user grants access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPage {
    pub server: String,
    pub url: String,
    /// The URL to which the browser is redirected.
    pub redirect_uri: String,
    /// Whether a listener receives the redirect. Otherwise the user has to paste the URL.
    pub listening: bool,
    pub timeout: Duration,
}
