//! Streams as tokio knows them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::halves::{RdmaReadHalf, RdmaStream, RdmaWriteHalf};

/// The reading direction of a type that has a `poll_read` of its own.
macro_rules! reads {
    ($stream:ty) => {
        /// Needs the feature `tokio`.
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let len = ready!(Self::poll_read(self.get_mut(), cx, buf.initialize_unfilled()))?;
                buf.advance(len);
                Poll::Ready(Ok(()))
            }
        }
    };
}

/// The writing direction of a type that has functions of its own with these names.
macro_rules! writes {
    ($stream:ty) => {
        /// Needs the feature `tokio`.
        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Self::poll_write(self.get_mut(), cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Self::poll_write_vectored(self.get_mut(), cx, bytes)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_flush(self.get_mut(), cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_shutdown(self.get_mut(), cx)
            }
        }
    };
}

reads!(RdmaStream);
writes!(RdmaStream);
reads!(RdmaReadHalf);
writes!(RdmaWriteHalf);
