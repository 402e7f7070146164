//! Streams by address and port: who listens, who connects.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::blocking::BlockingStream;
use super::halves::RdmaStream;
use super::offer::StreamOffer;
use super::setup::{StreamAttr, StreamSetup};
use super::state::Owner;
use crate::connect::{block_on, poll_blocking};
use crate::{AsyncCq, ConnAttr, ConnectError, Connection, Device, Error, Exchange, Listener, Pd, Request};

/// Takes streams that others connect to a port of a device's addresses. Dropping it ends that; streams go on.
///
/// Handshakes go on side by side while somebody waits in `accept`: a peer that is slow or has gone holds up nobody. Those that
/// ask for something else than a stream are refused, and told why.
pub struct RdmaListener {
    listener: Listener,
    device: Device,
    pd: Pd,
    attr: StreamAttr,
    /// Makes their completion queues, and says who drives.
    drive: fn(&Device, u32) -> Result<AsyncCq, Error>,
    /// Streams that are being made.
    under_way: Vec<Handshake>,
}

type Handshake = Pin<Box<dyn Future<Output = Result<RdmaStream, ConnectError>> + Send>>;

impl RdmaListener {
    /// Listens on an address of the device, as [`Listener::bind`]; the streams are driven by the current tokio runtime. Needs the
    /// feature `tokio`.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    #[cfg(feature = "tokio")]
    pub fn bind(device: &Device, address: impl ToSocketAddrs) -> Result<Self, ConnectError> {
        Self::bind_with(device, address, StreamAttr::default(), AsyncCq::with_tokio)
    }

    /// The same with other attributes, driven by whom `drive` says: [`AsyncCq::with_thread`], or `AsyncCq::with_tokio`.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_with(
        device: &Device,
        address: impl ToSocketAddrs,
        attr: StreamAttr,
        drive: fn(&Device, u32) -> Result<AsyncCq, Error>,
    ) -> Result<Self, ConnectError> {
        let (listener, pd) = (Listener::bind(device, address)?, device.alloc_pd()?);
        Ok(Self { listener, device: device.clone(), pd, attr, drive, under_way: Vec::new() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The next stream. Waiting for it may be given up: none is lost.
    ///
    /// # Errors
    /// The device is no longer usable.
    pub async fn accept(&mut self) -> Result<RdmaStream, ConnectError> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The next stream.
    ///
    /// # Errors
    /// The device is no longer usable.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<RdmaStream, ConnectError>> {
        loop {
            self.begin_handshakes(cx)?;
            let was_full = self.under_way.len() >= HANDSHAKES;
            if let Some(stream) = self.poll_handshakes(cx) {
                return Poll::Ready(Ok(stream));
            }
            // The listener was not asked while there was no room: nobody would wake us for it.
            if !was_full || self.under_way.len() >= HANDSHAKES {
                return Poll::Pending;
            }
        }
    }

    /// Takes requests, as many as there is room for.
    fn begin_handshakes(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectError> {
        while self.under_way.len() < HANDSHAKES
            && let Poll::Ready(request) = self.listener.poll_accept(cx)
        {
            match self.setup() {
                Ok(setup) => self.under_way.push(Box::pin(setup.accept(request?))),
                // The request is refused: there is no room for a stream.
                Err(error) => tell(request?, &error),
            }
        }
        Ok(())
    }

    /// The first stream that is made; whoever has gone, or wanted something else, is forgotten.
    fn poll_handshakes(&mut self, cx: &mut Context<'_>) -> Option<RdmaStream> {
        let mut made = None;
        self.under_way.retain_mut(|handshake| {
            if made.is_some() {
                return true;
            }
            match handshake.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(stream)) => {
                    made = Some(stream);
                    false
                }
                Poll::Ready(Err(_)) => false,
            }
        });
        made
    }

    /// As [`RdmaListener::accept`], waiting: no longer than `timeout`, if there is one.
    ///
    /// # Errors
    /// As there; or time is up.
    pub fn accept_blocking(&mut self, timeout: Option<Duration>) -> Result<BlockingStream, ConnectError> {
        let stream = poll_blocking(timeout, |cx| self.poll_accept(cx)).unwrap_or(Err(ConnectError::TimedOut));
        stream.map(RdmaStream::into_blocking)
    }

    fn setup(&self) -> Result<StreamSetup, Error> {
        let cq = (self.drive)(&self.device, StreamSetup::places(self.attr.messages))?;
        StreamSetup::new(&self.pd, &cq, self.attr)
    }
}

impl fmt::Debug for RdmaListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaListener").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl StreamSetup {
    /// Connects to an [`RdmaListener`], or to whoever accepts with a setup of his own, at `peer`, as `"10.0.0.1:7471"`. Dropping the
    /// future gives up. `device` is the one on which it was made.
    ///
    /// # Errors
    /// As [`Connection::connect`](crate::Connection::connect); or the peer accepts, but offers no stream.
    pub async fn connect_to(
        self,
        device: &Device,
        peer: impl ToSocketAddrs,
    ) -> Result<RdmaStream, ConnectError> {
        let attr = self.conn_attr();
        let (qp, rest) = self.into_parts();
        let connection = Connection::connect(device, peer, qp, &attr).await?;
        let theirs = StreamOffer::of(connection.private_data());
        let sizes = rest.agree(&theirs)?;
        let (link, qp) = connection.into_parts();
        Ok(rest.start(Owner { link: Some(link), qp }, sizes, &theirs)?)
    }

    /// Accepts a request of such a setup, and waits until the peer knows. One that asks for something else is refused, and told why.
    ///
    /// # Errors
    /// As [`Request::accept`]; or the peer offers no stream.
    pub async fn accept(self, request: Request) -> Result<RdmaStream, ConnectError> {
        let attr = self.conn_attr();
        let (qp, rest) = self.into_parts();
        let theirs = StreamOffer::of(request.private_data());
        let sizes = match rest.agree(&theirs) {
            Ok(sizes) => sizes,
            Err(error) => {
                tell(request, &error);
                return Err(error.into());
            }
        };
        let (link, qp) = request.accept(qp, &attr).await?.into_parts();
        Ok(rest.start(Owner { link: Some(link), qp }, sizes, &theirs)?)
    }

    /// What the peer is told when it is connected.
    fn conn_attr(&self) -> ConnAttr {
        let attr = self.attr();
        let mut said = [0; StreamOffer::LEN];
        self.offer().encode(&mut said);
        ConnAttr { rtr: attr.rtr, rts: attr.rts, private_data: said.into() }
    }
}

impl RdmaStream {
    /// Connects to an [`RdmaListener`] at `peer`, as `"10.0.0.1:7471"`; the stream is driven by the current tokio runtime. Dropping
    /// the future gives up. Needs the feature `tokio`.
    ///
    /// # Errors
    /// As [`Connection::connect`](crate::Connection::connect).
    #[cfg(feature = "tokio")]
    pub async fn connect(device: &Device, peer: impl ToSocketAddrs) -> Result<Self, ConnectError> {
        Self::connect_with(device, peer, StreamAttr::default(), AsyncCq::with_tokio).await
    }

    /// The same with other attributes, driven by whom `drive` says: [`AsyncCq::with_thread`], or `AsyncCq::with_tokio`.
    ///
    /// # Errors
    /// As [`Connection::connect`](crate::Connection::connect); or there cannot be such a stream.
    pub async fn connect_with(
        device: &Device,
        peer: impl ToSocketAddrs,
        attr: StreamAttr,
        drive: fn(&Device, u32) -> Result<AsyncCq, Error>,
    ) -> Result<Self, ConnectError> {
        let cq = drive(device, StreamSetup::places(attr.messages))?;
        StreamSetup::new(&device.alloc_pd()?, &cq, attr)?.connect_to(device, peer).await
    }
}

impl BlockingStream {
    /// Connects to an [`RdmaListener`] at `peer`, as `"10.0.0.1:7471"`, and waits: no longer than `timeout`, if there is one. A
    /// thread drives the stream.
    ///
    /// # Errors
    /// As [`Connection::connect`](crate::Connection::connect); or time is up.
    pub fn connect(
        device: &Device,
        peer: impl ToSocketAddrs,
        timeout: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        let connecting = RdmaStream::connect_with(device, peer, StreamAttr::default(), AsyncCq::with_thread);
        block_on(timeout, connecting).map(RdmaStream::into_blocking)
    }
}

/// Refuses a request, with a reason in words.
fn tell(request: Request, error: &Error) {
    let text = error.to_string();
    // A peer that has gone needs none.
    let _ = request.reject(&text.as_bytes()[..text.len().min(148)]);
}

/// Handshakes side by side. Further requests wait in the listener.
const HANDSHAKES: usize = 64;
