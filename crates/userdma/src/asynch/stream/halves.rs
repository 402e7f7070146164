//! Streams and their halves, as programs hold them.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use userdma_verbs::Qpn;

use super::blocking::BlockingStream;
use super::flow::Sizes;
use super::shared::Shared;
use crate::connect::Link;

/// A stream of bytes in both directions over a reliable connection: what a TCP socket is, with the device's packets.
///
/// Made by [`StreamSetup::connect`](crate::StreamSetup::connect). With the feature `tokio` it is `AsyncRead` and `AsyncWrite`,
/// and so are its halves; [`RdmaStream::into_blocking`] is for threads; the `poll_` functions for everything else.
///
/// * *Writing* copies into memory of the stream and sends at once, without waiting for a flush; small writes that come while many
///   messages are under way go together. It waits when the peer has not read a ring's worth of bytes.
/// * *End*: after a shutdown the peer reads what was written, then the end (0 bytes). The other direction goes on.
/// * *Dropping* both directions sends what was written and tells the peer, in the background; writes of the peer then fail. A
///   process that ends takes what was not sent yet with it: shut down first, and wait for it. A peer that reads less than half a
///   ring in ten minutes gets no more, unless nobody asks it ([`StreamAttr::keep_alive`](crate::StreamAttr::keep_alive)).
/// * *A peer that is gone* is an error of reads and writes: at once if its program dropped the stream; after some two seconds
///   if it does not answer any more and something is under way; else when it is asked next
///   ([`StreamAttr::keep_alive`](crate::StreamAttr::keep_alive)). What had come before is read first.
///
/// Any future of it may be dropped: what has not been returned as read is read next time, what has not been returned as written
/// was not written.
///
/// The errors' inner values are [`StreamError`](crate::StreamError)s.
#[derive(Debug)]
pub struct RdmaStream {
    read: RdmaReadHalf,
    write: RdmaWriteHalf,
}

/// The direction from the peer.
#[derive(Debug)]
pub struct RdmaReadHalf {
    owner: Arc<Owner>,
}

/// The direction to the peer. Dropping it ends the stream for the peer, as a shutdown does.
#[derive(Debug)]
pub struct RdmaWriteHalf {
    owner: Arc<Owner>,
}

/// With the last half the stream is left.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    sizes: Sizes,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl RdmaStream {
    pub(super) fn new(shared: Arc<Shared>, sizes: Sizes) -> Self {
        let owner = Arc::new(Owner { shared, sizes });
        let write = RdmaWriteHalf { owner: Arc::clone(&owner) };
        Self { read: RdmaReadHalf { owner }, write }
    }

    /// What its halves share.
    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.read.owner.shared)
    }

    /// Its halves, for two tasks.
    pub fn into_split(self) -> (RdmaReadHalf, RdmaWriteHalf) {
        (self.read, self.write)
    }

    /// The same for threads, which wait in reads and writes.
    pub fn into_blocking(self) -> BlockingStream {
        BlockingStream::new(self.read, self.write)
    }

    /// Its queue pair's number; `None` once the connection is broken and gone.
    pub fn qpn(&self) -> Option<Qpn> {
        self.read.owner.shared.with_owner(|owner| owner.qp.qpn())
    }

    /// The peer's address and port; `None` if the connection manager has not made the connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.read.owner.shared.with_owner(|owner| owner.link.as_ref().map(Link::peer_addr)).flatten()
    }

    /// Bytes that may have been sent and not been read, in each direction: what both sides have agreed on.
    pub fn ring_len(&self) -> u32 {
        self.read.owner.sizes.ring
    }

    /// As [`RdmaReadHalf::poll_read`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.read.poll_read(cx, buf)
    }

    /// As [`RdmaWriteHalf::poll_write`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write.poll_write(cx, bytes)
    }

    /// As [`RdmaWriteHalf::poll_write_vectored`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write.poll_write_vectored(cx, bytes)
    }

    /// As [`RdmaWriteHalf::poll_flush`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_flush(cx)
    }

    /// As [`RdmaWriteHalf::poll_shutdown`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_shutdown(cx)
    }
}

impl RdmaReadHalf {
    /// Copies what has come into `buf`: how many bytes; 0 at the end of the stream, or if `buf` is empty. If nothing has
    /// come, the task is woken when something has.
    ///
    /// # Errors
    /// The connection is broken, and everything that came before has been read.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.owner.shared.poll_read(cx, buf).map_err(io::Error::from)
    }
}

impl RdmaWriteHalf {
    /// Takes bytes over and sends them: how many; one at least, unless `bytes` is empty. If there is no room, the task is
    /// woken when the peer has read.
    ///
    /// # Errors
    /// The connection is broken, the peer has closed the stream, or this side has shut it down; nothing was taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    /// As [`RdmaWriteHalf::poll_write`], from several slices in a row, which go together.
    ///
    /// # Errors
    /// As there.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bytes.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.owner.shared.poll_write(cx, bytes).map_err(io::Error::from)
    }

    /// Waits until everything that was written has been handed to the device. That happens without it, too.
    ///
    /// # Errors
    /// The connection broke before that.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.owner.shared.poll_flush(cx).map_err(io::Error::from)
    }

    /// Ends the writing, and waits until everything that was written, and the end, lie in the peer's memory; whether its program
    /// has read them is not known.
    ///
    /// # Errors
    /// The connection broke before that.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.owner.shared.poll_shutdown(cx).map_err(io::Error::from)
    }
}

impl Drop for RdmaWriteHalf {
    fn drop(&mut self) {
        // With the last half the stream is left, which says both at once.
        if Arc::strong_count(&self.owner) > 1 {
            self.owner.shared.end();
        }
    }
}
