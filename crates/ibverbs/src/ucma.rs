//! `/dev/infiniband/rdma_cm`: connections for the distribution's librdmacm, which talks to this device only.
//!
//! ```text
//!   librdmacm ── open ──▶ a pipe's reading end, which `fstat` calls a character device        (hooks, signal)
//!      │          write ─▶ a command: parsed, done by the manager, answered by a pointer        (command …, reply)
//!      │          poll ──▶ the kernel's business: a byte is in the pipe while events wait
//!      ▼
//!   table: identifiers, channels, events  ◀── events ── host::cm::Manager, whoever drives it
//! ```
//!
//! The interface is the kernel's, version 4, whose structures have grown at their ends only
//! (`<rdma/rdma_user_cm.h>`). A `write` to the end of a pipe that is read fails with `EBADF` and looks at nothing; only
//! then, and only in a process that has opened the device, somebody asks whether the pipe is a channel. So every other `write`
//! costs a load.

mod abi;
mod address;
mod command;
mod connect;
mod known;
mod memory;
mod multicast;
mod option;
mod query;
mod reply;
mod resolve;
mod signal;
mod state;
mod table;

use std::ffi::{c_int, c_void};

use crate::answer::{INVALID, Refused, number, set_errno, status_of};
use crate::channel::is_nonblocking;
use crate::signals;
use command::Call;
pub(crate) use known::{Key, is_any, of_descriptor, of_pipe};

/// The version of the interface, as sysfs tells it.
pub(crate) const ABI_VERSION: &str = "4";

/// `open` of the device.
pub(crate) fn open(flags: c_int) -> c_int {
    signals::hold_back(|| number(|| state::make()?.open(flags)))
}

/// `write` to a channel: `len`, or -1 and `errno`. A thread may be cancelled in here while it waits for an event, and only then;
/// so nothing has a destructor by then.
pub(crate) unsafe fn write(fd: c_int, channel: Key, buf: *const c_void, len: usize) -> isize {
    let address = buf.expose_provenance() as u64;
    // SAFETY: the C library's address of this thread's number.
    let before = unsafe { *libc::__errno_location() };
    let mut event = None;
    let errno = command(|| {
        // As `read_write.c vfs_write()`: nothing of the program's is so long.
        if isize::try_from(len).is_err() {
            return Err(Refused(libc::EFAULT));
        }
        let (call, handler) = command::parse(state::current()?, (fd, channel), (address, len))?;
        match handler {
            Some(handler) => handler(&call),
            None => {
                event = Some(call);
                Ok(())
            }
        }
    });
    let errno = match event {
        Some(call) => get_event(&call),
        None => errno,
    };
    if errno == 0 {
        set_errno(Refused(before));
        return len.min(MAX_WRITTEN).cast_signed();
    }
    set_errno(Refused(errno));
    -1
}

/// `writev` to a channel: a command in each part, until one fails. As `read_write.c do_loop_readv_writev()`.
pub(crate) unsafe fn writev(fd: c_int, channel: Key, parts: *const c_void, count: c_int) -> isize {
    let Some(count) = u32::try_from(count).ok().filter(|&count| count <= MAX_PARTS) else {
        return fail(0, INVALID);
    };
    let mut written = 0;
    for index in 0..count {
        let at = parts.expose_provenance() as u64 + u64::from(index) * size_of::<abi::Part>() as u64;
        let part = match memory::read::<abi::Part>(at) {
            Ok(part) => part,
            Err(refused) => return fail(written, refused),
        };
        // SAFETY: the caller's promise.
        let one = unsafe { write(fd, channel, std::ptr::with_exposed_provenance(part.base), part.len) };
        if one < 0 {
            return if written > 0 { written } else { one };
        }
        written += one;
    }
    written
}

/// What was written before, if there was anything; else -1 and `errno`.
fn fail(written: isize, refused: Refused) -> isize {
    if written == 0 {
        set_errno(refused);
        return -1;
    }
    written
}

/// Runs a command. No handler of a signal interrupts it, which might give a command of its own and wait for a lock that nobody
/// releases, or never return.
///
/// Where there is no memory, our handler of faults says so. The program may have put one of its own in front of it since.
fn command(run: impl FnOnce() -> Result<(), Refused>) -> c_int {
    signals::hold_back(|| {
        // It was possible when the channel was opened, and is now.
        let _ = userdma_mem::install_fault_handler();
        status_of("rdma_cm", run)
    })
}

/// As `ucma.c ucma_get_event()`: the oldest event; waits for one unless the descriptor is non-blocking at this moment.
fn get_event(call: &Call) -> c_int {
    loop {
        let mut is_there = true;
        let errno = command(|| {
            let answer = try_event(call);
            is_there = answer.is_some();
            answer.unwrap_or(Ok(()))
        });
        if is_there {
            return errno;
        }
        let mut fds = libc::pollfd { fd: call.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        if unsafe { libc::poll(&raw mut fds, 1, -1) } < 0 && !signals::restart() {
            return libc::EINTR;
        }
        if fds.revents & libc::POLLNVAL != 0 || of_descriptor(call.fd) != Some(call.channel) {
            // The program has closed it meanwhile.
            return libc::EBADF;
        }
    }
}

/// What the command answers if it does not wait.
fn try_event(call: &Call) -> Option<Result<(), Refused>> {
    let least = std::mem::offset_of!(abi::EventResponse, reserved);
    let ready = call.check_room(least).and_then(|()| call.input::<abi::GetEvent>());
    let command = match ready {
        Ok(command) => command,
        Err(refused) => return Some(Err(refused)),
    };
    let taken = call
        .state
        .table()
        .take((call.fd, call.channel), |event| memory::write_start(command.response, event, call.output_len));
    taken.or_else(|| is_nonblocking(call.fd).then_some(Err(Refused(libc::EAGAIN))))
}

/// `UIO_MAXIOV`.
const MAX_PARTS: u32 = 1024;
/// `MAX_RW_COUNT`: what one `write` says at most, whatever the length.
const MAX_WRITTEN: usize = 0x7fff_f000;
