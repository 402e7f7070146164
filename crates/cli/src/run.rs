//! `userdma run`: a program that uses verbs, with our library in place of the distribution's.
//!
//! The library is preloaded, which covers programs that are linked with libibverbs or bundle a copy of it; its folder comes
//! first in the loader's path, which covers programs that open it by name. This process then becomes the program, so signals
//! and the exit status are the program's own.

mod chain;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
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
    if let Some(why) = chain::obstacle(&path, arguments) {
        return Err(Failure::new(format!("{}: {why}", path.display())));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", before("LD_PRELOAD", library.as_os_str()));
    command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", folder.as_os_str()));
    if let Some(devices) = devices(&args.device)? {
        command.env(userdma_agent::DEVICES_VARIABLE, devices);
    }
    for (variable, value) in settings(args)? {
        command.env(variable, value);
    }
    let error = command.exec();
    Err(Failure::new(format!("{}: {error}", path.display())))
}

/// What `--device` says, each time that it is given; `None` if it is not.
fn devices(each: &[String]) -> Result<Option<String>, Failure> {
    for spec in each {
        userdma_agent::parse_devices(spec)
            .map_err(|error| Failure::new(format!("--device {spec}: {error}")))?;
    }
    Ok((!each.is_empty()).then(|| each.join(";")))
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

/// The variables for what was asked for, besides the devices.
fn settings(args: &RunArgs) -> Result<Vec<(&'static str, OsString)>, Failure> {
    if args.shared_buffers {
        return Err(Failure::new(
            "--shared-buffers is not there yet: processes of one machine exchange packets, and buffers need not be shared for that",
        ));
    }
    let mut settings = Vec::new();
    if let Some(faults) = &args.fault {
        let parsed = faults.parse::<userdma_link::Faults>();
        parsed.map_err(|error| Failure::new(format!("--fault {faults}: {error}")))?;
        settings.push(("USERDMA_FAULT", faults.into()));
    }
    if let Some(file) = &args.capture {
        settings.push(("USERDMA_CAPTURE", capture(file)?.into()));
    }
    if let Some(level) = args.log {
        settings.push(("USERDMA_LOG", level.as_str().into()));
    }
    if args.private {
        settings.push(("USERDMA_PRIVATE", "1".into()));
    }
    if args.lids {
        settings.push(("USERDMA_LIDS", "1".into()));
    }
    if args.with_real {
        settings.push(("USERDMA_WITH_REAL", "1".into()));
    }
    Ok(settings)
}

/// The file for the packets as an absolute path, since programs change their directory. One of an earlier run is removed, so that
/// whichever process is the first to use a device of this run gets the name.
fn capture(file: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("--capture {}: {error}", file.display()));
    let path = std::path::absolute(file).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        return Err(Failure::new(format!("--capture {}: {} is no folder", file.display(), folder.display())));
    }
    match std::fs::symlink_metadata(&path) {
        Ok(old) if old.is_file() => std::fs::remove_file(&path).map_err(failed)?,
        Ok(old) if old.is_dir() => {
            return Err(Failure::new(format!("--capture {}: it is a folder", file.display())));
        }
        // A pipe or a device is written to as it is.
        Ok(_) | Err(_) => {}
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> RunArgs {
        use clap::Parser;
        let words = ["userdma", "run"].iter().chain(words).chain(&["true"]);
        match crate::args::Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Some(crate::args::Command::Run(args))) => args,
            other => panic!("{other:?}"),
        }
    }

    fn error(words: &[&str]) -> String {
        settings(&args(words)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_asked_for_becomes_variables() {
        assert_eq!(settings(&args(&[])).unwrap(), []);
        let asked =
            args(&["--fault", "loss=0.01,seed=7", "--log", "info", "--private", "--lids", "--with-real"]);
        let wanted = [
            ("USERDMA_FAULT", "loss=0.01,seed=7"),
            ("USERDMA_LOG", "info"),
            ("USERDMA_PRIVATE", "1"),
            ("USERDMA_LIDS", "1"),
            ("USERDMA_WITH_REAL", "1"),
        ];
        assert_eq!(settings(&asked).unwrap(), wanted.map(|(name, value)| (name, OsString::from(value))));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(
            error(&["--fault", "loss=2"]),
            "--fault loss=2: loss=2: a probability from 0 to 1 is wanted"
        );
        assert!(error(&["--shared-buffers"]).starts_with("--shared-buffers is not there yet"));
        let missing = error(&["--capture", "/no/such/folder/c.pcapng"]);
        assert_eq!(missing, "--capture /no/such/folder/c.pcapng: /no/such/folder is no folder");
        assert_eq!(error(&["--capture", "/tmp"]), "--capture /tmp: it is a folder");
    }

    #[test]
    fn a_device_that_is_none_is_named() {
        let devices = |each: &[&str]| devices(&each.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(devices(&[]).unwrap(), None);
        assert_eq!(devices(&["127.0.79.1", "::1;"]).unwrap().as_deref(), Some("127.0.79.1;::1;"));
        let error = |spec| devices(&["127.0.79.1", spec]).unwrap_err().to_string();
        assert_eq!(
            [error(""), error(" ; ")],
            ["", " ; "].map(|spec| format!("--device {spec}: `{spec}` names no device"))
        );
        let missing = "--device ::1,: `::1,` has a comma without an address beside it";
        assert_eq!(error("::1,"), missing);
    }

    #[test]
    fn the_capture_of_an_earlier_run_is_replaced() {
        let file = env::temp_dir().join(format!("userdma-run-{}.pcapng", std::process::id()));
        std::fs::write(&file, "old").unwrap();
        assert_eq!(capture(&file).unwrap(), file);
        assert!(!file.exists());
        assert_eq!(capture(Path::new("/dev/null")).unwrap(), Path::new("/dev/null"));
        assert!(Path::new("/dev/null").exists());
        assert!(capture(Path::new("c.pcapng")).unwrap().is_absolute());
    }
}
