//! The OAuth redirect listener, and parsing of a pasted redirect URL.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Browsers open idle connections in advance.
const MAX_CONNECTIONS: usize = 32;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REQUEST_BYTES: usize = 32 * 1024;

/// The parameters that an authorization server appended to the redirect URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedirectResponse {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) iss: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

impl RedirectResponse {
    fn from_query(query: &str) -> Self {
        let mut values: HashMap<String, String> = HashMap::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if !value.is_empty() {
                values
                    .entry(name.into_owned())
                    .or_insert_with(|| value.into_owned());
            }
        }
        Self {
            code: values.remove("code"),
            state: values.remove("state"),
            iss: values.remove("iss"),
            error: values.remove("error"),
            error_description: values.remove("error_description"),
        }
    }

    /// Whether it answers the request with this `state`.
    fn answers(&self, state: &str) -> bool {
        self.state.as_deref() == Some(state) && (self.code.is_some() || self.error.is_some())
    }
}

/// A line that the user pasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pasted {
    Redirect(RedirectResponse),
    /// The user does not want to log in now.
    Skip,
    /// Unusable, with the reason.
    Invalid(&'static str),
}

/// Parses a pasted line: the URL, its query, or a word that cancels.
pub(crate) fn parse_pasted(line: &str, state: &str) -> Pasted {
    let line = line.trim();
    if ["skip", "cancel", "s", "n", "no", "q", "quit"]
        .iter()
        .any(|word| line.eq_ignore_ascii_case(word))
    {
        return Pasted::Skip;
    }
    let query = line.split_once('?').map_or(line, |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let redirect = RedirectResponse::from_query(query);
    if redirect.code.is_none() && redirect.error.is_none() {
        return Pasted::Invalid(
            "that has no code= in it: paste the whole address of the last page",
        );
    }
    match redirect.state.as_deref() {
        None => Pasted::Invalid("that has no state= in it: paste the whole address"),
        Some(other) if other != state => {
            Pasted::Invalid("that address belongs to another login: use the page shown last")
        }
        Some(_) => Pasted::Redirect(redirect),
    }
}

pub(crate) struct CallbackListener {
    listener: TcpListener,
    path: String,
}

impl CallbackListener {
    /// Listens on localhost only. Port 0 chooses a free port.
    pub(crate) async fn bind(port: u16, path: &str) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?,
            path: path.to_owned(),
        })
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves requests until one matches `state`. Other requests (icons, previews, other programs)
    /// get a response without effect.
    pub(crate) async fn wait(&self, state: &str) -> RedirectResponse {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => open.push(self.serve(stream, state)),
                    Err(error) => {
                        tracing::debug!(%error, "accept failed");
                        // Usually out of file descriptors; waiting is all that helps.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(done) = open.next() => if let Some(redirect) = done {
                    return redirect;
                },
            }
        }
    }

    async fn serve(&self, mut stream: TcpStream, state: &str) -> Option<RedirectResponse> {
        let work = async {
            let target = read_target(&mut stream).await?;
            let (status, page, redirect) = self.answer(target.as_deref(), state);
            // The redirect is valid even if the browser closed the connection before our response.
            let written = stream.write_all(response(status, &page).as_bytes()).await;
            if written.is_ok() {
                stream.shutdown().await.ok();
            }
            Ok::<_, io::Error>(redirect)
        };
        match tokio::time::timeout(CONNECTION_TIMEOUT, work).await {
            Ok(Ok(redirect)) => redirect,
            Ok(Err(error)) => {
                tracing::debug!(%error, "callback connection failed");
                None
            }
            Err(_) => None,
        }
    }

    fn answer(
        &self,
        target: Option<&str>,
        state: &str,
    ) -> (&'static str, String, Option<RedirectResponse>) {
        let Some(target) = target else {
            return (
                "405 Method Not Allowed",
                page("Only GET is served here."),
                None,
            );
        };
        let url = Url::parse("http://127.0.0.1").and_then(|base| base.join(target));
        let Some(url) = url.ok().filter(|url| url.path() == self.path) else {
            return ("404 Not Found", page("There is nothing here."), None);
        };
        let redirect = RedirectResponse::from_query(url.query().unwrap_or_default());
        if !redirect.answers(state) {
            let text = "This page belongs to no login that is waiting. Start again from Hermes.";
            return ("400 Bad Request", page(text), None);
        }
        let text = match &redirect.error {
            Some(error) => {
                let why = redirect.error_description.as_deref().unwrap_or_default();
                format!("Access was not granted: {error} {why}")
            }
            None => "Access was granted. You can close this page and go back to Hermes.".to_owned(),
        };
        ("200 OK", page(&text), Some(redirect))
    }
}

/// The target of a GET request; `None` for another method.
async fn read_target(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut chunk).await?;
        if read == 0 || bytes.len() + read > MAX_REQUEST_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "no complete request",
            ));
        }
        bytes.extend_from_slice(&chunk[..read]);
    }
    let head = String::from_utf8_lossy(&bytes);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    Ok(match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => Some(target.to_owned()),
        _ => None,
    })
}

fn page(text: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Hermes</title><body><p>{}</p></body></html>",
        escape(text)
    )
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn response(status: &str, page: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'\r\nX-Content-Type-Options: nosniff\r\n\r\n{page}",
        page.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(port: u16, head: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        stream
            .write_all(format!("{head}\r\nHost: x\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_right_callback_ends_the_wait() {
        let callback = CallbackListener::bind(0, "/callback").await.unwrap();
        let port = callback.port().unwrap();
        let visits = async {
            // An idle connection, as browsers open them in advance.
            let _silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .unwrap();
            for (head, status) in [
                ("GET /favicon.ico HTTP/1.1", "404"),
                ("GET / HTTP/1.1", "404"),
                ("GET /callback HTTP/1.1", "400"),
                ("GET /callback?code=evil&state=wrong HTTP/1.1", "400"),
                ("GET /callback?error=access_denied HTTP/1.1", "400"),
                ("GET /callback?state=right HTTP/1.1", "400"),
                ("HEAD /callback?code=c&state=right HTTP/1.1", "405"),
                ("POST /callback?code=c&state=right HTTP/1.1", "405"),
                ("GET //[ HTTP/1.1", "404"),
                (
                    "GET /callback?code=c%201&state=right&iss=https%3A%2F%2Fas HTTP/1.1",
                    "200",
                ),
            ] {
                let answer = get(port, head).await;
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{head}: {answer}"
                );
            }
        };
        let (redirect, ()) = tokio::join!(callback.wait("right"), visits);
        assert_eq!(redirect.code.as_deref(), Some("c 1"));
        assert_eq!(redirect.iss.as_deref(), Some("https://as"));
    }

    #[tokio::test]
    async fn what_the_page_repeats_is_escaped() {
        let callback = CallbackListener::bind(0, "/callback").await.unwrap();
        let port = callback.port().unwrap();
        let head = "GET /callback?state=s&error=%3Cscript%3E&error_description=%22%27%26 HTTP/1.1";
        let (redirect, answer) = tokio::join!(callback.wait("s"), get(port, head));
        assert_eq!(redirect.error.as_deref(), Some("<script>"));
        assert!(
            answer.contains("&lt;script&gt; &quot;&#39;&amp;"),
            "{answer}"
        );
        assert!(!answer.contains("<script>"), "{answer}");
    }

    #[test]
    fn pasted_lines() {
        let good = RedirectResponse {
            code: Some("c".to_owned()),
            state: Some("s".to_owned()),
            ..RedirectResponse::default()
        };
        for line in [
            "http://127.0.0.1:1/callback?code=c&state=s",
            "  https://other.example/cb?state=s&code=c#frag \n",
            "?code=c&state=s",
            "code=c&state=s",
        ] {
            assert_eq!(
                parse_pasted(line, "s"),
                Pasted::Redirect(good.clone()),
                "{line}"
            );
        }
        for line in ["skip", " Q ", "NO"] {
            assert_eq!(parse_pasted(line, "s"), Pasted::Skip);
        }
        for line in ["", "c", "?code=c", "?code=c&state=old", "http://x/?state=s"] {
            assert!(
                matches!(parse_pasted(line, "s"), Pasted::Invalid(_)),
                "{line}"
            );
        }
    }
}
