//! The program `userdma`: a demo that explains itself, a list of devices, a decoder of captures, measurements.
//!
//! Floor 7. Everything is here; the binary only calls [`run()`].

#![forbid(unsafe_code)]

pub mod agent;
pub mod args;
pub mod bench;
pub mod capture;
pub mod demo;
pub mod devices;
mod failure;
pub mod measure;
pub mod pair;
pub mod run;

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
pub use failure::Failure;

/// Runs the program with these arguments (the first is its name) and returns its exit status: 0 if all went well, 1 if
/// not, 2 if the arguments are wrong.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return tell(&error),
    };
    match dispatch(cli.command.unwrap_or_else(|| Command::Demo(args::DemoArgs::default()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

/// Prints what is wrong with the arguments. Help and version are such "errors" too, and end with 0.
fn tell(error: &clap::Error) -> ExitCode {
    match error.print() {
        // If nobody reads, nobody misses it.
        Err(e) if e.kind() != ErrorKind::BrokenPipe && !error.use_stderr() => {
            fail(&failure::output(e).into())
        }
        Ok(()) | Err(_) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    if !failure.is_silent() {
        // If standard error is gone as well, the status is all that is left.
        let _ = writeln!(io::stderr(), "userdma: {failure}");
    }
    ExitCode::FAILURE
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Capture(args) => buffered(|out| capture::run(&args, out)),
        Command::Run(args) => run::run(&args),
        Command::Devices(args) => buffered(|out| devices::run(&args, out)),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => buffered(|out| bench::run(&args, out)),
        Command::Agent(args) => agent::run(&args),
        Command::AgentKeeper => agent::keep(),
        Command::DemoPeer(args) => pair::peer::run(&args),
        Command::BenchChild(args) => bench::tools::run_child(&args),
        Command::BenchObjects => buffered(bench::objects::run),
    }
}

/// Runs `command` with a buffered standard output.
fn buffered(command: impl FnOnce(&mut BufWriter<Output>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, Output(io::stdout().lock()));
    let result = command(&mut out).and_then(|()| Ok(out.flush()?));
    match result {
        // Nobody reads any more: no news for anybody.
        Err(failure) if failure.is_broken_pipe() => Err(Failure::silent()),
        result => result,
    }
}

/// Standard output, whose errors say that they are its.
struct Output(io::StdoutLock<'static>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(failure::output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(failure::output)
    }
}
