//! What `userdma run` and people ask for by environment variables, besides the devices: faults and a capture.
//!
//! A variable that is empty is none. What is not understood keeps the device from being opened: a program that was to run with
//! faults or a capture must not run without.

use std::env;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use userdma_host::Faults;
use userdma_link::{Capture, clock};

use crate::devices::lock;
use crate::log::{self, Level};

/// The capture that all devices of this process write to.
struct OwnCapture {
    /// The process whose it is: a child after `fork` has the parent's variables, and must not write its file.
    pid: u32,
    capture: Capture,
}

static CAPTURE: Mutex<Option<OwnCapture>> = Mutex::new(None);

/// What the variable holds, unless it is empty.
fn text(variable: &str) -> Option<String> {
    env::var_os(variable).map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

/// The faults that [`FAULT`] asks for.
///
/// # Errors
/// The field that is wrong and its value.
pub(crate) fn faults() -> Result<Faults, String> {
    match text(FAULT) {
        Some(text) => text.parse().map_err(|error| format!("{FAULT}: {error}")),
        None => Ok(Faults::default()),
    }
}

/// The capture that [`CAPTURE_FILE`] asks for; the first caller makes the file.
///
/// # Errors
/// The file that could not be made, and why.
pub(crate) fn capture() -> Result<Option<Capture>, String> {
    let Some(name) = text(CAPTURE_FILE) else { return Ok(None) };
    let pid = std::process::id();
    let mut own = lock(&CAPTURE);
    if let Some(own) = own.as_ref().filter(|own| own.pid == pid) {
        return Ok(Some(own.capture.clone()));
    }
    let (file, path) =
        create(&name, pid).map_err(|(path, error)| format!("{CAPTURE_FILE}: {path}: {error}"))?;
    let capture = Capture::new(file, clock::wall_offset_ns());
    let capture = capture.map_err(|error| format!("{CAPTURE_FILE}: {}: {error}", path.display()))?;
    let is_other = path.as_os_str() != name.replace("%p", &pid.to_string()).as_str();
    let (level, why) = if is_other { (Level::Warn, ": that name is taken") } else { (Level::Info, "") };
    log::tell(level, format_args!("packets go to {}{why}", path.display()));
    watch_exit();
    // The parent's after a fork stays as it is: its end would write what the parent has yet to write.
    std::mem::forget(own.replace(OwnCapture { pid, capture: capture.clone() }));
    Ok(Some(capture))
}

/// Makes the file. `%p` in its name is the process. One that is there already is somebody else's: then the process is appended.
fn create(name: &str, pid: u32) -> Result<(File, PathBuf), (String, io::Error)> {
    let path = PathBuf::from(name.replace("%p", &pid.to_string()));
    let error = match new_file(&path) {
        Ok(file) => return Ok((file, path)),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::AlreadyExists {
        return Err((path.display().to_string(), error));
    }
    if is_special(&path) {
        return match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Ok((file, path)),
            Err(error) => Err((path.display().to_string(), error)),
        };
    }
    let own = PathBuf::from(format!("{}.{pid}", path.display()));
    match new_file(&own) {
        Ok(file) => Ok((file, own)),
        Err(error) => Err((own.display().to_string(), error)),
    }
}

/// A file that nobody had made.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Whether it is a pipe or a device, which is written to as it is.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| {
        let kind = file.file_type();
        kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
    })
}

/// Completes the capture as far as it goes.
pub(crate) fn flush_capture() {
    let own = lock(&CAPTURE);
    if let Some(own) = own.as_ref().filter(|own| own.pid == std::process::id()) {
        own.capture.try_flush();
    }
}

/// Completes the capture when the program exits.
fn watch_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler waits for no lock and touches what has static lifetime.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let Ok(own) = CAPTURE.try_lock() else { return };
    if let Some(own) = own.as_ref().filter(|own| own.pid == std::process::id()) {
        own.capture.try_flush();
    }
}

/// Faults of the network and of the device, as `loss=0.01,seed=7`.
const FAULT: &str = "USERDMA_FAULT";
/// The file that gets every packet.
const CAPTURE_FILE: &str = "USERDMA_CAPTURE";

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_there_is_not_touched() {
        let folder = env::temp_dir().join(format!("userdma-settings-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = |name: &str| folder.join(name).display().to_string();
        let (mut first, path) = create(&name("c.pcapng"), 7).unwrap();
        assert_eq!(path, folder.join("c.pcapng"));
        first.write_all(b"first").unwrap();
        assert_eq!(create(&name("c.pcapng"), 8).unwrap().1, folder.join("c.pcapng.8"));
        assert_eq!(create(&name("%p-%p.pcapng"), 9).unwrap().1, folder.join("9-9.pcapng"));
        assert_eq!(std::fs::read(folder.join("c.pcapng")).unwrap(), b"first");
        let (path, error) = create(&name("c.pcapng"), 8).unwrap_err();
        assert!(path.ends_with("c.pcapng.8") && error.kind() == io::ErrorKind::AlreadyExists);
        assert_eq!(create("/dev/null", 7).unwrap().1, Path::new("/dev/null"));
        assert!(create("/no/such/folder/c.pcapng", 7).unwrap_err().0.ends_with("c.pcapng"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
