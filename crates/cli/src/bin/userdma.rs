//! The program's entry: see the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    userdma_cli::run(std::env::args_os())
}
