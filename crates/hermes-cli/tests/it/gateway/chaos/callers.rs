//! Programs that call the gateway by HTTP, and call again until they have an answer.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two attempts at the same call.
const PAUSE: Duration = Duration::from_millis(150);
/// A gateway that takes longer to answer is called again.
const PATIENCE: Duration = Duration::from_secs(20);

/// One call, the same at every attempt.
#[derive(Clone)]
pub(super) struct SentCall {
    pub(super) port: u16,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// What a caller makes of an answer.
pub(super) enum AfterCall {
    Done,
    /// The same once more.
    Again,
    /// Something else in its place.
    Instead(SentCall),
}

/// Whether callers go on.
#[derive(Clone, Default)]
pub(super) struct CallerHarness {
    over: Arc<AtomicBool>,
}

impl CallerHarness {
    /// Calls until `then` is content with the answer. `rude`: so many times it hangs up as soon as
    /// it has spoken, and never knows whether it was heard.
    pub(super) fn call(
        &self,
        mut call: SentCall,
        mut rude: u32,
        then: impl Fn(&SentCall, u16, &str) -> AfterCall + Send + 'static,
    ) {
        let over = Arc::clone(&self.over);
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                match call.attempt(rude > 0) {
                    Ok(None) => rude -= 1,
                    Ok(Some((status, body))) => match then(&call, status, &body) {
                        AfterCall::Done => return,
                        AfterCall::Again => {}
                        AfterCall::Instead(other) => call = other,
                    },
                    // It is not there.
                    Err(_) => {}
                }
                std::thread::sleep(PAUSE);
            }
        });
    }
}

impl Drop for CallerHarness {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl SentCall {
    /// `None`: it hung up without listening.
    fn attempt(&self, rude: bool) -> io::Result<Option<(u16, String)>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n",
            self.path,
            self.body.len()
        );
        for (name, value) in &self.headers {
            // Writing to a string does not fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{}", self.body).as_bytes())?;
        if rude {
            // It may be read before it is noticed.
            stream.shutdown(Shutdown::Write)?;
            std::thread::sleep(Duration::from_millis(30));
            return Ok(None);
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let whole = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .is_none_or(|(_, length)| length.parse() == Ok(body.len()));
        match status {
            Some(status) if whole => Ok(Some((status, body.to_owned()))),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
