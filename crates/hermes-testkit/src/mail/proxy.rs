//! A stretch of network with weather, between a client and a server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What happens to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailFault {
    Fine,
    /// Connections are closed as soon as they come.
    Refuse,
    /// Nothing passes any more, and nothing is closed: the other end is gone and nobody says so.
    Silence,
    /// The end of a mail (a dot on a line of its own) reaches the server, and then the client's
    /// connection is cut before an answer can be.
    CutAfterDot,
    /// The connection is cut before the end of a mail reaches the server.
    CutBeforeDot,
}

/// Passes connections on to a port of this machine.
#[derive(Debug)]
pub struct MailProxy {
    port: u16,
    state: Arc<MailProxyState>,
}

#[derive(Debug)]
struct MailProxyState {
    weather: Mutex<MailFault>,
    connections: AtomicUsize,
    /// The weather is fine again after the next mail.
    once: Mutex<bool>,
    /// Both ends of every connection that is open, or was.
    open: Mutex<Vec<TcpStream>>,
}

impl MailProxyState {
    fn weather(&self) -> MailFault {
        *self.weather.lock().expect("the weather")
    }

    /// A mail has met the weather.
    fn met(&self) {
        if std::mem::take(&mut *self.once.lock().expect("the weather")) {
            *self.weather.lock().expect("the weather") = MailFault::Fine;
        }
    }
}

impl MailProxy {
    /// Lives as long as the test.
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(MailProxyState {
            weather: Mutex::new(MailFault::Fine),
            connections: AtomicUsize::new(0),
            once: Mutex::default(),
            open: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                if shared.weather() == MailFault::Refuse {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    // As if nobody listened here either.
                    continue;
                };
                pass(&shared, &client, &server);
                let mut open = shared.open.lock().expect("connections");
                open.retain(|one| one.peer_addr().is_ok());
                open.extend([client, server]);
            }
        });
        Self { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn weather(&self, weather: MailFault) {
        *self.state.weather.lock().expect("the weather") = weather;
    }

    /// Every connection of now breaks.
    pub fn cut(&self) {
        for one in self.state.open.lock().expect("connections").drain(..) {
            // Gone already is as good.
            let _ = one.shutdown(Shutdown::Both);
        }
    }

    /// The next mail only: its connection breaks before its end reaches the server, or after.
    pub fn cut_next(&self, weather: MailFault) {
        self.weather(weather);
        *self.state.once.lock().expect("the weather") = true;
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

fn pass(state: &Arc<MailProxyState>, client: &TcpStream, server: &TcpStream) {
    for (from, to, outward) in [(client, server, true), (server, client, false)] {
        let (from, to) = (
            from.try_clone().expect("a socket"),
            to.try_clone().expect("a socket"),
        );
        let state = Arc::clone(state);
        std::thread::spawn(move || pump(&state, from, to, outward));
    }
}

fn pump(state: &MailProxyState, mut from: TcpStream, mut to: TcpStream, outward: bool) {
    let mut buffer = vec![0; 64 * 1024];
    let close = |a: &TcpStream, b: &TcpStream| {
        let _ = (a.shutdown(Shutdown::Both), b.shutdown(Shutdown::Both));
    };
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let ends = outward && buffer[..count].ends_with(b"\r\n.\r\n");
        match state.weather() {
            MailFault::Silence => continue,
            MailFault::CutBeforeDot if ends => {
                state.met();
                return close(&from, &to);
            }
            MailFault::CutAfterDot if ends => {
                state.met();
                // The server has it, and whatever it says is lost.
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.write_all(&buffer[..count]);
                return;
            }
            _ => {}
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    close(&from, &to);
}
