//! `hermes-local`: serves one model on loopback, and tells how good it is at calling tools.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hermes_local::engine::EngineOptions;
use hermes_local::eval::{self, EvalReport};
use hermes_local::generation::{self, ModelSession};
use hermes_local::measure;
use hermes_local::server::{self, LocalServerSettings, ServerExit};

#[derive(Parser)]
#[command(
    name = "hermes-local",
    version,
    about = "A small open model on the CPU, for Hermes"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a model on 127.0.0.1 as long as somebody uses it
    Serve(Serve),
    /// Try forty prompts with tools and count the calls that are right
    Eval(Eval),
    /// Continue a text greedily and tell how fast that was, as JSON
    Measure(Measure),
    /// Find out in a moment whether tools are worth offering to a model; tells it as JSON
    Probe(Model),
}

#[derive(Args)]
struct Eval {
    #[command(flatten)]
    model: Model,
    /// Tell everything as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Measure {
    #[command(flatten)]
    model: Model,
    /// The file with the text
    #[arg(long)]
    prompt: PathBuf,
    /// Tokens to continue it with
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// How often, each time from the start
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Args)]
struct Model {
    /// The model's file (GGUF)
    #[arg(long = "model", value_name = "MODEL")]
    file: PathBuf,
    /// Where weights in the form that is computed with are kept
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Threads; as many as there are cores if not given
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Tokens of context, if less than the model has
    #[arg(long)]
    context: Option<usize>,
}

impl Model {
    fn options(&self) -> EngineOptions {
        EngineOptions {
            threads: self.threads,
            cache: self.cache.clone(),
            context: self.context,
        }
    }

    fn open(&self) -> generation::ModelOpener {
        generation::file(self.file.clone(), self.options())
    }
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    model: Model,
    /// The file that tells others where the server is
    #[arg(long)]
    run: PathBuf,
    /// Seconds without a request after which the server ends
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    idle: f64,
    /// Seconds without a lease after which the server ends
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    grace: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=31_536_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds, at most those of a year".to_owned()),
    }
}

/// Exit code: another server is already running.
const EXIT_ALREADY_RUNNING: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    match arguments.command {
        Command::Serve(serve) => run_server(&serve),
        Command::Eval(eval) => report(try_out(&eval.model, false), eval.json),
        Command::Measure(measure) => tell(measured(&measure)),
        Command::Probe(model) => report(try_out(&model, true), true),
    }
}

fn complain(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "hermes-local: {error}");
}

fn try_out(model: &Model, probe: bool) -> anyhow::Result<EvalReport> {
    let mut session = ModelSession::new(model.open()()?)?;
    let report = eval::run(&mut session, probe, &mut |tried| {
        tracing::info!(
            "{:?}: {:?} → {:?}",
            tried.verdict,
            tried.prompt,
            tried.answer
        );
    })?;
    Ok(report)
}

fn measured(measure: &Measure) -> anyhow::Result<serde_json::Value> {
    let text = std::fs::read_to_string(&measure.prompt)?;
    let model = &measure.model;
    let options = model.options();
    measure::run(&model.file, &options, &text, measure.tokens, measure.rounds)
}

fn tell(result: anyhow::Result<serde_json::Value>) -> ExitCode {
    match result {
        Ok(result) if writeln!(std::io::stdout(), "{result}").is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn report(report: anyhow::Result<EvalReport>, json: bool) -> ExitCode {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let mut out = std::io::stdout();
    let written = if json {
        writeln!(out, "{}", report.to_json())
    } else {
        write!(out, "{}", report.to_text())
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run_server(serve: &Serve) -> ExitCode {
    let settings = LocalServerSettings {
        model: serve.model.file.clone(),
        run: serve.run.clone(),
        idle: Duration::from_secs_f64(serve.idle),
        grace: Duration::from_secs_f64(serve.grace),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let ready = || {
        let mut out = std::io::stdout();
        // There may be no reader.
        let _ = writeln!(out, "ready").and_then(|()| out.flush());
    };
    let ended = runtime.block_on(server::serve(settings, serve.model.open(), ready));
    // The model's thread may be busy: it ends with the process.
    runtime.shutdown_background();
    match ended {
        Ok(reason) => {
            tracing::info!("the server ends: {reason:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error);
            match error {
                ServerExit::Taken(_) => ExitCode::from(EXIT_ALREADY_RUNNING),
                ServerExit::Failed(_) => ExitCode::FAILURE,
            }
        }
    }
}
