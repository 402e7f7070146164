//! Streams for threads.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use super::halves::{RdmaReadHalf, RdmaWriteHalf};
use crate::connect::poll_blocking;
use crate::cq::lock;

/// An [`RdmaStream`](crate::RdmaStream) whose reads and writes wait. Made by
/// [`RdmaStream::into_blocking`](crate::RdmaStream::into_blocking); somebody else drives: take
/// [`AsyncCq::with_thread`](crate::AsyncCq::with_thread).
///
/// Threads share it by reference, of which `Read` and `Write` are implemented as well: one may read while another writes.
#[derive(Debug)]
pub struct BlockingStream {
    read: Mutex<Half<RdmaReadHalf>>,
    write: Mutex<Half<RdmaWriteHalf>>,
}

#[derive(Debug)]
struct Half<T> {
    half: T,
    /// How long a call waits.
    timeout: Option<Duration>,
}

impl BlockingStream {
    pub(super) fn new(read: RdmaReadHalf, write: RdmaWriteHalf) -> Self {
        let (read, write) = (Half { half: read, timeout: None }, Half { half: write, timeout: None });
        Self { read: Mutex::new(read), write: Mutex::new(write) }
    }

    /// How long a read waits before it fails with `TimedOut`; for ever at first, and if `None`. Waits for a read that is under
    /// way in another thread.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        lock(&self.read).timeout = timeout;
    }

    /// The same for writes, flushes and shutdowns.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        lock(&self.write).timeout = timeout;
    }

    /// Ends the writing, and waits until everything that was written, and the end, lie in the peer's memory.
    ///
    /// # Errors
    /// The connection broke before that, or time is up.
    pub fn shutdown(&self) -> io::Result<()> {
        let Half { half, timeout } = &mut *lock(&self.write);
        wait(*timeout, |cx| half.poll_shutdown(cx))
    }
}

impl Read for &BlockingStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Half { half, timeout } = &mut *lock(&self.read);
        wait(*timeout, |cx| half.poll_read(cx, buf))
    }
}

impl Write for &BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let Half { half, timeout } = &mut *lock(&self.write);
        wait(*timeout, |cx| half.poll_write_vectored(cx, bytes))
    }

    /// Waits until everything has been handed to the device. That happens without it, too.
    fn flush(&mut self) -> io::Result<()> {
        let Half { half, timeout } = &mut *lock(&self.write);
        wait(*timeout, |cx| half.poll_flush(cx))
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

/// Sleeps until `poll` is ready, or time is up.
fn wait<T>(
    timeout: Option<Duration>,
    poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    poll_blocking(timeout, poll).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
