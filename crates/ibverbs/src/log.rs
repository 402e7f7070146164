//! What the library tells people: why a device was not opened, why a call failed, what a completion's error means.
//!
//! `USERDMA_LOG` says how much, `USERDMA_LOG_FILE` where if not standard error (`%p` in it is the process). A line is one system
//! call, so that the lines of several processes do not mix. What repeats the line before is told at its 10th, 100th, ... time
//! only: programs poll, and post until a queue is full.
//!
//! This is no `tracing`: a few lines are told by this shell, and never inside the gate, where a thread must not be cancelled or
//! stopped by a pipe that nobody reads. What the floors below tell there comes by way of `trace`.

use std::env;
use std::ffi::{CString, c_int, c_long};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use userdma_host::call;

use crate::devices::lock;

/// How much is told: each level what those before it do, too.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What keeps a device from working, which nobody else says. The default.
    Error,
    /// Calls that fail, and completions with an error.
    Warn,
    /// Devices that are opened, states of queue pairs, captures.
    Info,
    /// Calls that fail as a matter of course: questions for what is not there.
    Debug,
}

impl Level {
    const ALL: [Self; 5] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The level as a number, or [`UNKNOWN`].
static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);
static LAST: Mutex<Last> = Mutex::new(Last { line: String::new(), times: 0 });

/// The line that was told last, and how often.
struct Last {
    line: String,
    times: u64,
}

/// Whether this much is told.
#[inline]
pub(crate) fn is_on(level: Level) -> bool {
    let now = LEVEL.load(Ordering::Relaxed);
    (if now == UNKNOWN { read_level() } else { now }) >= level as u8
}

/// Tells a line, if this much is told.
pub(crate) fn tell(level: Level, what: fmt::Arguments<'_>) {
    // A handler of a signal that has interrupted such a line must not wait for it.
    if is_on(level) && !call::is_nested() {
        write_line(level, &what.to_string(), Room::Wait);
    }
}

/// The same from inside the gate: a line for which there is no room now is lost.
pub(crate) fn tell_if_room(level: Level, what: fmt::Arguments<'_>) {
    if is_on(level) && !call::is_nested() {
        write_line(level, &what.to_string(), Room::OrLose);
    }
}

/// What to do if who reads the log does not keep up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Room {
    /// Wait for him.
    Wait,
    /// Lose the line.
    OrLose,
}

#[cold]
fn read_level() -> u8 {
    let wanted = env::var("USERDMA_LOG").unwrap_or_default();
    let level = Level::ALL.into_iter().find(|level| level.name() == wanted.trim());
    LEVEL.store(level.unwrap_or(Level::Error) as u8, Ordering::Relaxed);
    if level.is_none() && !wanted.trim().is_empty() {
        let what =
            format!("USERDMA_LOG={wanted}: off, error, warn, info and debug are possible, error is taken");
        write_line(Level::Error, &what, Room::Wait);
    }
    level.unwrap_or(Level::Error) as u8
}

#[cold]
fn write_line(level: Level, what: &str, room: Room) {
    let text = lock(&LAST).next(what);
    if let Some(text) = text {
        let line = format!("userdma[{}] {}: {}\n", std::process::id(), level.name(), text.replace('\n', " "));
        keep_errno(|| write(line.as_bytes(), room));
    }
}

impl Last {
    /// What is told for `line`, which may be the same as before.
    fn next(&mut self, line: &str) -> Option<String> {
        if self.line != line {
            *self = Self { line: line.to_owned(), times: 1 };
            return Some(line.to_owned());
        }
        self.times += 1;
        let is_round = self.times >= 10 && self.times == 10_u64.pow(self.times.ilog10());
        is_round.then(|| format!("{line} ({} times)", self.times))
    }
}

/// Programs look at the number after calls that have succeeded, too, if they must.
fn keep_errno(write: impl FnOnce()) {
    // SAFETY: the C library's address of this thread's number.
    unsafe {
        let errno = *libc::__errno_location();
        write();
        *libc::__errno_location() = errno;
    }
}

/// Raw system calls: those of the C library are points at which a thread may be cancelled. The file is opened for each line, since
/// programs close descriptors that they do not know.
fn write(line: &[u8], room: Room) {
    static PATH: OnceLock<Option<CString>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let path = env::var("USERDMA_LOG_FILE").ok().filter(|path| !path.is_empty())?;
        CString::new(path.replace("%p", &std::process::id().to_string())).ok()
    });
    // A pipe that nobody has opened yet is waited for as one that is full.
    let waits = if room == Room::OrLose { libc::O_NONBLOCK } else { 0 };
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY | waits;
    // SAFETY: the path is a C string that lives for ever, and the line outlives the calls. What cannot be told is lost.
    unsafe {
        let opened = path
            .as_ref()
            .map(|path| libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, MODE))
            // What keeps a device from working is told somewhere in any case.
            .filter(|fd| *fd >= 0);
        let fd = opened.unwrap_or_else(|| libc::STDERR_FILENO.into());
        if room == Room::Wait || has_room(fd) {
            libc::syscall(libc::SYS_write, fd, line.as_ptr(), line.len());
        }
        if opened.is_some() {
            libc::syscall(libc::SYS_close, fd);
        }
    }
}

/// Whether a line of some hundred bytes can be written without waiting. Of a pipe that is a page at least.
fn has_room(fd: c_long) -> bool {
    // Descriptors are small.
    let fd = c_int::try_from(fd).unwrap_or(-1);
    let mut asked = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure and a time that outlive the call, and no set of signals.
    let ready = unsafe {
        libc::syscall(libc::SYS_ppoll, &raw mut asked, 1, &raw const now, std::ptr::null::<u8>(), 8)
    };
    ready == 1 && asked.revents & libc::POLLOUT != 0
}

/// The variables are not read yet.
const UNKNOWN: u8 = 0xff;
/// Of a file that is made.
const MODE: c_int = 0o644;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_told_at_round_numbers() {
        let mut last = Last { line: String::new(), times: 0 };
        let told: Vec<_> = (0..1000).filter_map(|_| last.next("full")).collect();
        assert_eq!(told, ["full", "full (10 times)", "full (100 times)", "full (1000 times)"]);
        assert_eq!(last.next("other").as_deref(), Some("other"));
        assert_eq!(last.next("full").as_deref(), Some("full"));
    }

    #[test]
    fn levels_are_in_order() {
        assert!(Level::ALL.is_sorted());
        assert!(is_on(Level::Off));
    }
}
