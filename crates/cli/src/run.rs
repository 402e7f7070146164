//! `userdma run`: a program that uses verbs, with our library in place of the distribution's.
//!
//! The library is preloaded, which covers programs that are linked with libibverbs or bundle a copy of it; its folder comes
//! first in the loader's path, which covers programs that open it by name. This process then becomes the program, so signals
//! and the exit status are the program's own.

mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::RunArgs;
use crate::failure::Failure;

/// Becomes the program.
///
/// # Errors
/// The library is not found, a device is not understood, or the program is not there or cannot be preloaded. Otherwise this
/// does not return.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let [name, arguments @ ..] = args.command.as_slice() else {
        return Err(Failure::new("no program was named"));
    };
    let library = library()?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    let path = program::find(name)
        .ok_or_else(|| Failure::new(format!("{}: no such program", name.to_string_lossy())))?;
    if let Some(why) = program::obstacle(&path) {
        return Err(Failure::new(format!("{}: {why}", path.display())));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", before("LD_PRELOAD", library.as_os_str()));
    command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", folder.as_os_str()));
    if !args.device.is_empty() {
        check_devices(&args.device)?;
        command.env("USERDMA_DEVICES", args.device.join(";"));
    }
    let error = command.exec();
    Err(Failure::new(format!("{}: {error}", path.display())))
}

/// Our library: where `USERDMA_LIBRARY` says, beside this program, or in `../lib/userdma`.
fn library() -> Result<PathBuf, Failure> {
    let exe = env::current_exe().and_then(|exe| exe.canonicalize())?;
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let named = env::var_os("USERDMA_LIBRARY").map(PathBuf::from);
    let places = ["libibverbs.so.1", "libibverbs.so", "../lib/userdma/libibverbs.so.1"];
    let candidates = named.into_iter().chain(places.iter().map(|place| beside.join(place)));
    let found = candidates.filter_map(|path| path.canonicalize().ok()).find(|path| path.is_file());
    let found = found.ok_or_else(|| {
        Failure::new(format!(
            "our libibverbs.so.1 is not in {}: `cargo build --release` makes it; USERDMA_LIBRARY says where it is",
            beside.display()
        ))
    })?;
    if found.as_os_str().as_bytes().iter().any(|byte| b" :;\t\n".contains(byte)) {
        return Err(Failure::new(format!(
            "{}: the loader cannot preload from a path with spaces or colons",
            found.display()
        )));
    }
    Ok(found)
}

/// `value`, and behind a colon what the variable holds already.
fn before(variable: &str, value: &OsStr) -> OsString {
    let mut joined = value.to_owned();
    if let Some(old) = env::var_os(variable).filter(|old| !old.is_empty()) {
        joined.push(":");
        joined.push(old);
    }
    joined
}

/// Whether each device is addresses or names of devices.
fn check_devices(specs: &[String]) -> Result<(), Failure> {
    let known = userdma::devices()?;
    for word in specs.iter().flat_map(|spec| spec.split([',', ';'])).map(str::trim) {
        if word.parse::<IpAddr>().is_err() && !known.iter().any(|device| device.name == word) {
            return Err(Failure::new(format!(
                "--device: `{word}` is neither an IP address nor a device, as `roce_eth0`"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_understood_is_named() {
        check_devices(&["127.0.0.2,::1".to_owned(), "roce_lo".to_owned()]).unwrap();
        let error = check_devices(&["eth0".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`eth0` is neither"), "{error}");
    }
}
