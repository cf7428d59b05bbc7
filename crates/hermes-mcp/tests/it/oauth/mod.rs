//! OAuth against a server that does what the test says, against other processes, and against a
//! real authorization server.

mod bench;
mod discovery;
mod login;
mod processes;
mod real;
mod refresh;
mod server;
mod step_up;
mod watch;
