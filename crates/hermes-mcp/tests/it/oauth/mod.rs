//! OAuth against a scripted server, concurrent processes, and a real authorization server.

mod bench;
mod discovery;
mod login;
mod processes;
mod real;
mod refresh;
mod server;
mod step_up;
mod watch;
