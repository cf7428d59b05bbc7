//! The scripted model server as a program: `scripted-model <script.json> [port]`.
//!
//! Prints `{"base_url": …}` on its first line, then one line of JSON per request. Ends when its
//! standard input does, so that it never outlives the program that started it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the test kit talks to whoever started it"
)]

use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use hermes_testkit::model_server::{ModelServer, RecordedRequest, load_script};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: scripted-model <script.json> [port]");
        return ExitCode::from(2);
    };
    match start(&path, args.next().as_deref()) {
        Ok(server) => {
            println!("{}", json!({"base_url": server.base_url()}));
            let server = Arc::new(server);
            let reporter = server.clone();
            // Detached: it waits for a request that may never come.
            std::thread::spawn(move || report(&reporter));
            // Whatever ends the pipe ends the server.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("scripted-model: {message}");
            ExitCode::FAILURE
        }
    }
}

fn start(path: &str, port: Option<&str>) -> Result<ModelServer, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let script = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let port: u16 = match port {
        Some(text) => text
            .parse()
            .map_err(|_| format!("{text:?} is not a port"))?,
        None => 0,
    };
    let server = ModelServer::start_on(SocketAddr::from(([127, 0, 0, 1], port)));
    load_script(&server, &script).map_err(|error| format!("{path}: {error}"))?;
    Ok(server)
}

/// One line when a request arrived, one when its answer was complete.
fn report(server: &ModelServer) {
    let (mut requests, mut answers) = (0, 0);
    loop {
        let now = server.block_until(|now| now.requests > requests || now.answered > answers);
        let lines = server.map_requests(requests..now.requests, arrival);
        for line in lines {
            println!("{line}");
        }
        for answer in &server.answers()[answers..now.answered] {
            println!(
                "{}",
                json!({"answered": answer.index, "ns": answer.ns as u64})
            );
        }
        (requests, answers) = (now.requests, now.answered);
    }
}

fn arrival(request: &RecordedRequest) -> Value {
    json!({
        "arrived": request.index,
        "ns": request.arrived_ns as u64,
        "model_call": request.format().is_some(),
        "path": request.path,
        "model": request.model(),
        "bytes": request.raw.len(),
        "tool_results": request.tool_results().len(),
    })
}
