//! Time, and waiting for a descriptor without driving.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use userdma_link::clock;

/// Time since the machine started, for deadlines.
pub fn uptime() -> Duration {
    Duration::from_nanos(clock::now().nanos())
}

/// Sleeps until `fd` is readable, `timeout` has passed, or a signal handler ran. In the C library's `poll`, because threads
/// of C programs may be cancelled here.
#[allow(unsafe_code)]
pub(crate) fn until_readable(fd: &impl AsFd, timeout: Option<Duration>) {
    let end = timeout.map(|t| clock::now() + t);
    let mut fds = [libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    loop {
        // Rounded up: waiting too short would end in a loop that does not wait at all.
        let ms = end.map(|end| end.since(clock::now()).as_nanos().div_ceil(1_000_000));
        let ms = ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        // SAFETY: `fds` is one entry and outlives the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 1, ms) };
        if ready != 0 || ms < i32::MAX {
            return;
        }
    }
}
