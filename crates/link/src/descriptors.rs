//! Threads with descriptors of their own, and who is at the other end of a Unix socket.
//!
//! A library's descriptors are in its host's way, and the host is in theirs: a program that makes itself a daemon closes all
//! that it does not know, and a child that it forks keeps open what should end with the parent. A thread may leave the
//! process's table of descriptors and have one of its own, which nobody else closes, which no fork of other threads copies,
//! and which ends with the thread, so with the process.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;

/// Starts a thread that has the descriptors `keep` and no others of the process; the process has them no longer. Its standard
/// input and outputs are `/dev/null`, and none of its numbers is one that programs choose. Every signal of the program is blocked
/// in it.
///
/// Where the kernel does not let threads part (before Linux 5.9, or by a filter), the thread keeps to the process's table.
///
/// # Errors
/// The system has no thread; `keep` is closed.
pub fn spawn_apart(
    builder: Builder,
    keep: Vec<OwnedFd>,
    run: impl FnOnce(Vec<OwnedFd>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let keep = keep.into_iter().map(out_of_the_way).collect::<io::Result<Vec<_>>>()?;
    let numbers: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    let (tell, told) = mpsc::channel();
    let thread = with_signals_blocked(|| {
        builder.spawn(move || {
            let mut kept: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
            kept.sort_unstable();
            let _ = tell.send(leave_table(&kept));
            run(keep);
        })
    })?;
    if told.recv() == Ok(true) {
        for number in numbers {
            // SAFETY: the thread owns the number in its own table now; the one in this table has no owner, since the caller
            // gave it away.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Ok(thread)
}

/// Runs `f` with every signal blocked, so that a thread that it starts never runs a handler of the program.
pub fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` makes `all` a set, `pthread_sigmask` reads it and makes `before` one. Neither fails with these
    // arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: `before` was made by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Who made the other end of a connected Unix socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The process; 0 if it is in a process namespace that cannot be seen from here.
    pub pid: i32,
    /// Its effective user when it connected or began to listen.
    pub uid: u32,
}

impl Peer {
    /// Who made the other end of `socket`.
    ///
    /// # Errors
    /// What the kernel says to the question.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = UCRED_LEN;
        // SAFETY: the kernel writes at most `len` bytes into `credentials`, all of whose bits are numbers, and the length into
        // `len`; both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { pid: credentials.pid, uid: credentials.uid })
    }
}

/// Gives the calling thread a table of its own with only the descriptors `kept`, in ascending order; whether that worked.
fn leave_table(kept: &[RawFd]) -> bool {
    let mut start = 0;
    let mut flags = libc::CLOSE_RANGE_UNSHARE;
    for &number in kept {
        // Descriptors are not negative.
        let number = number.cast_unsigned();
        if start < number {
            if !close_range(start, number - 1, flags) {
                return false;
            }
            flags = 0;
        }
        start = number + 1;
    }
    if !close_range(start, u32::MAX, flags) && flags != 0 {
        return false;
    }
    // The numbers in this table are others.
    crate::guard::leave();
    occupy_low_numbers();
    true
}

/// The same at a number that no program chooses, if there is one.
fn out_of_the_way(fd: OwnedFd) -> io::Result<OwnedFd> {
    let lowest = crate::guard::lowest();
    if fd.as_raw_fd() >= lowest { Ok(fd) } else { Ok(fcntl_dupfd_cloexec(&fd, lowest)?) }
}

/// Closes the calling thread's descriptors `first` to `last`; with `CLOSE_RANGE_UNSHARE` in a table of its own.
fn close_range(first: u32, last: u32, flags: u32) -> bool {
    // SAFETY: takes numbers. With the flag, which comes first, it makes the thread's own table and closes in there what only
    // others use; after it, nothing but this thread uses the table, and it has no more than `kept`.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
}

/// Puts `/dev/null` behind every number that programs choose, as far as they are free. So nothing else is taken for the standard
/// input and outputs; and whoever stands in front of the C library and keeps books of descriptors by their numbers (librspreload
/// does) finds nothing about this table's in them: it would take a socket of ours for one of the program's, and close that.
fn occupy_low_numbers() {
    let Ok(null) = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    let lowest = crate::guard::lowest();
    while let Ok(next) = fcntl_dupfd_cloexec(&null, 0) {
        if next.as_raw_fd() >= lowest {
            break;
        }
        // It ends with the table.
        std::mem::forget(next);
    }
    std::mem::forget(null);
}

const UCRED_LEN: libc::socklen_t = 12;
const _: () = assert!(UCRED_LEN as usize == size_of::<libc::ucred>());

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_thread_apart_has_what_it_keeps_and_nothing_else() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (mut witness, others) = UnixStream::pair().unwrap();
        let (number, lowest) = (theirs.as_raw_fd(), crate::guard::lowest());
        let thread = spawn_apart(Builder::new(), vec![theirs.into()], move |kept| {
            assert_eq!(kept.len(), 1);
            let mut socket = UnixStream::from(kept.into_iter().next().unwrap());
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            let links = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            let numbers =
                links.map(|link| link.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap());
            // The socket, and the directory that is being read.
            let others = numbers.filter(|&number| number >= lowest).count();
            let made = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
            let is_apart = others == 2 && made.as_raw_fd() > lowest && socket.as_raw_fd() >= lowest;
            socket.write_all(&[u8::from(is_apart)]).unwrap();
        })
        .unwrap();
        // The process does not have the descriptor any more: the end that others hold is seen at once.
        drop(others);
        assert_eq!(witness.read(&mut [0]).unwrap(), 0, "the thread kept a descriptor that is not its own");
        ours.write_all(&[1]).unwrap();
        let mut is_apart = [0];
        ours.read_exact(&mut is_apart).unwrap();
        if is_apart == [0] {
            eprintln!("SKIPPED: threads cannot part from the process's descriptors here");
        }
        thread.join().unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "number {number} is still open in the process");
    }

    #[test]
    fn the_other_end_of_a_pair_is_ours() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = Peer::of(&a).unwrap();
        assert_eq!(peer.pid.cast_unsigned(), std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }
}
