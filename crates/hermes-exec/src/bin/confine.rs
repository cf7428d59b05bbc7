//! A standalone helper that confines itself and becomes a command: `confine __confine <spec> -- …`.

fn main() -> std::process::ExitCode {
    hermes_exec::sandbox::confine_main(std::env::args_os().skip(2))
}
